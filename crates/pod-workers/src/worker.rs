//! The worker of one pod: [`actor`] holds its state machine, [`jobs`] and `terminate` run its
//! syncs, and [`report`] converts the results to the pod's status entry. `remains` removes what a
//! removed pod left in the runtime.

pub mod actor;
mod claims;
mod ends;
pub mod jobs;
pub(crate) mod remains;
pub mod report;
mod resize;
mod terminate;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{PlegHandle, ProbesHandle, RuntimeName, RuntimeState, VolumesHandle};
use windlass_cri::HungCalls;
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_status::status::{Failures, PodSizes, StatusInput};
use windlass_runtime::PodRuntime;
use windlass_runtime_config::port::{PodClaims, PodObjects};
use windlass_status::{EventRecorder, PodStatusStore};
use windlass_store::{BackoffFile, PodResourceFile};
use windlass_timelines::Timelines;
use windlass_types::{Clock, ObservedPod, Pod, PodProbeResults, Timestamp};

use crate::start_limiter::StartLimiter;

/// Dependencies of the workers, shared by all of them.
#[derive(Clone, Debug)]
pub struct WorkerDeps {
    /// Executes syncs.
    pub runtime: PodRuntime,
    /// Provides observed pods.
    pub pleg: PlegHandle,
    /// Hung runtime calls.
    pub hung: HungCalls,
    /// Runs the pods' probes and provides their results.
    pub probes: ProbesHandle,
    /// Sets up and tears down the pods' volumes.
    pub volumes: VolumesHandle,
    /// Resolves the references of pods.
    pub objects: Arc<dyn PodObjects>,
    /// Prepares the resource claims of pods; `None` without DRA.
    pub claims: Option<Arc<dyn PodClaims>>,
    /// Start slots.
    pub start_limiter: StartLimiter,
    /// Receives the results.
    pub status_store: PodStatusStore,
    /// Records jobs and their waits.
    pub timelines: Timelines,
    /// Records events.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Whether the runtime is usable.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// State file of back-offs; `None` in simulations without a disk.
    pub backoff_file: Option<BackoffFile>,
    /// Checkpoint of the sizes that containers have; `None` in simulations without a disk.
    pub actuated_file: Option<PodResourceFile>,
    /// Settings.
    pub settings: WorkerSettings,
}

impl WorkerDeps {
    /// Status input from these values; the node's part is the same for all pods.
    fn status_input<'a>(
        &'a self,
        pod: &'a Pod,
        observed: &'a ObservedPod,
        probe_results: &'a PodProbeResults,
        failures: &'a Failures,
        sizes: PodSizes<'a>,
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
            sizes: PodSizes {
                pod_level: self.settings.resize_pod_level,
                ..sizes
            },
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
    /// `syncFrequency`: interval of periodic syncs (±50 %).
    pub sync_frequency: Duration,
    /// Restart back-off.
    pub restart_policy: BackoffPolicy,
    /// Start of this agent run: older instances were started by a previous one.
    pub agent_started: Timestamp,
    /// Node addresses, for `status.hostIPs`.
    pub host_ips: Vec<IpAddr>,
    /// Feature gate `ContainerStopSignals`.
    pub stop_signals: bool,
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`.
    pub resize_pod_level: bool,
    /// Runtime name, part of container IDs.
    pub runtime_name: RuntimeName,
}
