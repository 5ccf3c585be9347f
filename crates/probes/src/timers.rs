//! Due times of all probes, with shared wake-ups.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Minimum interval between wake-ups: at most 20 per second and kind. The minimum period is 1 s, so
/// the delay is not visible to users.
const WAKE_UP_INTERVAL: Duration = Duration::from_millis(50);

/// ID of the probe of one container instance; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// The due times of probes.
#[derive(Debug, Default)]
pub(crate) struct ProbeTimers {
    due: BTreeSet<(Instant, ProbeId)>,
    woke: Option<Instant>,
}

impl ProbeTimers {
    /// Sets the due time of a probe; `slot` is its copy in the probe.
    pub(crate) fn set(&mut self, id: ProbeId, slot: &mut Option<Instant>, at: Instant) {
        self.clear(id, slot);
        self.due.insert((at, id));
        *slot = Some(at);
    }

    /// Removes the due time of a probe.
    pub(crate) fn clear(&mut self, id: ProbeId, slot: &mut Option<Instant>) {
        if let Some(at) = slot.take() {
            self.due.remove(&(at, id));
        }
    }

    /// Returns the time of the next wake-up.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let (first, _) = self.due.first()?;
        let earliest = self.woke.map(|woke| woke + WAKE_UP_INTERVAL);
        Some(earliest.map_or(*first, |earliest| earliest.max(*first)))
    }

    /// Removes and returns the due probes in order.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<ProbeId> {
        self.woke = Some(now);
        let rest = self.due.split_off(&(now, ProbeId(u64::MAX)));
        let due = std::mem::replace(&mut self.due, rest);
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// True without due times.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn close_due_times_share_wake_up_and_none_is_early() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut timers = ProbeTimers::default();
        let mut slots = [None; 4];
        for (i, ms) in [100, 101, 149, 200].into_iter().enumerate() {
            timers.set(ProbeId(i as u64), &mut slots[i], at(ms));
        }
        let mut wakes = Vec::new();
        while let Some(wake) = timers.next_wake() {
            let due = timers.take_due(wake);
            let due: Vec<_> = due.into_iter().map(|id| id.0).collect();
            wakes.push(((wake - begin).as_millis(), due));
        }
        let expected = [(100, vec![0]), (150, vec![1, 2]), (200, vec![3])];
        assert_eq!(wakes, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn probe_is_due_once_at_newest_time() {
        let begin = Instant::now();
        let mut timers = ProbeTimers::default();
        let mut slot = None;
        timers.set(ProbeId(1), &mut slot, begin + Duration::from_secs(1));
        timers.set(ProbeId(1), &mut slot, begin + Duration::from_secs(9));
        assert_eq!(timers.next_wake(), slot);
        assert_eq!(slot, Some(begin + Duration::from_secs(9)));
        timers.clear(ProbeId(1), &mut slot);
        assert!(timers.is_empty());
        assert_eq!((slot, timers.next_wake()), (None, None));
    }
}
