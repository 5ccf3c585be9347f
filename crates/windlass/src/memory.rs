//! The allocator: one arena, and [`malloc_trim`] after a large decrease of memory usage.
//!
//! glibc returns only the top of its heap to the system. After the deletion of many pods, free
//! memory below allocations in use would stay resident.
//!
//! [`malloc_trim`]: https://man7.org/linux/man-pages/man3/malloc_trim.3.html

use std::time::Duration;

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

/// Returns unused memory to the system; never completes.
pub(crate) async fn release_unused() {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trims = TrimSchedule::default();
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
