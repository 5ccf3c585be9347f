//! What the API server showed of the pods over all boots, and what they lost: a pure record.
//!
//! A power cut ends every container, so each cut may restart each container once, and a task that
//! runs fails. Nothing else may be lost.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use windlass_types::corev1::{ContainerState, ContainerStatus};
use windlass_types::metav1::Time;
use windlass_types::names::{ANN_CONFIG_HASH, ANN_CONFIG_MIRROR};
use windlass_types::{Pod, PodExt};

use crate::instances::delay;
use crate::ledger::Promise;

/// Times in a status are truncated to seconds.
const SLACK: Duration = Duration::from_secs(1);

/// Start and end of an instance: Unix times in seconds.
type Times = (Option<i64>, Option<i64>);

/// The status of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodState {
    pub(crate) name: String,
    /// UID in the paths of the node: for a mirror pod that of its static pod.
    pub(crate) uid: String,
    pub(crate) phase: String,
    /// Reason and message of the phase.
    pub(crate) reason: String,
    pub(crate) ready: bool,
    /// It has a deletionTimestamp: its phase then says how its containers ended.
    pub(crate) is_deleted: bool,
    /// App containers, then init containers.
    pub(crate) containers: Vec<Container>,
}

/// The status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) name: String,
    /// Empty before there is one.
    pub(crate) id: String,
    pub(crate) is_init: bool,
    pub(crate) restarts: u32,
    /// Reason of waiting.
    pub(crate) waiting: String,
    pub(crate) started: Option<i64>,
    pub(crate) finished: Option<i64>,
    /// Start and end of the last state: of the instance that ended if the container waits for its
    /// back-off, else of the instance before.
    pub(crate) last: Times,
}

impl PodState {
    pub(crate) fn new(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let uid = match pod.annotation(ANN_CONFIG_MIRROR) {
            Some(_) => pod.annotation(ANN_CONFIG_HASH).unwrap_or_default().into(),
            None => pod.metadata.uid.clone().unwrap_or_default(),
        };
        let conditions = status.conditions.into_iter().flatten();
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
        let containers = |list: Option<Vec<ContainerStatus>>, is_init: bool| {
            let list = list.into_iter().flatten();
            list.map(move |status| Container::new(&status, is_init))
        };
        let texts = [status.reason, status.message];
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid,
            phase: status.phase.unwrap_or_default(),
            reason: texts.join(": "),
            ready: ready.any(|condition| condition.status == "True"),
            is_deleted: pod.metadata.deletion_timestamp.is_some(),
            containers: containers(status.container_statuses, false)
                .chain(containers(status.init_container_statuses, true))
                .collect(),
        }
    }

    pub(crate) fn app_containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.iter().filter(|it| !it.is_init)
    }

    fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Succeeded" | "Failed")
    }
}

impl Container {
    fn new(status: &ContainerStatus, is_init: bool) -> Self {
        let state = status.state.clone().unwrap_or_default();
        let (started, finished) = times(&state);
        let last = status.last_state.clone().unwrap_or_default();
        Self {
            name: status.name.clone(),
            id: status.container_id.clone().unwrap_or_default(),
            is_init,
            restarts: u32::try_from(status.restart_count).unwrap_or_default(),
            waiting: state.waiting.and_then(|it| it.reason).unwrap_or_default(),
            started,
            finished,
            last: times(&last),
        }
    }
}

/// Start and end of an instance; 0 stands for none, as a runtime shows an instance that never ran.
fn times(state: &ContainerState) -> (Option<i64>, Option<i64>) {
    let seconds = |time: Option<&Time>| time.map(|time| time.0.as_second()).filter(|it| *it > 0);
    if let Some(running) = &state.running {
        return (seconds(running.started_at.as_ref()), None);
    }
    let ended = state.terminated.as_ref();
    let started = ended.and_then(|it| seconds(it.started_at.as_ref()));
    let finished = ended.and_then(|it| seconds(it.finished_at.as_ref()));
    // without a start it never ran
    (started, started.and(finished))
}

/// What a pod lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Loss {
    /// A pod that must not fail failed: a failed admission too.
    Failed,
    /// A terminal phase was left.
    LeftTerminalPhase,
    /// A restart count is lower than before.
    CountWentBack,
    /// More restarts of a container than power cuts.
    ExtraRestart,
    /// A restart before the end of its back-off.
    EarlyRestart,
    /// Synced data of an emptyDir is not there.
    Data,
    /// A ConfigMap volume of a running pod has other content than the ConfigMap.
    Payload,
}

impl Loss {
    pub(crate) const ALL: [Self; 7] = [
        Self::Failed,
        Self::LeftTerminalPhase,
        Self::CountWentBack,
        Self::ExtraRestart,
        Self::EarlyRestart,
        Self::Data,
        Self::Payload,
    ];
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed => "failed pods, failed admissions included",
            Self::LeftTerminalPhase => "terminal phases that were left",
            Self::CountWentBack => "restart counts that went back",
            Self::ExtraRestart => "containers restarted more often than the power was cut",
            Self::EarlyRestart => "restarts of crash loops before the end of their back-off",
            Self::Data => "emptyDirs without their synced data",
            Self::Payload => "ConfigMap volumes with other content than the ConfigMap",
        })
    }
}

