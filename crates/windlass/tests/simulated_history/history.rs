//! A simulated node whose history is checked while time passes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use windlass_fake_api::FakeApiServer;
use windlass_testing::fake_runtime::{Behavior, ContainerView, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{ContainerStatus, Node};
use windlass_types::mutation::Mutation;
use windlass_types::{ContainerState, Phase, Pod, PodExt, PodUid, Timestamp};

use crate::SECOND;
use crate::invariant::{Invariant, Violation};

/// Result of a scenario: the first violation.
pub(crate) type Outcome = Result<(), Violation>;

/// A scenario for one mutation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) mutation: Mutation,
    /// The invariant that finds it.
    pub(crate) invariant: Invariant,
    pub(crate) run: fn() -> Outcome,
}

/// Name of the node.
pub(crate) const NODE: &str = "sim";
/// Interval between two observations, in virtual time.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time within which the desired state is reached without faults.
pub(crate) const PROMPTLY: Duration = Duration::from_secs(20);

/// A node, and what was observed of it.
pub(crate) struct History<'a> {
    pub(crate) sim: &'a mut NodeSim,
    /// Terminal phase of each pod.
    ended: BTreeMap<PodUid, Phase>,
    /// Highest restart count of each container.
    restarts: BTreeMap<(PodUid, String), i32>,
    /// Running instance of each container that has no cause to end.
    untouched: BTreeMap<(PodUid, String), ContainerView>,
}

