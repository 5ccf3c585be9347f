//! Plugin registration: socket changes, retry delays, service versions and driver names.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Identity of a socket at a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId {
    /// Inode, which may be reused.
    pub inode: u64,
    /// Modification time: seconds and nanoseconds.
    pub modified: (i64, i64),
}

/// Changes of the sockets in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketPlan {
    /// Removed sockets.
    pub removed: Vec<PathBuf>,
    /// New sockets, and replaced ones.
    pub new: Vec<(PathBuf, SocketId)>,
}

impl fmt::Display for SocketPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let removed = self.removed.iter().map(|path| ("-", path));
        let new = self.new.iter().map(|(path, _)| ("+", path));
        let mut any = false;
        for (sign, path) in removed.chain(new) {
            let between = if any { " " } else { "" };
            write!(f, "{between}{sign}{}", path.display())?;
            any = true;
        }
        if any { Ok(()) } else { f.write_str("nothing") }
    }
}

/// Compares the known sockets with those in the directory.
pub fn plan_sockets(
    known: &BTreeMap<PathBuf, SocketId>,
    found: &BTreeMap<PathBuf, SocketId>,
) -> SocketPlan {
    let removed = known.keys().filter(|path| !found.contains_key(*path));
    let new = found
        .iter()
        .filter(|(path, id)| known.get(*path) != Some(id));
    SocketPlan {
        removed: removed.cloned().collect(),
        new: new.map(|(path, id)| (path.clone(), *id)).collect(),
    }
}

/// Returns the delay after a number of consecutive failures: 500 ms, doubled, at most 122 s
/// (upstream `exponentialbackoff`).
pub fn retry_delay(failures: u32) -> Duration {
    const FIRST_DELAY: Duration = Duration::from_millis(500);
    const MAX_DELAY: Duration = Duration::from_secs(122);
    (FIRST_DELAY * 2u32.pow(failures.saturating_sub(1).min(10))).min(MAX_DELAY)
}

/// A version, as upstream `ParseGeneric`: at least two numbers separated by dots, and any suffix.
#[derive(Clone, Debug)]
pub struct PluginVersion(Vec<u64>);

impl PluginVersion {
    /// Parses a version; a leading `v` is ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim_start();
        let text = text.strip_prefix('v').unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers = text[..end.unwrap_or(text.len())].trim_end_matches('.');
        let parts: Vec<_> = numbers.split('.').collect();
        if parts.len() < 2 || parts.iter().any(|it| it.len() > 1 && it.starts_with('0')) {
            return None;
        }
        let parts = parts.iter().map(|part| part.parse().ok());
        parts.collect::<Option<_>>().map(Self)
    }

    fn major(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }

    /// Missing numbers are zero.
    fn significant(&self) -> &[u64] {
        let end = self.0.iter().rposition(|number| *number != 0);
        &self.0[..end.map_or(0, |last| last + 1)]
    }
}

impl PartialEq for PluginVersion {
    fn eq(&self, other: &Self) -> bool {
        self.significant() == other.significant()
    }
}

impl Eq for PluginVersion {}

impl PartialOrd for PluginVersion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for PluginVersion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.significant().cmp(other.significant())
    }
}

impl fmt::Display for PluginVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, number) in self.0.iter().enumerate() {
            let dot = if index == 0 { "" } else { "." };
            write!(f, "{dot}{number}")?;
        }
        Ok(())
    }
}

/// Returns the highest supported version of a plugin, which must be 1.x (upstream
/// `HighestSupportedVersion`).
///
/// # Errors
/// No supported version; as upstream.
pub fn highest_supported_version(versions: &[String]) -> Result<PluginVersion, String> {
    let known = versions
        .iter()
        .filter_map(|text| PluginVersion::parse(text))
        .filter(|version| version.major() <= 1);
    match known.max() {
        None => Err(format!(
            "could not find a highest supported version from versions ({}) reported",
            versions.join(" ")
        )),
        Some(version) if version.major() != 1 => Err(format!(
            "highest supported version reported is {version}, must be v1.x"
        )),
        Some(version) => Ok(version),
    }
}

/// Checks the name of a CSI driver, which is part of paths: a DNS subdomain in any case, at most 63
/// characters (upstream `ValidateCSIDriverName`).
///
/// # Errors
/// The name is invalid.
pub fn check_driver_name(name: &str) -> Result<(), &'static str> {
    if name.len() > 63 {
        return Err("a CSI driver name must have at most 63 characters");
    }
    let label = |label: &str| {
        let ends = [label.chars().next(), label.chars().last()];
        ends.iter().flatten().all(char::is_ascii_alphanumeric)
            && ends.iter().all(Option::is_some)
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    match name.split('.').all(label) {
        true => Ok(()),
        false => Err("a CSI driver name must be a DNS subdomain"),
    }
}

#[cfg(test)]
mod tests;
