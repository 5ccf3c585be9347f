//! The state of all managers: CPUs, memory, devices, and the topology manager that aligns them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use windlass_actors::AllocationScope;
use windlass_pod_inputs::resources::{is_from_claim, pod_request};
use windlass_resource_managers::assignment::ContainerAssignment;
use windlass_resource_managers::cpu::{CpuManager, Isolation, Restored};
use windlass_resource_managers::devices::{
    Checkpoint, DeviceRequest, Devices, PodContainer, Registration, add_devices,
};
use windlass_resource_managers::hints::{Hint, NotAdmitted, ProviderHints};
use windlass_resource_managers::memory::{MemoryManager, MemoryPolicy};
use windlass_resource_managers::topology::{TopologyManager, TopologyPolicy, TopologyScope};
use windlass_topology::Machine;
use windlass_types::corev1::Container;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::pod::is_sidecar;
use windlass_types::{ContainerState, ObservedPod, PluginResources, Pod, PodExt, PodUid};
use windlass_units::quantity::{Quantity, lookup};

use crate::ports::{PluginCalls, StateFile, StateFiles};

/// The managers and what they have assigned.
#[derive(Clone, Debug)]
pub struct Managers {
    /// The machine.
    pub machine: Machine,
    /// Aligns resources.
    pub topology: TopologyManager,
    /// CPUs.
    pub cpus: CpuManager,
    /// Containers with exclusive CPUs have no CFS quota (gate
    /// `DisableCPUQuotaWithExclusiveCPUs`).
    pub unlimited_exclusive_cpus: bool,
    /// The health of devices is in the status of their container (gate `ResourceHealthStatus`).
    pub reports_health: bool,
    /// Time after which a failed update of CPUs is retried.
    pub(crate) cpu_retry: Duration,
    /// Memory.
    pub memory: MemoryManager,
    /// Devices.
    pub devices: Devices,
    /// Requests for memory.
    pub(crate) memory_counters: MemoryCounters,
    /// Registered plugins by resource.
    pub(crate) plugins: BTreeMap<String, Arc<dyn PluginCalls>>,
    /// Resources whose plugin has listed its devices.
    pub(crate) listed: BTreeSet<String>,
    /// Resources that were removed in this agent run.
    removed: BTreeSet<String>,
}

/// Numbers of requests for memory since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryCounters {
    /// Containers that requested memory of NUMA nodes.
    pub(crate) requests: u64,
    /// Of these, those that failed.
    pub(crate) errors: u64,
}

/// The managers of a node, with the assignments of their state files.
#[derive(Clone, Debug)]
pub struct ManagerParts {
    /// The machine.
    pub machine: Machine,
    /// Topology manager.
    pub topology: TopologyManager,
    /// CPU manager.
    pub cpus: CpuManager,
    /// The gate `DisableCPUQuotaWithExclusiveCPUs`.
    pub unlimited_exclusive_cpus: bool,
    /// The gate `ResourceHealthStatus`.
    pub reports_health: bool,
    /// `cpuManagerReconcilePeriod`: time after which a failed update of CPUs is retried.
    pub cpu_retry: Duration,
    /// Memory manager.
    pub memory: MemoryManager,
    /// Devices.
    pub devices: Devices,
}

impl Managers {
    /// Creates managers without a registered plugin.
    pub fn new(parts: ManagerParts) -> Self {
        Self {
            machine: parts.machine,
            topology: parts.topology,
            cpus: parts.cpus,
            unlimited_exclusive_cpus: parts.unlimited_exclusive_cpus,
            reports_health: parts.reports_health,
            cpu_retry: parts.cpu_retry,
            memory: parts.memory,
            devices: parts.devices,
            memory_counters: MemoryCounters::default(),
            plugins: BTreeMap::new(),
            listed: BTreeSet::new(),
            removed: BTreeSet::new(),
        }
    }

