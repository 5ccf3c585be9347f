//! Toolchain of another platform: Debian's compiler, C library and emulator, and Rust's standard
//! library.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};
use windlass_testbed::debian;
use windlass_testbed::platform::Platform;

use xtask_run as run;

/// Installs the missing tools to build and run programs of a platform.
///
/// # Errors
/// An installation fails; the error has the fix.
pub(crate) fn ensure(platform: Platform) -> anyhow::Result<()> {
    ensure_packages(platform)?;
    ensure_standard_library(platform)
}

/// Installs the Debian packages for [`ensure`].
///
/// # Errors
/// An installation fails; the error has the fix.
pub(crate) fn ensure_packages(platform: Platform) -> anyhow::Result<()> {
    debian::ensure(platform.cross_packages()?, run::step)
}

/// Environment of cargo to build and run programs of a platform.
pub(crate) fn environment(platform: Platform) -> Vec<(String, String)> {
    let Some(emulator) = platform.emulator() else {
        return Vec::new();
    };
    let target = platform.rust_target().replace('-', "_");
    let cargo = format!("CARGO_TARGET_{}", target.to_uppercase());
    let triple = platform.gnu_triple();
    let compiler = platform.c_compiler();
    vec![
        // loader and libraries of the C library
        (
            format!("{cargo}_RUNNER"),
            format!("{emulator} -L /usr/{triple}"),
        ),
        (format!("{cargo}_LINKER"), compiler.clone()),
        // for C code of crates
        (format!("CC_{target}"), compiler),
        (format!("AR_{target}"), format!("{triple}-ar")),
    ]
}

/// Adds Rust's standard library for a platform with rustup, unless installed.
///
/// # Errors
/// rustup is missing or the download fails.
pub(crate) fn ensure_standard_library(platform: Platform) -> anyhow::Result<()> {
    let target = &platform.rust_target();
    if has_standard_library(target)? {
        return Ok(());
    }
    run::step(&format!("rustup target add {target}"));
    let added = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(run::root())
        .stdin(Stdio::null())
        .status();
    match added {
        Ok(status) if status.success() => {}
        Ok(_) => bail!("`rustup target add {target}` failed; check the network"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!(
            "Rust has no standard library for {target}, and rustup is not installed; \
             install Rust from https://rustup.rs"
        ),
        Err(error) => return Err(error).context("cannot run rustup"),
    }
    if !has_standard_library(target)? {
        bail!(
            "rustup added {target} to another Rust than the `rustc` in PATH; put ~/.cargo/bin first"
        );
    }
    Ok(())
}

fn has_standard_library(target: &str) -> anyhow::Result<bool> {
    let output = Command::new("rustc")
        .args(["--print=target-libdir", "--target", target])
        .current_dir(run::root())
        .output()
        .context("cannot run rustc")?;
    let directory = String::from_utf8(output.stdout)?;
    Ok(output.status.success() && Path::new(directory.trim()).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_of_host_is_empty() {
        let host = Platform::host().expect("a platform");
        assert_eq!(environment(host), []);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn environment_of_aarch64_names_linker_and_emulator() {
        let lines: Vec<String> = environment(Platform::Arm64)
            .into_iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let expected = [
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static -L /usr/aarch64-linux-gnu",
            "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc",
            "CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc",
            "AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn standard_library_of_host_is_present() {
        let host = Platform::host().expect("a platform").rust_target();
        assert!(has_standard_library(&host).expect("rustc"));
        assert!(!has_standard_library("no-such-target").expect("rustc"));
    }
}
