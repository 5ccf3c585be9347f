//! Mutations: defects planted at the edge of the agent, to check that an invariant finds them.
//!
//! A mutation acts between the agent and the fakes, as a defect of the agent would. It is not part
//! of a plan, so a plan can be run with and without it.

use std::fmt;
use std::time::Duration;

use windlass_cri::RuntimeService;
use windlass_testing::NodeSim;
use windlass_testing::fake_runtime::RuntimeChangeKind;
use windlass_types::corev1::PodStatus;
use windlass_types::{ContainerId, Pod, PodExt};

use crate::observation::{Event, Observation, is_ready, is_terminal, phase};

/// Grace period of stops.
const GRACE: Duration = Duration::from_secs(5);

/// A planted defect.
pub trait Mutation: fmt::Debug {
    /// Short name, in words with hyphens.
    fn name(&self) -> &'static str;

    /// The defect, in one sentence.
    fn sentence(&self) -> &'static str;

    /// Name of the invariant that finds it.
    fn invariant(&self) -> &'static str;

    /// Acts before an agent run starts.
    fn before_start(&mut self, _sim: &NodeSim) {}

    /// Acts after an observation.
    fn after(&mut self, _observation: &Observation, _sim: &NodeSim) {}
}

/// Returns all mutations.
pub fn all() -> Vec<Box<dyn Mutation>> {
    vec![
        Box::new(TerminalPhaseIsLeft),
        Box::new(SecondInstance),
        Box::new(BackoffIsForgotten),
        Box::new(GraceIsCut),
        Box::new(RestartsAreForgotten),
        Box::new(StopAfterRestart { starts: 0 }),
        Box::new(ObjectIsRemovedEarly),
        Box::new(StartTimeChanges),
    ]
}

/// Returns the mutation with a name.
pub(crate) fn named(name: &str) -> Option<Box<dyn Mutation>> {
    all().into_iter().find(|mutation| mutation.name() == name)
}

/// Declares name, sentence and invariant of a mutation.
macro_rules! describe {
    ($name:literal, $sentence:literal, $invariant:literal) => {
        fn name(&self) -> &'static str {
            $name
        }

        fn sentence(&self) -> &'static str {
            $sentence
        }

        fn invariant(&self) -> &'static str {
            $invariant
        }
    };
}

/// The pod of an observation that is in the API server.
fn existing<'a>(observation: &'a Observation, sim: &NodeSim) -> Option<&'a Pod> {
    let Event::Pod {
        pod,
        is_deleted: false,
    } = &observation.event
    else {
        return None;
    };
    let found = sim.api.get::<Pod>(Some(pod.namespace()), pod.name())?;
    (PodExt::uid(&found) == PodExt::uid(&**pod)).then_some(&**pod)
}

/// Changes the status of a pod.
fn change(sim: &NodeSim, pod: &Pod, change: impl FnOnce(&mut PodStatus)) {
    sim.api
        .modify::<Pod>(Some(pod.namespace()), pod.name(), |pod| {
            change(pod.status.get_or_insert_default());
        });
}

#[derive(Debug)]
struct TerminalPhaseIsLeft;

impl Mutation for TerminalPhaseIsLeft {
    describe!(
        "terminal-phase-is-left",
        "A pod that ended is reported as Running again.",
        "terminal-phase"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let ended = existing(observation, sim).filter(|pod| is_terminal(phase(pod)));
        if let Some(pod) = ended {
            change(sim, pod, |status| status.phase = Some("Running".to_owned()));
        }
    }
}

#[derive(Debug)]
struct SecondInstance;

