//! Plugins that register: which sockets are new, when to try again, and which version of a service
//! is spoken.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What tells a socket from another at the same path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SocketId {
    /// Its inode, which may be used again.
    pub inode: u64,
    /// When it was made: seconds and nanoseconds.
    pub modified: (i64, i64),
}

/// What is to be done about the sockets in the directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketPlan {
    /// Sockets that are gone: their plugins left.
    pub gone: Vec<PathBuf>,
    /// Sockets that are new, or another at an old path: their plugins want to register.
    pub new: Vec<(PathBuf, SocketId)>,
}

impl fmt::Display for SocketPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gone = self.gone.iter().map(|path| ("-", path));
        let new = self.new.iter().map(|(path, _)| ("+", path));
        let mut any = false;
        for (sign, path) in gone.chain(new) {
            let between = if any { " " } else { "" };
            write!(f, "{between}{sign}{}", path.display())?;
            any = true;
        }
        if any { Ok(()) } else { f.write_str("nothing") }
    }
}

/// Compares the sockets that are known with those that lie there.
pub fn plan_sockets(
    known: &BTreeMap<PathBuf, SocketId>,
    found: &BTreeMap<PathBuf, SocketId>,
) -> SocketPlan {
    let gone = known.keys().filter(|path| !found.contains_key(*path));
    let new = found
        .iter()
        .filter(|(path, id)| known.get(*path) != Some(id));
    SocketPlan {
        gone: gone.cloned().collect(),
        new: new.map(|(path, id)| (path.clone(), *id)).collect(),
    }
}

/// The pause after the `failures`th failure in a row: 500 ms, doubling, at most 122 s (upstream's
/// `exponentialbackoff`).
pub fn retry_delay(failures: u32) -> Duration {
    const FIRST: Duration = Duration::from_millis(500);
    const MOST: Duration = Duration::from_secs(122);
    (FIRST * 2u32.pow(failures.saturating_sub(1).min(10))).min(MOST)
}

/// A version as upstream's `ParseGeneric` reads one: numbers with dots between them, at least two,
/// whatever follows.
#[derive(Clone, Debug)]
pub struct PluginVersion(Vec<u64>);

impl PluginVersion {
    /// Reads a version; a leading `v` does not count.
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

    /// Numbers that are missing are zero.
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

/// The highest version that is spoken with a plugin; it has to be a 1.x (upstream's
/// `HighestSupportedVersion`).
///
/// # Errors
/// There is none; upstream's words.
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

/// Whether a CSI driver may have this name: a DNS subdomain in either case, at most 63 characters
/// (upstream's `ValidateCSIDriverName`). It becomes part of paths.
///
/// # Errors
/// It may not.
pub fn check_driver_name(name: &str) -> Result<(), &'static str> {
    if name.len() > 63 {
        return Err("a name of a CSI driver has at most 63 characters");
    }
    let label = |label: &str| {
        let ends = [label.chars().next(), label.chars().last()];
        ends.iter().flatten().all(char::is_ascii_alphanumeric)
            && ends.iter().all(Option::is_some)
            && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    };
    match name.split('.').all(label) {
        true => Ok(()),
        false => Err("a name of a CSI driver is a DNS subdomain"),
    }
}

#[cfg(test)]
mod tests;
