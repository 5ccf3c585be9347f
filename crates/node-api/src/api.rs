//! State shared by all handlers.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass_actors::StatusCache;
use windlass_container_logs::LogReader;
use windlass_cri::{RuntimeService, RuntimeStreams};
use windlass_health::HealthSource;
use windlass_metrics::Metrics;
use windlass_pod_inputs::paths::NodePaths;
use windlass_stats::{MachineFacts, StatsSource};
use windlass_status::PodExplainer;
use windlass_status::PodStatusStore;
use windlass_streams::Sessions;
use windlass_types::{Clock, Timestamp};

use crate::logs::Journals;

/// Dependencies of the endpoints.
#[derive(Clone, Debug)]
pub struct NodeApiDeps {
    /// Statuses of the pods.
    pub status_store: PodStatusStore,
    /// State of the pods in the runtime, from the last inspections of the PLEG.
    pub cache: StatusCache,
    /// Explains why a pod is not in its desired state.
    pub explainer: PodExplainer,
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Streaming calls of the runtime: exec, attach, port-forward.
    pub streams: Arc<dyn RuntimeStreams>,
    /// Limiter of open streams.
    pub sessions: Sessions,
    /// Source of usage statistics.
    pub stats: Arc<dyn StatsSource>,
    /// Facts of the host, for `/metrics/cadvisor`.
    pub machine: Arc<MachineFacts>,
    /// Checks behind `/healthz`.
    pub health: Arc<dyn HealthSource>,
    /// Metric families behind `/metrics`.
    pub metrics: Metrics,
    /// Paths of pod files and logs.
    pub paths: NodePaths,
    /// Reads logs of containers.
    pub logs: LogReader,
    /// Queries the journal.
    pub journals: Journals,
    /// Directory behind `/logs/`, `/var/log`.
    pub system_logs: PathBuf,
    /// Name of the node.
    pub node_name: String,
    /// The effective KubeletConfiguration, for `/configz`.
    pub configz: Arc<serde_json::Value>,
    /// Flags and their values, for `/flagz`.
    pub flagz: Arc<Vec<(String, String)>>,
    /// Changes the log verbosity.
    pub verbosity: Arc<dyn Verbosity>,
    /// `kubeletVersion` of the node status.
    pub version: String,
    /// Start time of the process.
    pub started: Timestamp,
    /// Enabled endpoints.
    pub settings: NodeApiSettings,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Ends open streams.
    pub shutdown: CancellationToken,
}

/// Changes the log verbosity of the process.
pub trait Verbosity: Send + Sync + std::fmt::Debug + 'static {
    /// Sets it to that of `-v=<verbosity>`.
    ///
    /// # Errors
    /// Why it cannot be set.
    fn set(&self, verbosity: u32) -> Result<(), String>;
}

/// Enabled endpoints, from the configuration and the feature gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeApiSettings {
    /// `enableDebuggingHandlers`: all but health, pods, statistics and metrics.
    pub debugging: bool,
    /// `enableProfilingHandler`.
    pub profiling: bool,
    /// `enableDebugFlagsHandler`.
    pub debug_flags: bool,
    /// `enableSystemLogHandler`.
    pub system_logs: bool,
    /// `enableSystemLogQuery` and its gate NodeLogQuery.
    pub log_query: bool,
    /// Gate PodLogsQuerySplitStreams.
    pub log_streams: bool,
    /// Gate ContainerCheckpoint.
    pub checkpoint: bool,
    /// Gate ExtendWebSocketsToKubelet.
    pub websockets: bool,
    /// Gate ComponentFlagz.
    pub flagz: bool,
    /// Gate ComponentStatusz.
    pub statusz: bool,
}

/// Cloneable state of the handlers.
#[derive(Clone, Debug)]
pub struct NodeApi(Arc<NodeApiDeps>);

impl NodeApi {
    /// Creates the state.
    pub fn new(deps: NodeApiDeps) -> Self {
        Self(Arc::new(deps))
    }
}

impl Deref for NodeApi {
    type Target = NodeApiDeps;

    fn deref(&self) -> &NodeApiDeps {
        &self.0
    }
}
