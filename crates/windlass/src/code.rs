//! Which code is resident: what has run since the start was over, and all of it while memory is short.
//!
//! Code that has run is locked in memory: without free memory the kernel would drop it again and
//! again, and the agent could not evict the pod that uses all. For the same reason all code is
//! loaded before memory runs out. Code that only the start needs is released after it; it is most of
//! what an idle agent would keep resident.

use std::fs::read_to_string;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use rustix::mm::{Advice, MlockFlags, madvise, mlock_with, munlock};
use tokio::sync::watch;
use tokio::time::timeout;
use windlass_eviction::{EvictionStatus, Signal};

/// Duration of the start: pods are adopted, connections are established.
const START: Duration = Duration::from_secs(10);
/// Memory above a threshold, in bytes, below which all code is loaded: half a second for a pod that
/// allocates 1 GB/s. At most [`MAX_SHORT_FRACTION`] of the machine.
const SHORT: u64 = 512 << 20;
/// As a divisor: a small machine is not always short of memory.
const MAX_SHORT_FRACTION: u64 = 8;

/// Locks the code that is used from now on, page by page. Memory usage does not change.
pub(crate) fn keep_resident() {
    for mapping in code_mappings() {
        if let Err(error) = lock(&mapping.range) {
            return tracing::debug!(%error, "code is not kept resident");
        }
    }
}

/// Releases the code of the start when that is over, and loads all code once memory is short.
pub(crate) async fn manage(mut eviction: watch::Receiver<Arc<EvictionStatus>>) {
    let mut wait = pin!(becomes_short(&mut eviction));
    let is_short = match timeout(START, &mut wait).await {
        Ok(is_short) => is_short,
        Err(_elapsed) => {
            release();
            wait.await
        }
    };
    if is_short {
        tracing::info!("memory may become short, all code of the agent is kept resident");
        // a disk may hang
        let _ = tokio::task::spawn_blocking(load).await;
    }
}

/// Waits until memory is short. False if the agent shuts down before.
async fn becomes_short(eviction: &mut watch::Receiver<Arc<EvictionStatus>>) -> bool {
    let short = eviction.wait_for(|status| is_memory_short(status)).await;
    short.is_ok()
}

/// True if memory is at most [`SHORT`] above a threshold for eviction.
fn is_memory_short(eviction: &EvictionStatus) -> bool {
    let mut signals = eviction.signals.iter();
    let Some(memory) = signals.find(|it| it.signal == Signal::MemoryAvailable) else {
        return false;
    };
    let capacity = memory.observed.map_or(0, |observed| observed.capacity);
    let short = SHORT.min(capacity / MAX_SHORT_FRACTION);
    let mut distances = memory.thresholds.iter().filter_map(|it| it.distance);
    distances.any(|distance| u64::try_from(distance).unwrap_or(0) <= short)
}

/// Unmaps the code that has run until now. What is used again is mapped again, usually without a
/// read of the disk, and stays resident.
fn release() {
    for mapping in code_mappings().iter().filter(|it| !it.changed) {
        if let Err(error) = unmap(&mapping.range).and_then(|()| lock(&mapping.range)) {
            return tracing::debug!(%error, "code of the start stays resident");
        }
    }
}

/// Loads all code from the disk.
fn load() {
    for mapping in code_mappings() {
        if let Err(error) = populate(&mapping.range) {
            return tracing::debug!(%error, "code is loaded when it is used");
        }
    }
}

/// Memory that holds the content of a file and is not writable.
#[derive(Debug, PartialEq, Eq)]
struct CodeMapping {
    range: Range<usize>,
    /// It was written before it became read-only, as relocated addresses are: unlike in the file.
    changed: bool,
}

fn code_mappings() -> Vec<CodeMapping> {
    // without the first, a kernel option, every mapping counts as changed: none is released
    let maps = read_to_string("/proc/self/smaps").or_else(|_| read_to_string("/proc/self/maps"));
    match maps {
        Ok(maps) => parse_code_mappings(&maps),
        Err(error) => {
            tracing::warn!(%error, "code is not kept resident");
            Vec::new()
        }
    }
}

/// Parses a line with the addresses of each mapping, followed by its fields in `/proc/self/smaps`.
fn parse_code_mappings(maps: &str) -> Vec<CodeMapping> {
    let mut lines = maps.lines().peekable();
    let mut mappings = Vec::new();
    while let Some(line) = lines.next() {
        let Some(range) = code_range(line) else {
            continue;
        };
        let fields = std::iter::from_fn(|| lines.next_if(|line| is_field(line)));
        let mut anonymous = fields.filter_map(|field| field.strip_prefix("Anonymous:"));
        let changed = anonymous.next().is_none_or(|size| size.trim() != "0 kB");
        mappings.push(CodeMapping { range, changed });
    }
    mappings
}

fn is_field(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_uppercase())
}

/// Returns the addresses of a mapping if they hold the content of a file and are not writable.
fn code_range(line: &str) -> Option<Range<usize>> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_constant = words.next()?.starts_with("r-");
    let is_file = words.nth(3).is_some_and(|path| path.starts_with('/'));
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    (is_constant && is_file).then_some(range)
}

#[expect(unsafe_code, reason = "mlock2 takes addresses")]
fn lock(range: &Range<usize>) -> rustix::io::Result<()> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the kernel reads no memory, and pages that are locked stay as they are.
    unsafe { mlock_with(start, range.len(), MlockFlags::ONFAULT) }
}

