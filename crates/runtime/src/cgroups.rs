//! Cgroups of pods: created before the sandbox, removed last. They have their own I/O queue per
//! pod, so that a hung volume does not delay them.
//!
//! The cgroup driver is read from the runtime when the first pod needs a cgroup. A pod that a
//! previous agent run started in another cgroup stays there until its containers restart.

mod node_limits;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use windlass_cgroups::{CgroupError, CgroupTree, PodCgroups, Slices};
use windlass_cri::error::CriError;
use windlass_pod_inputs::resources::qos_class;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::node_cgroups::{ClassMemory, ClassValues, NodeLimit, QosMemory};
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_types::cri::CgroupDriver;
use windlass_types::{Pod, PodExt, PodUid, Retry};
use windlass_volumes::IoQueueError;

use crate::PodRuntime;
use crate::files::FilesError;

/// IoQueue of what belongs to no pod.
const NODE_QUEUE: &str = "node:cgroups";
/// Attempts to remove a pod's cgroup, as upstream; killed processes need some time to exit.
const MAX_REMOVAL_ATTEMPTS: u32 = 5;
/// Interval between the attempts.
const REMOVAL_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Settings of pod cgroups; without them the runtime chooses the cgroups.
#[derive(Clone, Debug)]
pub struct CgroupSettings {
    /// The cgroup file system.
    pub tree: Arc<dyn CgroupTree>,
    /// The slice manager, for the systemd driver.
    pub slices: Option<Arc<dyn Slices>>,
    /// `cgroupRoot`: parent of `kubepods`.
    pub root: String,
    /// `cgroupDriver`, for a runtime that does not report its driver.
    pub driver: CgroupDriver,
    /// Limits of all pods together.
    pub node: NodeLimits,
    /// `podPidsLimit`, if set.
    pub pids_limit: Option<i64>,
    /// Limits of daemons that `enforceNodeAllocatable` names.
    pub reserved: Vec<NodeLimit>,
    /// `qosReserved`, if it is in effect.
    pub qos_memory: Option<QosMemory>,
}

/// A pod's cgroup could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodCgroupError {
    /// The driver could not be read from the runtime.
    #[error("cannot read the cgroup driver: {0}")]
    Driver(#[source] CriError),
    /// The kernel rejected the operation, or it timed out.
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
    /// Creates the pod's cgroup and returns the cgroup parent for the runtime. With `keep` an
    /// existing one keeps its values: they change with the containers in it.
    pub(crate) async fn ensure_cgroup(
        &self,
        pod: &Pod,
        keep: bool,
    ) -> Result<String, PodCgroupError> {
        let deps = self.deps();
        let (Some(settings), Some(cgroups)) = (&deps.cgroups, self.cgroups().await?) else {
            return Ok(deps.options.cgroup_parent.clone());
        };
        let (uid, class) = (pod.uid(), qos_class(pod));
        let values = self.wanted_cgroup(pod, settings);
        let parent = cgroups.parent_of(class, &uid).unwrap_or_default();
        // a few path lookups in kernel memory need no thread
        if keep && cgroups.exists(class, &uid) {
            return Ok(parent);
        }
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

    /// Waits at most `limit` until the cgroups of all pods and of the QoS classes exist.
    pub async fn wait_for_cgroups(&self, limit: Duration) {
        match tokio::time::timeout(limit, self.cgroups()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, "cgroups of pods not available"),
            Err(_) => {
                tracing::warn!(
                    ?limit,
                    "cgroups of pods not created in time; check the host's cgroups"
                );
            }
        }
    }

    /// True if the cgroup of a running pod was removed, so that its limits have no effect.
    pub(crate) fn is_cgroup_removed(&self, uid: &PodUid) -> bool {
        // called in every sync: a few path lookups in kernel memory need no thread
        let cgroups = self.0.cgroups.get();
        cgroups.is_some_and(|cgroups| cgroups.is_removed(uid))
    }

    /// Kills the processes in a pod's cgroup and removes it.
    ///
    /// # Errors
    /// A process does not exit, or the kernel rejects the removal; retrying is safe.
    pub async fn remove_cgroup(&self, uid: &PodUid) -> Result<(), FilesError> {
        let cgroups = match self.cgroups().await {
            Ok(Some(cgroups)) => cgroups.clone(),
            // without a known driver no cgroup of the pod exists
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

    /// Pods with a cgroup, for the search for orphaned pods.
    ///
    /// # Errors
    /// The cgroups cannot be read.
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

    /// Sets the values of the QoS classes for the pods of the node.
    ///
    /// # Errors
    /// The kernel rejects a value.
    pub async fn update_classes(&self, values: ClassValues) -> Result<(), FilesError> {
        let Ok(Some(cgroups)) = self.cgroups().await else {
            return Ok(());
        };
        let cgroups = cgroups.clone();
        let updated = self.in_node_queue("limiting the classes", move || {
            cgroups.update_classes(values)
        });
        if updated.await? {
            tracing::debug!(%values, "class cgroups");
        }
        Ok(())
    }

    /// Memory settings of the QoS classes.
    pub fn qos_memory(&self) -> ClassMemory {
        let deps = self.deps();
        ClassMemory {
            reserved: deps.cgroups.as_ref().and_then(|it| it.qos_memory),
            protects_requests: deps.node.memory.qos.map(|qos| qos.protects_requests),
        }
    }

    /// The cgroups, created on first use; `None` if the runtime chooses them.
    pub(crate) async fn cgroups(&self) -> Result<Option<&PodCgroups>, PodCgroupError> {
        let deps = self.deps();
        let Some(settings) = &deps.cgroups else {
            return Ok(None);
        };
        let made = self.0.cgroups.get_or_try_init(async || {
            let driver = deps.runtime.cgroup_driver().await;
            let driver = driver.map_err(PodCgroupError::Driver)?;
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

    pub(crate) async fn in_queue<T: Send + 'static>(
        &self,
        queue: &PodUid,
        action: &'static str,
        work: impl FnOnce() -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, FilesError> {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let work = Box::new(move || {
            let value = work()?;
            *slot.lock() = Some(value);
            Ok(())
        });
        let queue = format!("cgroup:{queue}");
        self.deps().files.run(&queue, action, work).await?;
        let value = result.lock().take();
        value.ok_or_else(|| IoQueueError::Lost { action }.into())
    }
}
