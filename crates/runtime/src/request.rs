//! Requests of pod workers and their results.

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
use windlass_runtime_config::port::PodInputs;

/// Input of a sync.
#[derive(Clone)]
pub struct SyncPodRequest {
    /// The desired pod.
    pub pod: SharedPod,
    /// Resolved references of the pod.
    pub inputs: Arc<PodInputs>,
    /// Its mounted volumes; all of them if the sync starts something.
    pub volumes: Arc<MountedVolumes>,
    /// The observed pod.
    pub observed: Arc<ObservedPod>,
    /// Its back-offs.
    pub backoff: BackoffTable,
    /// Probe results.
    pub probe_results: Arc<PodProbeResults>,
    /// Whether the runtime's pod network is ready.
    pub network_ready: bool,
}

impl std::fmt::Debug for SyncPodRequest {
    /// Prints only the name of the pod: its spec may contain secrets.
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

/// Inputs of the containers that are still being prepared when the sandbox is created.
pub type ContainerInputs<'a> =
    BoxFuture<'a, Result<(Arc<PodInputs>, Arc<MountedVolumes>), StartFailure>>;

/// Outcome of a sync.
#[derive(Clone, Debug)]
pub struct SyncPodOutcome {
    /// The plan.
    pub actions: PodActions,
    /// Failures in order. A delayed restart counts as one.
    pub failures: Vec<StartFailure>,
    /// The request's back-offs, with the restarts and failed pulls of this sync.
    pub backoff: BackoffTable,
    /// Start timings of this sync.
    pub timings: StartTimings,
    /// Whether the running containers have the allocated sizes of the request's pod, or why not;
    /// `None` if that is not known.
    pub resized: Option<(SharedPod, Result<(), String>)>,
    /// An object of the runtime was created, started, stopped, resized or removed.
    pub changed: bool,
    /// Time of the next sync without an event: the earliest end of a back-off or retry.
    pub retry_at: Option<Timestamp>,
    /// Time of a resync before that, only to update a reason.
    pub resync_at: Option<Timestamp>,
    /// The sync was cancelled; the other fields have its partial result.
    pub cancelled: bool,
}

/// A failure that keeps a pod or a container from starting.
#[derive(Clone, Debug, PartialEq)]
pub struct StartFailure {
    /// The container; `None` for the whole pod.
    pub container: Option<String>,
    /// The reason of the container's waiting state.
    pub reason: Reason,
    /// Message.
    pub message: String,
    /// Retry class.
    pub retry: Retry,
    /// Time of the retry; `None` if a change must happen first.
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

/// Time of the retry for a retry class. The end of a back-off takes precedence.
pub(crate) fn retry_time(retry: Retry, now: Timestamp) -> Option<Timestamp> {
    let after = match retry {
        Retry::Soon => Duration::from_secs(1),
        Retry::Later => Duration::from_secs(10),
        Retry::Never => return None,
    };
    now.saturating_add(after).ok()
}

/// Request to stop a pod.
#[derive(Clone, Debug)]
pub struct KillPodRequest {
    /// The pod, for the termination order and events; `None` for an orphaned pod.
    pub pod: Option<SharedPod>,
    /// The observed pod; may be stale.
    pub observed: Arc<ObservedPod>,
    /// Grace period; the stop timeout is at least 2 s, as upstream.
    pub grace: Duration,
    /// Time since the first attempt to stop the pod. Until it reaches `grace`, no sandbox is stopped
    /// while a container could not be stopped.
    pub waited: Duration,
    /// Text of the `Killing` events; empty means `Stopping container <name>`.
    pub message: String,
}

/// A pod could not be stopped completely. Retrying is safe.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct KillPodError {
    /// Failed objects, `container <name>` or `sandbox <id>`, with their errors.
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

    /// Retry class: the earliest of all failures.
    pub fn retry(&self) -> Retry {
        let classes = self.failures.iter().map(|(_, error)| error.retry());
        classes.min().unwrap_or(Retry::Soon)
    }
}

/// A pod's directory could not be removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot release the files of pod {uid}: {source}")]
pub struct CleanupError {
    /// The pod.
    pub uid: PodUid,
    /// Cause.
    #[source]
    pub source: FilesError,
}

impl CleanupError {
    /// Retry class.
    pub fn retry(&self) -> Retry {
        self.source.retry()
    }
}
