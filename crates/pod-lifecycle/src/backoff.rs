//! Exponential back-off as data: a policy, a table of delays, and `now` as an argument.
//!
//! Mirrors upstream `flowcontrol.Backoff`: the delay doubles with each failure up to a maximum,
//! and a key that was left alone for twice the maximum starts over. A key is pure text, see
//! [`restart_key`] and [`pull_key`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_types::Timestamp;
use windlass_types::corev1::Container;
use windlass_types::{Pod, PodExt, PodUid};

use windlass_units::hash::fnv1a_64;

/// First delay and largest delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Largest delay (`crashLoopBackOff.maxContainerRestartPeriod` for restarts).
    pub max: Duration,
}

impl BackoffPolicy {
    /// Container restarts and image pulls: 10 s doubling to 5 min.
    pub const DEFAULT: Self = Self {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(300),
    };
}

/// After the first failure of a pull upstream syncs the pod again at the latest when its relist, once
/// a second, has seen the new sandbox.
const FIRST_PULL_RESYNC: Duration = Duration::from_secs(1);
/// After a later one it waits this long (upstream `backOffPeriod`, without its jitter).
const PULL_RESYNC: Duration = Duration::from_secs(10);

/// Returns when a pod is synced again although the back-off of a pull that failed at `now` still
/// runs: that sync shows `ImagePullBackOff` in place of `ErrImagePull`.
pub fn pull_resync_at(
    now: Timestamp,
    backoff_end: Timestamp,
    policy: BackoffPolicy,
) -> Option<Timestamp> {
    let delay = Duration::try_from(backoff_end.duration_since(now)).ok()?;
    let resync = match delay <= policy.initial {
        true => FIRST_PULL_RESYNC,
        false => PULL_RESYNC,
    };
    (resync < delay).then(|| now.saturating_add(resync).ok())?
}

/// The state of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffEntry {
    /// The delay in force.
    pub delay: Duration,
    /// When the last failure was counted.
    pub last_update: Timestamp,
}

/// All keys of one owner. A pod worker owns one table for its pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackoffTable {
    entries: BTreeMap<String, BackoffEntry>,
}

impl BackoffTable {
    /// Counts a failure at `now` and returns the delay that follows it.
    pub fn next(&mut self, key: &str, policy: BackoffPolicy, now: Timestamp) -> Duration {
        let delay = match self.entries.get(key) {
            Some(entry) if !expired(entry, policy, now) => (entry.delay * 2).min(policy.max),
            _ => policy.initial.min(policy.max),
        };
        // keys of images and resources that the pod no longer has would stay for ever
        self.entries
            .retain(|_, entry| !forgotten(entry, policy, now));
        self.entries.insert(
            key.to_owned(),
            BackoffEntry {
                delay,
                last_update: now,
            },
        );
        delay
    }

    /// The end of the delay counted from `event`, if it is still ahead of `now`. An event further
    /// ahead than the delay itself was dated before the clock was set back: it delays nothing.
    pub fn until(
        &self,
        key: &str,
        event: Timestamp,
        policy: BackoffPolicy,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let entry = self.entries.get(key).filter(|e| !expired(e, policy, now))?;
        let end = event.saturating_add(entry.delay).ok()?;
        let believed = event <= now.saturating_add(entry.delay).ok()?;
        (now < end && believed).then_some(end)
    }

    /// The delay in force for a key, if it has one.
    pub fn delay(&self, key: &str) -> Option<Duration> {
        self.entries.get(key).map(|e| e.delay)
    }

    /// When the last failure of a key was counted. A pull's delay runs from here, a restart's
    /// from the exit of the container.
    pub fn last_failure(&self, key: &str) -> Option<Timestamp> {
        self.entries.get(key).map(|e| e.last_update)
    }