/// Runs a scenario on a node that has joined a cluster and is ready.
pub(crate) fn on_a_node(scenario: impl AsyncFnOnce(&mut History<'_>) -> Outcome) -> Outcome {
    before_start(|_| (), scenario)
}

/// Runs a scenario on such a node, prepared before the agent starts.
pub(crate) fn before_start(
    prepare: impl FnOnce(&mut NodeSim),
    scenario: impl AsyncFnOnce(&mut History<'_>) -> Outcome,
) -> Outcome {
    simulate_cluster(1, async |sim| {
        latencies(sim);
        prepare(sim);
        sim.start_agent().await;
        let mut history = History {
            sim,
            ended: BTreeMap::new(),
            restarts: BTreeMap::new(),
            untouched: BTreeMap::new(),
        };
        let outcome = async {
            let ready = |sim: &NodeSim| node_ready(sim);
            let limit = 5 * SECOND;
            history
                .within(Invariant::NodeStaysReady, "the node is ready", limit, ready)
                .await?;
            scenario(&mut history).await
        };
        let outcome = outcome.await;
        if std::env::var("WINDLASS_SCENARIO").is_ok() {
            println!("{}\n{outcome:?}\n", history.sim.log().join("\n"));
        }
        outcome
    })
}

/// Latencies of a real runtime.
fn latencies(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    let calls = [
        (Operation::RunPodSandbox, 80),
        (Operation::CreateContainer, 20),
        (Operation::StartContainer, 40),
    ];
    for (operation, milliseconds) in calls {
        let latency = Duration::from_millis(milliseconds);
        sim.runtime.set_latency(operation, latency);
    }
}

impl History<'_> {
    /// Makes the container of a pod end with SIGKILL only.
    pub(crate) fn stubborn(&self, pod: &str) {
        let container = format!("default/{pod}/app");
        let runtime = &self.sim.runtime;
        runtime.set_behavior(&container, Behavior::stubborn());
    }

    /// Lets time pass, and observes.
    pub(crate) async fn pass(&mut self, time: Duration) -> Outcome {
        let end = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < end {
            self.sim.pass(INTERVAL).await;
            self.observe()?;
        }
        Ok(())
    }

    /// Waits for something that the invariant demands within a time.
    pub(crate) async fn within(
        &mut self,
        invariant: Invariant,
        what: &str,
        limit: Duration,
        mut is_true: impl FnMut(&NodeSim) -> bool,
    ) -> Outcome {
        let end = tokio::time::Instant::now() + limit;
        while !is_true(self.sim) {
            if tokio::time::Instant::now() >= end {
                return violates(invariant, format!("not within {limit:?}: {what}"));
            }
            self.pass(INTERVAL).await?;
        }
        Ok(())
    }

    /// Creates a pod in the API and waits until it is ready.
    pub(crate) async fn run(&mut self, pod: PodBuilder) -> Result<PodUid, Violation> {
        let pod = self.sim.api.create(&pod.build());
        let (name, uid) = (pod.name().to_owned(), pod.uid());
        let what = format!("{name} is ready");
        let ready = |sim: &NodeSim| is_ready(sim, &name);
        self.within(Invariant::DesiredPodRuns, &what, PROMPTLY, ready)
            .await?;
        Ok(uid)
    }

    /// Runs static pods, replacing all others, and waits until they run.
    pub(crate) async fn desire(&mut self, pods: Vec<Pod>) -> Outcome {
        let uids: Vec<_> = pods.iter().map(Pod::uid).collect();
        self.sim.desire(pods).await;
        let all = |sim: &NodeSim| uids.iter().all(|uid| runs(sim, uid));
        self.within(Invariant::DesiredPodRuns, "static pods run", PROMPTLY, all)
            .await
    }

    /// From now on the container must not end.
    pub(crate) fn must_stay(&mut self, uid: &PodUid, name: &str) -> Outcome {
        let Some(running) = self.sim.runtime.running(uid, name) else {
            return violates(Invariant::RunningPodStays, format!("{name} does not run"));
        };
        self.untouched
            .insert((uid.clone(), name.to_owned()), running);
        Ok(())
    }

    /// Kills the agent, and starts it again after a time.
    pub(crate) async fn restart_agent(&mut self, down: Duration) -> Outcome {
        self.sim.kill_agent().await;
        self.pass(down).await?;
        self.sim.start_agent().await;
        Ok(())
    }

    /// Checks what holds at any time.
    pub(crate) fn observe(&mut self) -> Outcome {
        if let Some(text) = self.sim.volumes.violations().first() {
            return violates(Invariant::VolumesWhileRunning, text.clone());
        }
        self.check_instances()?;
        let pods: Vec<Pod> = self.sim.api.list();
        for pod in &pods {
            self.check_phase(pod)?;
            self.check_restart_counts(pod)?;
        }
        self.check_untouched()
    }

    fn check_instances(&self) -> Outcome {
        let running: Vec<_> = running(self.sim);
        let mut names = BTreeSet::new();
        for container in &running {
            if !names.insert((&container.uid, &container.name)) {
                let (uid, name) = (&container.uid, &container.name);
                let text = format!("two instances of container {name} of pod {uid}");
                return violates(Invariant::OneInstance, text);
            }
        }
        let (mut owners, mut sandboxes) = (BTreeMap::new(), BTreeSet::new());
        for (id, uid, _, ready) in self.sim.runtime.sandboxes() {
            if !ready {
                continue;
            }
            if !sandboxes.insert(uid.clone()) {
                return violates(
                    Invariant::OneInstance,
                    format!("two sandboxes of pod {uid}"),
                );
            }
            let config = self.sim.runtime.sandbox_config(&id).expect("it exists");
            let name = format!("{}/{}", config.namespace, config.name);
            if let Some(other) = owners.insert(name.clone(), uid.clone())
                && is_static(&other)
                && is_static(&uid)
            {
                let text = format!("static pods {other} and {uid} run as {name}");
                return violates(Invariant::OneInstance, text);
            }
        }
        Ok(())
    }

    fn check_phase(&mut self, pod: &Pod) -> Outcome {
        let (uid, name) = (pod.uid(), pod.name());
        let phase = pod.status.as_ref().and_then(Phase::from_status);
        if let Some(before) = self.ended.get(&uid) {
            return match phase == Some(*before) {
                true => Ok(()),
                false => violates(
                    Invariant::TerminalPhaseIsFinal,
                    format!("{name} was {}, is {phase:?}", before.as_str()),
                ),
            };
        }
        let Some(phase) = phase.filter(|phase| phase.is_terminal()) else {
            return Ok(());
        };
        if let Some(alive) = running(self.sim).iter().find(|it| it.uid == uid) {
            let text = format!("{name} is {}, but {} runs", phase.as_str(), alive.name);
            return violates(Invariant::TerminalPhaseIsTrue, text);
        }
        self.ended.insert(uid, phase);
        Ok(())
    }

    fn check_restart_counts(&mut self, pod: &Pod) -> Outcome {
        let statuses = pod
            .status
            .as_ref()
            .and_then(|it| it.container_statuses.as_ref());
        for status in statuses.into_iter().flatten() {
            let key = (pod.uid(), status.name.clone());
            let highest = self.restarts.entry(key).or_default();
            if status.restart_count < *highest {
                let (name, now) = (pod.name(), status.restart_count);
                let text = format!("{name} was restarted {highest} times, then {now}");
                return violates(Invariant::RestartCountGrows, text);
            }
            *highest = status.restart_count;
        }
        Ok(())
    }

    fn check_untouched(&self) -> Outcome {
        for ((uid, name), before) in &self.untouched {
            let now = self.sim.runtime.running(uid, name);
            if now.as_ref() != Some(before) {
                let text = format!("container {name} of pod {uid} ended");
                return violates(Invariant::RunningPodStays, text);
            }
        }
        Ok(())
    }

    /// Checks that a pod that was deleted leaves in order: its object goes last.
    pub(crate) fn check_removed(&mut self, uid: &PodUid, name: &str) -> Outcome {
        let exists = get(self.sim, name).is_some_and(|pod| pod.uid() == *uid);
        let left = left_of(self.sim, uid);
        match (exists, left.first()) {
            (false, Some(left)) => violates(
                Invariant::ObjectGoesLast,
                format!("{name} is gone, but {left} is left"),
            ),
            _ => Ok(()),
        }
    }

    /// Waits until the object of a deleted pod is gone; until then nothing else may be later.
    pub(crate) async fn until_gone(
        &mut self,
        uid: &PodUid,
        name: &str,
        limit: Duration,
    ) -> Outcome {
        let end = tokio::time::Instant::now() + limit;
        loop {
            self.check_removed(uid, name)?;
            if get(self.sim, name).is_none_or(|pod| pod.uid() != *uid) {
                return Ok(());
            }
            if tokio::time::Instant::now() >= end {
                return violates(Invariant::DeletedPodGoes, format!("{name} after {limit:?}"));
            }
            self.pass(INTERVAL).await?;
        }
    }
}

/// A violation.
pub(crate) fn violates<T>(invariant: Invariant, text: impl Into<String>) -> Result<T, Violation> {
    let text = text.into();
    Err(Violation { invariant, text })
}

/// A violation unless the condition is true.
pub(crate) fn demand(condition: bool, invariant: Invariant, text: impl Into<String>) -> Outcome {
    match condition {
        true => Ok(()),
        false => violates(invariant, text),
    }
}

/// UIDs of static pods are given by the scenarios.
fn is_static(uid: &PodUid) -> bool {
    uid.as_str().ends_with("-uid")
}

/// Containers that run.
fn running(sim: &NodeSim) -> Vec<ContainerView> {
    let mut all = sim.runtime.all_containers();
    all.retain(|it| it.state == ContainerState::Running);
    all
}

/// Containers, mounts and directory of a pod.
pub(crate) fn left_of(sim: &NodeSim, uid: &PodUid) -> Vec<String> {
    let containers = running(sim).into_iter().filter(|it| it.uid == *uid);
    let mut left: Vec<_> = containers
        .map(|it| format!("container {}", it.name))
        .collect();
    left.extend(
        sim.volumes
            .mounted(uid)
            .into_iter()
            .map(|it| format!("volume {it}")),
    );
    left.extend(
        sim.files
            .pod_dirs()
            .contains(uid)
            .then(|| "its directory".to_owned()),
    );
    left
}

/// A pod of the API server with one container.
pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .bound_to(NODE)
        .container("app", "busybox:1")
        .grace(5)
}

