//! One pod: [`actor`] holds its state machine, [`jobs`] carry out what that decides, and
//! [`report`] turns what came of it into the pod's entry on the board.

pub mod actor;
mod ends;
pub mod jobs;
pub mod report;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{
    PlegHandle, PodWorkersMessage, ProbesHandle, RuntimeName, RuntimeState, VolumesHandle,
};
use windlass_cri::HungCalls;
use windlass_mailboxes::MailboxSender;
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_status::status::{Failures, StatusInput};
use windlass_runtime::PodRuntime;
use windlass_runtime_config::inputs::PodObjects;
use windlass_status::{EventRecorder, PodStatusStore};
use windlass_store::BackoffFile;
use windlass_timelines::Timelines;
use windlass_types::{Clock, ObservedPod, Pod, PodProbeResults};

use crate::start_limiter::StartLimiter;

/// What every worker works with; shared by all of them.
#[derive(Clone, Debug)]
pub struct WorkerDeps {
    /// Carries out actions.
    pub runtime: PodRuntime,
    /// Knows and reads what the runtime has.
    pub pleg: PlegHandle,
    /// Knows which calls the runtime does not answer.
    pub hung: HungCalls,
    /// Run the pods' probes, and know what they found.
    pub probes: ProbesHandle,
    /// Sets up and releases the pods' volumes.
    pub volumes: VolumesHandle,
    /// Knows what pods refer to.
    pub objects: Arc<dyn PodObjects>,
    /// Start slots.
    pub start_limiter: StartLimiter,
    /// Where results are published.
    pub board: PodStatusStore,
    /// Told of each job, and of what it waits for.
    pub timelines: Timelines,
    /// Records events.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Whether the runtime can be worked with.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// Back-off that survives the agent; `None` in simulations without a disk.
    pub backoff_file: Option<BackoffFile>,
    /// The registry, for the worker's last word.
    pub registry: MailboxSender<PodWorkersMessage>,
    /// The same for all pods.
    pub settings: WorkerSettings,
}

impl WorkerDeps {
    /// What a status of a pod is made of if nothing but this is known: the node's part is the same for
    /// all of them.
    fn status_input<'a>(
        &'a self,
        pod: &'a Pod,
        observed: &'a ObservedPod,
        probe_results: &'a PodProbeResults,
        failures: &'a Failures,
    ) -> StatusInput<'a> {
        StatusInput {
            pod,
            observed,
            failures,
            backing_off: &[],
            probe_results,
            previous: None,
            host_ips: &self.settings.host_ips,
            stop_signals: self.settings.stop_signals,
            runtime_name: self.settings.runtime_name.get().unwrap_or_default(),
            terminal: false,
            phase_override: None,
            now: self.clock.now(),
        }
    }
}

/// Settings of the workers.
#[derive(Clone, Debug)]
pub struct WorkerSettings {
    /// `syncFrequency`: a pod is looked at this often although nothing happened (±50 %).
    pub sync_frequency: Duration,
    /// Restart back-off.
    pub restart_policy: BackoffPolicy,
    /// The node's addresses, for `status.hostIPs`.
    pub host_ips: Vec<IpAddr>,
    /// Feature gate `ContainerStopSignals`.
    pub stop_signals: bool,
    /// The runtime's name, in the IDs of containers.
    pub runtime_name: RuntimeName,
}