/// Name of a container of a pod: UID, container.
type Key = (String, String);

/// The record of a run.
#[derive(Debug, Default)]
pub(crate) struct History {
    promises: BTreeMap<String, Promise>,
    /// Power cuts so far.
    cuts: u32,
    restarts: BTreeMap<Key, u32>,
    /// Terminal phase by UID.
    ended: BTreeMap<String, String>,
    /// Instances of crash loops by restart count.
    loops: BTreeMap<Key, BTreeMap<u32, Times>>,
    losses: BTreeSet<(Loss, String)>,
}

impl History {
    /// Adds a pod by its name in the API server.
    pub(crate) fn add(&mut self, name: &str, promise: Promise) {
        self.promises.insert(name.to_owned(), promise);
    }

    /// The power is cut: each container may restart once more.
    pub(crate) fn record_cut(&mut self) {
        self.cuts += 1;
    }

    pub(crate) fn record_loss(&mut self, loss: Loss, what: String) {
        self.losses.insert((loss, what));
    }

    /// Records what the API server shows now.
    pub(crate) fn observe(&mut self, pods: &[PodState]) {
        for pod in pods {
            let Some(promise) = self.promises.get(&pod.name).copied() else {
                continue;
            };
            self.observe_phase(pod, promise);
            for container in &pod.containers {
                self.observe_container(pod, container, promise);
            }
        }
    }

    fn observe_phase(&mut self, pod: &PodState, promise: Promise) {
        let PodState {
            name, phase, uid, ..
        } = pod;
        if phase == "Failed" && !pod.is_deleted && promise != Promise::Task {
            self.record_loss(Loss::Failed, format!("{name}: {}", pod.reason));
        }
        match self.ended.get(uid) {
            Some(before) if before != phase => {
                let what = format!("{name}: {before}, then {phase}");
                self.record_loss(Loss::LeftTerminalPhase, what);
            }
            None if pod.has_ended() => {
                self.ended.insert(uid.clone(), phase.clone());
            }
            _ => {}
        }
    }

    fn observe_container(&mut self, pod: &PodState, now: &Container, promise: Promise) {
        let key = (pod.uid.clone(), now.name.clone());
        let of = format!("{}/{}", pod.name, now.name);
        let before = self.restarts.insert(key.clone(), now.restarts);
        if before.is_some_and(|before| now.restarts < before) {
            let what = format!("{of}: {} after {}", now.restarts, before.unwrap_or(0));
            self.record_loss(Loss::CountWentBack, what);
        }
        if promise != Promise::CrashLoop {
            if now.restarts > self.cuts {
                let what = format!("{of}: {} restarts, {} cuts", now.restarts, self.cuts);
                self.record_loss(Loss::ExtraRestart, what);
            }
            return;
        }
        let instances = self.loops.entry(key).or_default();
        let mut set = |restarts: u32, (started, finished): Times| {
            let times = instances.entry(restarts).or_default();
            times.0 = times.0.or(started);
            // what was not flushed before a cut is lost: the runtime then knows a later end only
            times.1 = times.1.or(finished);
        };
        set(now.restarts, (now.started, now.finished));
        let instance_of_last = match (now.waiting.as_str(), now.started) {
            ("CrashLoopBackOff", _) => Some(now.restarts),
            (_, Some(_)) => now.restarts.checked_sub(1),
            _ => None,
        };
        if let Some(instance) = instance_of_last {
            set(instance, now.last);
        }
    }

    /// Number of restarts of crash loops, of which the end of the instance before is known.
    pub(crate) fn restarts_of_loops(&self) -> usize {
        self.waits().count()
    }

    /// Restart number, waited time and container.
    fn waits(&self) -> impl Iterator<Item = (u32, i64, &Key)> {
        self.loops.iter().flat_map(|(key, instances)| {
            instances.iter().filter_map(move |(restart, (started, _))| {
                let before = instances.get(&restart.checked_sub(1)?)?;
                Some((*restart, (*started)? - before.1?, key))
            })
        })
    }

