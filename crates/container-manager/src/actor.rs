//! The ContainerManager actor.
//!
//! * owns: the CPUs, memory nodes and devices of containers, the device plugins, the allocations in
//!   progress
//! * receives: `AllocateResources` from the SyncLoop, events of device plugins, changes of the pod
//!   status store, completions of its calls and writes
//! * sends: `ResourcesAllocated` to the SyncLoop; publishes the managers
//! * invariant: a pod has its resources in the state files before its worker gets it; a device or an
//!   exclusive CPU has one owner, until the containers of its pod have ended
//! * bound and overflow: requests and changes coalesce per pod; a pod has one call in progress
//! * restart: the managers are read from the state files

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, SpawnHandle, StreamHandler};
use futures::stream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use windlass_actors::{
    AllocateResources, AllocationScope, PluginResourceUpdate, PodWorkerState, ResourcesAllocated,
    StatusCache,
};
use windlass_cri::RuntimeService;
use windlass_hung_operations::{HungOperations, Operation, OperationKind};
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, SlotReceiver, SlotSender, completions, spawn_io,
};
use windlass_metrics::ResourceManagerMetrics;
use windlass_resource_managers::hints::NotAdmitted;
use windlass_status::{PodStatusEntry, PodStatusStore, StatusChange, StatusSubscription};
use windlass_topology::CpuSet;
use windlass_types::cri::LinuxResources;
use windlass_types::{ContainerId, ContainerState, Pod, PodExt, PodUid, SharedPod};

use crate::allocation::{Allocation, CallResult, MAX_WAIT, PluginCall, Step};
use crate::managers::Managers;
use crate::measured::{Measured, count_alignment, create_alignments};
use crate::ports::{DeviceEvent, StateFile, StateFiles};
use crate::resources::AssignedResourcesReader;
use crate::shared_pool::updates;

/// Time after which a call is shown as what the pod waits for.
const SLOW_CALL: Duration = Duration::from_secs(2);
/// Time after which a call is listed as hung.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);
/// Time after which a failed write is retried.
const RETRY: Duration = Duration::from_secs(10);

/// Dependencies of the [`ContainerManager`].
#[derive(Debug)]
pub struct ContainerManagerDeps {
    /// The managers, with the assignments of the state files.
    pub managers: Managers,
    /// The state files; `None` in simulations without a disk.
    pub files: Option<Arc<dyn StateFiles>>,
    /// Answers for the SyncLoop.
    pub answers: SlotSender<PodUid, ResourcesAllocated>,
    /// Publishes which pods need an allocation.
    pub scope: watch::Sender<Arc<AllocationScope>>,
    /// Publishes the resources of device plugins.
    pub plugin_resources: watch::Sender<PluginResourceUpdate>,
    /// Status of every pod.
    pub status_store: PodStatusStore,
    /// Observed containers.
    pub observed: StatusCache,
    /// Updates the CPUs of running containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// Metrics.
    pub metrics: ResourceManagerMetrics,
    /// Lists calls that hang.
    pub hung: HungOperations,
}

/// The ContainerManager actor.
#[derive(Debug)]
pub struct ContainerManager {
    deps: ContainerManagerDeps,
    published: watch::Sender<Arc<Managers>>,
    /// In order of arrival.
    allocations: Vec<Allocation>,
    /// Pods whose allocation is not on the disk yet, with the version that has it.
    unsaved: BTreeMap<PodUid, (u64, bool)>,
    files: Files,
    calls: u64,
    /// CPUs that the runtime accepted for running containers.
    accepted: BTreeMap<ContainerId, CpuSet>,
    /// Containers whose CPUs are being updated.
    updating: BTreeSet<ContainerId>,
    measured: Measured,
    started: Instant,
    /// Pods that were requested again, as static pods are, before the previous one with their UID
    /// has ended: its end frees nothing.
    renewed: BTreeSet<PodUid>,
    /// Timer of the next grace period that ends.
    removal: Option<SpawnHandle>,
    completions: CompletionSender<Completion>,
    streams: Option<(Streams, Completions<Completion>)>,
}

