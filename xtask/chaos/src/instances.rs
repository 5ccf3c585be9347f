//! What the runtime shows of the containers, polled: two instances at the same time, and restarts
//! that came before the end of their back-off.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use windlass_proto::cri_v1 as cri;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;

/// Timeout of a call; containerd is stopped at times.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Interval of the lists.
pub(crate) const POLL: Duration = Duration::from_millis(250);
/// Back-off of the second restart; the first has none.
const INITIAL: Duration = Duration::from_secs(10);
/// Maximum back-off.
const MAX: Duration = Duration::from_secs(300);
/// Containers start and end at times with this accuracy.
const SLACK: Duration = Duration::from_millis(200);

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Connects to the CRI socket.
pub(crate) fn connect(socket: &Path) -> RuntimeServiceClient<Channel> {
    let socket: PathBuf = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost").timeout(TIMEOUT);
    RuntimeServiceClient::new(endpoint.connect_with_connector_lazy(connector))
}

/// A container instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) sandbox: String,
    /// Name of the pod with the suffix of the node.
    pub(crate) pod: String,
    pub(crate) uid: String,
    pub(crate) container: String,
    pub(crate) attempt: u32,
    pub(crate) running: bool,
    pub(crate) exited: bool,
    /// Unix time in nanoseconds.
    pub(crate) created: i64,
}

pub(crate) async fn list(
    runtime: &mut RuntimeServiceClient<Channel>,
) -> Result<Vec<Instance>, tonic::Status> {
    let request = cri::ListContainersRequest::default();
    let containers = runtime
        .list_containers(request)
        .await?
        .into_inner()
        .containers;
    let instance = |container: cri::Container| {
        let label = |name: &str| container.labels.get(name).cloned().unwrap_or_default();
        Instance {
            pod: label(POD_NAME),
            uid: label(POD_UID),
            container: label(CONTAINER_NAME),
            attempt: container.metadata.as_ref().map_or(0, |it| it.attempt),
            running: container.state() == cri::ContainerState::ContainerRunning,
            exited: container.state() == cri::ContainerState::ContainerExited,
            created: container.created_at,
            sandbox: container.pod_sandbox_id.clone(),
            id: container.id.clone(),
        }
    };
    Ok(containers.into_iter().map(instance).collect())
}

/// Exit time of an exited container, in nanoseconds; `None` if it never started.
pub(crate) async fn exit_of(
    runtime: &mut RuntimeServiceClient<Channel>,
    id: &str,
) -> Result<Option<i64>, tonic::Status> {
    let request = cri::ContainerStatusRequest {
        container_id: id.to_owned(),
        verbose: false,
    };
    let status = runtime.container_status(request).await?.into_inner().status;
    Ok(status
        .filter(|status| status.started_at > 0)
        .map(|status| status.finished_at))
}

/// What is expected of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Restarts with back-off.
    CrashLoop,
    /// No restart.
    Steady,
    /// Anything: the run killed something of it.
    Anything,
}

/// Times of the instances of crash loops, and instances that ran at the same time.
#[derive(Debug, Default)]
pub(crate) struct Instances {
    /// Attempt to creation and exit, by pod.
    loops: BTreeMap<String, BTreeMap<u32, (i64, Option<i64>)>>,
    overlaps: BTreeMap<(String, String), Vec<String>>,
    /// Highest attempt that ran and its ID, by pod UID and container.
    newest: BTreeMap<(String, String), (u32, String)>,
    went_back: Vec<String>,
    restarted: Vec<String>,
}

impl Instances {
    /// Records a list; returns the exited instances of crash loops whose exit time is not known.
    pub(crate) fn record(
        &mut self,
        list: &[Instance],
        expected: impl Fn(&str) -> Expected,
    ) -> Vec<Instance> {
        let mut running: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        let mut unknown = Vec::new();
        for instance in list {
            let expected = expected(&instance.pod);
            if instance.running {
                self.record_attempt(instance, expected);
                let key = (instance.pod.clone(), instance.container.clone());
                running.entry(key).or_default().push(instance.id.clone());
            }
            if expected == Expected::CrashLoop {
                let attempts = self.loops.entry(instance.pod.clone()).or_default();
                let times = attempts
                    .entry(instance.attempt)
                    .or_insert((instance.created, None));
                // an instance that never ran is replaced by one with its attempt
                if times.0 != instance.created {
                    *times = (instance.created, None);
                }
                if instance.exited && times.1.is_none() {
                    unknown.push(instance.clone());
                }
            }
        }
        running.retain(|_, ids| ids.len() > 1);
        self.overlaps.extend(running);
        unknown
    }

    fn record_attempt(&mut self, instance: &Instance, expected: Expected) {
        let key = (instance.uid.clone(), instance.container.clone());
        let now = (instance.attempt, instance.id.clone());
        let Some((newest, id)) = self.newest.insert(key, now) else {
            return;
        };
        if id == instance.id {
            return;
        }
        let Instance { pod, container, .. } = instance;
        let line = format!(
            "{pod}/{container}: attempt {newest}, then {}",
            instance.attempt
        );
        if newest >= instance.attempt {
            self.went_back.push(line.clone());
        }
        if expected == Expected::Steady {
            self.restarted.push(line);
        }
    }

    /// Containers that ran twice although the run killed nothing of their pods.
    pub(crate) fn restarted(&self) -> &[String] {
        &self.restarted
    }