    /// All losses so far.
    pub(crate) fn losses(&self) -> BTreeSet<(Loss, String)> {
        let early = self.waits().filter_map(|(restart, waited, (uid, name))| {
            let min = delay(restart);
            let waited_at_most = Duration::from_secs(u64::try_from(waited).unwrap_or(0)) + SLACK;
            (waited_at_most < min).then(|| {
                let what = format!(
                    "{uid}/{name}: restart {restart} after {waited} s in place of {} s",
                    min.as_secs()
                );
                (Loss::EarlyRestart, what)
            })
        });
        early.chain(self.losses.iter().cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(restarts: u32) -> Container {
        Container {
            name: "main".to_owned(),
            id: format!("c{restarts}"),
            restarts,
            ..Container::default()
        }
    }

    fn pod(phase: &str, containers: Vec<Container>) -> PodState {
        PodState {
            name: "a-node".to_owned(),
            uid: "u".to_owned(),
            phase: phase.to_owned(),
            containers,
            ..PodState::default()
        }
    }

    /// Observes the states, with a power cut between two.
    fn losses(promise: Promise, states: &[PodState]) -> Vec<Loss> {
        let mut history = History::default();
        history.add("a-node", promise);
        for (number, state) in states.iter().enumerate() {
            if number > 0 {
                history.record_cut();
            }
            history.observe(std::slice::from_ref(state));
        }
        history.losses().into_iter().map(|(loss, _)| loss).collect()
    }

    #[test]
    fn one_restart_for_each_cut_is_no_loss() {
        let running = |restarts| pod("Running", vec![container(restarts)]);
        let check = |restarts: &[u32], expected: &[Loss]| {
            let states: Vec<PodState> = restarts.iter().map(|it| running(*it)).collect();
            assert_eq!(losses(Promise::Steady, &states), expected, "{restarts:?}");
        };
        check(&[0, 1, 2], &[]);
        check(&[0, 0, 2], &[]);
        check(&[0, 2], &[Loss::ExtraRestart]);
        check(&[1], &[Loss::ExtraRestart]);
        check(&[0, 1, 0], &[Loss::CountWentBack]);
    }

    #[test]
    fn terminal_phase_is_final_and_only_tasks_may_fail() {
        let check = |promise, phases: &[&str], expected: &[Loss]| {
            let states: Vec<PodState> = phases.iter().map(|it| pod(it, vec![])).collect();
            assert_eq!(losses(promise, &states), expected, "{phases:?}");
        };
        check(Promise::Steady, &["Pending", "Running", "Pending"], &[]);
        check(Promise::Steady, &["Running", "Failed"], &[Loss::Failed]);
        check(Promise::Task, &["Running", "Failed", "Failed"], &[]);
        check(
            Promise::Task,
            &["Succeeded", "Running"],
            &[Loss::LeftTerminalPhase],
        );
        check(
            Promise::Task,
            &["Succeeded", "Failed"],
            &[Loss::LeftTerminalPhase],
        );
        // as one whose containers ignore SIGTERM
        let deleted = PodState {
            is_deleted: true,
            ..pod("Failed", vec![])
        };
        let states = [pod("Running", vec![]), deleted];
        assert_eq!(losses(Promise::Steady, &states), [], "deleted");
    }

    #[test]
    fn early_restart_over_a_power_cut_is_found() {
        // restart count, start, end of the instance before
        let check = |instances: &[(u32, i64, i64)], expected: &[Loss]| {
            let state = |(restarts, started, previous): &(u32, i64, i64)| {
                let running = Container {
                    started: Some(*started),
                    last: (None, Some(*previous)),
                    ..container(*restarts)
                };
                pod("Running", vec![running])
            };
            let states: Vec<PodState> = instances.iter().map(state).collect();
            assert_eq!(
                losses(Promise::CrashLoop, &states),
                expected,
                "{instances:?}"
            );
        };
        check(&[(1, 100, 99), (2, 111, 101), (3, 140, 119)], &[]);
        check(&[(2, 110, 101)], &[]);
        check(&[(2, 109, 101)], &[Loss::EarlyRestart]);
        // the cut lost a doubling
        check(&[(4, 120, 101)], &[Loss::EarlyRestart]);
        check(&[(9, 500, 199)], &[]);
        check(&[(9, 500, 220)], &[Loss::EarlyRestart]);
    }

    #[test]
    fn first_known_end_of_an_instance_counts() {
        let mut history = History::default();
        history.add("a-node", Promise::CrashLoop);
        let ended = |finished| Container {
            last: (Some(90), Some(finished)),
            waiting: "CrashLoopBackOff".to_owned(),
            ..container(1)
        };
        let again = Container {
            started: Some(115),
            last: (Some(90), Some(110)),
            ..container(2)
        };
        for state in [ended(100), ended(110), again] {
            history.observe(&[pod("Running", vec![state])]);
        }
        assert_eq!(history.restarts_of_loops(), 1);
        assert_eq!(history.losses().len(), 0);
    }

    #[test]
    fn status_of_a_mirror_pod_has_the_uid_of_its_static_pod() {
        let object: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p0-node", "uid": "mirror", "annotations": {
                ANN_CONFIG_MIRROR: "hash", ANN_CONFIG_HASH: "hash",
            }},
            "status": {
                "phase": "Running",
                "conditions": [{ "type": "Ready", "status": "True" }],
                "containerStatuses": [{
                    "name": "main", "containerID": "containerd://b", "restartCount": 1,
                    "image": "i", "imageID": "i", "ready": true,
                    "state": { "running": { "startedAt": "1970-01-01T00:01:00Z" } },
                    "lastState": { "terminated": {
                        "exitCode": 255, "startedAt": "1970-01-01T00:00:10Z",
                        "finishedAt": "1970-01-01T00:00:50Z",
                    }},
                }],
            },
        }))
        .unwrap();
        let state = PodState::new(&object);
        assert_eq!(state.uid, "hash");
        assert!(state.ready);
        let main = state.app_containers().next().unwrap();
        assert_eq!(main.started, Some(60));
        assert_eq!(main.last, (Some(10), Some(50)));
    }
}
