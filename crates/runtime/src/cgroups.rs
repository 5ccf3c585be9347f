//! Pods' cgroups: made before a sandbox, removed after everything. Each pod has a queue for this
//! besides the one of its files: here nothing hangs, and a volume that does is not waited for.
//!
//! The runtime is asked once which driver it uses, when the first pod needs a cgroup; before that
//! nothing is touched. A pod that runs in another cgroup, because an earlier agent started it,
//! stays there until its containers start anew.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use windlass_cgroups::{CgroupError, CgroupTree, PodCgroups, Slices};
use windlass_cri::error::CriError;
use windlass_pod_inputs::resources::{QosClass, qos_class};
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::pod_cgroup::{NodeLimits, pod_cgroup};
use windlass_types::cri::CgroupDriver;
use windlass_types::{Pod, PodExt, PodUid, Retry};
use windlass_volumes::IoQueueError;

use crate::PodRuntime;
use crate::files::FilesError;

/// IoQueue of what belongs to no pod.
const NODE_QUEUE: &str = "node:cgroups";
/// Tries to empty and remove a pod's cgroup, as upstream; what was killed needs a moment.
const MAX_REMOVAL_ATTEMPTS: u32 = 5;
/// Pause between them.
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// What cgroups of pods are made of; without it the runtime puts pods where it likes.
#[derive(Clone, Debug)]
pub struct CgroupSettings {
    /// The kernel's cgroups, or a model of them.
    pub tree: Arc<dyn CgroupTree>,
    /// The manager of slices, if the driver is systemd's.
    pub slices: Option<Arc<dyn Slices>>,
    /// `cgroupRoot`: where `kubepods` is.
    pub root: String,
    /// `cgroupDriver`, for a runtime that does not say which it uses.
    pub driver: CgroupDriver,
    /// What all pods together may use.
    pub node: NodeLimits,
    /// `podPidsLimit`, if it limits.
    pub pids_limit: Option<i64>,
}

/// A pod's cgroup that cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodCgroupError {
    /// The runtime does not say which driver it uses.
    #[error("cannot learn the cgroup driver: {0}")]
    Driver(#[source] CriError),
    /// The kernel refuses, or does not answer.
    #[error(transparent)]
    Files(#[from] FilesError),
}

impl PodCgroupError {
    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Driver(error) => error.retry(),
            Self::Files(error) => error.retry(),
        }
    }
}

impl PodRuntime {
    /// Makes the pod's cgroup and says what the runtime is to put below which.
    pub(crate) async fn ensure_cgroup(&self, pod: &Pod) -> Result<String, PodCgroupError> {
        let deps = self.deps();
        let (Some(settings), Some(cgroups)) = (&deps.cgroups, self.cgroups().await?) else {
            return Ok(deps.options.cgroup_parent.clone());
        };
        let (uid, class) = (pod.uid(), qos_class(pod));
        let values = pod_cgroup(pod, &deps.node, settings.pids_limit);
        let parent = cgroups.parent_of(class, &uid).unwrap_or_default();
        let cgroups = cgroups.clone();
        let written = self
            .in_queue(&pod.uid(), "making the pod's cgroup", move || {
                cgroups.ensure(&uid, class, values)
            })
            .await?;
        if written {
            tracing::debug!(pod = %pod.full_name(), parent, %values, "pod cgroup");
        }
        Ok(parent)
    }

    /// True if somebody removed the cgroup of a running pod, so that its containers are where no
    /// limit of the pod's holds.
    pub(crate) fn is_cgroup_removed(&self, uid: &PodUid) -> bool {
        // every sync asks: a few lookups of paths in the kernel's memory take no thread
        let cgroups = self.0.cgroups.get();
        cgroups.is_some_and(|cgroups| cgroups.is_removed(uid))
    }

