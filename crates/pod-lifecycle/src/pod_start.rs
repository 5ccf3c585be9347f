//! The start latency of a pod (upstream's startup SLI): from its creation until the watch shows all
//! containers started, without pulls and init containers, for pods with ephemeral volumes only.

use std::time::Duration;

use windlass_types::corev1::{ContainerStatus, Volume};
use windlass_types::{Phase, Pod, PodExt, Timestamp};

/// Progress of a pod start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartProgress {
    /// The node has not started it.
    NotStarted,
    /// It does not count: it was unschedulable, or is in a terminal phase.
    Excluded,
    /// In progress.
    InProgress,
    /// All containers have started.
    Finished {
        /// Time since its creation.
        total: Duration,
        /// The same without pulls and init containers; `None` for a pod with persistent volumes.
        objective: Option<Duration>,
    },
}

/// Returns the progress of a start at `now`. `pulling` is the duration of the image pulls. Unlike
/// upstream, back-offs between failed pulls count.
pub fn start_progress(pod: &Pod, pulling: Duration, now: Timestamp) -> StartProgress {
    let Some(status) = &pod.status else {
        return StartProgress::NotStarted;
    };
    let over = Phase::is_terminal_in(status);
    let mut conditions = status.conditions.iter().flatten();
    if over || conditions.any(|it| it.type_ == "PodScheduled" && it.status == "False") {
        return StartProgress::Excluded;
    }
    if status.start_time.is_none() {
        return StartProgress::NotStarted;
    }
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    let all = containers.len() >= pod.containers().len();
    let Some(created) = &pod.metadata.creation_timestamp else {
        return StartProgress::InProgress;
    };
    if !all || !containers.iter().all(runs) {
        return StartProgress::InProgress;
    }
    let init: Duration = status
        .init_container_statuses
        .iter()
        .flatten()
        .map(ran_for)
        .sum();
    let total = between(created.0, now);
    let volumes = &PodExt::spec(pod).volumes;
    let ephemeral = volumes.iter().flatten().all(is_ephemeral);
    StartProgress::Finished {
        total,
        objective: ephemeral.then(|| total.saturating_sub(pulling + init)),
    }
}

fn between(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

fn runs(status: &ContainerStatus) -> bool {
    let state = status.state.as_ref();
    state.is_some_and(|state| {
        state
            .running
            .as_ref()
            .is_some_and(|it| it.started_at.is_some())
    })
}

/// Returns the duration of the last run of an exited init container.
fn ran_for(status: &ContainerStatus) -> Duration {
    let ended = status
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let times = ended.and_then(|it| Some((it.started_at.as_ref()?.0, it.finished_at.as_ref()?.0)));
    times.map_or(Duration::ZERO, |(from, to)| between(from, to))
}

/// True for a volume that the node creates for the pod.
fn is_ephemeral(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.projected.is_some()
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use serde_json::{Value, json};

    use super::*;

    impl fmt::Display for StartProgress {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::NotStarted => f.write_str("not started"),
                Self::Excluded => f.write_str("excluded"),
                Self::InProgress => f.write_str("in progress"),
                Self::Finished { total, objective } => {
                    write!(f, "total={}", total.as_secs_f64())?;
                    match objective {
                        Some(objective) => write!(f, " objective={}", objective.as_secs_f64()),
                        None => Ok(()),
                    }
                }
            }
        }
    }

    /// Evaluates a pod created at 04:00:00 at 04:00:20.
    #[track_caller]
    fn check(volumes: Value, status: Value, expected: &str) {
        let pod = json!({
            "metadata": {"name": "web", "creationTimestamp": "2026-11-22T04:00:00Z"},
            "spec": {"containers": [{"name": "a"}, {"name": "b"}], "volumes": volumes},
            "status": status,
        });
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let now = "2026-11-22T04:00:20Z".parse().expect("time");
        assert_eq!(
            start_progress(&pod, Duration::from_secs(6), now).to_string(),
            expected
        );
    }

    #[test]
    fn start_finishes_when_all_containers_have_started() {
        let runs = json!({"running": {"startedAt": "2026-11-22T04:00:19Z"}});
        let of = |name: &str, state: &Value| {
            json!({"name": name, "state": state, "ready": false, "restartCount": 0, "image": "i",
                "imageID": ""})
        };
        let started = |states: &[(&str, &Value)]| {
            let all: Vec<Value> = states.iter().map(|(name, state)| of(name, state)).collect();
            json!({"phase": "Running", "startTime": "2026-11-22T04:00:01Z", "containerStatuses": all})
        };
        let none = json!([]);
        check(none.clone(), json!({"phase": "Pending"}), "not started");
        let waited = json!([{"type": "PodScheduled", "status": "False"}]);
        check(none.clone(), json!({"conditions": waited}), "excluded");
        check(none.clone(), json!({"phase": "Failed"}), "excluded");
        check(none.clone(), started(&[]), "in progress");
        check(none.clone(), started(&[("a", &runs)]), "in progress");
        let waits = json!({"waiting": {}});
        check(
            none.clone(),
            started(&[("a", &runs), ("b", &waits)]),
            "in progress",
        );
        let both = started(&[("a", &runs), ("b", &runs)]);
        check(none.clone(), both.clone(), "total=20 objective=14");
        let own = json!([{"name": "t", "projected": {}}, {"name": "s", "emptyDir": {}}]);
        check(own, both.clone(), "total=20 objective=14");
        let lasting = json!([{"name": "d", "hostPath": {"path": "/d"}}]);
        check(lasting, both.clone(), "total=20");
        let mut with_init = both;
        let ran = json!({"terminated": {"exitCode": 0, "startedAt": "2026-11-22T04:00:02Z",
            "finishedAt": "2026-11-22T04:00:05Z"}});
        with_init["initContainerStatuses"] = json!([of("i", &ran)]);
        check(none, with_init, "total=20 objective=11");
    }
}
