//! Ports and settings of the executor.

use std::path::PathBuf;
use std::sync::Arc;

use windlass_checks::Checks;
use windlass_credentials::image_access::VerificationPolicy;
use windlass_cri::port::{ImageService, RuntimeService};
use windlass_hung_operations::HungOperations;
use windlass_metrics::Metrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_lifecycle::backoff::BackoffPolicy;
use windlass_pod_lifecycle::container_gc::GcPolicy;
use windlass_runtime_config::userns::{IdRange, RangeError};
use windlass_types::{Clock, EventRecorder, Timestamp};

use crate::cgroups::CgroupSettings;
use crate::files::PodFiles;
use crate::pull::PullOptions;
use windlass_runtime_config::port::{AssignedResources, ImageCredentials};

/// Ports and settings of a [`crate::PodRuntime`].
#[derive(Clone, Debug)]
pub struct PodRuntimeDeps {
    /// Sandboxes and containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// Images.
    pub images: Arc<dyn ImageService>,
    /// Credential providers, executed at a pull.
    pub credentials: Option<Arc<dyn ImageCredentials>>,
    /// Assigned CPUs, memory nodes and devices; `None` without resource managers.
    pub assigned: Option<Arc<dyn AssignedResources>>,
    /// HTTP requests to containers, for hooks.
    pub checks: Arc<dyn Checks>,
    /// Directories, volumes and logs.
    pub files: Arc<dyn PodFiles>,
    /// Cgroups of pods; `None` leaves them to the runtime (`cgroupsPerQOS: false`).
    pub cgroups: Option<CgroupSettings>,
    /// Event recorder.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Node values for configurations.
    pub node: Arc<NodeFacts>,
    /// Counters.
    pub metrics: Metrics,
    /// Lists hooks, pulls and device plugins that hang.
    pub hung: HungOperations,
    /// Settings.
    pub options: RuntimeOptions,
}

/// Settings, with upstream's defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeOptions {
    /// Restart back-off of a failing container.
    pub restart_backoff: BackoffPolicy,
    /// Back-off between failed pulls of one image by one pod.
    pub pull_backoff: BackoffPolicy,
    /// Limits of image pulls.
    pub pull: PullOptions,
    /// Number of dead containers that are kept.
    pub gc: GcPolicy,
    /// RuntimeClass handler for the sandbox of a pod without a RuntimeClass; empty is the
    /// runtime's default.
    pub handler: String,
    /// Parent cgroup of pods without their own cgroups; empty leaves it to the runtime.
    pub cgroup_parent: String,
    /// User IDs for pods with `hostUsers: false`, or why the node has none.
    pub user_namespaces: Result<IdRange, RangeError>,
    /// Access checks for images that another pod pulled; `None` for no check.
    pub image_access: Option<ImageAccessOptions>,
    /// When the node booted: of an older sandbox nothing runs. `None` if unknown.
    pub booted: Option<Timestamp>,
}

/// Verification of the credentials for images that are on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageAccessOptions {
    /// Images that are verified.
    pub policy: VerificationPolicy,
    /// `--root-dir`, which contains the records.
    pub root_dir: PathBuf,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            restart_backoff: BackoffPolicy::DEFAULT,
            pull_backoff: BackoffPolicy::DEFAULT,
            pull: PullOptions::default(),
            gc: GcPolicy::DEFAULT,
            handler: String::new(),
            cgroup_parent: String::new(),
            user_namespaces: Ok(IdRange::default()),
            image_access: None,
            booted: None,
        }
    }
}