    /// Kills what is left in a pod's cgroup and removes it.
    ///
    /// # Errors
    /// Something does not die, or the kernel refuses; trying again is safe.
    pub async fn remove_cgroup(&self, uid: &PodUid) -> Result<(), FilesError> {
        let cgroups = match self.cgroups().await {
            Ok(Some(cgroups)) => cgroups.clone(),
            // a runtime that does not say where pods are has none of this pod
            Ok(None) | Err(PodCgroupError::Driver(_)) => return Ok(()),
            Err(PodCgroupError::Files(error)) => return Err(error),
        };
        let mut tries = 1;
        loop {
            let (cgroups, pod) = (cgroups.clone(), uid.clone());
            let removed = self.in_queue(uid, "removing the pod's cgroup", move || {
                cgroups.remove(&pod)
            });
            match removed.await {
                Err(FilesError::Cgroup(CgroupError::Busy { .. }))
                    if tries < MAX_REMOVAL_ATTEMPTS =>
                {
                    tries += 1;
                    tokio::time::sleep(REMOVAL_RETRY_INTERVAL).await;
                }
                result => return result,
            }
        }
    }

    /// Pods that have a cgroup, for a caller that looks for those nobody asks for.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn list_cgroups(&self) -> Result<BTreeSet<PodUid>, FilesError> {
        match self.cgroups().await {
            Ok(Some(cgroups)) => {
                let cgroups = cgroups.clone();
                self.in_node_queue("listing the pods' cgroups", move || cgroups.list())
                    .await
            }
            Ok(None) | Err(PodCgroupError::Driver(_)) => Ok(BTreeSet::new()),
            Err(PodCgroupError::Files(error)) => Err(error),
        }
    }

    /// Gives all Burstable pods together the weight of what they request.
    ///
    /// # Errors
    /// The kernel refuses.
    pub async fn update_burstable_shares(&self, burstable: i64) -> Result<(), FilesError> {
        let Ok(Some(cgroups)) = self.cgroups().await else {
            return Ok(());
        };
        let cgroups = cgroups.clone();
        let shared = self.in_node_queue("sharing the CPU", move || {
            cgroups.update_burstable_shares(burstable)
        });
        if shared.await? {
            tracing::debug!(class = %QosClass::Burstable, shares = burstable, "class cgroup");
        }
        Ok(())
    }

    /// The cgroups, made when they are first needed; `None` if they are the runtime's to choose.
    async fn cgroups(&self) -> Result<Option<&PodCgroups>, PodCgroupError> {
        let deps = self.deps();
        let Some(settings) = &deps.cgroups else {
            return Ok(None);
        };
        let made = self.0.cgroups.get_or_try_init(async || {
            let told = deps.runtime.cgroup_driver().await;
            let driver = told.map_err(PodCgroupError::Driver)?;
            let driver = driver.unwrap_or(settings.driver);
            let layout = CgroupLayout::new(driver, &settings.root);
            let cgroups = PodCgroups::new(layout, settings.tree.clone(), settings.slices.clone());
            let (made, node) = (cgroups.clone(), settings.node.values());
            let warnings = self
                .in_node_queue("making the classes' cgroups", move || Ok(made.set_up(node)))
                .await?;
            let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
            tracing::info!(?driver, root = settings.root, ?warnings, "cgroups of pods");
            Ok::<_, PodCgroupError>(cgroups)
        });
        made.await.map(Some)
    }

    async fn in_node_queue<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce() -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, FilesError> {
        self.in_queue(&PodUid::from(NODE_QUEUE), action, work).await
    }

    async fn in_queue<T: Send + 'static>(
        &self,
        queue: &PodUid,
        action: &'static str,
        work: impl FnOnce() -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, FilesError> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let work = Box::new(move || {
            let value = work()?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        });
        let queue = format!("cgroup:{queue}");
        self.deps().files.run(&queue, action, work).await?;
        let value = result.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.ok_or_else(|| IoQueueError::Lost { action }.into())
    }
}
