//! In-place resize: brings a running pod to its allocated sizes.
//!
//! The plan is computed in every sync from what the runtime and the kernel report, so an
//! interrupted resize continues with the next sync, also after an agent restart. The values of a
//! pod's cgroup are read once in an agent run.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_cgroups::PodCgroups;
use windlass_cri::{CriCode, CriError};
use windlass_pod_inputs::resources::{QosClass, overhead_resources, qos_class, sandbox_resources};
use windlass_runtime_config::pod_cgroup::CgroupValues;
use windlass_runtime_config::resize::{
    AcceptedResources, MemoryUsage, ResizeInput, ResizePlan, check_memory, resize_plan,
};
use windlass_types::cri::LinuxResources;
use windlass_types::{ContainerId, ContainerState, PodExt, PodUid, Retry};

use crate::PodRuntime;
use crate::request::retry_time;
use crate::sync::SyncPass;

/// Resources of containers that the runtime accepted, by pod. Runtimes and their plugins may change
/// them, or not report them.
#[derive(Debug, Default)]
pub(crate) struct Accepted(Mutex<BTreeMap<PodUid, AcceptedResources>>);

impl Accepted {
    fn of(&self, uid: &PodUid) -> AcceptedResources {
        let pods = self.0.lock();
        pods.get(uid).cloned().unwrap_or_default()
    }

    fn record(&self, uid: &PodUid, accepted: AcceptedResources) {
        let mut pods = self.0.lock();
        pods.insert(uid.clone(), accepted);
    }

    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut pods = self.0.lock();
        pods.remove(uid);
    }
}

/// Time for which a call that the runtime does not know is not repeated.
pub(crate) const UNKNOWN_CALL_TIME: Duration = Duration::from_secs(60);

/// An error of a resize; it is retried.
struct ResizeError {
    message: String,
    retry: Retry,
}

impl ResizeError {
    fn new(error: &dyn std::fmt::Display, retry: Retry) -> Self {
        Self {
            message: error.to_string(),
            retry,
        }
    }
}

impl From<&CriError> for ResizeError {
    fn from(error: &CriError) -> Self {
        Self::new(error, error.retry())
    }
}

/// The cgroup of a pod.
struct PodCgroup {
    cgroups: PodCgroups,
    class: QosClass,
    current: CgroupValues,
    wanted: CgroupValues,
}

impl PodRuntime {
    /// Resources in the cgroup of a pod, with its overhead; `None` without a cgroup, and before the
    /// first sync of a running pod.
    pub fn cgroup_resources(&self, uid: &PodUid) -> Option<LinuxResources> {
        let values = self.0.cgroups.get()?.known(uid)?;
        let (cpu_quota, cpu_period) = values.cpu_quota.unwrap_or_default();
        Some(LinuxResources {
            cpu_shares: values.cpu_shares.unwrap_or_default(),
            cpu_quota,
            cpu_period,
            memory_limit: values.memory_limit.unwrap_or_default(),
            ..LinuxResources::default()
        })
    }
}

