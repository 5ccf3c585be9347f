//! `vm`: runs the tests on containerd, or a shell, in a virtual machine with cgroup v2, systemd and the
//! Debian packages of kernel, containerd and runc.
//!
//! The processor is emulated: no `/dev/kvm`, but ten times slower. The system disk ([`system`]) is
//! built once; a second disk has the build output ([`payload`]). Changes in the machine are
//! discarded, but for the power cuts of `cargo xtask chaos` ([`power`]).

mod machine;
mod payload;
pub(crate) mod power;
mod system;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use windlass_testbed::debian::{self, Package};

use machine::{Hardware, Machine};
use xtask_run as run;

/// Debian packages that run the machine and create its disks.
const PACKAGES: &[Package] = &[
    Package {
        name: "qemu-system-x86",
        probe: &["/usr/bin/qemu-system-x86_64"],
    },
    Package {
        name: "mmdebstrap",
        probe: &["/usr/bin/mmdebstrap"],
    },
    Package {
        name: "e2fsprogs",
        probe: &["/usr/sbin/mke2fs", "/sbin/mke2fs"],
    },
    Package {
        name: "cpio",
        probe: &["/usr/bin/cpio", "/bin/cpio"],
    },
];
/// Tests on containerd without an API server, and those that use up a machine.
const TESTS: &str = "test(/(^|::)on_(containerd|vm)_/)";
/// The tests of `--short`: one for each part that depends on cgroup v2 or systemd, and a pod
/// lifecycle.
const SHORT: &[&str] = &[
    "on_containerd_pod_cgroup_is_created_and_removed",
    "on_containerd_pod_status_has_all_fields",
    "on_containerd_pod_matches_the_go_kubelet",
    "on_containerd_container_isolation_follows_pod_spec",
    "on_containerd_job_succeeds_and_crash_loop_backs_off",
    "on_containerd_web_example_serves_page_and_writes_logs",
    "on_containerd_busy_container_has_usage",
    "on_containerd_tmpfs_size_and_fs_group_survive_kill",
    "on_containerd_mount_propagation_follows_pod_spec",
    "on_containerd_dual_stack_pods_have_both_addresses",
];
/// Timeout of the short form.
const SHORT_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Timeout of all tests.
const FULL_TIMEOUT: Duration = Duration::from_secs(3 * 60 * 60);

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only tests whose names contain one of these.
    #[arg(value_name = "FILTER", conflicts_with = "shell")]
    filters: Vec<String>,
    /// Run only some tests.
    #[arg(long, conflicts_with_all = ["filters", "shell"])]
    short: bool,
    /// Open a root shell on a machine with Windlass and containerd.
    #[arg(long)]
    shell: bool,
    /// Run also the tests that use up the memory or a disk of the machine, in this many rounds.
    #[arg(long, value_name = "N", conflicts_with = "shell")]
    rounds: Option<u32>,
    #[command(flatten)]
    hardware: Hardware,
}

/// Runs the tests, or the shell, on a new machine.
pub(crate) async fn run(options: &Options) -> anyhow::Result<()> {
    options.hardware.check()?;
    let work = work()?;
    let _lock = lock(&work)?;
    debian::ensure(PACKAGES, run::step)?;
    let system = system::ensure(&work)?;
    if options.shell {
        let payload = payload::of_shell(&work)?;
        let machine = Machine {
            system: &system,
            kept: None,
            payload: Some(&payload),
            hardware: &options.hardware,
            work: &work,
        };
        return machine.shell().await;
    }
    run::ensure_installed("nextest", "https://nexte.st")?;
    let payload = payload::of_tests(&work, &filter(options), options.rounds)?;
    let machine = Machine {
        system: &system,
        kept: None,
        payload: Some(&payload),
        hardware: &options.hardware,
        work: &work,
    };
    let deadline = if options.short {
        SHORT_TIMEOUT
    } else {
        FULL_TIMEOUT
    };
    machine.test(deadline).await
}

/// Runs the tests of the short form.
pub(crate) async fn short() -> anyhow::Result<()> {
    let options = Options {
        filters: Vec::new(),
        short: true,
        shell: false,
        rounds: None,
        hardware: Hardware::default(),
    };
    run(&options).await
}

/// Nextest filterset of the selected tests.
fn filter(options: &Options) -> String {
    let names: Vec<String> = match options.short {
        true => SHORT
            .iter()
            .map(|name| format!("test(/{name}$/)"))
            .collect(),
        false => {
            let filters = options.filters.iter();
            filters.map(|part| format!("test(~{part})")).collect()
        }
    };
    match names.is_empty() {
        true => TESTS.to_owned(),
        false => format!("{TESTS} & ({})", names.join(" | ")),
    }
}

/// Directory of the machine's files.
fn work() -> anyhow::Result<PathBuf> {
    let work = run::target_directory()?.join("vm");
    std::fs::create_dir_all(&work).with_context(|| work.display().to_string())?;
    Ok(work)
}

/// Prevents two machines from sharing files below `work`.
fn lock(work: &Path) -> anyhow::Result<File> {
    let path = work.join("lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    if file.try_lock().is_err() {
        bail!("another `cargo xtask vm` is running; wait for it or set CARGO_TARGET_DIR");
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(filters: &[&str], short: bool) -> Options {
        Options {
            filters: filters.iter().map(|&part| part.to_owned()).collect(),
            short,
            shell: false,
            rounds: None,
            hardware: Hardware::default(),
        }
    }

    #[test]
    fn vm_filter_selects_containerd_tests_by_name() {
        assert_eq!(filter(&options(&[], false)), TESTS);
        let two = filter(&options(&["cgroup", "probe"], false));
        assert_eq!(two, format!("{TESTS} & (test(~cgroup) | test(~probe))"));
    }

    #[test]
    fn vm_short_form_names_tests_that_exist() {
        let workspace = crate::tidy::Workspace::load().unwrap();
        for name in SHORT {
            let function = format!("fn {name}(");
            let found = workspace
                .sources
                .iter()
                .any(|(_, text)| text.contains(&function));
            assert!(found, "{name}");
        }
    }

    #[test]
    fn vm_short_form_names_each_test_in_full() {
        let short = filter(&options(&[], true));
        for name in SHORT {
            assert!(short.contains(&format!("test(/{name}$/)")), "{name}");
        }
    }
}
