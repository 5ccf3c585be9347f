//! What all handlers share.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use windlass_actors::StatusCache;
use windlass_pod_inputs::paths::NodePaths;
use windlass_cri::{RuntimeService, RuntimeStreams};
use windlass_metrics::Metrics;
use windlass_runtime::logs::LogReader;
use windlass_server::{HealthSource, PodExplainer};
use windlass_stats::{MachineFacts, StatsSource};
use windlass_status::PodStatusStore;
use windlass_streams::Sessions;
use windlass_types::{Clock, Timestamp};

use crate::logs::Journals;

/// What the endpoints answer from.
#[derive(Clone, Debug)]
pub struct NodeApiDeps {
    /// Pods as asked and as they are.
    pub board: PodStatusStore,
    /// What the runtime has of them, as the PLEG saw it last.
    pub cache: StatusCache,
    /// Why they are as they are.
    pub explainer: PodExplainer,
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// Its streams: exec, attach, port-forward.
    pub streams: Arc<dyn RuntimeStreams>,
    /// Open streams.
    pub sessions: Sessions,
    /// Who measures.
    pub stats: Arc<dyn StatsSource>,
    /// The machine, as `/metrics/cadvisor` shows it.
    pub machine: Arc<MachineFacts>,
    /// Checks behind `/healthz`.
    pub health: Arc<dyn HealthSource>,
    /// Metric families behind `/metrics`.
    pub metrics: Metrics,
    /// Where pods' files and logs are.
    pub paths: NodePaths,
    /// Who reads logs of containers.
    pub logs: LogReader,
    /// Who reads the journal.
    pub journals: Journals,
    /// Directory behind `/logs/`, `/var/log`.
    pub system_logs: PathBuf,
    /// Name of the node.
    pub node_name: String,
    /// The effective KubeletConfiguration, as `/configz` shows it.
    pub configz: Arc<serde_json::Value>,
    /// Flags and their values, as `/flagz` shows them.
    pub flagz: Arc<Vec<(String, String)>>,
    /// Who changes how much is logged.
    pub verbosity: Arc<dyn Verbosity>,
    /// What the node calls itself, as `kubeletVersion` in its status.
    pub version: String,
    /// When the process started.
    pub started: Timestamp,
    /// Which endpoints there are.
    pub settings: NodeApiSettings,
    /// The present.
    pub clock: Arc<dyn Clock>,
    /// Ends streams that would go on for ever.
    pub shutdown: CancellationToken,
}

/// Changes how much the process logs.
pub trait Verbosity: Send + Sync + std::fmt::Debug + 'static {
    /// Sets it to that of `-v=<verbosity>`.
    ///
    /// # Errors
    /// Why it cannot be set.
    fn set(&self, verbosity: u32) -> Result<(), String>;
}

/// Which endpoints there are; from the configuration and the feature gates.
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

/// The cloneable handle that handlers get as their state.
#[derive(Clone, Debug)]
pub struct NodeApi(Arc<NodeApiDeps>);

impl NodeApi {
    /// Of these parts.
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