impl Mutation for SecondInstance {
    describe!(
        "second-instance",
        "A container that started is created and started once more.",
        "one-instance"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let Event::Runtime(started) = &observation.event else {
            return;
        };
        // the second one is attempt 1000
        if started.kind != RuntimeChangeKind::Started || started.subject.ends_with("#1000") {
            return;
        }
        let id = ContainerId::from(started.id.as_str());
        let containers = sim.runtime.containers(&started.uid).into_iter();
        let Some(sandbox) = containers.filter(|c| c.id == id).map(|c| c.sandbox).next() else {
            return;
        };
        let Some(mut config) = sim.runtime.container_config(&id) else {
            return;
        };
        let Some(sandbox_config) = sim.runtime.sandbox_config(&sandbox) else {
            return;
        };
        config.attempt = 1000;
        let runtime = sim.runtime.clone();
        tokio::task::spawn_local(async move {
            let created = runtime.create_container(&sandbox, &config, &sandbox_config);
            // fails if a fault is injected
            if let Ok(id) = created.await {
                let _ = runtime.start_container(&id).await;
            }
        });
    }
}

#[derive(Debug)]
struct BackoffIsForgotten;

impl Mutation for BackoffIsForgotten {
    describe!(
        "back-off-is-forgotten",
        "A new agent run does not read the back-offs of the previous one.",
        "back-off-grows"
    );

    fn before_start(&mut self, sim: &NodeSim) {
        if let Some(disk) = &sim.state_disk {
            disk.rewrite("backoff", |_| None);
        }
    }
}

#[derive(Debug)]
struct GraceIsCut;

impl Mutation for GraceIsCut {
    describe!(
        "grace-is-cut",
        "A container that does not end at SIGTERM is killed soon after it.",
        "grace-is-kept"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let Event::Runtime(change) = &observation.event else {
            return;
        };
        if matches!(change.kind, RuntimeChangeKind::StopRequested(_)) {
            sim.runtime
                .kill_container(&ContainerId::from(change.id.as_str()), 137);
        }
    }
}

#[derive(Debug)]
struct RestartsAreForgotten;

impl Mutation for RestartsAreForgotten {
    describe!(
        "restarts-are-forgotten",
        "The second restart of a container is reported as the first.",
        "restart-counts"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let Some(pod) = existing(observation, sim) else {
            return;
        };
        let statuses = pod
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref());
        let mut statuses = statuses.into_iter().flatten();
        if statuses.any(|status| status.restart_count > 1) {
            change(sim, pod, |status| {
                for status in status.container_statuses.iter_mut().flatten() {
                    status.restart_count = 1;
                }
            });
        }
    }
}

#[derive(Debug)]
struct StopAfterRestart {
    starts: u32,
}

impl Mutation for StopAfterRestart {
    describe!(
        "stop-after-restart",
        "A new agent run stops the containers of the previous one.",
        "no-unprovoked-stop"
    );

    fn before_start(&mut self, sim: &NodeSim) {
        self.starts += 1;
        if self.starts < 2 {
            return;
        }
        for container in sim.runtime.all_containers() {
            let runtime = sim.runtime.clone();
            tokio::task::spawn_local(async move {
                // fails if a fault is injected
                let _ = runtime.stop_container(&container.id, GRACE).await;
            });
        }
    }
}

#[derive(Debug)]
struct ObjectIsRemovedEarly;

impl Mutation for ObjectIsRemovedEarly {
    describe!(
        "object-is-removed-early",
        "The object of a deleted pod is removed before its containers are stopped.",
        "object-after-containers"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let deleted = existing(observation, sim);
        let Some(pod) = deleted.filter(|pod| pod.metadata.deletion_timestamp.is_some()) else {
            return;
        };
        sim.api
            .delete::<Pod>(Some(pod.namespace()), pod.name(), Some(0));
    }
}

#[derive(Debug)]
struct StartTimeChanges;

impl Mutation for StartTimeChanges {
    describe!(
        "start-time-changes",
        "The start time of a pod is that of its newest status.",
        "status-goes-forward"
    );

    fn after(&mut self, observation: &Observation, sim: &NodeSim) {
        let Some(pod) = existing(observation, sim) else {
            return;
        };
        let started = pod
            .status
            .as_ref()
            .and_then(|status| status.start_time.clone());
        let Some(mut started) = started.filter(|_| is_ready(pod)) else {
            return;
        };
        if started.0 < sim.now() {
            started.0 = sim.now();
            change(sim, pod, |status| status.start_time = Some(started));
        }
    }
}
