//! When each probe is due: timers as data, one wake-up for all of them.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

/// Probes that are due within this time share a wake-up: 300 questions a second cost 20 of them
/// for each kind. The shortest period is a second, so none is late by what a user could see; waking
/// for each on its own costs as much CPU time as asking.
const TOGETHER: Duration = Duration::from_millis(50);

/// One probe of one container instance; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeId(pub u64);

/// The times at which probes are due.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    due: BTreeSet<(Instant, ProbeId)>,
    woke: Option<Instant>,
}

impl Wheel {
    /// Sets when a probe is due; `slot` is the probe's own note of it.
    pub(crate) fn set(&mut self, id: ProbeId, slot: &mut Option<Instant>, at: Instant) {
        self.clear(id, slot);
        self.due.insert((at, id));
        *slot = Some(at);
    }

    /// The probe is no longer due.
    pub(crate) fn clear(&mut self, id: ProbeId, slot: &mut Option<Instant>) {
        if let Some(at) = slot.take() {
            self.due.remove(&(at, id));
        }
    }

    /// When somebody has to look next.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let (first, _) = self.due.first()?;
        let earliest = self.woke.map(|woke| woke + TOGETHER);
        Some(earliest.map_or(*first, |earliest| earliest.max(*first)))
    }

    /// Takes out what is due, in order.
    pub(crate) fn take_due(&mut self, now: Instant) -> Vec<ProbeId> {
        self.woke = Some(now);
        let rest = self.due.split_off(&(now, ProbeId(u64::MAX)));
        let due = std::mem::replace(&mut self.due, rest);
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// True if nothing is due, ever.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_due_together_is_one_wake_up_and_nothing_is_early() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let mut wheel = Wheel::default();
        let mut slots = [None; 4];
        for (i, ms) in [100, 101, 149, 200].into_iter().enumerate() {
            wheel.set(ProbeId(i as u64), &mut slots[i], at(ms));
        }
        let mut wakes = Vec::new();
        while let Some(wake) = wheel.next_wake() {
            let due = wheel.take_due(wake);
            let due: Vec<_> = due.into_iter().map(|id| id.0).collect();
            wakes.push(((wake - begin).as_millis(), due));
        }
        let expected = [(100, vec![0]), (150, vec![1, 2]), (200, vec![3])];
        assert_eq!(wakes, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_is_due_once_at_its_newest_time() {
        let begin = Instant::now();
        let mut wheel = Wheel::default();
        let mut slot = None;
        wheel.set(ProbeId(1), &mut slot, begin + Duration::from_secs(1));
        wheel.set(ProbeId(1), &mut slot, begin + Duration::from_secs(9));
        assert_eq!(wheel.next_wake(), slot);
        assert_eq!(slot, Some(begin + Duration::from_secs(9)));
        wheel.clear(ProbeId(1), &mut slot);
        assert!(wheel.is_empty());
        assert_eq!((slot, wheel.next_wake()), (None, None));
    }
}
