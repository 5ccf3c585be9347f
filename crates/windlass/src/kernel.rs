//! Kernel parameters on which pods depend (upstream `setupKernelTunables`): memory is overcommitted,
//! the host survives a lack of memory and restarts after a panic, and each container gets a keyring.

use std::fmt;
use std::fs;
use std::path::Path;

/// Directory of kernel parameters.
pub(crate) const PARAMETERS: &str = "/proc/sys";

/// Files below [`PARAMETERS`] and their values, as upstream.
const EXPECTED: [(&str, i64); 6] = [
    ("vm/overcommit_memory", 1),
    ("vm/panic_on_oom", 0),
    ("kernel/panic", 10),
    ("kernel/panic_on_oops", 1),
    ("kernel/keys/root_maxkeys", 1_000_000),
    ("kernel/keys/root_maxbytes", 25_000_000),
];

/// A parameter with another value; its `Display` is the text of upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Deviation {
    name: &'static str,
    expected: i64,
    /// Value or error.
    actual: Result<i64, String>,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, expected) = (self.name, self.expected);
        match &self.actual {
            Ok(actual) => write!(
                f,
                "invalid kernel flag: {name}, expected value: {expected}, actual value: {actual}"
            ),
            Err(error) => write!(f, "cannot read kernel flag {name}: {error}"),
        }
    }
}

/// Sets the kernel parameters in `root`, or only checks them if `protect` is true
/// (`protectKernelDefaults`). A parameter that cannot be set is a warning. Blocks on the kernel.
///
/// # Errors
/// All parameters with another value, if they are protected.
pub(crate) fn set_parameters(root: &Path, protect: bool) -> anyhow::Result<()> {
    let deviations = deviations(|name| read(root, name));
    if protect {
        let all: Vec<String> = deviations.iter().map(ToString::to_string).collect();
        anyhow::ensure!(all.is_empty(), "protectKernelDefaults: {}", all.join("; "));
    }
    for deviation in deviations {
        let (parameter, value) = (deviation.name, deviation.expected);
        match fs::write(root.join(parameter), value.to_string()) {
            Ok(()) => tracing::info!(parameter, value, "kernel parameter set"),
            Err(error) => tracing::warn!(
                parameter,
                value,
                %error,
                "cannot set kernel parameter; set it with sysctl.d"
            ),
        }
    }
    Ok(())
}

fn deviations(read: impl Fn(&str) -> Result<i64, String>) -> Vec<Deviation> {
    let found = EXPECTED.map(|(name, expected)| Deviation {
        name,
        expected,
        actual: read(name),
    });
    let others = found
        .into_iter()
        .filter(|found| found.actual != Ok(found.expected));
    others.collect()
}

fn read(root: &Path, name: &str) -> Result<i64, String> {
    let text = fs::read_to_string(root.join(name)).map_err(|error| error.to_string())?;
    text.trim()
        .parse()
        .map_err(|_| format!("not a number: {:?}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parameters in a directory; `-` removes one.
    fn parameters(values: [&str; 6]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for ((name, _), value) in EXPECTED.iter().zip(values) {
            let file = root.path().join(name);
            fs::create_dir_all(file.parent().expect("a parent")).expect("made");
            if value != "-" {
                fs::write(file, format!("{value}\n")).expect("written");
            }
        }
        root
    }

    fn values(root: &Path) -> Vec<String> {
        let read = |(name, _)| read(root, name).map_or("-".to_owned(), |value| value.to_string());
        EXPECTED.map(read).to_vec()
    }

    #[test]
    fn kernel_parameters_are_set_unless_protected() {
        let right = ["1", "0", "10", "1", "1000000", "25000000"];
        let root = parameters(right);
        set_parameters(root.path(), true).expect("right");

        let root = parameters(["0", "0", "0", "1", "200", "25000000"]);
        let error = set_parameters(root.path(), true).expect_err("protected");
        assert_eq!(
            error.to_string(),
            "protectKernelDefaults: \
             invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0; \
             invalid kernel flag: kernel/panic, expected value: 10, actual value: 0; \
             invalid kernel flag: kernel/keys/root_maxkeys, expected value: 1000000, \
             actual value: 200"
        );
        assert_eq!(values(root.path())[0], "0");
        set_parameters(root.path(), false).expect("set");
        assert_eq!(values(root.path()), right);
    }

    #[test]
    fn missing_kernel_parameter_fails_only_if_protected() {
        let root = parameters(["1", "0", "10", "x", "-", "25000000"]);
        fs::remove_dir_all(root.path().join("kernel/keys")).expect("removed");
        let error = set_parameters(root.path(), true).expect_err("protected");
        let text = error.to_string();
        assert!(
            text.contains("kernel/panic_on_oops: not a number: \"x\""),
            "{text}"
        );
        assert!(
            text.contains("cannot read kernel flag kernel/keys/root_maxkeys"),
            "{text}"
        );
        set_parameters(root.path(), false).expect("a warning");
        let expected = ["1", "0", "10", "1", "-", "-"];
        assert_eq!(values(root.path()), expected);
    }
}
