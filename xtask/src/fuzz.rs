//! `fuzz`: new bytes for the targets of `crates/fuzz`, by cargo-fuzz.
//!
//! Its passes and flags are those of a nightly compiler; `RUSTC_BOOTSTRAP` lets the workspace's own
//! have them. There is no sanitizer: safe code has nothing for it to find, overflows and failed
//! assertions end the program as they are.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, bail};

use xtask_run as run;

/// Longest case in bytes: the largest manifest and header block that anybody writes by hand.
const LONGEST: u32 = 16 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Which one; all of them if it is left out. Each has a directory in `fuzz/corpus`.
    target: Option<String>,
    /// How long each is fuzzed, in seconds.
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
            bail!("no target {one:?}: there are {targets:?}");
        }
        targets = BTreeSet::from([one.clone()]);
    }
    run::ensure_installed("fuzz", "it needs a C++ compiler to link")?;
    // its own workspace has the versions of this one
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
            .arg(format!("-max_len={LONGEST}"))
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
