//! When a container's log is rotated, and what becomes of its earlier files (upstream
//! `containerLogManager`).
//!
//! The present file gets the time of its end as a suffix and stays as it is, so that a reader can
//! go through the rest of it; the next rotation compresses it. Names sort by time, in UTC.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_types::Timestamp;

/// Suffix of a file that was compressed.
pub const COMPRESSED: &str = ".gz";
/// Suffix of a compressed file while it is written.
pub const UNFINISHED: &str = ".tmp";

/// How long logs may become and how many files there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationPolicy {
    /// `containerLogMaxSize` in bytes: a log of this size is rotated.
    pub max_size: u64,
    /// `containerLogMaxFiles`: with the present one, at least 2.
    pub max_files: usize,
}

/// What to do about the log of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStep {
    /// There is none: the agent died between the two halves of a rotation, or somebody removed it.
    Reopen,
    /// There is none, and the container that would write a new one has ended.
    GiveBack,
    /// It is long enough.
    Rotate,
}

impl RotationPolicy {
    /// What to do about a log of `size` bytes, or about none, of a container that `runs` or has
    /// ended.
    pub fn step(&self, runs: bool, size: Option<u64>) -> Option<LogStep> {
        match (runs, size) {
            (true, None) => Some(LogStep::Reopen),
            (false, None) => Some(LogStep::GiveBack),
            (true, Some(size)) => (size >= self.max_size).then_some(LogStep::Rotate),
            (false, Some(_)) => None,
        }
    }
}

/// One rotation. The files are in the directory of the log, and are treated in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Are removed, the oldest first: unfinished ones, those that there is a compressed one of, and
    /// those that are too many.
    pub remove: Vec<String>,
    /// Are compressed.
    pub compress: Vec<String>,
    /// The next name of the present file. There is no file of this name.
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

/// The files of one moment.
#[derive(Debug, Default)]
struct Files {
    plain: bool,
    compressed: bool,
    unfinished: bool,
}

/// Rotates the file `log` of a directory with these `names`. Names that are of no rotation of this
/// log mean nothing.
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
    // beside the present file and the one that it becomes
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
    // a name of this second may be taken if the clock was set back
    let mut end = now;
    let mut stamp = stamp_of(end);
    while by_time.contains_key(stamp.as_str())
        && let Ok(later) = end.checked_add(Duration::from_secs(1))
    {
        end = later;
        stamp = stamp_of(end);
    }
    Rotation {
        remove,
        compress,
        rename: format!("{log}.{stamp}"),
    }
}

/// The file that was the log `log` last, of a directory with these `names`. It is not compressed.
pub fn last_of<'a>(log: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &&str| rotated(log, name).is_some_and(|(_, suffix)| suffix.is_empty());
    names.into_iter().filter(plain).max()
}

fn stamp_of(time: Timestamp) -> String {
    time.strftime("%Y%m%d-%H%M%S").to_string()
}

/// Time and suffix in the name of a file that a rotation of `log` left.
fn rotated<'a>(log: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    let rest = name.strip_prefix(log)?.strip_prefix('.')?;
    let (stamp, suffix) = rest.split_at_checked("20260101-000000".len())?;
    let known = matches!(suffix, "" | COMPRESSED | UNFINISHED);
    (known && is_stamp(stamp)).then_some((stamp, suffix))
}

/// Whether this is the time in a name.
fn is_stamp(text: &str) -> bool {
    text.bytes().enumerate().all(|(at, byte)| match at {
        8 => byte == b'-',
        _ => byte.is_ascii_digit(),
    })
}

#[cfg(test)]
mod tests;
