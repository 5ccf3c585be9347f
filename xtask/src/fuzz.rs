//! `fuzz`: runs cargo-fuzz on the targets of `crates/fuzz`.
//!
//! It needs flags of a nightly compiler, which `RUSTC_BOOTSTRAP` enables. Sanitizers are off: safe
//! code aborts on overflows and failed assertions.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, bail};

use xtask_run as run;

/// Max bytes of a case: the largest manifest or header block written by hand.
const MAX_CASE_BYTES: u32 = 16 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Target to fuzz, a directory of `fuzz/corpus`; by default all.
    target: Option<String>,
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let corpus = run::root().join("fuzz/corpus");
    let mut targets = BTreeSet::new();
    for entry in std::fs::read_dir(&corpus).context("fuzz/corpus")? {
        targets.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    if let Some(one) = &options.target {
        if !targets.contains(one) {
            bail!("unknown target {one:?}; choose one of {targets:?}");
        }
        targets = BTreeSet::from([one.clone()]);
    }
    run::ensure_installed("fuzz", "requires a C++ compiler")?;
    // same dependency versions as this workspace
    let lock = run::root().join("Cargo.lock");
    std::fs::copy(lock, run::root().join("fuzz/Cargo.lock")).context("fuzz/Cargo.lock")?;
    let found = run::root().join("target/fuzz/found");
    for target in targets {
        let new = found.join(&target);
        std::fs::create_dir_all(&new).with_context(|| new.display().to_string())?;
        run::step(&format!("fuzz {target} for {} s", options.seconds));
        let status = cargo_fuzz(&["run", "--sanitizer", "none", "target"])
            .env("WINDLASS_FUZZ_TARGET", &target)
            .args([&new, &corpus.join(&target)])
            .args(["--", "-print_final_stats=1"])
            .arg(format!("-max_len={MAX_CASE_BYTES}"))
            .arg(format!("-max_total_time={}", options.seconds))
            .arg(format!("-artifact_prefix={}/", new.display()))
            .status()
            .context("cargo fuzz")?;
        if !status.success() {
            bail!(
                "{target} failed: name its case in {} after what is wrong, copy it to \
                 fuzz/corpus/{target}, and mend the parser",
                new.display()
            );
        }
    }
    Ok(())
}

fn cargo_fuzz(args: &[&str]) -> Command {
    let mut command = run::cargo_command(&["fuzz"]);
    command
        .args(args)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", run::root().join("target/fuzz"));
    command
}
