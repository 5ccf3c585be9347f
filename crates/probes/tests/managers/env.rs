//! Test environment: three managers, a fake runtime, scripted servers; the test is the pod worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use tokio::task::LocalSet;
use tokio::time::Instant;
use windlass_actors::{ProbePod, ProbeResults, ProbeTargets, ProbeUpdate, ProbesHandle};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{ActorKind, SimClock, SlotReceiver, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_probes::{ProbeDeps, ProbeManager};
use windlass_store::ProbeResultFile;
use windlass_testing::{FakeChecks, FakeRuntime};
use windlass_types::corev1::{Container, ExecAction, Probe, TCPSocketAction};
use windlass_types::view::{EventType, PodWorkerState};
use windlass_types::{
    Clock, ContainerId, ContainerState, EventRecorder, ObservedContainer, ObservedPod, Pod, PodExt,
    PodProbeResults, PodUid, ProbeKind, Reason, SandboxId, Timestamp,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// Address of every pod.
pub(crate) const IP: &str = "10.0.0.7";

/// The recorded events, each as `container reason message`.
#[derive(Debug, Default)]
pub(crate) struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, _: &Pod, name: Option<&str>, kind: EventType, reason: Reason, message: &str) {
        assert_eq!(kind, EventType::Warning);
        let name = name.unwrap_or_default();
        let mut events = self.0.lock().expect("not poisoned");
        events.push(format!("{name} {reason} {message}"));
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

/// A probe by TCP at `port`, due every ten seconds.
pub(crate) fn tcp(port: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::Int(port),
            ..TCPSocketAction::default()
        }),
        ..Probe::default()
    }
}

/// A probe by a command, due every ten seconds.
pub(crate) fn exec(command: &str) -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(vec![command.to_owned()]),
        }),
        ..Probe::default()
    }
}

/// An observed container.
#[derive(Clone, Debug)]
pub(crate) struct FakeContainer {
    pub(crate) name: String,
    pub(crate) id: String,
    pub(crate) state: ContainerState,
    pub(crate) started_at: Timestamp,
}

/// The test environment.
pub(crate) struct TestEnv {
    pub(crate) checks: FakeChecks,
    pub(crate) runtime: FakeRuntime,
    pub(crate) results: ProbeResults,
    pub(crate) metrics: Metrics,
    pub(crate) began: Instant,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) hung: HungOperations,
    events: Arc<Events>,
    probes: ProbesHandle,
    updates: SlotReceiver<PodUid, ProbeUpdate>,
}

/// Runs a test with restored results.
pub(crate) async fn with_results(
    restored: BTreeMap<PodUid, PodProbeResults>,
    test: impl AsyncFnOnce(&mut TestEnv),
) {
    run(restored, None, test).await;
}

/// Runs a test without restored results.
pub(crate) async fn with_env(test: impl AsyncFnOnce(&mut TestEnv)) {
    run(BTreeMap::new(), None, test).await;
}

pub(crate) async fn run(
    restored: BTreeMap<PodUid, PodProbeResults>,
    file: Option<ProbeResultFile>,
    test: impl AsyncFnOnce(&mut TestEnv),
) {
    let actors = async {
        let mut env = TestEnv::spawn(restored, file);
        test(&mut env).await;
    };
    LocalSet::new().run_until(actors).await;
}

impl TestEnv {
    fn spawn(restored: BTreeMap<PodUid, PodProbeResults>, file: Option<ProbeResultFile>) -> Self {
        let metrics = Metrics::new().expect("metrics");
        let epoch = "2026-01-01T00:00:00Z".parse().expect("time");
        let clock = Arc::new(SimClock::starting_at(epoch));
        let results = ProbeResults::new(restored);
        let hung = HungOperations::new(clock.clone());
        let (sender, updates) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
        let checks = FakeChecks::default();
        let runtime = FakeRuntime::new(clock.clone(), 1);
        let events = Arc::new(Events::default());
        let lanes = ProbeKind::ALL.map(|kind| {
            let (lane, pods) = slots(
                windlass_probes::actor_kind(ProbeKind::Liveness),
                &metrics.mailboxes,
            );
            let deps = ProbeDeps {
                runtime: Arc::new(runtime.clone()),
                checks: Arc::new(checks.clone()),
                events: events.clone(),
                clock: clock.clone(),
                metrics: metrics.clone(),
                results: results.clone(),
                file: file.clone(),
                updates: sender.clone(),
                hung: hung.clone(),
            };
            start_actor(ProbeManager::new(kind, deps, pods));
            lane
        });
        Self {
            probes: ProbesHandle {
                managers: lanes,
                results: results.clone(),
            },
            checks,
            runtime,
            results,
            metrics,
            began: Instant::now(),
            clock,
            hung,
            events,
            updates,
        }
    }

