//! What a pod worker asks for and what it gets back.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use windlass_cri::error::CriError;
use windlass_pod_lifecycle::actions::PodActions;
use windlass_pod_lifecycle::backoff::BackoffTable;
use windlass_types::pod::SharedPod;
use windlass_types::view::StartTimings;
use windlass_types::{
    MountedVolumes, ObservedPod, PodExt, PodProbeResults, PodUid, Reason, Retry, Timestamp,
};

use crate::files::FilesError;
use windlass_runtime_config::inputs::PodInputs;

/// Make the runtime match this pod.
#[derive(Clone)]
pub struct SyncPodRequest {
    /// The pod as asked.
    pub pod: SharedPod,
    /// What the pod refers to, resolved.
    pub inputs: Arc<PodInputs>,
    /// Its volumes as they were set up; all of them if anything is to be started.
    pub volumes: Arc<MountedVolumes>,
    /// The pod as found.
    pub observed: Arc<ObservedPod>,
    /// Delays in force.
    pub backoff: BackoffTable,
    /// What the probes say.
    pub probe_results: Arc<PodProbeResults>,
    /// The runtime says that it can set up pod networks.
    pub network_ready: bool,
}

impl std::fmt::Debug for SyncPodRequest {
    /// The pod by name only: its spec may hold secrets in variables and commands.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SyncPodRequest")
            .field("pod", &self.pod.full_name())
            .field("inputs", &self.inputs)
            .field("observed", &self.observed)
            .field("backoff", &self.backoff)
            .field("network_ready", &self.network_ready)
            .finish()
    }
}

/// What the containers of a pod need and its sandbox does not, while that is still being prepared.
pub type ContainerInputs<'a> =
    BoxFuture<'a, Result<(Arc<PodInputs>, Arc<MountedVolumes>), StartFailure>>;

/// What one pass came to.
#[derive(Clone, Debug)]
pub struct SyncPodOutcome {
    /// What was decided.
    pub actions: PodActions,
    /// What did not work, in the order it was tried. A delayed restart counts as one.
    pub failures: Vec<StartFailure>,
    /// The request's table with this pass's restarts and failed pulls counted.
    pub backoff: BackoffTable,
    /// Phases that this pass completed.
    pub timings: StartTimings,
    /// An object of the runtime was created, started, stopped or removed.
    pub changed: bool,
    /// When the pod is worth another pass without an event: the earliest end of a delay or retry.
    pub retry_at: Option<Timestamp>,
    /// When the pod is synced before that only to show another reason.
    pub resync_at: Option<Timestamp>,
    /// The pass was cancelled before its end; what it had done by then is in the other fields.
    pub cancelled: bool,
}

/// One thing that kept a pod or a container from starting.
#[derive(Clone, Debug, PartialEq)]
pub struct StartFailure {
    /// The container; `None` if the whole pod waits.
    pub container: Option<String>,
    /// The reason of the container's waiting state.
    pub reason: Reason,
    /// The whole story.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
    /// When this agent tries again; `None` if something must change first.
    pub retry_at: Option<Timestamp>,
}

impl StartFailure {
    pub(crate) fn for_pod(reason: Reason, message: String, retry: Retry) -> Self {
        Self {
            container: None,
            reason,
            message,
            retry,
            retry_at: None,
        }
    }

    pub(crate) fn for_container(
        container: &str,
        reason: Reason,
        message: String,
        retry: Retry,
    ) -> Self {
        Self {
            container: Some(container.to_owned()),
            ..Self::for_pod(reason, message, retry)
        }
    }
}

impl std::fmt::Display for StartFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.reason)?;
        if let Some(container) = &self.container {
            write!(f, " container={container}")?;
        }
        write!(f, " retry={}: {}", self.retry, self.message)
    }
}

/// When a class of failure is tried again. Back-off ends, where there are any, come first.
pub(crate) fn retry_time(retry: Retry, now: Timestamp) -> Option<Timestamp> {
    let after = match retry {
        Retry::Soon => Duration::from_secs(1),
        Retry::Later => Duration::from_secs(10),
        Retry::Never => return None,
    };
    now.saturating_add(after).ok()
}

/// Stop everything of a pod.
#[derive(Clone, Debug)]
pub struct KillPodRequest {
    /// The pod as asked, for the order of stops and for events; `None` for an orphan.
    pub pod: Option<SharedPod>,
    /// The pod as found; may be stale.
    pub observed: Arc<ObservedPod>,
    /// Time from the stop signal to SIGKILL; less than 2 s is raised to 2 s, as upstream does.
    pub grace: Duration,
    /// Text of the `Killing` events; empty means `Stopping container <name>`.
    pub message: String,
}

/// A pod of which something could not be stopped. Killing again is safe.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct KillPodError {
    /// What could not be stopped, `container <name>` or `sandbox <id>`, and why.
    pub failures: Vec<(String, CriError)>,
}

impl KillPodError {
    fn text(&self) -> String {
        let parts: Vec<_> = self
            .failures
            .iter()
            .map(|(what, error)| format!("cannot stop {what}: {error}"))
            .collect();
        parts.join("; ")
    }

    /// The most hopeful class of the failures: one pass may succeed where another waits.
    pub fn retry(&self) -> Retry {
        let classes = self.failures.iter().map(|(_, error)| error.retry());
        classes.min().unwrap_or(Retry::Soon)
    }
}

/// A pod whose directory could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot release the files of pod {uid}: {source}")]
pub struct CleanupError {
    /// The pod.
    pub uid: PodUid,
    /// Why.
    #[source]
    pub source: FilesError,
}

impl CleanupError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        self.source.retry()
    }
}
