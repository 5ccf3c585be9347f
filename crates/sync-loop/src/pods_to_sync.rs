//! The pods that are due at a sync tick (upstream `getPodsToSync`).
//!
//! Retries, the ends of back-offs and the periodic resync are timers of the pod workers. A tick is
//! for what the wall clock decides: the active deadline (upstream `activeDeadlineHandler`).

use windlass_pod_lifecycle::deadline::{DeadlineInput, is_past_deadline};
use windlass_types::corev1::PodStatus;
use windlass_types::view::PodWorkerState;
use windlass_types::{ObservedPod, Pod, PodExt, PodUid, Timestamp};

/// A desired pod at a sync tick.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SyncCandidate<'a> {
    /// The pod.
    pub(crate) pod: &'a Pod,
    /// Its last published status.
    pub(crate) status: &'a PodStatus,
    /// The observed pod.
    pub(crate) observed: &'a ObservedPod,
    /// State of its worker.
    pub(crate) worker_state: PodWorkerState,
}

impl SyncCandidate<'_> {
    /// True if its worker has to fail the pod.
    fn is_past_deadline(&self, now: Timestamp) -> bool {
        let input = DeadlineInput {
            pod: self.pod,
            status: self.status,
            observed: self.observed,
            now,
        };
        self.worker_state == PodWorkerState::SyncPod && is_past_deadline(input)
    }
}

/// Returns the pods that are due, in the order of the candidates.
pub(crate) fn pods_to_sync<'a>(
    candidates: impl IntoIterator<Item = SyncCandidate<'a>>,
    now: Timestamp,
) -> Vec<PodUid> {
    let due = candidates.into_iter().filter(|c| c.is_past_deadline(now));
    due.map(|candidate| candidate.pod.uid()).collect()
}

#[cfg(test)]
mod tests {
    use windlass_types::corev1::PodSpec;
    use windlass_types::metav1::Time;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).expect("in range")
    }

    /// One pod `web` that started at 0 s; expects the pods due at 29, 30 and 31 s.
    fn check(
        deadline: Option<i64>,
        phase: &str,
        worker_state: PodWorkerState,
        expected: [&str; 3],
    ) {
        let mut pod = Pod::default();
        pod.metadata.uid = Some("web".to_owned());
        pod.spec = Some(PodSpec {
            active_deadline_seconds: deadline,
            ..PodSpec::default()
        });
        let status = PodStatus {
            phase: Some(phase.to_owned()),
            start_time: Some(Time(at(0))),
            ..PodStatus::default()
        };
        let candidate = SyncCandidate {
            pod: &pod,
            status: &status,
            observed: &ObservedPod::default(),
            worker_state,
        };
        for (second, expected) in [29, 30, 31].into_iter().zip(expected) {
            let due = pods_to_sync([candidate], at(second));
            let due: Vec<_> = due.iter().map(PodUid::as_str).collect();
            let case = format!("{deadline:?} {phase} {worker_state:?} at {second}");
            assert_eq!(due.join(" "), expected, "{case}");
        }
    }

    #[test]
    fn pod_is_due_once_its_deadline_has_passed() {
        use PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};
        check(None, "Running", SyncPod, ["", "", ""]);
        check(Some(30), "Running", SyncPod, ["", "web", "web"]);
        check(Some(30), "Pending", SyncPod, ["", "web", "web"]);
        check(Some(31), "Running", SyncPod, ["", "", "web"]);
        check(Some(30), "Succeeded", SyncPod, ["", "", ""]);
        check(Some(30), "Running", TerminatingPod, ["", "", ""]);
        check(Some(30), "Running", TerminatedPod, ["", "", ""]);
    }

    #[test]
    fn due_pods_keep_their_order() {
        let pods = ["b", "late", "a"].map(|uid| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(uid.to_owned());
            let seconds = if uid == "late" { 60 } else { 10 };
            pod.spec = Some(PodSpec {
                active_deadline_seconds: Some(seconds),
                ..PodSpec::default()
            });
            pod
        });
        let status = PodStatus {
            start_time: Some(Time(at(0))),
            ..PodStatus::default()
        };
        let observed = ObservedPod::default();
        let candidates = pods.iter().map(|pod| SyncCandidate {
            pod,
            status: &status,
            observed: &observed,
            worker_state: PodWorkerState::SyncPod,
        });
        assert_eq!(
            pods_to_sync(candidates, at(30)),
            [PodUid::from("b"), PodUid::from("a")]
        );
    }
}