/// A static pod with one container.
pub(crate) fn static_pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

pub(crate) fn get(sim: &NodeSim, name: &str) -> Option<Pod> {
    sim.api.get::<Pod>(Some("default"), name)
}

/// Deletes as `kubectl delete --grace-period`.
pub(crate) fn delete(sim: &NodeSim, name: &str, grace: Option<i64>) {
    assert!(sim.api.delete::<Pod>(Some("default"), name, grace));
}

pub(crate) fn runs(sim: &NodeSim, uid: &PodUid) -> bool {
    sim.runtime.running(uid, "app").is_some()
}

/// Phase in the API, or an empty text.
pub(crate) fn phase(sim: &NodeSim, name: &str) -> String {
    let status = get(sim, name).and_then(|pod| pod.status);
    status.and_then(|status| status.phase).unwrap_or_default()
}

/// True if the API has the pod ready.
pub(crate) fn is_ready(sim: &NodeSim, name: &str) -> bool {
    let conditions = get(sim, name).and_then(|pod| pod.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Status of the first container in the API.
pub(crate) fn container_status(sim: &NodeSim, name: &str) -> Option<ContainerStatus> {
    let status = get(sim, name)?.status?;
    status.container_statuses?.into_iter().next()
}

pub(crate) fn node_ready(sim: &NodeSim) -> bool {
    let node = sim.api.get::<Node>(None, NODE);
    let conditions = node.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Renewals of the lease that succeeded, in order.
pub(crate) fn renewals(api: &FakeApiServer) -> Vec<Timestamp> {
    let requests = api.requests().into_iter();
    let writes = requests.filter(|it| matches!(&*it.method, "PUT" | "POST" | "PATCH"));
    let done = writes.filter(|it| it.path.contains("/leases") && (200..300).contains(&it.status));
    done.map(|it| it.at).collect()
}
