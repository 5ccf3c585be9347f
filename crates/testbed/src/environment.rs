//! Environment variables of tests: timeout factor, cgroup driver, image directory and rounds.
//!
//! `cargo xtask vm` sets them, rounds only with `--rounds`.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

/// Factor of test timeouts: a whole number, default 1. An emulated host needs about 10.
pub const TIMEOUT_FACTOR: &str = "WINDLASS_TEST_TIMEOUT_FACTOR";
/// Cgroup driver of agents and containerds in tests: `cgroupfs` (default) or `systemd`.
pub const CGROUP_DRIVER: &str = "WINDLASS_TEST_CGROUP_DRIVER";
/// Directory with prebuilt image archives.
pub const IMAGES: &str = "WINDLASS_TEST_IMAGES";
/// Rounds of tests that use up the memory or a disk of their host, which is a virtual machine.
pub const ROUNDS: &str = "WINDLASS_TEST_ROUNDS";

/// Returns `timeout` times [`TIMEOUT_FACTOR`].
///
/// # Panics
/// The variable is not a number from 1 to 1000.
pub fn scaled(timeout: Duration) -> Duration {
    static FACTOR: LazyLock<u32> = LazyLock::new(|| {
        let value = std::env::var(TIMEOUT_FACTOR).ok();
        factor(value.as_deref())
    });
    timeout * *FACTOR
}

/// Whether tests use the systemd cgroup driver.
pub fn uses_systemd_driver() -> bool {
    std::env::var_os(CGROUP_DRIVER).is_some_and(|value| value == "systemd")
}

/// Returns [`ROUNDS`]; `None` on a host whose memory must not be used up.
pub fn rounds() -> Option<u32> {
    std::env::var(ROUNDS).ok()?.parse().ok()
}

/// Returns the directory of prebuilt images.
pub(crate) fn built_images() -> Option<PathBuf> {
    let value = std::env::var_os(IMAGES).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

#[expect(
    clippy::panic,
    reason = "a test run with a factor that was not set would mislead"
)]
fn factor(value: Option<&str>) -> u32 {
    let Some(value) = value.filter(|value| !value.is_empty()) else {
        return 1;
    };
    let factor = value.parse().ok();
    let factor = factor.filter(|factor| (1..=1000).contains(factor));
    factor.unwrap_or_else(|| panic!("{TIMEOUT_FACTOR}={value}: not a number from 1 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_factor_unset_is_one() {
        assert_eq!(factor(None), 1);
        assert_eq!(factor(Some("")), 1);
        assert_eq!(factor(Some("10")), 10);
    }

    #[test]
    #[should_panic(expected = "not a number from 1 to 1000")]
    fn timeout_factor_out_of_range_panics() {
        factor(Some("0"));
    }
}