impl SyncPass<'_> {
    /// True if the sizes of a running pod may differ from the allocated ones.
    pub(crate) fn may_resize(&self) -> bool {
        if !self.keeps_containers() {
            return false;
        }
        let Some(settings) = &self.runtime.deps().cgroups else {
            return !self.resize_plan(None).is_empty();
        };
        let uid = self.pod().uid();
        let Some(cgroups) = self.runtime.0.cgroups.get() else {
            return true;
        };
        let wanted = self.runtime.wanted_cgroup(self.pod(), settings);
        match cgroups.known(&uid) {
            Some(current) => !self.resize_plan(Some((current, wanted))).is_empty(),
            None => {
                let has_cgroup = cgroups.exists(qos_class(self.pod()), &uid);
                has_cgroup || !self.resize_plan(None).is_empty()
            }
        }
    }

    /// True if something runs in the sandbox that this sync keeps.
    fn keeps_containers(&self) -> bool {
        let actions = &self.actions;
        let mut containers = self.req.observed.containers.iter();
        !actions.kill_pod
            && !actions.create_sandbox
            && actions.containers_to_reset.is_empty()
            && containers.any(|c| c.state == ContainerState::Running)
    }

    /// Brings the pod to its allocated sizes. A failure is in the outcome and keeps no container
    /// from its start.
    pub(crate) async fn resize(&mut self) {
        if !self.keeps_containers() {
            return;
        }
        let result = self.try_resize().await;
        if let Err(error) = &result {
            tracing::warn!(pod = %self.pod().full_name(), error = error.message, "resize failed");
            self.resize_retry_at = retry_time(error.retry, self.runtime.deps().clock.now());
        }
        self.resized = Some(result.map_err(|error| error.message));
    }

    async fn try_resize(&mut self) -> Result<(), ResizeError> {
        let cgroup = self.pod_cgroup().await;
        let values = cgroup.as_ref().ok().and_then(Option::as_ref);
        let plan = self.resize_plan(values.map(|it| (it.current, it.wanted)));
        let cgroup = match cgroup {
            Ok(cgroup) => cgroup,
            // without a change there is nothing to order
            Err(_) if plan.is_empty() => return Ok(()),
            Err(error) => return Err(error),
        };
        if plan.is_empty() {
            if let Some(PodCgroup {
                cgroups,
                class,
                wanted,
                ..
            }) = cgroup
            {
                cgroups.confirm(class, &self.pod().uid(), wanted);
            }
            return Ok(());
        }
        tracing::debug!(pod = %self.pod().full_name(), %plan, "resize planned");
        let begin = Instant::now();
        let result = self.execute(&plan, cgroup.as_ref()).await;
        let success = if result.is_ok() { "true" } else { "false" };
        let duration = &self.runtime.deps().metrics.workers.resize_duration;
        duration
            .with_label_values(&[success])
            .observe(begin.elapsed().as_secs_f64() * 1000.0);
        result
    }

    /// The plan without the containers that are restarted.
    fn resize_plan(&self, cgroup: Option<(CgroupValues, CgroupValues)>) -> ResizePlan {
        let mut plan = resize_plan(ResizeInput {
            pod: self.pod(),
            observed: &self.req.observed,
            node: &self.runtime.deps().node,
            accepted: &self.runtime.0.accepted.of(&self.pod().uid()),
            exclusive_cpus: &self.runtime.exclusive_cpus(self.pod()),
            cgroup,
        });
        let kills = &self.actions.containers_to_kill;
        plan.containers
            .retain(|container| !kills.iter().any(|kill| kill.id == container.id));
        plan
    }

    /// The values of the pod's cgroup, read if they are not known; `None` without one.
    async fn pod_cgroup(&self) -> Result<Option<PodCgroup>, ResizeError> {
        let deps = self.runtime.deps();
        let cgroups = self.runtime.cgroups().await;
        let cgroups = cgroups.map_err(|error| ResizeError::new(&error, error.retry()))?;
        let (Some(settings), Some(cgroups)) = (&deps.cgroups, cgroups) else {
            return Ok(None);
        };
        let (uid, class) = (self.pod().uid(), qos_class(self.pod()));
        let current = match cgroups.known(&uid) {
            Some(values) => Some(values),
            None => {
                let (cgroups, pod) = (cgroups.clone(), uid.clone());
                let read = move || Ok(cgroups.read(class, &pod));
                let read = self
                    .runtime
                    .in_queue(&uid, "reading the pod's cgroup", read);
                let read = read.await;
                read.map_err(|error| ResizeError::new(&error, error.retry()))?
            }
        };
        Ok(current.map(|current| PodCgroup {
            cgroups: cgroups.clone(),
            class,
            current,
            wanted: self.runtime.wanted_cgroup(self.pod(), settings),
        }))
    }

    async fn execute(
        &mut self,
        plan: &ResizePlan,
        cgroup: Option<&PodCgroup>,
    ) -> Result<(), ResizeError> {
        if plan.lowers_memory() {
            let usage = self.memory_usage(plan, cgroup).await?;
            let checked = check_memory(plan, &usage);
            checked.map_err(|message| ResizeError::new(&message, Retry::Later))?;
        }
        // read back even if it fails: a call may have had an effect
        self.changed = true;
        if plan.changes_cgroup() {
            self.announce().await?;
        }
        self.change_cgroup(cgroup, plan.raise).await?;
        self.change_containers(plan).await?;
        self.change_cgroup(cgroup, plan.lower).await
    }

    async fn memory_usage(
        &self,
        plan: &ResizePlan,
        cgroup: Option<&PodCgroup>,
    ) -> Result<MemoryUsage, ResizeError> {
        let Some(cgroup) = cgroup else {
            return Ok(MemoryUsage::default());
        };
        let (cgroups, class, uid) = (cgroup.cgroups.clone(), cgroup.class, self.pod().uid());
        let ids: Vec<_> = plan.containers.iter().map(|c| c.id.clone()).collect();
        let pod = uid.clone();
        let read = move || Ok(cgroups.memory_usage(class, &pod, &ids));
        let usage = self
            .runtime
            .in_queue(&uid, "reading the memory usage", read);
        let usage = usage.await;
        usage.map_err(|error| ResizeError::new(&error, error.retry()))
    }

    /// Sends the new resources of the pod to the runtime, which may reject them.
    async fn announce(&self) -> Result<(), ResizeError> {
        let call = &self.runtime.0.sandbox_sizes;
        let sandbox = self.actions.sandbox_id.as_ref();
        let Some(sandbox) = sandbox.filter(|_| call.retry_at(Instant::now()).is_none()) else {
            return Ok(());
        };
        let deps = self.runtime.deps();
        let resources = sandbox_resources(self.pod(), &deps.node);
        let overhead = overhead_resources(self.pod(), &deps.node);
        let announced =
            deps.runtime
                .update_pod_sandbox_resources(sandbox, overhead.as_ref(), &resources);
        match announced.await {
            Err(error) if is_unimplemented(&error) => {
                call.record(Instant::now());
                Ok(())
            }
            Err(error) => Err(ResizeError::from(&error)),
            Ok(()) => Ok(()),
        }
    }

    async fn change_cgroup(
        &self,
        cgroup: Option<&PodCgroup>,
        change: CgroupValues,
    ) -> Result<(), ResizeError> {
        let Some(cgroup) = cgroup.filter(|_| change != CgroupValues::default()) else {
            return Ok(());
        };
        let (cgroups, class, uid) = (cgroup.cgroups.clone(), cgroup.class, self.pod().uid());
        let pod = uid.clone();
        let change = move || cgroups.resize(class, &pod, change);
        let changed = self
            .runtime
            .in_queue(&uid, "resizing the pod's cgroup", change);
        let changed = changed.await;
        changed.map_err(|error| ResizeError::new(&error, error.retry()))
    }

    async fn change_containers(&self, plan: &ResizePlan) -> Result<(), ResizeError> {
        let runtime = &self.runtime.deps().runtime;
        for container in &plan.containers {
            let (id, resources) = (&container.id, &container.resources);
            // unknown until it is answered
            self.accept(id, None);
            let updated = runtime.update_container_resources(id, resources).await;
            updated.as_ref().map_err(ResizeError::from)?;
            tracing::info!(
                pod = %self.pod().full_name(),
                container = container.name,
                "container resized"
            );
            self.accept(id, Some(resources));
        }
        Ok(())
    }

    /// Records the resources of a created or resized container; `None` if they are not known.
    pub(crate) fn accept(&self, id: &ContainerId, resources: Option<&LinuxResources>) {
        let uid = self.pod().uid();
        let mut accepted = self.runtime.0.accepted.of(&uid);
        let observed = &self.req.observed.containers;
        let ended = |id: &ContainerId| {
            let instance = observed.iter().find(|c| c.id == *id);
            instance.is_some_and(|c| c.state == ContainerState::Exited)
        };
        accepted.retain(|known, _| known != id && !ended(known));
        accepted.extend(resources.map(|resources| (id.clone(), resources.clone())));
        self.runtime.0.accepted.record(&uid, accepted);
    }
}

/// containerd 2.2 reports a missing method with another code.
fn is_unimplemented(error: &CriError) -> bool {
    error.code == CriCode::Unimplemented
        || (error.code == CriCode::Other && error.message.contains("not implemented"))
}
