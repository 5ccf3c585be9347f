//! Carries out what `windlass-core` decides for one pod: sandbox, init containers, images,
//! containers, hooks, stops, collection of what is dead, logs.
//!
//! For whoever runs pods on a container runtime without the rest of an agent: hand it a pod and
//! what runs of it, and it makes one follow from the other.
//!
//! # The way in
//!
//! * [`PodRuntime`] is the executor: [`PodRuntime::sync_pod`], [`PodRuntime::kill_pod`],
//!   [`PodRuntime::cleanup_pod`], [`PodRuntime::collect_garbage`]
//! * [`PodRuntimeDeps`] are its ports: the runtime, requests to containers, files, events, the
//!   clock
//! * [`HostFiles`] is the machine's file system, [`MemoryFiles`] one for tests
//! * [`SyncPodRequest`] goes into a pass, [`SyncPodOutcome`] comes out of it: what was decided,
//!   what failed and when to come back
//! * [`logs::LogReader`] reads and follows containers' logs
//!
//! # Example
//!
//! ```no_run
//! # use std::sync::Arc;
//! use tokio_util::sync::CancellationToken;
//! use windlass_runtime::{PodRuntime, SyncPodRequest};
//! use windlass_runtime_config::inputs::PodInputs;
//! use windlass_types::{ObservedPod, PodExt, SharedPod};
//!
//! /// One pass for a pod of which nothing runs yet.
//! async fn first_pass(runtime: &PodRuntime, pod: SharedPod) {
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
//! * It has no state of its own that matters: every pass starts from an observation and may be
//!   dropped or killed at any await; the next pass converges. Two instances of one container never
//!   exist at once.
//! * A pass never fails as a whole: what did not work is listed with its reason, in upstream's
//!   words, and when it is tried again.
//! * What cannot be done within its deadline is left, and told. A pull has none and ends when
//!   nobody waits for it any more; pods that want one image share its pull.
//! * A container can lead nothing here astray: files under its control are opened without following
//!   links out of the pod's directory.
//!
//! # What it does not do
//!
//! It does not look: what runs is observed by the caller (`windlass_pod_lifecycle::pleg::observe` puts it
//! together). It does not wait for an API server: what a pod refers to comes with the request,
//! resolved ([`PodInputs`]), and its volumes are set up before (`windlass-volume-manager`). When to
//! come back is the caller's part too (`windlass-pod-workers`).

mod cgroups;
mod config;
pub mod files;
mod gc;
mod hooks;
mod image_access;
mod images;
mod kill;
mod log_text;
pub mod logs;
mod mounts;
mod options;
mod pull;
mod request;
mod reset;
mod start;
mod stop_limits;
mod sync;
mod termination;
mod text;
mod userns;

use std::collections::BTreeSet;
use std::sync::Arc;

use windlass_types::PodUid;

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
    stop_limits: stop_limits::StopLimits,
    /// Made when a pod first needs one.
    cgroups: tokio::sync::OnceCell<windlass_cgroups::PodCgroups>,
    users: userns::PodUsers,
    finished_hooks: hooks::FinishedPreStopHooks,
}

impl PodRuntime {
    /// Nothing happens until the first call.
    pub fn new(deps: PodRuntimeDeps) -> Self {
        Self(Arc::new(Inner {
            puller: pull::Puller::new(deps.images.clone(), deps.options.pull),
            pull_errors: images::PullErrors::default(),
            image_access: image_access::ImageRecords::new(&deps),
            active: gc::ActivePods::default(),
            stop_limits: stop_limits::StopLimits::default(),
            cgroups: tokio::sync::OnceCell::new(),
            users: userns::PodUsers::new(deps.options.user_namespaces.clone()),
            finished_hooks: hooks::FinishedPreStopHooks::default(),
            deps,
        }))
    }

    /// Releases the files of a pod whose containers are gone: memory volumes are unmounted, the
    /// pod's directory and its cgroup are removed. Its logs stay until the pod is unknown.
    ///
    /// # Errors
    /// Something is still mounted or the file system refuses; trying again is safe.
    pub async fn cleanup_pod(&self, uid: &PodUid) -> Result<(), CleanupError> {
        self.pull_errors().forget(uid);
        self.finished_hooks().forget_pod(uid);
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

    /// Pods that have a directory, for a caller that looks for those nobody asks for.
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

    fn deps(&self) -> &PodRuntimeDeps {
        &self.0.deps
    }

    fn puller(&self) -> &pull::Puller {
        &self.0.puller
    }

    fn stop_limits(&self) -> &stop_limits::StopLimits {
        &self.0.stop_limits
    }

    fn finished_hooks(&self) -> &hooks::FinishedPreStopHooks {
        &self.0.finished_hooks
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