    /// Reads the devices of the state file, whose plugins are expected to register. Blocks on the
    /// disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn restore_devices(files: &dyn StateFiles) -> Result<Devices, String> {
        let text = files.load(StateFile::Devices)?;
        let Some(text) = text.filter(|_| !mutated(Mutation::DeviceGivenTwice)) else {
            return Ok(Devices::default());
        };
        let checkpoint = match Checkpoint::parse(&text) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                files.set_aside(StateFile::Devices, &error.to_string());
                return Ok(Devices::default());
            }
        };
        let (devices, damaged) = Devices::restore(checkpoint, Duration::ZERO);
        for entry in damaged {
            tracing::error!(
                pod = entry.pod_uid,
                container = entry.container_name,
                resource = entry.resource_name,
                "damaged entry of the device checkpoint"
            );
        }
        Ok(devices)
    }

    /// Restores the assignments of CPUs and memory from their state files. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn restore_files(
        cpus: &mut CpuManager,
        memory: &mut MemoryManager,
        files: &dyn StateFiles,
    ) -> Result<(), String> {
        if let Some(text) = files.load(StateFile::Cpus)? {
            // files of version 1 (before Kubernetes 1.15) have container IDs
            report(
                StateFile::Cpus,
                cpus.restore(text.as_bytes(), |_| None),
                files,
            );
        }
        if let Some(text) = files.load(StateFile::Memory)? {
            report(StateFile::Memory, memory.restore(&text), files);
        }
        Ok(())
    }

    /// CPUs, memory nodes and devices of a container.
    pub fn assignment(&self, pod: &Pod, container: &Container) -> ContainerAssignment {
        let uid = pod.uid();
        let mut assignment = ContainerAssignment {
            cpus: self.cpus.cpus_of(&uid, &container.name).cloned(),
            exclusive_cpus: self.has_exclusive_cpus(pod, container),
            memory_nodes: self.memory.memory_nodes(uid.as_str(), &container.name),
            ..ContainerAssignment::default()
        };
        if let Some(devices) = self.devices.container(&uid, &container.name) {
            for conflict in add_devices(&mut assignment, devices) {
                tracing::warn!(pod = %pod.full_name(), container = container.name, %conflict,
                    "device plugins conflict");
            }
        }
        assignment
    }

    /// Names of the containers that have exclusive CPUs, and so no CFS quota.
    pub(crate) fn exclusive_cpus(&self, pod: &Pod) -> BTreeSet<String> {
        let all = pod.init_containers().iter().chain(pod.containers());
        let exclusive = all.filter(|container| self.has_exclusive_cpus(pod, container));
        exclusive.map(|container| container.name.clone()).collect()
    }

    fn has_exclusive_cpus(&self, pod: &Pod, container: &Container) -> bool {
        self.unlimited_exclusive_cpus && self.cpus.isolation(pod, container) == Isolation::Container
    }

    /// Pods that need an allocation.
    pub(crate) fn scope(&self) -> AllocationScope {
        let assigned = self.devices.pods().flat_map(|(_, it)| it.values());
        let assigned = assigned.flat_map(|it| it.keys().cloned());
        AllocationScope {
            every_pod: self.cpus.is_static()
                || self.topology.config().policy != TopologyPolicy::None
                || self.memory.config().policy != MemoryPolicy::None,
            owners: self.pods(),
            resources: self
                .devices
                .allocatable()
                .into_keys()
                .chain(assigned)
                .collect(),
        }
    }

    /// Resources of device plugins; those whose grace period has ended are removed.
    pub(crate) fn plugin_resources(&mut self, now: Duration) -> PluginResources {
        let node = self.devices.node_devices(now);
        if !node.removed.is_empty() {
            tracing::info!(removed = ?node.removed, "resources of ended device plugins removed");
        }
        self.removed.extend(node.removed);
        self.removed
            .retain(|name| !node.capacity.contains_key(name));
        PluginResources {
            capacity: node.capacity,
            allocatable: node.allocatable,
            removed: self.removed.clone(),
        }
    }

    /// Contents of the state files.
    pub(crate) fn contents(&self) -> BTreeMap<StateFile, String> {
        let mut contents = BTreeMap::new();
        contents.insert(StateFile::Devices, self.devices.checkpoint().to_text());
        contents.insert(StateFile::Cpus, self.cpus.state_file());
        contents.insert(StateFile::Memory, self.memory.checkpoint());
        contents
    }

    /// True if all containers of a pod are placed together.
    pub(crate) fn places_pods(&self) -> bool {
        let config = self.topology.config();
        config.policy != TopologyPolicy::None && config.scope == TopologyScope::Pod
    }

    /// A resource that the pod needs and whose plugin is expected: it has not registered in this
    /// agent run, or not listed its devices yet.
    pub(crate) fn missing_plugin(&self, pod: &Pod, runs: bool) -> Option<String> {
        let uid = pod.uid();
        let all = pod.init_containers().iter().chain(pod.containers());
        let wanted = all.flat_map(|container| {
            let requests = self.requests(pod, container).into_iter();
            requests.map(|(resource, _)| (container.name.as_str(), resource))
        });
        let mut missing = wanted.filter(|(container, resource)| {
            let is_expected = match self.devices.registration(resource) {
                Registration::Expected => true,
                Registration::Connected => !self.listed.contains(resource),
                Registration::Unknown | Registration::Stopped => false,
            };
            let keeps = runs && self.devices.assigned(&uid, container, resource).is_some();
            is_expected && !keeps
        });
        missing.next().map(|(_, resource)| resource)
    }

    /// Selects the placement of a container or, with the scope `pod`, of the pod.
    ///
    /// # Errors
    /// The topology manager does not admit the pod.
    pub(crate) fn place(
        &self,
        pod: &Pod,
        container: &Container,
        served: usize,
    ) -> Result<Hint, NotAdmitted> {
        if self.topology.config().policy == TopologyPolicy::None {
            return self.topology.place(&[], false);
        }
        let hints = match self.places_pods() {
            true => [
                self.pod_device_hints(pod),
                self.cpus.pod_hints(pod),
                self.memory.pod_hints(pod),
            ],
            false => [
                self.device_hints(pod, container, served),
                self.cpus.container_hints(pod, container),
                self.memory.hints(pod, container),
            ],
        };
        self.topology.place(&hints, self.memory.is_pod_level(pod))
    }

    /// Requests of a container for devices.
    pub(crate) fn device_requests(
        &self,
        pod: &Pod,
        container: &Container,
        served: usize,
        (hint, runs): (Hint, bool),
    ) -> VecDeque<DeviceRequest> {
        let uid = pod.uid();
        let earlier = earlier(pod, served);
        let requests = self.requests(pod, container).into_iter();
        let requests = requests.map(|(resource, amount)| DeviceRequest {
            pod: uid.clone(),
            container: container.name.clone(),
            reusable: self.devices.reusable(&uid, &resource, &earlier),
            resource,
            amount,
            affinity: hint.nodes,
            runs,
        });
        requests.collect()
    }

    /// Assigns CPUs and memory to a container, after its devices.
    ///
    /// # Errors
    /// The container cannot have them.
    pub(crate) fn allocate(
        &mut self,
        pod: &Pod,
        container: &Container,
        hint: Hint,
    ) -> Result<(), NotAdmitted> {
        let as_a_whole = self.places_pods() && self.memory.is_pod_level(pod);
        match as_a_whole {
            true => self.cpus.allocate_pod(pod, hint.nodes)?,
            false => self.cpus.allocate(pod, container, hint.nodes)?,
        };
        let uid = pod.uid();
        let had = self.memory.blocks(uid.as_str(), &container.name).len();
        let allocated = match as_a_whole {
            true => self.memory.allocate_pod(pod, hint),
            false => self.memory.allocate(pod, container, hint),
        };
        let has = self.memory.blocks(uid.as_str(), &container.name).len();
        self.memory_counters.requests += u64::from(has > had || allocated.is_err());
        self.memory_counters.errors += u64::from(allocated.is_err());
        allocated
    }

    /// Frees the memory of the init containers before the running containers of a pod (upstream
    /// `AddContainer`); true if there was any.
    pub(crate) fn free_init_containers(&mut self, pod: &Pod, observed: &ObservedPod) -> bool {
        let running = observed.containers.iter();
        let running = running.filter(|it| it.state == ContainerState::Running);
        let memory = &mut self.memory;
        let freed = running.filter(|it| memory.container_started(pod, &it.name));
        freed.count() > 0
    }

    /// Releases all that a pod has; true if it had anything.
    pub(crate) fn release(&mut self, uid: &PodUid) -> bool {
        let devices = self.devices.release(uid);
        let memory = self.memory.release(uid.as_str());
        self.cpus.release(uid) || devices || memory
    }

    /// Pods that have anything.
    pub fn pods(&self) -> BTreeSet<PodUid> {
        let devices = self.devices.pods().map(|(uid, _)| uid.clone());
        let memory = self.memory.pods().map(PodUid::from);
        devices
            .chain(memory)
            .chain(self.cpus.pods().cloned())
            .collect()
    }

    /// A plugin resource that a container requests and has no devices of.
    pub(crate) fn lacking(&self, pod: &Pod, container: &Container) -> Option<String> {
        let uid = pod.uid();
        let mut requests = self.requests(pod, container).into_iter();
        let lacks = requests.find(|(resource, amount)| {
            let assigned = self.devices.assigned(&uid, &container.name, resource);
            *amount > 0 && assigned.is_none_or(|assigned| assigned.response.is_none())
        });
        lacks.map(|(resource, _)| resource)
    }

    /// True if a container of a pod lacks devices.
    pub(crate) fn lacks_devices(&self, pod: &Pod) -> bool {
        let mut all = pod.init_containers().iter().chain(pod.containers());
        all.any(|container| self.lacking(pod, container).is_some())
    }

    /// Plugin resources in the limits of a container, with their amounts.
    fn requests(&self, pod: &Pod, container: &Container) -> BTreeMap<String, usize> {
        let limits = container
            .resources
            .as_ref()
            .and_then(|it| it.limits.as_ref());
        let names = limits.into_iter().flat_map(|it| it.keys());
        let names = names.filter(|name| {
            self.devices.is_plugin_resource(name)
                && !is_from_claim(pod, Some(&container.name), name)
        });
        let amount = |name: &String| {
            let amount: Option<Quantity> = lookup(limits, name).ok().flatten();
            usize::try_from(amount?.value()).ok()
        };
        let requests = names.filter_map(|name| Some((name.clone(), amount(name)?)));
        requests.collect()
    }

    fn device_hints(&self, pod: &Pod, container: &Container, served: usize) -> ProviderHints {
        let uid = pod.uid();
        let nodes = self.machine.all_nodes();
        let earlier = earlier(pod, served);
        let requests = self.requests(pod, container).into_iter();
        let hints = requests.map(|(resource, amount)| {
            let reusable = self.devices.reusable(&uid, &resource, &earlier);
            let owner = (&uid, container.name.as_str());
            let request = (resource.as_str(), amount);
            let hints = self
                .devices
                .container_hints(nodes, owner, request, &reusable);
            (resource, hints)
        });
        hints.collect()
    }

    fn pod_device_hints(&self, pod: &Pod) -> ProviderHints {
        let uid = pod.uid();
        let nodes = self.machine.all_nodes();
        let all = pod.init_containers().iter().chain(pod.containers());
        let names: BTreeSet<_> = all
            .flat_map(|it| self.requests(pod, it).into_keys())
            .collect();
        let hints = names.into_iter().map(|resource| {
            let amount = pod_request(pod, &resource).map_or(0, Quantity::value);
            let amount = usize::try_from(amount).unwrap_or(0);
            let hints = self.devices.pod_hints(nodes, &uid, (&resource, amount));
            (resource, hints)
        });
        hints.collect()
    }
}

/// Reports the result of reading a state file.
fn report(file: StateFile, restored: Restored, files: &dyn StateFiles) {
    match restored {
        Restored::Kept => {}
        Restored::SetAside(why) => files.set_aside(file, &why),
        Restored::Migrated(changes) => {
            let changes = changes.join("; ");
            tracing::warn!(
                ?file,
                changes,
                "state file does not fit, assignments changed"
            );
        }
    }
}

/// The containers before one, in the order of allocation.
fn earlier(pod: &Pod, served: usize) -> Vec<PodContainer> {
    let init = pod.init_containers().iter();
    let init = init.map(|it| PodContainer {
        name: it.name.clone(),
        completes: !is_sidecar(it),
    });
    let apps = pod.containers().iter().map(|it| PodContainer {
        name: it.name.clone(),
        completes: false,
    });
    init.chain(apps).take(served).collect()
}

#[cfg(test)]
mod tests;