    /// The time `seconds` ago.
    pub(crate) fn ago(&self, seconds: i64) -> Timestamp {
        let now = self.clock.now();
        let second = now.as_second() - seconds;
        Timestamp::from_second(second).expect("in range")
    }

    /// A container that started just now.
    pub(crate) fn container(&self, name: &str, id: &str) -> FakeContainer {
        FakeContainer {
            name: name.to_owned(),
            id: id.to_owned(),
            state: ContainerState::Running,
            started_at: self.clock.now(),
        }
    }

    /// Reports the containers of a pod.
    pub(crate) fn report(&self, pod: &Pod, found: &[FakeContainer]) {
        self.report_in_state(PodWorkerState::SyncPod, pod, found);
    }

    /// Reports the containers of a pod in a worker state.
    pub(crate) fn report_in_state(
        &self,
        phase: PodWorkerState,
        pod: &Pod,
        found: &[FakeContainer],
    ) {
        let containers = found.iter().map(observed).collect();
        let targets = ProbeTargets {
            pod: Arc::new(pod.clone()),
            observed: Arc::new(ObservedPod {
                uid: pod.uid(),
                containers,
                ..ObservedPod::default()
            }),
            pod_ip: IP.parse().ok(),
            state: phase,
        };
        self.probes.probe(&pod.uid(), &ProbePod::Probe(targets));
    }

    /// Reports the removal of a pod.
    pub(crate) fn forget(&self, pod: &Pod) {
        self.probes.probe(&pod.uid(), &ProbePod::Forget);
    }

    /// Lets time pass, and a little more for what is due at its end.
    pub(crate) async fn pass(&self, time: Duration) {
        tokio::time::sleep(time + Duration::from_millis(50)).await;
    }

    /// Times of the attempts on a port, in whole seconds from the start.
    pub(crate) fn attempts(&self, port: u16) -> Vec<u64> {
        let at = self.checks.request_times(IP, port);
        at.iter().map(|at| (*at - self.began).as_secs()).collect()
    }

    /// Results published since the last call, in order: `kind container ok|failed`.
    pub(crate) fn published(&mut self) -> Vec<String> {
        let mut published = Vec::new();
        while let Some(Some((_, update))) = self.updates.next().now_or_never() {
            for change in update.changes {
                let word = if change.success { "ok" } else { "failed" };
                published.push(format!("{} {} {word}", change.kind, change.container));
            }
        }
        published
    }

    /// The result of an instance.
    pub(crate) fn result(&self, pod: &Pod, kind: ProbeKind, name: &str, id: &str) -> Option<bool> {
        let results = self.results.get(&pod.uid());
        results.result(kind, name, &ContainerId::from(id))
    }

    /// Events since the last call.
    pub(crate) fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.0.lock().expect("not poisoned"))
    }
}

fn observed(found: &FakeContainer) -> ObservedContainer {
    ObservedContainer {
        id: ContainerId::from(found.id.as_str()),
        name: found.name.clone(),
        sandbox_id: SandboxId::from("sb"),
        state: found.state,
        created_at: found.started_at,
        started_at: Some(found.started_at),
        finished_at: None,
        exit_code: 0,
        reason: String::new(),
        message: String::new(),
        image: "img".to_owned(),
        image_id: "sha256:1".to_owned(),
        hash: None,
        restart_count: 0,
        log_path: String::new(),
        user: None,
        stop_signal: String::new(),
        recursive_read_only: Vec::new(),
        image_mounts: Vec::new(),
        oom_kills: None,
        resources: None,
        created_sizes: None,
    }
}

/// A pod with one container `app`.
pub(crate) fn pod_with(change: impl FnOnce(&mut Container)) -> Pod {
    windlass_testing::PodBuilder::new("web")
        .container_with("app", "img", change)
        .build()
}