/// State of the writes.
#[derive(Debug, Default)]
struct Files {
    /// Number of changes.
    version: u64,
    /// The last version on the disk.
    written: u64,
    writing: bool,
    contents: BTreeMap<StateFile, String>,
}

#[derive(Debug)]
struct Streams {
    requests: SlotReceiver<PodUid, AllocateResources>,
    events: mpsc::Receiver<DeviceEvent>,
}

/// What a task of the actor reports.
#[derive(Debug)]
enum Completion {
    Called(PodUid, u64, CallResult),
    Slow(PodUid, u64),
    Written(u64, Result<BTreeMap<StateFile, String>, String>),
    CpusUpdated(PodUid, ContainerId, CpuSet, bool),
}

impl ContainerManager {
    /// Creates the actor and read access to its managers.
    pub fn new(
        deps: ContainerManagerDeps,
        requests: SlotReceiver<PodUid, AllocateResources>,
        events: mpsc::Receiver<DeviceEvent>,
    ) -> (Self, AssignedResourcesReader) {
        let (completion_sender, completions) = completions();
        let (published, reader) = watch::channel(Arc::new(deps.managers.clone()));
        deps.scope.send_replace(Arc::new(deps.managers.scope()));
        let manager = Self {
            deps,
            published,
            allocations: Vec::new(),
            unsaved: BTreeMap::new(),
            files: Files::default(),
            calls: 0,
            accepted: BTreeMap::new(),
            updating: BTreeSet::new(),
            measured: Measured::default(),
            started: Instant::now(),
            renewed: BTreeSet::new(),
            removal: None,
            completions: completion_sender,
            streams: Some((Streams { requests, events }, completions)),
        };
        (manager, AssignedResourcesReader::new(reader))
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn request(&mut self, uid: PodUid, request: AllocateResources, ctx: &mut Context<Self>) {
        if request.release {
            self.renewed.remove(&uid);
            self.release(std::slice::from_ref(&uid));
        }
        let Some(pod) = request.pod else {
            return;
        };
        let entry = self.deps.status_store.get(&uid);
        if entry.is_some_and(|entry| entry.worker_state != PodWorkerState::SyncPod) {
            self.renewed.insert(uid.clone());
        }
        match self.allocations.iter_mut().find(|it| it.uid() == uid) {
            Some(allocation) => {
                allocation.pod = pod;
                allocation.keep |= request.keep;
            }
            None => {
                let allocation = Allocation::new(pod, request.keep, self.now());
                self.allocations.push(allocation);
            }
        }
        self.advance(&uid, ctx);
    }

    /// Continues the allocation of a pod.
    fn advance(&mut self, uid: &PodUid, ctx: &mut Context<Self>) {
        let now = self.now();
        let mut all = self.allocations.iter_mut();
        let Some(allocation) = all.find(|it| it.uid() == *uid && it.call.is_none()) else {
            return;
        };
        let step = allocation.advance(&mut self.deps.managers, now);
        tracing::debug!(pod = %allocation.pod.full_name(), %step, "allocation");
        match step {
            Step::Call(resource, call) => self.call(uid, resource, call),
            Step::Wait(resource) => {
                let message = format!("waiting for the device plugin of {resource}");
                self.answer(uid, ResourcesAllocated::Waiting(message));
                let uid = uid.clone();
                ctx.run_later(MAX_WAIT, move |this, ctx| this.advance(&uid, ctx));
            }
            Step::Done => self.end(uid, Ok(()), ctx),
            Step::Reject(error) => self.end(uid, Err(error), ctx),
        }
    }

    /// Calls a plugin. The devices are reserved.
    fn call(&mut self, uid: &PodUid, resource: String, call: PluginCall) {
        self.calls += 1;
        let id = self.calls;
        if let Some(allocation) = self.allocations.iter_mut().find(|it| it.uid() == *uid) {
            allocation.call = Some(id);
        }
        let plugin = self.deps.managers.plugins.get(&resource).cloned();
        let (completions, uid) = (self.completions.clone(), uid.clone());
        let hung = self.deps.hung.clone();
        spawn_io("device-plugin-call", async move {
            let Some(plugin) = plugin else {
                let error = format!("unknown Device Plugin {resource}");
                completions.send(Completion::Called(uid, id, CallResult::Failed(error)));
                return;
            };
            let name = format!("{} of device plugin {resource}", call.as_str());
            let pod = uid.clone();
            let operation = || Operation::of_pod(OperationKind::DevicePlugin, &pod, &*name);
            let call = async {
                match &call {
                    PluginCall::Preferred(question) => {
                        plugin.preferred(question).await.map(CallResult::Preferred)
                    }
                    PluginCall::Allocate(ids) => {
                        plugin.allocate(ids).await.map(CallResult::Allocated)
                    }
                }
            };
            // a failed call rejects the pod, and is not retried
            let call = hung.track(HANG_THRESHOLD, operation, |_| true, call);
            tokio::pin!(call);
            let result = match tokio::time::timeout(SLOW_CALL, &mut call).await {
                Ok(result) => result,
                Err(_) => {
                    completions.send(Completion::Slow(uid.clone(), id));
                    call.await
                }
            };
            let result = result.unwrap_or_else(CallResult::Failed);
            completions.send(Completion::Called(uid, id, result));
        });
    }

    fn called(&mut self, uid: &PodUid, id: u64, result: CallResult, ctx: &mut Context<Self>) {
        let mut all = self.allocations.iter_mut();
        let Some(allocation) = all.find(|it| it.uid() == *uid && it.call == Some(id)) else {
            return;
        };
        allocation.call = None;
        match allocation.called(&mut self.deps.managers, result) {
            Ok(()) => self.advance(uid, ctx),
            Err(error) => self.end(uid, Err(error), ctx),
        }
    }

    /// Ends an allocation. A pod that gets its resources is answered when they are on the disk.
    fn end(&mut self, uid: &PodUid, result: Result<(), NotAdmitted>, ctx: &mut Context<Self>) {
        let found = self.allocations.iter().position(|it| it.uid() == *uid);
        let Some(allocation) = found.map(|index| self.allocations.remove(index)) else {
            return;
        };
        let pod = allocation.pod.full_name();
        let time = self.now().saturating_sub(allocation.since);
        self.deps.metrics.admissions.inc();
        self.measured
            .publish(&self.deps.managers, &self.deps.metrics);
        let milliseconds = time.as_secs_f64() * 1000.0;
        self.deps.metrics.admission_duration.observe(milliseconds);
        let (managers, metrics) = (&self.deps.managers, &self.deps.metrics);
        count_alignment(managers, &allocation, result.is_ok(), metrics);
        match result {
            Err(error) if !allocation.keep => {
                tracing::info!(%pod, reason = error.reason, %error, "resources not allocated");
                self.release(std::slice::from_ref(uid));
                let NotAdmitted { reason, message } = error;
                self.answer(uid, ResourcesAllocated::Rejected(reason, message));
            }
            result => {
                if let Err(error) = result {
                    tracing::warn!(%pod, %error, "pod keeps running without its resources");
                }
                let version = self.changed();
                self.unsaved.insert(uid.clone(), (version, allocation.keep));
                self.saved(ctx);
            }
        }
    }

    /// Publishes the managers and writes the state files; returns the version of the change.
    fn changed(&mut self) -> u64 {
        let resources = self.deps.managers.plugin_resources(self.now());
        let resources = PluginResourceUpdate(Arc::new(resources));
        let published = &self.deps.plugin_resources;
        published.send_if_modified(|known| {
            let is_new = *known != resources;
            *known = resources;
            is_new
        });
        self.measured
            .publish(&self.deps.managers, &self.deps.metrics);
        let managers = &self.deps.managers;
        let scope = managers.scope();
        self.deps.scope.send_if_modified(|known| {
            let is_new = **known != scope;
            if is_new {
                *known = Arc::new(scope);
            }
            is_new
        });
        self.published.send_replace(Arc::new(managers.clone()));
        self.files.version += 1;
        self.write();
        self.files.version
    }

    fn write(&mut self) {
        let Some(files) = self.deps.files.clone() else {
            self.files.written = self.files.version;
            return;
        };
        if self.files.writing || self.files.written == self.files.version {
            return;
        }
        self.files.writing = true;
        let contents = self.deps.managers.contents();
        let old = self.files.contents.clone();
        let (version, completions) = (self.files.version, self.completions.clone());
        tokio::task::spawn_blocking(move || {
            let changed = contents
                .iter()
                .filter(|(file, text)| old.get(file) != Some(text));
            let written: Result<(), String> = changed
                .into_iter()
                .try_for_each(|(file, text)| files.save(*file, text));
            completions.send(Completion::Written(version, written.map(|()| contents)));
        });
    }

    fn written(
        &mut self,
        version: u64,
        result: Result<BTreeMap<StateFile, String>, String>,
        ctx: &mut Context<Self>,
    ) {
        self.files.writing = false;
        match result {
            Ok(contents) => {
                self.files.written = version;
                self.files.contents = contents;
                self.saved(ctx);
                self.write();
            }
            Err(error) => {
                tracing::error!(error, "writing the state files of resources failed");
                self.not_saved(version, &error);
                ctx.run_later(RETRY, |this, _| this.write());
            }
        }
    }

    /// Answers the pods whose resources are on the disk.
    fn saved(&mut self, _: &mut Context<Self>) {
        let written = self.files.written;
        let saved = self
            .unsaved
            .iter()
            .filter(|(_, (version, _))| *version <= written);
        let saved: Vec<PodUid> = saved.map(|(uid, _)| uid.clone()).collect();
        for uid in saved {
            self.unsaved.remove(&uid);
            self.answer(&uid, ResourcesAllocated::Done);
        }
        self.update_all_cpus();
    }

    /// Rejects the pods whose resources could not be written, except those that run.
    fn not_saved(&mut self, version: u64, error: &str) {
        for (uid, (needed, keep)) in std::mem::take(&mut self.unsaved) {
            if needed > version {
                self.unsaved.insert(uid, (needed, keep));
            } else if keep {
                self.answer(&uid, ResourcesAllocated::Done);
            } else {
                let NotAdmitted { reason, message } = NotAdmitted::unexpected(error);
                self.deps.managers.release(&uid);
                self.answer(&uid, ResourcesAllocated::Rejected(reason, message));
            }
        }
    }

    fn answer(&self, uid: &PodUid, answer: ResourcesAllocated) {
        self.deps.answers.put(uid.clone(), answer);
    }

    /// Frees what pods have, and ends their allocations.
    fn release(&mut self, uids: &[PodUid]) {
        let mut had = false;
        for uid in uids {
            self.allocations.retain(|it| it.uid() != *uid);
            self.unsaved.remove(uid);
            had |= self.deps.managers.release(uid);
        }
        if had {
            self.changed();
            self.update_all_cpus();
        }
    }

    /// Handles changed pods: those that have ended release their resources, started containers free
    /// those of the init containers before, and their CPUs are checked.
    fn pods_changed(&mut self, change: StatusChange, ctx: &mut Context<Self>) {
        let owners = self.deps.managers.pods();
        let mut ended: Vec<PodUid> = change.removed;
        let mut freed = false;
        for entry in change.changed {
            let uid = entry.pod.uid();
            if entry.worker_state == PodWorkerState::TerminatedPod {
                ended.push(uid);
            } else {
                if entry.worker_state == PodWorkerState::SyncPod {
                    self.renewed.remove(&uid);
                }
                freed |= owners.contains(&uid) && self.free_init_containers(&entry.pod);
                self.update_cpus(&uid);
                self.allocate_again(&entry, ctx);
            }
        }
        if freed {
            self.changed();
        }
        ended.retain(|uid| owners.contains(uid) && !self.renewed.contains(uid));
        self.release(&ended);
    }

    /// Allocates the devices of a running pod that has none, because its state file was lost or the
    /// previous pod with its UID has just ended (upstream `needsReAllocate`).
    fn allocate_again(&mut self, entry: &PodStatusEntry, ctx: &mut Context<Self>) {
        let uid = entry.pod.uid();
        let runs = entry.observed && entry.worker_state == PodWorkerState::SyncPod;
        let allocates = self.allocations.iter().any(|it| it.uid() == uid);
        if !runs || allocates || !self.deps.managers.lacks_devices(&entry.pod) {
            return;
        }
        let request = AllocateResources {
            release: false,
            pod: Some(SharedPod::clone(&entry.pod)),
            keep: true,
        };
        self.request(uid, request, ctx);
    }

    /// Frees the memory of the init containers before the running containers of a pod; true if there
    /// was any.
    fn free_init_containers(&mut self, pod: &Pod) -> bool {
        let Some(observed) = self.deps.observed.get(&pod.uid()) else {
            return false;
        };
        let running = observed.containers.iter();
        let running = running.filter(|it| it.state == ContainerState::Running);
        let memory = &mut self.deps.managers.memory;
        let freed = running.filter(|it| memory.container_started(pod, &it.name));
        freed.count() > 0
    }

    /// Brings all running containers to their CPUs.
    fn update_all_cpus(&mut self) {
        if !self.deps.managers.cpus.is_static() {
            return;
        }
        for pod in self.deps.observed.all() {
            self.update_cpus(&pod.uid);
        }
    }

    /// Brings the running containers of a pod to their CPUs.
    fn update_cpus(&mut self, uid: &PodUid) {
        if !self.deps.managers.cpus.is_static() {
            return;
        }
        let Some(observed) = self.deps.observed.get(uid) else {
            return;
        };
        for update in updates(&self.deps.managers, &observed, &self.accepted) {
            if !self.updating.insert(update.id.clone()) {
                continue;
            }
            let runtime = Arc::clone(&self.deps.runtime);
            let (uid, completions) = (uid.clone(), self.completions.clone());
            spawn_io("update-cpus", async move {
                let resources = LinuxResources {
                    cpuset_cpus: update.cpus.to_string(),
                    ..LinuxResources::default()
                };
                let updated = runtime
                    .update_container_resources(&update.id, &resources)
                    .await;
                if let Err(error) = &updated {
                    tracing::warn!(pod = %uid, container = %update.id, %error,
                        "updating the CPUs of a container failed");
                }
                let is_done = updated.is_ok();
                completions.send(Completion::CpusUpdated(
                    uid,
                    update.id,
                    update.cpus,
                    is_done,
                ));
            });
        }
    }

    fn cpus_updated(
        &mut self,
        uid: PodUid,
        id: ContainerId,
        cpus: CpuSet,
        is_done: bool,
        ctx: &mut Context<Self>,
    ) {
        self.updating.remove(&id);
        if !is_done {
            let retry = self.deps.managers.cpu_retry;
            ctx.run_later(retry, move |this, _| this.update_cpus(&uid));
            return;
        }
        let all = self.deps.observed.all();
        let exists = |id: &ContainerId| {
            let mut containers = all.iter().flat_map(|pod| &pod.containers);
            containers.any(|container| container.id == *id)
        };
        self.accepted.insert(id, cpus);
        self.accepted.retain(|id, _| exists(id));
        // it may have changed meanwhile
        self.update_cpus(&uid);
    }

    fn plugin(&mut self, event: DeviceEvent, ctx: &mut Context<Self>) {
        let now = self.now();
        let managers = &mut self.deps.managers;
        match event {
            DeviceEvent::Registered {
                resource,
                registration,
                options,
                calls,
            } => {
                if !managers
                    .devices
                    .registered(&resource, registration, options)
                {
                    return;
                }
                tracing::info!(resource, registration, "device plugin registered");
                managers.listed.remove(&resource);
                managers.plugins.insert(resource, calls);
            }
            DeviceEvent::Listed {
                resource,
                registration,
                devices,
            } => {
                let count = devices.len();
                let Some(pods) = managers.devices.listed(&resource, registration, devices) else {
                    return;
                };
                tracing::debug!(resource, registration, count, "devices listed");
                managers.listed.insert(resource);
                self.changed();
                self.health_changed(pods);
                for entry in self.deps.status_store.snapshot() {
                    self.allocate_again(&entry, ctx);
                }
            }
            DeviceEvent::Gone {
                resource,
                registration,
            } => {
                if !managers.devices.stopped(&resource, registration, now) {
                    return;
                }
                tracing::warn!(resource, registration, "device plugin ended");
                managers.plugins.remove(&resource);
                self.remove_later(ctx);
            }
        }
        self.changed();
        self.advance_all(ctx);
    }

    /// Has the workers of pods write a status with the health of their devices.
    fn health_changed(&self, pods: BTreeSet<PodUid>) {
        for uid in pods {
            let allocates = self.allocations.iter().any(|it| it.uid() == uid);
            if !allocates && !self.unsaved.contains_key(&uid) {
                self.answer(&uid, ResourcesAllocated::Done);
            }
        }
    }

    fn advance_all(&mut self, ctx: &mut Context<Self>) {
        let uids: Vec<PodUid> = self.allocations.iter().map(Allocation::uid).collect();
        for uid in uids {
            self.advance(&uid, ctx);
        }
    }

    /// Removes the resources whose grace period ends next.
    fn remove_later(&mut self, ctx: &mut Context<Self>) {
        let Some(end) = self.deps.managers.devices.next_removal() else {
            return;
        };
        // the grace period includes its end
        let wait = end.saturating_sub(self.now()) + Duration::from_millis(1);
        let timer = ctx.run_later(wait, |this, ctx| {
            this.removal = None;
            this.changed();
            this.advance_all(ctx);
            this.remove_later(ctx);
        });
        if let Some(earlier) = self.removal.replace(timer) {
            ctx.cancel_future(earlier);
        }
    }
}

/// Streams the changes of the pod status store; the first is the whole store.
fn store_changes(reader: StatusSubscription) -> impl stream::Stream<Item = StatusChange> {
    stream::unfold(reader, async |mut reader| {
        let change = reader.next().await?;
        Some((change, reader))
    })
}

fn plugin_events(events: mpsc::Receiver<DeviceEvent>) -> impl stream::Stream<Item = DeviceEvent> {
    stream::unfold(events, async |mut events| {
        let event = events.recv().await?;
        Some((event, events))
    })
}

impl Actor for ContainerManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((streams, completions)) = self.streams.take() {
            ctx.add_stream(streams.requests);
            ctx.add_stream(plugin_events(streams.events));
            ctx.add_stream(store_changes(self.deps.status_store.subscribe()));
            ctx.add_stream(completions);
        }
        create_alignments(&self.deps.managers, &self.deps.metrics);
        self.remove_later(ctx);
        // a migrated state is written
        self.changed();
    }
}

