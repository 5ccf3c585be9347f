//! Whether a calm node has converged: what the API server, the runtime and the plan say agree.

use std::time::Duration;

use windlass_types::{ContainerState, Pod, PodExt, PodUid, names};

use super::World;
use crate::observation::{is_evicted, is_ready, is_terminal, phase, reason};
use crate::pods;
use crate::step::{PodKind, parse_pod};

/// Name of the invariant in violations.
const NAME: &str = "liveness";
/// Time after which the calls, requests and probes that were in progress when faults ended have ended.
/// Before, a liveness probe that hangs can still fail, so a node that seems to have converged has not.
const IN_PROGRESS: Duration = Duration::from_secs(10);
/// Interval of checks while the node converges, and while it must remain converged.
const INTERVAL: Duration = Duration::from_secs(5);

impl World<'_> {
    /// Waits until the node has converged, then checks that it remains so.
    pub(crate) async fn converge(&mut self, within: Duration, steady: Duration) {
        let sentence = "Once faults end, the node reaches the desired state in time and keeps it.";
        let began = self.now();
        self.advance(began + IN_PROGRESS).await;
        loop {
            let differences = self.differences();
            if self.is_over() || differences.is_empty() {
                break;
            }
            let now = self.now();
            if now >= began + within {
                let text = format!("after {} s: {}", within.as_secs(), differences.join("; "));
                return self.checker.fail(NAME, sentence, now, text);
            }
            self.advance(now + INTERVAL).await;
        }
        self.checker.coverage.count("converged");
        let converged = self.now();
        while !self.is_over() && self.now() < converged + steady {
            self.advance(self.now() + INTERVAL).await;
            let differences = self.differences();
            if !differences.is_empty() {
                let text = format!("no longer: {}", differences.join("; "));
                return self.checker.fail(NAME, sentence, self.now(), text);
            }
        }
    }

    /// Differences between the desired and the observed state.
    fn differences(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let listed = self.sim.api.list::<Pod>();
        for pod in &listed {
            if let Some(text) = self.difference(pod) {
                let ready = if is_ready(pod) { " ready" } else { "" };
                let state = format!("{}{ready} {}", phase(pod), reason(pod));
                wrong.push(format!("{}: {text} ({})", pod.name(), state.trim()));
            }
        }
        let statics = self.desired_statics();
        for pod in &statics {
            let uid = PodExt::uid(pod);
            if !self.sim.runtime.is_pod_running(&uid) {
                wrong.push(format!("{uid} does not run"));
            }
            let has_mirror = |mirror: &&Pod| mirror.name() == pod.name();
            if !listed.iter().any(|mirror| has_mirror(&mirror)) {
                wrong.push(format!("{uid} has no mirror pod"));
            }
        }
        let desired: Vec<PodUid> = listed.iter().chain(&statics).map(PodExt::uid).collect();
        let left = self.sim.files.pod_dirs().into_iter();
        for uid in left.chain(self.sim.volumes.pods()) {
            if !desired.contains(&uid) {
                wrong.push(format!("directories or volumes of {uid} are left"));
            }
        }
        for container in self.sim.runtime.all_containers() {
            if container.state == ContainerState::Running && !desired.contains(&container.uid) {
                wrong.push(format!("{container} of {} runs", container.uid));
            }
        }
        wrong
    }

    /// Why a pod has not converged.
    fn difference(&self, pod: &Pod) -> Option<&'static str> {
        if pod.metadata.deletion_timestamp.is_some() {
            return Some("still being deleted");
        }
        if pod.annotation(names::ANN_CONFIG_MIRROR).is_some() {
            let mut desired = self.desired_statics().into_iter();
            return match desired.any(|it| it.name() == pod.name()) {
                false => Some("mirror of a pod that is not desired"),
                true if !is_ready(pod) => Some("not ready"),
                true => None,
            };
        }
        let (kind, _) = parse_pod(pod.name())?;
        let ended = is_terminal(phase(pod));
        let is_evicted = is_evicted(pod);
        let expected = match kind {
            // a step can end it with 0
            PodKind::Job | PodKind::Fail => ended,
            // a clock that is set back moves its deadline
            PodKind::Deadline if self.is_clock_set_during(pod) => is_ready(pod) || ended,
            PodKind::Big | PodKind::Deadline => phase(pod) == "Failed",
            PodKind::Crash => phase(pod) == "Running" || is_evicted,
            // without a device in time it is rejected
            PodKind::Device => is_ready(pod) || phase(pod) == "Failed",
            // the agent may know it only after a resize beyond the node
            PodKind::Sized if reason(pod) == "OutOfcpu" => ended,
            _ => is_ready(pod) || is_evicted,
        };
        if !expected {
            return Some("not as its kind ends");
        }
        let agrees = ended || kind == PodKind::Crash || self.statuses_agree(pod);
        (!agrees).then_some("the status is not that of the runtime")
    }

    /// True if the wall clock of the node was set since the pod was created.
    fn is_clock_set_during(&self, pod: &Pod) -> bool {
        let view = &self.checker.view;
        let facts = view.pods.get(&pod.uid());
        facts.is_some_and(|facts| view.is_clock_set_since(facts.created))
    }

    /// True if the status has the running containers.
    fn statuses_agree(&self, pod: &Pod) -> bool {
        let statuses = pod.status.clone().and_then(|s| s.container_statuses);
        let statuses = statuses.unwrap_or_default();
        statuses.len() == pod.containers().len()
            && statuses.iter().all(|status| {
                let running = self.sim.runtime.running(&pod.uid(), &status.name);
                running.is_some_and(|container| {
                    let id = status.container_id.as_deref().unwrap_or_default();
                    id.ends_with(container.id.as_str()) && status.ready
                })
            })
            && pod.spec().node_name.as_deref() == Some(pods::NODE)
    }
}