    /// True if no key is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// A key left alone for twice the maximum (10 min by default) counts as new.
fn expired(entry: &BackoffEntry, policy: BackoffPolicy, now: Timestamp) -> bool {
    now.duration_since(entry.last_update).as_secs() > 2 * policy.max.as_secs() as i64
}

/// True for an entry that counts for nothing under any policy: another key's may be longer than
/// this one's.
fn forgotten(entry: &BackoffEntry, policy: BackoffPolicy, now: Timestamp) -> bool {
    let max = policy.max.max(BackoffPolicy::DEFAULT.max).max(entry.delay);
    expired(entry, BackoffPolicy { max, ..policy }, now)
}

/// Key of a container's restart back-off (upstream `GetBackoffKey`): changing the pod, the
/// image or the resources starts over.
pub fn restart_key(pod: &Pod, container: &Container) -> String {
    let resources = serde_json::to_string(&container.resources).unwrap_or_default();
    let text = format!(
        "{}_{}_{}_{}_{}_{}",
        pod.name(),
        pod.namespace(),
        pod.uid(),
        container.name,
        container.image.as_deref().unwrap_or_default(),
        resources
    );
    format!(
        "restart/{}/{:016x}",
        container.name,
        fnv1a_64(text.as_bytes())
    )
}

/// Key of an image pull's back-off: one for each pod and image, so that pods do not share it.
pub fn pull_key(uid: &PodUid, image: &str) -> String {
    format!("pull/{uid}/{image}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + seconds).expect("in range")
    }

    #[test]
    fn a_failure_dated_before_the_clock_was_set_back_delays_nothing() {
        let mut table = BackoffTable::default();
        table.next("k", BackoffPolicy::DEFAULT, at(0));
        let until = |now| table.until("k", at(0), BackoffPolicy::DEFAULT, at(now));
        assert_eq!(until(-3600), None);
        assert_eq!(
            until(-5),
            Some(at(10)),
            "clocks of two programs may differ a little"
        );
        assert_eq!(until(5), Some(at(10)));
    }

    #[test]
    fn failed_pull_is_shown_as_back_off_after_a_second_then_ten() {
        let resync = |now, end| pull_resync_at(at(now), at(end), BackoffPolicy::DEFAULT);
        assert_eq!(resync(0, 10), Some(at(1)));
        assert_eq!(resync(10, 30), Some(at(20)));
        assert_eq!(resync(100, 400), Some(at(110)));
        // the next pull is due by then
        assert_eq!(resync(0, 1), None);
        assert_eq!(resync(10, 0), None);
    }

    #[test]
    fn delays_double_to_the_maximum_and_start_over_after_ten_quiet_minutes() {
        let mut table = BackoffTable::default();
        let mut now = 0;
        let mut seen = Vec::new();
        for _ in 0..7 {
            let delay = table.next("k", BackoffPolicy::DEFAULT, at(now)).as_secs();
            seen.push(delay);
            now += delay as i64;
        }
        assert_eq!(seen, [10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(
            table
                .next("k", BackoffPolicy::DEFAULT, at(now + 301))
                .as_secs(),
            10
        );
    }

    #[test]
    fn what_was_left_alone_for_long_enough_is_forgotten_whatever_its_key() {
        let mut table = BackoffTable::default();
        let short = BackoffPolicy {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(1),
        };
        table.next("old image", BackoffPolicy::DEFAULT, at(0));
        table.next("restart", short, at(600));
        assert_eq!(table.delay("old image").map(|d| d.as_secs()), Some(10));
        table.next("restart", short, at(601));
        assert_eq!(table.delay("old image"), None);
        assert_eq!(table.delay("restart").map(|d| d.as_secs()), Some(1));
    }

    #[test]
    fn the_delay_counts_from_the_event_not_from_the_failure_count() {
        let mut table = BackoffTable::default();
        table.next("k", BackoffPolicy::DEFAULT, at(5));
        assert_eq!(
            table.until("k", at(0), BackoffPolicy::DEFAULT, at(9)),
            Some(at(10))
        );
        assert_eq!(
            table.until("k", at(0), BackoffPolicy::DEFAULT, at(10)),
            None
        );
        assert_eq!(
            table.until("other", at(0), BackoffPolicy::DEFAULT, at(1)),
            None
        );
    }
}
