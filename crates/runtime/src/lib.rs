//! Carries out what `windlass-pod-lifecycle` decides for one pod: sandbox, init containers, images,
//! containers, hooks, stops, collection of what is dead.
//!
//! For programs that run pods on a container runtime without the rest of an agent: it reconciles
//! the observed state of a pod with its desired state.
//!
//! # The way in
//!
//! * [`PodRuntime`] is the executor: [`PodRuntime::sync_pod`], [`PodRuntime::kill_pod`],
//!   [`PodRuntime::cleanup_pod`], [`PodRuntime::collect_garbage`]
//! * [`PodRuntimeDeps`] are its ports: the runtime, requests to containers, files, events, the
//!   clock
//! * [`HostFiles`] is the host's file system, [`MemoryFiles`] one for tests
//! * [`SyncPodRequest`] is the input of a sync, [`SyncPodOutcome`] its result: the plan, the
//!   failures and the time of the next sync
//!
//! # Example
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tokio_util::sync::CancellationToken;
//! use windlass_runtime::{PodRuntime, SyncPodRequest};
//! use windlass_runtime_config::port::PodInputs;
//! use windlass_types::{ObservedPod, PodExt, SharedPod};
//!
//! /// First sync of a pod.
//! async fn first_sync(runtime: &PodRuntime, pod: SharedPod) {
//!     let request = SyncPodRequest {
//!         observed: Arc::new(ObservedPod { uid: pod.uid(), ..ObservedPod::default() }),
//!         pod,
//!         inputs: Arc::new(PodInputs::default()),
//!         volumes: Arc::default(),
//!         backoff: Default::default(),
//!         probe_results: Arc::default(),
//!         network_ready: true,
//!     };
//!     let outcome = runtime.sync_pod(request, CancellationToken::new()).await;
//!     println!("{}, failed: {}", outcome.actions, outcome.failures.len());
//! }
//! ```
//!
//! `cargo run -p windlass-runtime --example run_pod -- <socket> <manifest>` runs a pod on a real
//! runtime, as root, and stops it at Ctrl-C.
//!
//! # What it promises
//!
//! * Syncs are stateless: each starts from an observation and may be dropped at any await; the next
//!   one converges. Two instances of one container never exist at the same time.
//! * A sync never fails as a whole: each failure has a reason and message as upstream, and a retry
//!   time.
//! * Operations that exceed their deadline are abandoned and reported. A pull has no deadline: it
//!   ends when no pod waits for it. Pods share the pull of an image.
//! * Files under the control of a container are opened without following links out of the pod's
//!   directory.
//!
//! # What it does not do
//!
//! It does not observe: the caller provides the observed pod
//! (`windlass_pod_lifecycle::pleg::observe`), its resolved references (`PodInputs`) and its volumes
//! (`windlass-volume-manager`), and schedules the syncs (`windlass-pod-workers`).

mod cgroups;
mod config;
pub mod files;
mod gc;
mod hooks;
mod image_access;
mod images;
mod kill;
mod log_text;
mod mounts;
mod options;
mod post_start;
mod pull;
mod removal;
mod request;
mod reset;
mod resize;
mod start;
mod stop_limits;
mod sync;
mod termination;
mod text;
mod userns;

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_runtime_config::pod_cgroup::{CgroupValues, pod_cgroup};
use windlass_types::corev1::PodStatus;
use windlass_types::{Pod, PodUid};

pub use cgroups::CgroupSettings;
pub use files::{FilesError, HostFiles, HostFilesConfig, MemoryFiles, PodFiles};
pub use gc::{GcReport, KnownPods};
pub use options::{ImageAccessOptions, PodRuntimeDeps, RuntimeOptions};
pub use pull::PullOptions;
pub use request::{
    CleanupError, ContainerInputs, KillPodError, KillPodRequest, StartFailure, SyncPodOutcome,
    SyncPodRequest,
};

/// Handle to the executor. Clones share its image pulls and its limits.
#[derive(Clone, Debug)]
pub struct PodRuntime(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    deps: PodRuntimeDeps,
    puller: pull::Puller,
    pull_errors: images::PullErrors,
    image_access: image_access::ImageRecords,
    active: gc::ActivePods,
    /// Held during a garbage collection: two of them would forget each other's pods.
    collecting: tokio::sync::Mutex<()>,
    image_holds: windlass_types::ImageHolds,
    stop_limits: stop_limits::StopLimits,
    /// Created when a pod first needs a cgroup.
    cgroups: tokio::sync::OnceCell<windlass_cgroups::PodCgroups>,
    users: userns::PodUsers,
    finished_hooks: hooks::FinishedHooks,
    post_starts: hooks::FinishedHooks,
    accepted: resize::Accepted,
    /// The call UpdatePodSandboxResources.
    sandbox_sizes: windlass_pacing::MissingFeature,
}

