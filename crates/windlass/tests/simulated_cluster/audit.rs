//! Invariants, checked after each change of the cluster.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::json;
use windlass_fake_api::{FakeApiServer, RequestRecord};
use windlass_testing::{FakeRuntime, NodeSim};
use windlass_types::{ContainerState, Phase, Pod, PodExt, PodUid, Timestamp, names};

use crate::fixture::phase_of;

/// Checks the invariants until the end of the scenario.
#[derive(Clone)]
pub(crate) struct Audit(Rc<RefCell<Ledger>>);

impl Audit {
    /// Takes the server's log of requests.
    pub(crate) fn begin(sim: &NodeSim) -> Self {
        let ledger = Rc::new(RefCell::new(Ledger::default()));
        let (api, runtime) = (sim.api.clone(), sim.runtime.clone());
        let audit = Self(ledger.clone());
        tokio::task::spawn_local(async move {
            let look = |api: &FakeApiServer| {
                ledger.borrow_mut().look(api, &runtime);
                false
            };
            api.wait_for(look).await;
        });
        audit
    }

    /// # Panics
    /// If an invariant was violated.
    pub(crate) fn assert_clean(&self) {
        let ledger = self.0.borrow();
        assert!(ledger.wrong.is_empty(), "{:#?}", ledger.wrong);
    }

    /// All requests of the agent with their responses, one line each. Those of the same time are
    /// sorted: actors that send at the same time do so in no particular order.
    pub(crate) fn requests(&self) -> Vec<String> {
        let ledger = self.0.borrow();
        let line = |r: &RequestRecord| format!("{} {} {} {}", r.at, r.method, r.path, r.status);
        let mut lines: Vec<_> = ledger.requests.iter().map(line).collect();
        lines.sort();
        lines
    }

    /// Number of requests of a method and status.
    pub(crate) fn count(&self, method: &str, status: u16) -> usize {
        let ledger = self.0.borrow();
        let requests = ledger.requests.iter();
        requests
            .filter(|r| r.method == method && r.status == status)
            .count()
    }
}

#[derive(Default)]
struct Ledger {
    pods: BTreeMap<PodUid, AuditedPod>,
    requests: Vec<RequestRecord>,
    wrong: Vec<String>,
}

#[derive(Default)]
struct AuditedPod {
    name: String,
    is_mirror: bool,
    phase: String,
    patched_phase: String,
    started: Option<Timestamp>,
    restarts: i32,
}

impl Ledger {
    fn look(&mut self, api: &FakeApiServer, runtime: &FakeRuntime) {
        for pod in api.list::<Pod>() {
            self.version(&pod, runtime);
        }
        let requests = api.requests();
        api.clear_requests();
        for request in requests {
            self.request(&request, runtime);
            self.requests.push(request);
        }
    }

    fn version(&mut self, pod: &Pod, runtime: &FakeRuntime) {
        let uid = pod.uid();
        let known = self.pods.entry(uid.clone()).or_default();
        known.name = pod.name().to_owned();
        known.is_mirror = pod.annotation(names::ANN_CONFIG_MIRROR).is_some();
        let status = pod.status.clone().unwrap_or_default();
        let phase = phase_of(pod).to_owned();
        let was = std::mem::replace(&mut known.phase, phase.clone());
        let mut wrong = Vec::new();
        if is_terminal(&was) && was != phase {
            wrong.push(format!("from {was} to {phase}"));
        }
        if is_terminal(&phase) && !known.is_mirror && runs(runtime, &uid) {
            wrong.push(format!("{phase} while a container runs"));
        }
        let started = status.start_time.map(|time| time.0);
        if known.started.is_some() && started != known.started {
            wrong.push(format!("started at {:?}, then {started:?}", known.started));
        }
        known.started = started;
        let containers = status.container_statuses.into_iter().flatten();
        let restarts = containers.map(|c| c.restart_count).sum();
        if restarts < known.restarts {
            wrong.push(format!("{restarts} restarts after {}", known.restarts));
        }
        known.restarts = restarts;
        let name = known.name.clone();
        let wrong = wrong
            .into_iter()
            .map(|what| format!("{name} {uid}: {what}"));
        self.wrong.extend(wrong);
    }

    fn request(&mut self, request: &RequestRecord, runtime: &FakeRuntime) {
        let of_a_pod = request.path.starts_with("/api/v1/namespaces/default/pods/");
        if !of_a_pod || request.status != 200 {
            return;
        }
        match &*request.method {
            "DELETE" => self.deletion(request, runtime),
            "PATCH" => self.patch(request),
            _ => {}
        }
    }

    fn deletion(&mut self, request: &RequestRecord, runtime: &FakeRuntime) {
        let uid = request.body["preconditions"]["uid"].as_str();
        let Some(uid) = uid.map(PodUid::from) else {
            return self.wrong.push(format!("{} without UID", request.path));
        };
        if request.body["gracePeriodSeconds"] != json!(0) {
            self.wrong.push(format!("{uid} deleted with a grace"));
        }
        let is_mirror = self.pods.get(&uid).is_some_and(|known| known.is_mirror);
        if !is_mirror && runs(runtime, &uid) {
            self.wrong
                .push(format!("{uid} deleted while a container runs"));
        }
    }

    fn patch(&mut self, request: &RequestRecord) {
        let Some(uid) = request.body["metadata"]["uid"].as_str() else {
            return self.wrong.push(format!("{} without UID", request.path));
        };
        let Some(phase) = request.body["status"]["phase"].as_str() else {
            return;
        };
        let known = self.pods.entry(uid.into()).or_default();
        let was = std::mem::replace(&mut known.patched_phase, phase.to_owned());
        if is_terminal(&was) && was != phase {
            self.wrong
                .push(format!("{uid} patched from {was} to {phase}"));
        }
    }
}

fn is_terminal(phase: &str) -> bool {
    Phase::from_text(phase).is_some_and(Phase::is_terminal)
}

fn runs(runtime: &FakeRuntime, uid: &PodUid) -> bool {
    let containers = runtime.containers(uid);
    containers
        .iter()
        .any(|c| c.state == ContainerState::Running)
}