impl StreamHandler<(PodUid, AllocateResources)> for ContainerManager {
    fn handle(&mut self, (uid, request): (PodUid, AllocateResources), ctx: &mut Context<Self>) {
        self.request(uid, request, ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<DeviceEvent> for ContainerManager {
    fn handle(&mut self, event: DeviceEvent, ctx: &mut Context<Self>) {
        self.plugin(event, ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<StatusChange> for ContainerManager {
    fn handle(&mut self, change: StatusChange, ctx: &mut Context<Self>) {
        self.pods_changed(change, ctx);
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<Completion>> for ContainerManager {
    fn handle(&mut self, delivery: Delivery<Completion>, ctx: &mut Context<Self>) {
        delivery.open(|completion| match completion {
            Completion::Called(uid, id, result) => self.called(&uid, id, result, ctx),
            Completion::Slow(uid, id) => {
                let mut all = self.allocations.iter();
                if all.any(|it| it.uid() == uid && it.call == Some(id)) {
                    let message = "waiting for a response of a device plugin".to_owned();
                    self.answer(&uid, ResourcesAllocated::Waiting(message));
                }
            }
            Completion::Written(version, result) => self.written(version, result, ctx),
            Completion::CpusUpdated(uid, id, cpus, is_done) => {
                self.cpus_updated(uid, id, cpus, is_done, ctx);
            }
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
