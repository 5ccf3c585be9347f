//! Exponential back-off as data: a policy, a table of delays, and `now` as an argument.
//!
//! Mirrors upstream `flowcontrol.Backoff`: the delay doubles with each failure up to a maximum, and
//! is reset after twice the maximum without a failure. See [`restart_key`] and [`pull_key`].

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use windlass_types::Timestamp;
use windlass_types::corev1::Container;
use windlass_types::{ContainerState, ObservedPod, Pod, PodExt, PodUid};

use windlass_units::hash::fnv1a_64;

/// Initial and maximum delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffPolicy {
    /// Delay after the first failure.
    pub initial: Duration,
    /// Maximum delay (`crashLoopBackOff.maxContainerRestartPeriod` for restarts).
    pub max: Duration,
}

impl BackoffPolicy {
    /// Container restarts and image pulls: 10 s doubling to 5 min.
    pub const DEFAULT: Self = Self {
        initial: Duration::from_secs(10),
        max: Duration::from_secs(300),
    };
}

/// After the first failure of a pull upstream syncs the pod again at the latest when its relist,
/// once a second, has seen the new sandbox.
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

/// More doublings than from the shortest delay to the maximum of any policy.
const MAX_DOUBLINGS: u32 = 32;

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackoffEntry {
    /// Current delay.
    pub delay: Duration,
    /// Time of the last counted failure.
    pub last_update: Timestamp,
    /// Restart count of the instance that was counted last; 0 for a pull.
    #[serde(default)]
    pub restart_count: u32,
}

/// Back-offs by key. Each pod worker owns one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BackoffTable {
    entries: BTreeMap<String, BackoffEntry>,
}

impl BackoffTable {
    /// Counts a failure at `now` and returns the next delay.
    pub fn next(&mut self, key: &str, policy: BackoffPolicy, now: Timestamp) -> Duration {
        self.next_restart(key, policy, now, 0)
    }

    /// Counts the start of an instance with this restart count at `now` and returns the next delay.
    pub fn next_restart(
        &mut self,
        key: &str,
        policy: BackoffPolicy,
        now: Timestamp,
        restart_count: u32,
    ) -> Duration {
        let delay = match self.entries.get(key) {
            Some(entry) if !is_expired(entry, policy, now) => (entry.delay * 2).min(policy.max),
            _ => policy.initial.min(policy.max),
        };
        // drop keys of former images and resources
        self.entries
            .retain(|_, entry| !is_removable(entry, policy, now));
        self.entries.insert(
            key.to_owned(),
            BackoffEntry {
                delay,
                last_update: now,
                restart_count,
            },
        );
        delay
    }

    /// Counts the restarts of a previous agent run that the runtime shows and the table lacks: an
    /// agent that was killed during a start, or whose disk was full, has not written them. Without a
    /// previous entry one is counted, because the earlier ones may have expired. An instance that is
    /// created now and started by the runtime later is counted then, so each sync calls this.
    pub fn catch_up(
        &mut self,
        pod: &Pod,
        observed: &ObservedPod,
        policy: BackoffPolicy,
        agent_started: Timestamp,
    ) {
        for spec in pod.init_containers().iter().chain(pod.containers()) {
            let started = observed
                .instances(&spec.name)
                .filter(|instance| instance.state != ContainerState::Created)
                .filter(|instance| instance.created_at < agent_started)
                .max_by_key(|instance| instance.restart_count);
            let Some(started) = started.filter(|instance| instance.restart_count > 0) else {
                continue;
            };
            let key = restart_key(pod, spec);
            let count = started.restart_count;
            let missing = match self.entries.get(&key) {
                Some(entry) => count.saturating_sub(entry.restart_count),
                None => 1,
            };
            for _ in 0..missing.min(MAX_DOUBLINGS) {
                self.next_restart(&key, policy, started.created_at, count);
            }
        }
    }

    /// Returns the end of the delay from `event`, if it is after `now`. Ignores an event from
    /// before the clock was set back.
    pub fn until(
        &self,
        key: &str,
        event: Timestamp,
        policy: BackoffPolicy,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let entry = self
            .entries
            .get(key)
            .filter(|e| !is_expired(e, policy, now))?;
        let end = event.saturating_add(entry.delay).ok()?;
        let plausible = event <= now.saturating_add(entry.delay).ok()?;
        (now < end && plausible).then_some(end)
    }