    /// Containers that ran with a restart count that another instance had before.
    pub(crate) fn went_back(&self) -> &[String] {
        &self.went_back
    }

    pub(crate) fn record_exit(&mut self, instance: &Instance, exit: i64) {
        let attempts = self.loops.get_mut(&instance.pod);
        if let Some(times) = attempts.and_then(|all| all.get_mut(&instance.attempt)) {
            times.1 = Some(exit);
        }
    }

    /// Containers of which two instances ran at the same time.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        let all = self.overlaps.iter();
        all.map(|((pod, container), ids)| format!("{pod}/{container}: {ids:?}"))
            .collect()
    }

    /// Restarts of crash loops, and those that came too early.
    pub(crate) fn backoffs(&self) -> (usize, Vec<String>) {
        let mut restarts = 0;
        let mut early = Vec::new();
        for (pod, attempts) in &self.loops {
            for (attempt, (created, _)) in attempts {
                let Some(before) = attempt.checked_sub(1) else {
                    continue;
                };
                let Some((_, Some(exit))) = attempts.get(&before) else {
                    continue;
                };
                restarts += 1;
                let waited = Duration::from_nanos(u64::try_from(created - exit).unwrap_or(0));
                let least = delay(*attempt);
                if waited + SLACK < least {
                    early.push(format!(
                        "{pod}: restart {attempt} after {:.1} s in place of {} s",
                        waited.as_secs_f64(),
                        least.as_secs()
                    ));
                }
            }
        }
        (restarts, early)
    }
}

/// Back-off before the restart with this number: none, 10 s, 20 s and so on.
pub(crate) fn delay(restart: u32) -> Duration {
    match restart.checked_sub(2) {
        None => Duration::ZERO,
        Some(doublings) => (INITIAL * 2_u32.saturating_pow(doublings.min(10))).min(MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn instance(id: &str, attempt: u32, created: i64, running: bool) -> Instance {
        Instance {
            id: id.to_owned(),
            pod: "loop".to_owned(),
            container: "main".to_owned(),
            attempt,
            running,
            exited: !running,
            created: created * SECOND,
            ..Instance::default()
        }
    }

    /// Instances as (attempt, creation, exit) in seconds.
    fn early(times: &[(u32, i64, i64)]) -> (usize, usize) {
        let mut instances = Instances::default();
        for (attempt, created, exit) in times {
            let seen = instance("a", *attempt, *created, false);
            assert_eq!(
                instances
                    .record(std::slice::from_ref(&seen), |_| Expected::CrashLoop)
                    .len(),
                1
            );
            instances.record_exit(&seen, exit * SECOND);
            assert_eq!(instances.record(&[seen], |_| Expected::CrashLoop), []);
        }
        let (restarts, early) = instances.backoffs();
        (restarts, early.len())
    }

    #[test]
    fn restart_before_its_back_off_is_found() {
        assert_eq!(
            early(&[(0, 0, 1), (1, 1, 2), (2, 12, 13), (3, 33, 34)]),
            (3, 0)
        );
        // the third waited 10 s again: a doubling was lost
        assert_eq!(early(&[(1, 1, 2), (2, 12, 13), (3, 23, 24)]), (2, 1));
        assert_eq!(early(&[(1, 1, 2), (2, 3, 4)]), (1, 1));
        // the instance between them was not seen
        assert_eq!(early(&[(1, 1, 2), (3, 3, 4)]), (0, 0));
        assert_eq!(early(&[(20, 0, 1), (21, 301, 302)]), (1, 0));
    }

    #[test]
    fn instance_that_never_ran_keeps_its_attempt() {
        assert_eq!(
            early(&[(1, 1, 2), (2, 11, 11), (2, 12, 13), (3, 33, 34)]),
            (2, 0)
        );
    }

    #[test]
    fn instances_that_run_at_the_same_time_are_found() {
        let mut instances = Instances::default();
        instances.record(
            &[instance("a", 0, 0, false), instance("b", 1, 1, true)],
            |_| Expected::Steady,
        );
        assert_eq!(instances.overlaps().len(), 0);
        instances.record(
            &[instance("a", 0, 0, true), instance("b", 1, 1, true)],
            |_| Expected::Steady,
        );
        assert_eq!(instances.overlaps().len(), 1);
    }

    #[test]
    fn restart_count_that_goes_back_is_found() {
        let went_back = |attempts: &[(&str, u32)]| {
            let mut instances = Instances::default();
            for (id, attempt) in attempts {
                instances.record(&[instance(id, *attempt, 0, true)], |_| Expected::Anything);
            }
            instances.went_back().len()
        };
        assert_eq!(went_back(&[("a", 0), ("a", 0), ("b", 1), ("c", 2)]), 0);
        assert_eq!(went_back(&[("a", 0), ("b", 0)]), 1);
        assert_eq!(went_back(&[("a", 3), ("b", 1), ("c", 2)]), 1);
    }

    #[test]
    fn restart_of_a_steady_container_is_found() {
        let restarted = |expected: Expected| {
            let mut instances = Instances::default();
            for (id, attempt) in [("a", 0), ("a", 0), ("b", 1)] {
                instances.record(&[instance(id, attempt, 0, true)], |_| expected);
            }
            instances.restarted().len()
        };
        assert_eq!(restarted(Expected::Steady), 1);
        assert_eq!(restarted(Expected::Anything), 0);
        assert_eq!(restarted(Expected::CrashLoop), 0);
    }
}
