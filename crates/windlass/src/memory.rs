//! The allocator: one arena, and [`malloc_trim`] after a large decrease of memory usage. The code
//! stays resident, without what only the start needs.
//!
//! glibc returns only the top of its heap to the system. After the deletion of many pods, free
//! memory below allocations in use would stay resident.
//!
//! [`malloc_trim`]: https://man7.org/linux/man-pages/man3/malloc_trim.3.html

use std::ops::Range;
use std::time::Duration;

use rustix::mm::{Advice, MlockFlags, madvise, mlock_with, munlock};
use tokio::time::MissedTickBehavior;

/// Interval between readings of memory usage; each costs one allocation per free block.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Min decrease in bytes that justifies a trim.
const MIN_DECREASE: usize = 2 << 20;
/// A trim requires a decrease by this fraction of the peak.
const PEAK_FRACTION: usize = 8;

/// Decides when to trim: after memory usage has fallen well below its peak.
#[derive(Clone, Copy, Debug, Default)]
struct TrimSchedule {
    peak: usize,
    last: usize,
}

impl TrimSchedule {
    /// Records the number of bytes in use; true if it is well below its peak and no longer falling.
    fn is_due(&mut self, used: usize) -> bool {
        let settled = used.saturating_add(MIN_DECREASE) > self.last;
        self.last = used;
        self.peak = self.peak.max(used);
        let decrease = self.peak - used;
        let due = settled && decrease >= MIN_DECREASE.max(self.peak / PEAK_FRACTION);
        if due {
            self.peak = used;
        }
        due
    }
}

/// Limits the memory that the allocator retains. Call it before any thread starts.
///
/// One arena for all threads: each further one would keep its own free lists resident.
#[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain setters of the C library's allocator, called on the only thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 * 1024);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// Keeps the code that has run resident: without free memory the kernel would drop it again and
/// again, and the agent could not evict the pod that uses all. Memory usage does not change.
pub(crate) fn keep_code_resident() {
    for mapping in code_mappings() {
        if let Err(error) = lock(&mapping.range) {
            return tracing::debug!(%error, "code is not kept resident");
        }
    }
}

/// Unmaps the code that has run until now, a large part of which only the start needs. What is used
/// again is mapped again, usually without a read of the disk, and stays resident.
fn release_start_code() {
    for mapping in code_mappings().iter().filter(|it| !it.changed) {
        if let Err(error) = unmap(&mapping.range).and_then(|()| lock(&mapping.range)) {
            return tracing::debug!(%error, "code of the start stays resident");
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
    match std::fs::read_to_string("/proc/self/smaps") {
        Ok(smaps) => parse_code_mappings(&smaps),
        Err(error) => {
            tracing::warn!(%error, "code is not kept resident");
            Vec::new()
        }
    }
}

/// Parses `/proc/self/smaps`: a line with the addresses of each mapping, then its fields.
fn parse_code_mappings(smaps: &str) -> Vec<CodeMapping> {
    let mut lines = smaps.lines().peekable();
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

/// Returns unused memory to the system: once the code of the start, then free memory; never
/// completes.
pub(crate) async fn release_unused() {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trims = TrimSchedule::default();
    ticks.tick().await; // immediate
    ticks.tick().await;
    release_start_code();
    loop {
        ticks.tick().await;
        if trims.is_due(used_bytes()) {
            trim();
        }
    }
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "mallinfo2 has no safe wrapper")]
fn used_bytes() -> usize {
    // SAFETY: reads counters of the allocator under its own lock.
    unsafe { libc::mallinfo2() }.uordblks
}

#[cfg(not(target_env = "gnu"))]
fn used_bytes() -> usize {
    0
}

#[expect(unsafe_code, reason = "malloc_trim has no safe wrapper")]
fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: returns free pages to the system under the allocator's own lock.
    let released = unsafe { libc::malloc_trim(0) } == 1;
    #[cfg(not(target_env = "gnu"))]
    let released = false;
    tracing::debug!(released, "unused memory released");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn trim_is_due_once_after_usage_decreased() {
        let mut trims = TrimSchedule::default();
        // MiB in use at each reading, and whether that is followed by a trim
        let readings = [
            (10, false),
            (60, false),
            // less, but still decreasing
            (50, false),
            (20, false),
            (19, true),
            (19, false),
            // an eighth of a small peak is not enough
            (18, false),
            (30, false),
            (26, false),
            (26, true),
        ];
        for (reading, (used, expected)) in readings.into_iter().enumerate() {
            assert_eq!(trims.is_due(used * MIB), expected, "reading {reading}");
        }
    }

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

    #[test]
    fn code_stays_locked_and_runs_after_the_start_code_is_released() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: other users may lock little");
        }
        keep_code_resident();
        let (locked, _) = locked_and_file_kib();
        assert!(locked > 1024, "{locked} KiB");
        // other tests of this process use code as well
        let released = (0..100).any(|_| {
            let (_, before) = locked_and_file_kib();
            release_start_code();
            locked_and_file_kib().1 < before
        });
        assert!(released);
        assert_eq!(locked_and_file_kib().0, locked);
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

    #[test]
    #[cfg(target_env = "gnu")]
    fn allocated_bytes_count_as_used() {
        let before = used_bytes();
        // small blocks: large ones are mapped and not counted
        let blocks: Vec<Box<[u8; 1024]>> = (0..8192).map(|_| Box::new([1; 1024])).collect();
        assert!(used_bytes() > before + 6 * MIB, "{before}");
        drop(blocks);
        trim();
    }
}