impl PodRuntime {
    /// Creates an executor.
    pub fn new(deps: PodRuntimeDeps) -> Self {
        Self(Arc::new(Inner {
            puller: pull::Puller::new(deps.images.clone(), deps.options.pull, deps.hung.clone()),
            pull_errors: images::PullErrors::default(),
            image_access: image_access::ImageRecords::new(&deps),
            active: gc::ActivePods::default(),
            collecting: tokio::sync::Mutex::default(),
            image_holds: windlass_types::ImageHolds::default(),
            stop_limits: stop_limits::StopLimits::default(),
            cgroups: tokio::sync::OnceCell::new(),
            users: userns::PodUsers::new(deps.options.user_namespaces.clone()),
            finished_hooks: hooks::FinishedHooks::default(),
            post_starts: hooks::FinishedHooks::default(),
            accepted: resize::Accepted::default(),
            sandbox_sizes: windlass_pacing::MissingFeature::new(resize::UNKNOWN_CALL_TIME),
            deps,
        }))
    }

    /// Removes the directory and the cgroup of a terminated pod. Its logs stay until the pod is
    /// removed.
    ///
    /// # Errors
    /// Something is still mounted, or the file system rejects the removal; retrying is safe.
    pub async fn cleanup_pod(&self, uid: &PodUid) -> Result<(), CleanupError> {
        self.pull_errors().forget(uid);
        self.finished_hooks().forget_pod(uid);
        self.post_starts().forget_pod(uid);
        self.0.accepted.forget(uid);
        let failed = |source| CleanupError {
            uid: uid.clone(),
            source,
        };
        let removed = self.deps().files.remove_pod_dir(uid).await;
        removed.map_err(failed)?;
        self.remove_cgroup(uid).await.map_err(failed)?;
        self.users().release(uid);
        Ok(())
    }

    /// Pods with a directory, for the search for orphaned pods.
    ///
    /// # Errors
    /// The directory of pods cannot be read.
    pub async fn list_pod_dirs(&self) -> Result<BTreeSet<PodUid>, FilesError> {
        Ok(self
            .deps()
            .files
            .list_pod_dirs()
            .await?
            .into_iter()
            .collect())
    }

    /// Images that syncs in progress need.
    pub fn image_holds(&self) -> &windlass_types::ImageHolds {
        &self.0.image_holds
    }

    /// Adds the health of devices to the statuses of containers.
    pub fn add_device_health(&self, pod: &Pod, status: &mut PodStatus) {
        if let Some(assigned) = &self.deps().assigned {
            assigned.add_health(pod, status);
        }
    }

    /// Names of the containers of a pod that have exclusive CPUs.
    fn exclusive_cpus(&self, pod: &Pod) -> BTreeSet<String> {
        let assigned = self.deps().assigned.as_ref();
        assigned
            .map(|it| it.exclusive_cpus(pod))
            .unwrap_or_default()
    }

    /// Values that the cgroup of a pod should have.
    fn wanted_cgroup(&self, pod: &Pod, settings: &CgroupSettings) -> CgroupValues {
        let values = pod_cgroup(pod, &self.deps().node, settings.pids_limit);
        match self.exclusive_cpus(pod).is_empty() {
            true => values,
            false => values.without_quota(),
        }
    }

    fn deps(&self) -> &PodRuntimeDeps {
        &self.0.deps
    }

    fn puller(&self) -> &pull::Puller {
        &self.0.puller
    }

    fn stop_limits(&self) -> &stop_limits::StopLimits {
        &self.0.stop_limits
    }

    fn finished_hooks(&self) -> &hooks::FinishedHooks {
        &self.0.finished_hooks
    }

    fn post_starts(&self) -> &hooks::FinishedHooks {
        &self.0.post_starts
    }

    fn users(&self) -> &userns::PodUsers {
        &self.0.users
    }

    fn active(&self) -> &gc::ActivePods {
        &self.0.active
    }

    fn pull_errors(&self) -> &images::PullErrors {
        &self.0.pull_errors
    }

    fn image_records(&self) -> &image_access::ImageRecords {
        &self.0.image_access
    }
}

#[cfg(test)]
mod tests;
