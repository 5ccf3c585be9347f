//! The probe managers: LivenessManager, ReadinessManager and StartupManager.
//!
//! * owns: what is probed of one kind, and how often it went well or badly in a row
//! * hears: `ProbePod` from the pod workers (coalesced per pod), its timer, answers of its probes
//! * says: `ProbeUpdate` to the SyncLoop (coalesced per pod); verdicts to `ProbeResults`
//! * invariant: one question of a probe is in flight; a verdict is about one container instance
//! * bound and overflow: a slot per pod, one timer, one question per probe
//! * restart: verdicts come back from the store

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use windlass_actors::{ProbePod, ProbeResults, ProbeUpdate, SlotReceiver, SlotSender};
use windlass_checks::Checks;
use windlass_cri::RuntimeService;
use windlass_metrics::Metrics;
use windlass_types::{Clock, EventRecorder, PodUid, ProbeKind};

/// What a manager works with.
#[derive(Clone, Debug)]
pub struct ProbeDeps {
    /// Runs commands in containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// Asks containers over the network.
    pub checks: Arc<dyn Checks>,
    /// Where users read of failures.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Where verdicts go.
    pub results: ProbeResults,
    /// Who is told of changed verdicts.
    pub updates: SlotSender<PodUid, ProbeUpdate>,
}

/// See the module page.
#[derive(Debug)]
pub struct ProbeManager {
    kind: ProbeKind,
    deps: ProbeDeps,
    pods: Option<SlotReceiver<PodUid, ProbePod>>,
}

impl ProbeManager {
    /// A manager that probes nothing yet.
    pub fn new(kind: ProbeKind, deps: ProbeDeps, pods: SlotReceiver<PodUid, ProbePod>) -> Self {
        Self {
            kind,
            deps,
            pods: Some(pods),
        }
    }
}

impl Actor for ProbeManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(pods) = self.pods.take() {
            ctx.add_stream(pods);
        }
    }
}

impl StreamHandler<(PodUid, ProbePod)> for ProbeManager {
    fn handle(&mut self, (uid, _): (PodUid, ProbePod), _: &mut Context<Self>) {
        tracing::trace!(pod = %uid, kind = %self.kind, checks = ?self.deps.checks, "probe");
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
