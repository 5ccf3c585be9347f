//! How long a pod took to start, by the objective that operators of clusters set themselves: from its
//! creation until the API server's watch shows that each of its containers has started, without what
//! is not the node's (pulls, init containers), and only of pods whose volumes are their own.

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::{ContainerStatus, Volume};
use windlass_types::{Pod, PodExt, Timestamp};

/// How a pod that the watch shows stands to its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartProgress {
    /// The node has not begun: from here on its start is worth following.
    NotStarted,
    /// It does not count: it had to wait for room in the cluster, or is over.
    Excluded,
    /// It is under way.
    InProgress,
    /// It has started.
    Finished {
        /// Since its creation.
        total: Duration,
        /// The same without pulls and init containers; `None` for a pod with volumes that are not
        /// made for it.
        objective: Option<Duration>,
    },
}

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

/// Judges what the watch shows at `now`. `pulling` is what pulls took. Upstream leaves the pauses
/// between pulls that failed out of its objective, too; here they count.
pub fn start_progress(pod: &Pod, pulling: Duration, now: Timestamp) -> StartProgress {
    let Some(status) = &pod.status else {
        return StartProgress::NotStarted;
    };
    let over = matches!(status.phase.as_deref(), Some("Failed" | "Succeeded"));
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
    let own = volumes.iter().flatten().all(is_own);
    StartProgress::Finished {
        total,
        objective: own.then(|| total.saturating_sub(pulling + init)),
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

/// What an init container took that has ended, its last run if it was repeated.
fn ran_for(status: &ContainerStatus) -> Duration {
    let ended = status
        .state
        .as_ref()
        .and_then(|state| state.terminated.as_ref());
    let times = ended.and_then(|it| Some((it.started_at.as_ref()?.0, it.finished_at.as_ref()?.0)));
    times.map_or(Duration::ZERO, |(from, to)| between(from, to))
}

/// Made for the pod by the node, out of nothing or of what the API server has.
fn is_own(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.projected.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A pod created at 04:00:00, seen at 04:00:20.
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
    fn a_start_is_over_when_the_watch_shows_all_containers_started() {
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
