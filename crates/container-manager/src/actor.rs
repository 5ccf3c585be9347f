//! The ContainerManager actor.
//!
//! * owns: the CPUs, memory nodes and devices of containers, the device plugins, the allocations in
//!   progress
//! * receives: `AllocateResources` from the SyncLoop, events of device plugins, changes of the pod
//!   status store, completions of its calls and writes
//! * sends: `ResourcesAllocated` to the SyncLoop, `GetObserved` to the PLEG; publishes the managers
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
    AllocateResources, AllocationScope, PlegHandle, PluginResourceUpdate, ResourcesAllocated,
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
use windlass_types::{ContainerId, ObservedPod, Pod, PodExt, PodUid, SharedPod};

use crate::allocation::{Allocation, CallResult, MAX_WAIT, PluginCall, Step, is_reallocated};
use crate::managers::Managers;
use crate::measured::{Measured, count_alignment, create_alignments};
use crate::ports::{DeviceEvent, StateFile, StateFiles};
use crate::resources::AssignedResourcesReader;
use crate::shared_pool::updates;
use crate::state_writes::StateWrites;

/// Time after which a call is shown as what the pod waits for.
const SLOW_CALL: Duration = Duration::from_secs(2);
/// Time after which a call is listed as hung.
const HANG_THRESHOLD: Duration = Duration::from_secs(4);
/// Time after which a failed write is retried.
const RETRY: Duration = Duration::from_secs(10);
/// Time after which an observation is requested again; the first relist waits for the runtime.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(60);

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
    /// Observes containers.
    pub pleg: PlegHandle,
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
    pub(crate) deps: ContainerManagerDeps,
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
    /// Pods whose allocation has begun and whose worker has not published a status.
    pub(crate) starting: BTreeSet<PodUid>,
    /// Pods whose resources are released once the runtime shows that they have ended.
    pub(crate) ending: BTreeSet<PodUid>,
    /// Timer of the next grace period that ends.
    removal: Option<SpawnHandle>,
    pub(crate) completions: CompletionSender<Completion>,
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
    writes: StateWrites,
}

#[derive(Debug)]
struct Streams {
    requests: SlotReceiver<PodUid, AllocateResources>,
    events: mpsc::Receiver<DeviceEvent>,
}

/// What a task of the actor reports.
#[derive(Debug)]
pub(crate) enum Completion {
    Observed(PodUid, u64, Option<Arc<ObservedPod>>),
    EndObserved(PodUid, Option<Arc<ObservedPod>>),
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
        let files = Files::default();
        let reader = AssignedResourcesReader::with_writes(reader, files.writes.clone());
        deps.scope.send_replace(Arc::new(deps.managers.scope()));
        let manager = Self {
            deps,
            published,
            allocations: Vec::new(),
            unsaved: BTreeMap::new(),
            files,
            calls: 0,
            accepted: BTreeMap::new(),
            updating: BTreeSet::new(),
            measured: Measured::default(),
            started: Instant::now(),
            starting: BTreeSet::new(),
            ending: BTreeSet::new(),
            removal: None,
            completions: completion_sender,
            streams: Some((Streams { requests, events }, completions)),
        };
        (manager, reader)
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn request(&mut self, uid: PodUid, request: AllocateResources, ctx: &mut Context<Self>) {
        if request.release {
            self.forget(&uid);
            self.release_ended([uid.clone()]);
        }
        let Some(pod) = request.pod else {
            return;
        };
        match self.allocations.iter_mut().find(|it| it.uid() == uid) {
            Some(allocation) => allocation.pod = pod,
            None => {
                let rejection = request.rejection;
                let rejection = rejection.map(|(reason, message)| NotAdmitted { reason, message });
                self.allocations.push(Allocation::new(pod, rejection));
            }
        }
        self.advance(&uid, ctx);
    }

