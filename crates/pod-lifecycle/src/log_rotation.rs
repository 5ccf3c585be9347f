//! Rotation of container logs (upstream `containerLogManager`).
//!
//! A rotation renames the current file to a name with a UTC timestamp. The next rotation compresses
//! it, so that a reader can finish it. Names sort by time; more than one rotation per second uses
//! later seconds.

mod growth;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_types::{Timestamp, later};

pub use growth::{LogGrowth, MIN_CHECK_INTERVAL};

/// Suffix of a compressed file.
pub const COMPRESSED: &str = ".gz";
/// Suffix of a compressed file during compression.
pub const UNFINISHED: &str = ".tmp";

/// Maximum time that file names may be ahead: 20 rotations per second for a week. A pod can create
/// files with any name.
const MAX_AHEAD: Duration = Duration::from_secs(20 * 7 * 24 * 3600);

/// Limits for the logs of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    /// `containerLogMaxSize` in bytes.
    pub max_size: u64,
    /// `containerLogMaxFiles`, including the current file; at least 2.
    pub max_files: usize,
}

/// Action for the log of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// The log is missing: the agent was killed during a rotation, or the file was removed.
    Reopen,
    /// The log of an exited container is missing; restore the last rotated file.
    Restore,
    /// The log has reached its maximum size.
    Rotate,
}

impl RotationPolicy {
    /// Returns the action for a log of `size` bytes, `None` for a missing one, of a container that
    /// `runs` or has exited.
    pub fn step(&self, runs: bool, size: Option<u64>) -> Option<LogStep> {
        match (runs, size) {
            (true, None) => Some(LogStep::Reopen),
            (false, None) => Some(LogStep::Restore),
            (true, Some(size)) => (size >= self.max_size).then_some(LogStep::Rotate),
            (false, Some(_)) => None,
        }
    }
}

/// Steps of a rotation in their order, as file names in the directory of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Files to remove, oldest first: unfinished, already compressed, and excess files.
    pub remove: Vec<String>,
    /// Files to compress.
    pub compress: Vec<String>,
    /// New, unused name of the current file.
    pub rename: String,
}

impl fmt::Display for Rotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, names) in [("remove", &self.remove), ("compress", &self.compress)] {
            if !names.is_empty() {
                write!(f, "{word}({}) ", names.join(" "))?;
            }
        }
        write!(f, "rename({})", self.rename)
    }
}

#[derive(Debug, Default)]
struct Files {
    plain: bool,
    compressed: bool,
    unfinished: bool,
}

/// Plans the rotation of the file `log` in a directory with these `names`; ignores unrelated names.
pub fn rotation<'a>(
    log: &str,
    names: impl IntoIterator<Item = &'a str>,
    max_files: usize,
    now: Timestamp,
) -> Rotation {
    let mut by_time: BTreeMap<&str, Files> = BTreeMap::new();
    for name in names {
        let Some((stamp, suffix)) = rotated(log, name) else {
            continue;
        };
        let files = by_time.entry(stamp).or_default();
        match suffix {
            "" => files.plain = true,
            COMPRESSED => files.compressed = true,
            UNFINISHED => files.unfinished = true,
            _ => {}
        }
    }
    let in_use = by_time.values().filter(|it| it.plain || it.compressed);
    // besides the current file before and after its rename
    let mut excess = in_use.count().saturating_sub(max_files.saturating_sub(2));
    let (mut remove, mut compress) = (Vec::new(), Vec::new());
    for (stamp, files) in &by_time {
        let name = |suffix| format!("{log}.{stamp}{suffix}");
        if files.unfinished {
            remove.push(name(UNFINISHED));
        }
        let too_old = excess > 0 && (files.plain || files.compressed);
        excess -= usize::from(too_old);
        if files.plain {
            match too_old || files.compressed {
                true => remove.push(name("")),
                false => compress.push(name("")),
            }
        }
        if files.compressed && too_old {
            remove.push(name(COMPRESSED));
        }
    }
    let newest = by_time.keys().next_back().and_then(|it| time_of(it));
    let mut end = match newest {
        // after the newest: several rotations per second, or a clock that was set back
        Some(newest) if newest >= now && newest <= later(now, MAX_AHEAD) => newest,
        _ => now,
    };
    let mut stamp = stamp_of(end);
    while by_time.contains_key(stamp.as_str())
        && let Ok(next) = end.checked_add(Duration::from_secs(1))
    {
        end = next;
        stamp = stamp_of(end);
    }
    Rotation {
        remove,
        compress,
        rename: format!("{log}.{stamp}"),
    }
}

/// Returns the newest uncompressed rotated file of `log`.
pub fn last_of<'a>(log: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &&str| rotated(log, name).is_some_and(|(_, suffix)| suffix.is_empty());
    names.into_iter().filter(plain).max()
}

/// Returns the uncompressed rotated files of `log` but the newest, oldest first.
pub fn older_of<'a>(log: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let plain = |name: &&str| rotated(log, name).is_some_and(|(_, suffix)| suffix.is_empty());
    let mut plain: Vec<&str> = names.into_iter().filter(plain).collect();
    plain.sort_unstable();
    plain.pop();
    plain
}

/// Returns the time of a file name.
fn time_of(stamp: &str) -> Option<Timestamp> {
    Timestamp::strptime("%Y%m%d-%H%M%S%z", format!("{stamp}+0000")).ok()
}

fn stamp_of(time: Timestamp) -> String {
    time.strftime("%Y%m%d-%H%M%S").to_string()
}

/// Returns timestamp and suffix of a rotated file of `log`.
fn rotated<'a>(log: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let (stamp, suffix) = rest.split_at_checked("20260101-000000".len())?;
    let known = matches!(suffix, "" | COMPRESSED | UNFINISHED);
    (known && is_stamp(stamp)).then_some((stamp, suffix))
}

/// True for the timestamp of a file name.
fn is_stamp(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 => byte == b'-',
        _ => byte.is_ascii_digit(),
    })
}

#[cfg(test)]
mod tests;