/// Unmaps pages that are as in their file, so that the next use finds the same content.
#[expect(unsafe_code, reason = "munlock and madvise take addresses")]
fn unmap(range: &Range<usize>) -> rustix::io::Result<()> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the range is not writable and has no page that differs from its file.
    unsafe {
        munlock(start, range.len())?;
        madvise(start, range.len(), Advice::LinuxDontNeed)
    }
}

#[expect(unsafe_code, reason = "madvise takes addresses")]
fn populate(range: &Range<usize>) -> rustix::io::Result<()> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: pages are read from their file; the content of memory does not change.
    unsafe { madvise(start, range.len(), Advice::LinuxPopulateRead) }
}

#[cfg(test)]
mod tests {
    use windlass_eviction::{Observation, SignalStatus, ThresholdState, ThresholdStatus};
    use windlass_testing::hard_eviction;
    use windlass_types::Timestamp;

    use super::*;

    #[test]
    fn only_constant_content_of_files_is_code() {
        let lines = [
            ("1000-3000 r-xp 00000000 fe:00 42  /usr/bin/windlass", true),
            ("3000-4000 r--p 00002000 fe:00 42  /usr/bin/windlass", true),
            ("4000-5000 rw-p 00003000 fe:00 42  /usr/bin/windlass", false),
            (
                "5000-6000 ---p 00003000 fe:00 42  /usr/lib/libc.so.6",
                false,
            ),
            ("6000-7000 r-xp 00000000 00:00 0  [vdso]", false),
            ("7000-8000 r--p 00000000 00:00 0", false),
            ("nonsense", false),
        ];
        for (line, expected) in lines {
            assert_eq!(code_range(line).is_some(), expected, "{line}");
        }
        assert_eq!(code_range(lines[0].0), Some(0x1000..0x3000));
    }

    #[test]
    fn code_that_differs_from_its_file_is_recognized() {
        let smaps = "\
1000-3000 r-xp 00000000 fe:00 42  /usr/bin/windlass
Rss:                   8 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
3000-4000 r--p 00002000 fe:00 42  /usr/bin/windlass
Anonymous:             4 kB
4000-5000 rw-p 00003000 fe:00 42  /usr/bin/windlass
Anonymous:             0 kB
5000-6000 r--p 00000000 fe:00 43  /usr/lib/libc.so.6
VmFlags: rd mr mw me
";
        let expected = [
            (0x1000..0x3000, false),
            (0x3000..0x4000, true),
            // without the field it may differ
            (0x5000..0x6000, true),
        ];
        let expected = expected.map(|(range, changed)| CodeMapping { range, changed });
        assert_eq!(parse_code_mappings(smaps), expected);
    }

    /// The status with one signal, `capacity` and the distances of its thresholds in MiB.
    fn eviction(signal: Signal, capacity: u64, distances: &[Option<i64>]) -> EvictionStatus {
        let settings = hard_eviction(&[(signal.as_str(), "100Mi")]);
        let threshold = *settings.thresholds.iter().next().unwrap();
        let thresholds = distances.iter().map(|distance| ThresholdStatus {
            threshold,
            quantity: None,
            distance: distance.map(|mib| mib << 20),
            state: ThresholdState::Ok,
        });
        EvictionStatus {
            signals: vec![SignalStatus {
                signal,
                observed: Some(Observation {
                    available: 0,
                    capacity: capacity << 20,
                    at: Timestamp::UNIX_EPOCH,
                }),
                obtainable: None,
                stall: None,
                thresholds: thresholds.collect(),
            }],
            ..EvictionStatus::default()
        }
    }

    #[test]
    fn memory_is_short_near_a_threshold() {
        let check = |signal, capacity, distances: &[Option<i64>], expected| {
            let status = eviction(signal, capacity, distances);
            let line = format!("{signal} {capacity} {distances:?}");
            assert_eq!(is_memory_short(&status), expected, "{line}");
        };
        let memory = Signal::MemoryAvailable;
        check(memory, 24_000, &[Some(513)], false);
        check(memory, 24_000, &[Some(512)], true);
        check(memory, 24_000, &[Some(-10)], true);
        check(memory, 24_000, &[Some(5000), Some(100)], true);
        // a small machine
        check(memory, 1024, &[Some(129)], false);
        check(memory, 1024, &[Some(128)], true);
        // not measured, or without a threshold
        check(memory, 24_000, &[None], false);
        check(memory, 24_000, &[], false);
        check(Signal::NodeFsAvailable, 24_000, &[Some(1)], false);
        assert!(!is_memory_short(&EvictionStatus::default()));
    }

    #[test]
    fn released_code_is_less_and_loaded_code_is_all() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: other users may lock little");
        }
        keep_resident();
        let (locked, _) = locked_and_file_kib();
        assert!(locked > 1024, "{locked} KiB");
        load();
        let (_, loaded) = locked_and_file_kib();
        assert!(loaded > locked * 9 / 10, "{loaded} of {locked} KiB");
        release();
        let (still_locked, released) = locked_and_file_kib();
        assert_eq!(still_locked, locked);
        assert!(released < loaded / 2, "{released} of {loaded} KiB");
        load();
        assert!(locked_and_file_kib().1 > locked * 9 / 10);
    }

    /// Reads `VmLck` and `RssFile` of this process.
    fn locked_and_file_kib() -> (u64, u64) {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let field = |name: &str| {
            let text = status.lines().find_map(|line| line.strip_prefix(name));
            let value = text.and_then(|text| text.split_ascii_whitespace().next());
            value.unwrap().parse().unwrap()
        };
        (field("VmLck:"), field("RssFile:"))
    }
}