    /// Continues the allocation of a pod.
    fn advance(&mut self, uid: &PodUid, ctx: &mut Context<Self>) {
        let now = self.now();
        let published = self.deps.status_store.get(uid);
        let mut all = self.allocations.iter_mut();
        let Some(allocation) = all.find(|it| it.uid() == *uid && it.call.is_none()) else {
            return;
        };
        let had_begun = allocation.has_begun();
        let step = allocation.advance(&mut self.deps.managers, published.as_ref(), now);
        if !had_begun && allocation.has_begun() {
            self.starting.insert(uid.clone());
        }
        tracing::debug!(pod = %allocation.pod.full_name(), %step, "allocation");
        match step {
            // a change of the pod status store continues
            Step::WaitForEnd => {}
            Step::Observe => self.observe(uid),
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

    /// Observes the containers of a pod, which the PLEG knows after the first relist.
    fn observe(&mut self, uid: &PodUid) {
        let id = self.begin_call(uid);
        let pleg = self.deps.pleg.clone();
        let (completions, uid) = (self.completions.clone(), uid.clone());
        spawn_io("observe-pod", async move {
            let observed = tokio::time::timeout(OBSERVE_TIMEOUT, pleg.observed(&uid)).await;
            let observed = observed.ok().and_then(Result::ok);
            completions.send(Completion::Observed(uid, id, observed));
        });
    }

    fn observed(
        &mut self,
        uid: &PodUid,
        id: u64,
        observed: Option<Arc<ObservedPod>>,
        ctx: &mut Context<Self>,
    ) {
        let now = self.now();
        let mut all = self.allocations.iter_mut();
        let Some(allocation) = all.find(|it| it.uid() == *uid && it.call == Some(id)) else {
            return;
        };
        allocation.call = None;
        match observed {
            Some(observed) => {
                allocation.observed(&observed, now);
                self.starting.insert(uid.clone());
                self.advance(uid, ctx);
            }
            None => {
                let uid = uid.clone();
                ctx.run_later(RETRY, move |this, ctx| this.advance(&uid, ctx));
            }
        }
    }

    /// Returns the number of a new call for an allocation.
    fn begin_call(&mut self, uid: &PodUid) -> u64 {
        self.calls += 1;
        let id = self.calls;
        if let Some(allocation) = self.allocations.iter_mut().find(|it| it.uid() == *uid) {
            allocation.call = Some(id);
        }
        id
    }

    /// Calls a plugin. The devices are reserved.
    fn call(&mut self, uid: &PodUid, resource: String, call: PluginCall) {
        let id = self.begin_call(uid);
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
        let Some(mut allocation) = found.map(|index| self.allocations.remove(index)) else {
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
        match allocation.outcome(result) {
            Err(error) => {
                tracing::info!(%pod, reason = error.reason, %error, "resources not allocated");
                self.forget(uid);
                self.release(std::slice::from_ref(uid));
                let NotAdmitted { reason, message } = error;
                self.answer(uid, ResourcesAllocated::Rejected(reason, message));
            }
            Ok(error) => {
                if let Some(error) = error {
                    tracing::warn!(%pod, %error, "pod keeps running without its resources");
                }
                let version = self.changed();
                self.unsaved
                    .insert(uid.clone(), (version, allocation.runs()));
                self.saved(ctx);
            }
        }
    }

    /// Publishes a copy of the managers, from which the state files are written; returns the version
    /// of the change.
    pub(crate) fn changed(&mut self) -> u64 {
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
        // none begins while the agent ends
        let Some(write) = self.files.writes.begin() else {
            return;
        };
        self.files.writing = true;
        // text of a thousand pods takes milliseconds, in which no other actor would run
        let managers = Arc::clone(&self.published.borrow());
        let old = self.files.contents.clone();
        let (version, completions) = (self.files.version, self.completions.clone());
        let disk = files.clone();
        disk.run(Box::new(move || {
            let contents = managers.contents();
            let changed = contents
                .iter()
                .filter(|(file, text)| old.get(file) != Some(text));
            let written: Result<(), String> = changed
                .into_iter()
                .try_for_each(|(file, text)| files.save(*file, text));
            drop(write);
            completions.send(Completion::Written(version, written.map(|()| contents)));
        }));
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
                self.starting.remove(&uid);
                self.deps.managers.release(&uid);
                self.answer(&uid, ResourcesAllocated::Rejected(reason, message));
            }
        }
    }

    fn answer(&self, uid: &PodUid, answer: ResourcesAllocated) {
        self.deps.answers.put(uid.clone(), answer);
    }

    /// Ends the allocation of a pod.
    fn forget(&mut self, uid: &PodUid) {
        self.allocations.retain(|it| it.uid() != *uid);
        self.unsaved.remove(uid);
        self.starting.remove(uid);
    }

    /// Handles changed pods: those that have ended release their resources, started containers free
    /// those of the init containers before, and their CPUs are checked.
    fn pods_changed(&mut self, change: StatusChange, ctx: &mut Context<Self>) {
        let owners = self.deps.managers.pods();
        let mut freed = false;
        // without a worker it waits for its resources
        let published = change.changed.into_iter().filter(|entry| entry.has_worker);
        let published: Vec<PodStatusEntry> = published.collect();
        for entry in &published {
            let uid = entry.pod.uid();
            if entry.is_active() {
                self.starting.remove(&uid);
                freed |= owners.contains(&uid) && self.free_init_containers(&entry.pod);
            }
            self.update_cpus(&uid);
            self.reallocate(entry, ctx);
        }
        if freed {
            self.changed();
        }
        let changed = published.iter().map(|entry| entry.pod.uid());
        let changed: Vec<PodUid> = changed.chain(change.removed).collect();
        let ended = changed.iter().filter(|uid| owners.contains(*uid));
        for uid in self.release_ended(ended.cloned()) {
            // the allocation of the next pod with its UID has not begun
            self.allocations
                .retain(|it| it.uid() != uid || !it.has_begun());
            self.unsaved.remove(&uid);
        }
        // the next pods with their UIDs
        let has_next = |uid: &PodUid| {
            let mut all = self.allocations.iter();
            all.any(|it| it.uid() == *uid && !it.has_begun())
        };
        let next: Vec<PodUid> = changed.into_iter().filter(has_next).collect();
        for uid in &next {
            self.advance(uid, ctx);
        }
    }

    fn free_init_containers(&mut self, pod: &Pod) -> bool {
        let observed = self.deps.pleg.cache.get(&pod.uid());
        let managers = &mut self.deps.managers;
        observed.is_some_and(|observed| managers.free_init_containers(pod, &observed))
    }

    /// Allocates the devices of a running pod that has lost them.
    fn reallocate(&mut self, entry: &PodStatusEntry, ctx: &mut Context<Self>) {
        let uid = entry.pod.uid();
        let allocates = self.allocations.iter().any(|it| it.uid() == uid);
        if is_reallocated(entry, allocates, &self.deps.managers) {
            let pod = SharedPod::clone(&entry.pod);
            self.allocations
                .push(Allocation::of_running(pod, self.now()));
            self.advance(&uid, ctx);
        }
    }

    /// Brings all running containers to their CPUs.
    pub(crate) fn update_all_cpus(&mut self) {
        if !self.deps.managers.cpus.is_static() {
            return;
        }
        for pod in self.deps.pleg.cache.all() {
            self.update_cpus(&pod.uid);
        }
    }

    /// Brings the running containers of a pod to their CPUs.
    fn update_cpus(&mut self, uid: &PodUid) {
        if !self.deps.managers.cpus.is_static() {
            return;
        }
        let Some(observed) = self.deps.pleg.cache.get(uid) else {
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
        let all = self.deps.pleg.cache.all();
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
                    self.reallocate(&entry, ctx);
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
            Completion::Observed(uid, id, pod) => self.observed(&uid, id, pod, ctx),
            Completion::EndObserved(uid, pod) => self.end_observed(&uid, pod),
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
