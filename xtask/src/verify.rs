//! `test`, `e2e` and `ci`: the checks that are required to merge a change.

use windlass_bench as bench;
use windlass_testbed::containerd::Programs;

use crate::{cross, tidy, vm};
use xtask_run as run;

/// Tests on containerd, as in `.config/nextest.toml`.
const CONTAINERD_TESTS: &str = "test(/(^|::)on_(containerd|fake_cluster|real_cluster)/)";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Skip the tests on containerd; does not require root.
    #[arg(long)]
    fast: bool,
    /// Compare figures with their budgets, and run the short forms of `cross` and `vm`, too: some
    /// tests on emulated processors.
    #[arg(long, conflicts_with = "fast")]
    emulated: bool,
}

/// Runs formatting, clippy, tidy, documentation examples and all tests.
pub(crate) async fn test(options: &Options) -> anyhow::Result<()> {
    if !options.fast {
        Programs::from_env(run::step)?;
    }
    run::ensure_installed("nextest", "https://nexte.st")?;
    run::cargo(&["fmt", "--all", "--check"])?;
    let clippy = [
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ];
    run::cargo(&clippy)?;
    tidy::run()?;
    run::cargo(&["test", "--quiet", "--workspace", "--doc"])?;
    let mut nextest = vec!["nextest", "run", "--workspace", "--profile", "ci"];
    let all_but_containerd = format!("not {CONTAINERD_TESTS}");
    if options.fast {
        nextest.extend(["--filterset", &all_but_containerd]);
    }
    run::cargo(&nextest)?;
    if !options.emulated {
        return Ok(());
    }
    run::step("cargo xtask bench --check --short");
    bench::check_briefly().await?;
    cross::short()?;
    vm::short().await
}

/// Runs the tests on containerd.
pub(crate) fn e2e() -> anyhow::Result<()> {
    Programs::from_env(run::step)?;
    run::ensure_installed("nextest", "https://nexte.st")?;
    let filter = ["--filterset", CONTAINERD_TESTS];
    run::cargo(&[
        "nextest",
        "run",
        "--workspace",
        "--profile",
        "ci",
        filter[0],
        filter[1],
    ])
}

/// Runs the checks of CI. The release profile may report other errors.
pub(crate) async fn ci() -> anyhow::Result<()> {
    run::cargo(&["build", "--quiet", "--profile", "bench-fast"])?;
    test(&Options::default()).await
}
