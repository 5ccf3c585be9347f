//! The allocator: one arena, and memory that pods used goes back to the system after they left.
//!
//! glibc returns the top of its heap by itself. What lies below memory that is in use stays
//! resident, which after the deletion of many pods is most of it, until [`malloc_trim`] is called.
//!
//! [`malloc_trim`]: https://man7.org/linux/man-pages/man3/malloc_trim.3.html

use std::time::Duration;

use tokio::time::MissedTickBehavior;

/// How often the use of memory is read. One reading takes the time of one allocation per free block.
const PERIOD: Duration = Duration::from_secs(10);
/// A smaller decrease is not worth the time of a trim.
const MIN_DECREASE: usize = 2 << 20;
/// Parts of the peak by which the use decreases before a trim.
const PARTS: usize = 8;

/// When to trim: a while after the use of memory has decreased by a good part of its peak.
#[derive(Clone, Copy, Debug, Default)]
struct Trims {
    peak: usize,
    last: usize,
}

impl Trims {
    /// Takes the number of bytes in use. True if a trim is due: the use is well below its peak and
    /// has stopped decreasing.
    fn is_due(&mut self, used: usize) -> bool {
        let settled = used.saturating_add(MIN_DECREASE) > self.last;
        self.last = used;
        self.peak = self.peak.max(used);
        let decrease = self.peak - used;
        let due = settled && decrease >= MIN_DECREASE.max(self.peak / PARTS);
        if due {
            self.peak = used;
        }
        due
    }
}

/// Limits what the allocator keeps. To be called before any thread starts.
///
/// One arena for all threads: they allocate little at once, and every further arena keeps its own
/// free lists resident.
#[expect(unsafe_code, reason = "mallopt has no safe wrapper")]
pub(crate) fn limit_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: plain setters of the C library's allocator, on the only thread there is yet.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 256 * 1024);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 128 * 1024);
    }
}

/// Gives memory back to the system whenever a good part of it is no longer used; never ends.
pub(crate) async fn release_unused() {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trims = Trims::default();
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
    tracing::debug!(released, "unused memory given back to the system");
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn memory_is_trimmed_once_after_its_use_has_decreased() {
        let mut trims = Trims::default();
        // MiB in use at each reading, and whether that is followed by a trim
        let readings = [
            (10, false),
            (60, false),
            // less, but still decreasing
            (50, false),
            (20, false),
            (19, true),
            (19, false),
            // an eighth of a small peak is no reason
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
    fn what_is_allocated_counts_as_used() {
        let before = used_bytes();
        // small blocks: large ones are mapped and not counted
        let blocks: Vec<Box<[u8; 1024]>> = (0..8192).map(|_| Box::new([1; 1024])).collect();
        assert!(used_bytes() > before + 6 * MIB, "{before}");
        drop(blocks);
        trim();
    }
}
