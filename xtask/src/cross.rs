//! `cross`: builds for aarch64 with Debian's cross-compiler and runs unit tests and simulations in qemu's
//! user-mode emulation. Emulation finds problems of byte order, type layout and system call
//! numbers, but not of the hardware or its kernel.

pub(crate) mod toolchain;

use anyhow::{Context, bail};
use windlass_testbed::platform::Platform;

use xtask_run as run;

/// The platform that developers and CI do not use.
const PLATFORM: Platform = Platform::Arm64;
/// Crates of the short form: the pure ones, state files and cgroups, which have few dependencies.
const SHORT: &[&str] = &[
    "windlass-types",
    "windlass-units",
    "windlass-manifests",
    "windlass-pod-lifecycle",
    "windlass-volume-plan",
    "windlass-store",
    "windlass-cgroups",
];
/// Property tests that take minutes on an emulator.
const SHORT_SKIPPED: &[&str] = &["volume_reconciler::tests::invariants::"];
/// Packages that run on the build host only.
const HOST_ONLY: &[&str] = &[
    "xtask",
    "xtask-run",
    "windlass-bench",
    "windlass-chaos",
    "windlass-testbed",
    "windlass-fuzz",
];
/// Integration tests without a container runtime: the simulations.
const SIMULATIONS: &str = "simulat*";
/// Tests that require a container runtime or start a program of this platform.
const SKIPPED: &str = "test(/(^|::)on_(containerd|fake_cluster|real_cluster)/)";

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Options {
    /// Run only tests whose names contain one of these.
    #[arg(value_name = "FILTER", conflicts_with = "short")]
    filters: Vec<String>,
    /// Run the short form: unit tests of a few crates, as `test --emulated`.
    #[arg(long)]
    short: bool,
    /// Test only these packages.
    #[arg(long, short, value_name = "PACKAGE", conflicts_with = "short")]
    package: Vec<String>,
}

/// Builds the tests and runs them.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    toolchain::ensure(PLATFORM)?;
    if options.short {
        return cargo(&short_form());
    }
    run::ensure_installed("nextest", "https://nexte.st")?;
    cargo(&nextest(options))
}

/// Runs the short form for `test --emulated`. Prints a notice if Rust's standard library for the
/// platform cannot be downloaded.
pub(crate) fn short() -> anyhow::Result<()> {
    toolchain::ensure_packages(PLATFORM)?;
    if let Err(error) = toolchain::ensure_standard_library(PLATFORM) {
        run::step(&format!("NOT RUN: tests for {PLATFORM}: {error:#}"));
        return Ok(());
    }
    cargo(&short_form())
}

/// Runs cargo for the platform.
fn cargo(args: &[String]) -> anyhow::Result<()> {
    let line = format!("cargo {}", args.join(" "));
    run::step(&line);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let status = run::cargo_command(&args)
        .envs(toolchain::environment(PLATFORM))
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("`{line}` failed for {PLATFORM}; repeat it with `cargo xtask cross`");
    }
    Ok(())
}

/// Arguments of cargo for the short form. The tests of a crate share a process, because starting an
/// emulator per test is ten times slower.
fn short_form() -> Vec<String> {
    let mut args = vec!["test".to_owned(), "--quiet".to_owned()];
    args.push(format!("--target={}", PLATFORM.rust_target()));
    args.push("--lib".to_owned());
    args.extend(packages(SHORT));
    args.push("--".to_owned());
    args.extend(SHORT_SKIPPED.iter().map(|name| format!("--skip={name}")));
    args
}

fn packages(names: &[&str]) -> Vec<String> {
    let names = names.iter();
    names.map(|name| format!("--package={name}")).collect()
}

/// Arguments of cargo for all tests.
fn nextest(options: &Options) -> Vec<String> {
    let mut args = vec!["nextest".to_owned(), "run".to_owned()];
    args.push(format!("--target={}", PLATFORM.rust_target()));
    args.extend(["--profile=cross", "--lib", "--bins"].map(str::to_owned));
    args.push(format!("--test={SIMULATIONS}"));
    if options.package.is_empty() {
        args.push("--workspace".to_owned());
        args.extend(HOST_ONLY.iter().map(|name| format!("--exclude={name}")));
    } else {
        let names: Vec<&str> = options.package.iter().map(String::as_str).collect();
        args.extend(packages(&names));
    }
    args.push(format!("--filterset={}", filter(&options.filters)));
    args
}

/// Nextest filterset of the selected tests.
fn filter(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|it| format!("test(~{it})")).collect();
    match names.is_empty() {
        true => format!("not {SKIPPED}"),
        false => format!("not {SKIPPED} & ({})", names.join(" | ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cross_arguments_name_target_and_exclude_host_tools() {
        let args = nextest(&Options::default()).join(" ");
        assert!(args.starts_with("nextest run --target=aarch64-unknown-linux-gnu"));
        assert!(args.contains(" --workspace --exclude=xtask "), "{args}");
        assert!(args.ends_with(&format!(" --filterset=not {SKIPPED}")));
    }

    #[test]
    fn cross_short_form_tests_few_packages_in_one_process_each() {
        assert_eq!(
            short_form().join(" "),
            "test --quiet --target=aarch64-unknown-linux-gnu --lib --package=windlass-types \
             --package=windlass-units --package=windlass-manifests \
             --package=windlass-pod-lifecycle --package=windlass-volume-plan \
             --package=windlass-store --package=windlass-cgroups -- \
             --skip=volume_reconciler::tests::invariants::"
        );
    }

    #[test]
    fn cross_filters_select_tests_by_name() {
        let options = Options {
            filters: vec!["cgroup".to_owned(), "log".to_owned()],
            package: vec!["windlass-stats".to_owned()],
            short: false,
        };
        let args = nextest(&options);
        assert!(args.contains(&"--package=windlass-stats".to_owned()));
        let expected = format!("--filterset=not {SKIPPED} & (test(~cgroup) | test(~log))");
        assert_eq!(args.last(), Some(&expected));
    }
}