    /// Returns the current delay of a key.
    pub fn delay(&self, key: &str) -> Option<Duration> {
        self.entries.get(key).map(|e| e.delay)
    }

    /// Returns the time of the last failure of a key. The delay of a pull starts here, the delay of
    /// a restart at the exit of the container.
    pub fn last_failure(&self, key: &str) -> Option<Timestamp> {
        self.entries.get(key).map(|e| e.last_update)
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// True after twice the maximum delay (10 min by default) without a failure.
fn is_expired(entry: &BackoffEntry, policy: BackoffPolicy, now: Timestamp) -> bool {
    now.duration_since(entry.last_update).as_secs() > 2 * policy.max.as_secs() as i64
}

/// True for an entry that has expired under any policy in use.
fn is_removable(entry: &BackoffEntry, policy: BackoffPolicy, now: Timestamp) -> bool {
    let max = policy.max.max(BackoffPolicy::DEFAULT.max).max(entry.delay);
    is_expired(entry, BackoffPolicy { max, ..policy }, now)
}

/// Returns the key of a container's restart back-off (upstream `GetBackoffKey`); it changes with
/// the pod, image and resources.
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

/// Returns the key of an image pull's back-off, per pod and image.
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
    fn failure_before_clock_was_set_back_delays_nothing() {
        let mut table = BackoffTable::default();
        table.next("k", BackoffPolicy::DEFAULT, at(0));
        let until = |now| table.until("k", at(0), BackoffPolicy::DEFAULT, at(now));
        assert_eq!(until(-3600), None);
        assert_eq!(until(-5), Some(at(10)), "clocks may differ slightly");
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
    fn delay_doubles_to_maximum_and_resets_after_10_min() {
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
    fn expired_entries_of_all_keys_are_removed() {
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
    fn delay_starts_at_the_event_not_at_the_count() {
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

    /// Delay of container `a` after its counted restarts, then after a pod was observed whose newest
    /// instance has this state and restart count.
    fn check_catch_up(counted: &[u32], state: ContainerState, restart_count: u32, expected: u64) {
        let pod = Pod {
            spec: Some(windlass_types::corev1::PodSpec {
                containers: vec![Container {
                    name: "a".to_owned(),
                    ..Container::default()
                }],
                ..Default::default()
            }),
            ..Pod::default()
        };
        let key = restart_key(&pod, &pod.containers()[0]);
        let mut table = BackoffTable::default();
        for count in counted {
            table.next_restart(&key, BackoffPolicy::DEFAULT, at(i64::from(*count)), *count);
        }
        let observed = ObservedPod {
            containers: vec![windlass_types::ObservedContainer {
                name: "a".to_owned(),
                created_at: at(100),
                restart_count,
                state,
                ..Default::default()
            }],
            ..ObservedPod::default()
        };
        let delay = |table: &BackoffTable| table.delay(&key).map_or(0, |delay| delay.as_secs());
        let before = delay(&table);
        // an instance of this agent run was counted when it was started
        table.catch_up(&pod, &observed, BackoffPolicy::DEFAULT, at(100));
        assert_eq!(
            delay(&table),
            before,
            "{counted:?} {state:?} {restart_count}"
        );
        for sync in 0..2 {
            table.catch_up(&pod, &observed, BackoffPolicy::DEFAULT, at(101));
            let line = format!("sync {sync}: {counted:?} {state:?} {restart_count}");
            assert_eq!(delay(&table), expected, "{line}");
        }
    }

    #[test]
    fn restarts_that_were_not_written_are_counted() {
        use ContainerState::{Created, Exited, Running};
        check_catch_up(&[], Running, 0, 0);
        check_catch_up(&[1, 2], Running, 2, 20);
        // the agent was killed after the start and before the write
        check_catch_up(&[1, 2], Running, 3, 40);
        check_catch_up(&[1, 2], Exited, 3, 40);
        check_catch_up(&[], Exited, 1, 10);
        // the disk was full for a while
        check_catch_up(&[1, 2], Exited, 5, 160);
        check_catch_up(&[1], Exited, 4_000_000_000, 300);
        // the file was lost, and the count has no end
        check_catch_up(&[], Exited, 9, 10);
        // it never ran, and its next start is counted
        check_catch_up(&[1, 2], Created, 3, 20);
    }
}
