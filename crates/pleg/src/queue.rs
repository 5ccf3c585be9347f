//! Inspection queue: pods in inspection, their waiters, and retries.
//!
//! At most one inspection per pod. A request during an inspection gets the next one, because the
//! current one may have begun before the change of interest. A failed inspection, or one that does
//! not show an announced exit, is retried with back-off.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_types::PodUid;

/// Back-off after a failed inspection: 100 ms doubling to 5 s.
const MIN_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);
/// The runtime announces an exit before its lists show it (containerd reaps the task first): seven
/// retries, 10 ms doubling, 1.3 s in all; then the relist detects the exit.
const MIN_EXIT_RETRY: Duration = Duration::from_millis(10);
const MAX_EXIT_RETRIES: u32 = 7;

/// Inspections of one pod; `W` is the waiter type.
#[derive(Debug)]
struct Entry<W> {
    running: bool,
    again: bool,
    current: Vec<W>,
    next: Vec<W>,
    failures: u32,
    expected_exits: BTreeSet<String>,
    exit_retries: u32,
}

impl<W> Default for Entry<W> {
    fn default() -> Self {
        Self {
            running: false,
            again: false,
            current: Vec::new(),
            next: Vec::new(),
            failures: 0,
            expected_exits: BTreeSet::new(),
            exit_retries: 0,
        }
    }
}

/// Inspections of all pods.
#[derive(Debug)]
pub(crate) struct InspectQueue<W> {
    pods: BTreeMap<PodUid, Entry<W>>,
}

impl<W> Default for InspectQueue<W> {
    fn default() -> Self {
        Self {
            pods: BTreeMap::new(),
        }
    }
}

/// Actions after the end of an inspection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NextInspection<W> {
    /// Waiters of this inspection.
    pub answered: Vec<W>,
    /// Start the next inspection now.
    pub start: bool,
    /// Request an inspection after this delay.
    pub retry_after: Option<Duration>,
}

impl<W> InspectQueue<W> {
    /// Requests an inspection; true if it is to be started now.
    pub(crate) fn request(&mut self, uid: &PodUid, waiter: Option<W>) -> bool {
        let entry = self.pods.entry(uid.clone()).or_default();
        if entry.running {
            entry.again = true;
            entry.next.extend(waiter);
            return false;
        }
        entry.running = true;
        entry.current.extend(waiter);
        true
    }

    /// True if an inspection of the pod is in progress or due.
    pub(crate) fn is_reading(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    /// True if the inspection of any pod is in progress, due or failing.
    pub(crate) fn has_reads(&self) -> bool {
        !self.pods.is_empty()
    }

    /// True if the last inspection of the pod failed.
    pub(crate) fn is_failing(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|entry| entry.failures > 0)
    }

    /// Records that the runtime announced the exit of a container or sandbox.
    pub(crate) fn expect_exit(&mut self, uid: &PodUid, id: &str) {
        let entry = self.pods.entry(uid.clone()).or_default();
        entry.expected_exits.insert(id.to_owned());
        entry.exit_retries = 0;
    }

    /// Handles a successful inspection; `alive` are the IDs that are running or ready.
    pub(crate) fn succeeded(
        &mut self,
        uid: &PodUid,
        alive: &BTreeSet<String>,
    ) -> NextInspection<W> {
        self.after(uid, |entry| {
            entry.failures = 0;
            entry.expected_exits.retain(|id| alive.contains(id));
            if entry.expected_exits.is_empty() || entry.exit_retries == MAX_EXIT_RETRIES {
                entry.expected_exits.clear();
                entry.exit_retries = 0;
                return None;
            }
            let delay = MIN_EXIT_RETRY * 2u32.pow(entry.exit_retries);
            entry.exit_retries += 1;
            Some(delay)
        })
    }

    /// Handles a failed inspection.
    pub(crate) fn failed(&mut self, uid: &PodUid) -> NextInspection<W> {
        self.after(uid, |entry| {
            let delay = (MIN_RETRY * 2u32.pow(entry.failures.min(6))).min(MAX_RETRY);
            entry.failures += 1;
            Some(delay)
        })
    }

    fn after(
        &mut self,
        uid: &PodUid,
        decide: impl FnOnce(&mut Entry<W>) -> Option<Duration>,
    ) -> NextInspection<W> {
        let Some(entry) = self.pods.get_mut(uid) else {
            return NextInspection {
                answered: Vec::new(),
                start: false,
                retry_after: None,
            };
        };
        let retry_after = decide(entry);
        let answered = std::mem::take(&mut entry.current);
        entry.running = std::mem::take(&mut entry.again);
        entry.current = std::mem::take(&mut entry.next);
        let start = entry.running;
        if !start && retry_after.is_none() {
            self.pods.remove(uid);
        }
        // an inspection that starts now replaces the retry
        NextInspection {
            answered,
            start,
            retry_after: retry_after.filter(|_| !start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(answered: &[u8], start: bool, retry_after_ms: Option<u64>) -> NextInspection<u8> {
        NextInspection {
            answered: answered.to_vec(),
            start,
            retry_after: retry_after_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn request_during_an_inspection_waits_for_the_next_one() {
        let mut queue = InspectQueue::default();
        let uid = PodUid::from("a");
        assert!(queue.request(&uid, Some(1)));
        assert!(!queue.request(&uid, Some(2)));
        assert!(!queue.request(&uid, None));
        let none = BTreeSet::new();
        assert_eq!(queue.succeeded(&uid, &none), after(&[1], true, None));
        assert_eq!(queue.succeeded(&uid, &none), after(&[2], false, None));
        assert!(queue.pods.is_empty());
    }

    #[test]
    fn failed_inspection_replies_and_is_retried_with_backoff() {
        let mut queue = InspectQueue::default();
        let uid = PodUid::from("a");
        let mut delays = Vec::new();
        for _ in 0..8 {
            assert!(queue.request(&uid, Some(1)));
            let result = queue.failed(&uid);
            assert_eq!(result.answered, [1]);
            delays.push(result.retry_after.expect("again").as_millis());
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn announced_exit_is_inspected_until_seen_or_attempts_end() {
        let mut queue = InspectQueue::<u8>::default();
        let uid = PodUid::from("a");
        let alive = BTreeSet::from(["c1".to_owned()]);
        queue.expect_exit(&uid, "c1");
        queue.request(&uid, None);
        assert_eq!(queue.succeeded(&uid, &alive), after(&[], false, Some(10)));
        queue.request(&uid, None);
        assert_eq!(
            queue.succeeded(&uid, &BTreeSet::new()),
            after(&[], false, None)
        );

        queue.expect_exit(&uid, "c1");
        let mut retries = 0;
        loop {
            queue.request(&uid, None);
            if queue.succeeded(&uid, &alive).retry_after.is_none() {
                break;
            }
            retries += 1;
        }
        assert_eq!(retries, MAX_EXIT_RETRIES);
    }
}
