//! `test`, `e2e` and `ci`: everything that has to hold before a change is merged.

use windlass_testbed::containerd::Programs;

use crate::{cross, tidy, vm};
use xtask_run as run;

/// Tests on a real containerd, as `.config/nextest.toml` names them too.
const CONTAINERD_TESTS: &str = "test(/(^|::)on_(containerd|fake_cluster|real_cluster)/)";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Leave out the tests on a real containerd; needs no root.
    #[arg(long)]
    fast: bool,
    /// Run the short forms of `cross` and `vm` as well: some tests again, on emulated processors.
    #[arg(long, conflicts_with = "fast")]
    emulated: bool,
}

/// Formatting, clippy, tidy, documentation examples, and every test.
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
    cross::short()?;
    vm::short().await
}

/// Only the tests on a real containerd.
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

/// What CI runs. The optimised build is another profile and finds what only it reports.
pub(crate) async fn ci() -> anyhow::Result<()> {
    run::cargo(&["build", "--quiet", "--profile", "bench-fast"])?;
    test(&Options::default()).await
}
