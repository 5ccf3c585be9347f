//! CPU manager: which containers get exclusive CPUs, and which CPUs.
//!
//! [`CpuManager`] is a value that its owner changes. It does no I/O: the owner writes
//! [`CpuManager::state_file`] after a change, and gives containers the CPUs of
//! [`CpuManager::cpus_of`].

mod checkpoint;
mod distribute;
mod hints;
mod requests;
mod restore;
mod settings;
mod take;

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_topology::{CpuSet, Machine, NumaSet};
use windlass_types::corev1::Container;
use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt, PodUid};

use crate::hints::NotAdmitted;
use settings::Static;
use take::{TakeError, take};

pub use restore::Restored;
pub use settings::{CpuSettings, CpuSettingsError};

/// Name of the state file in the root directory, as upstream.
pub const STATE_FILE: &str = "cpu_manager_state";

/// CPU manager: its configuration, the machine, and which container has which CPUs.
#[derive(Clone, Debug)]
pub struct CpuManager {
    /// `None` with policy `none`.
    policy: Option<Static>,
    machine: Arc<Machine>,
    state: State,
    counters: CpuCounters,
}

/// What the state file contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    shared: CpuSet,
    containers: BTreeMap<PodUid, BTreeMap<String, CpuSet>>,
    /// CPUs of pods with pod-level resources, of which their containers have parts.
    pods: BTreeMap<PodUid, CpuSet>,
}

/// CPUs of a pod's containers, and whether they are exclusive.
type Parts = BTreeMap<String, (CpuSet, bool)>;

/// Who shares the CPUs of a container (upstream `ResourceIsolationLevel`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The shared pool of the node.
    Host,
    /// Containers of the same pod.
    Pod,
    /// Only the container: it gets no CFS quota.
    Container,
}

/// Numbers of events since the agent's start, for upstream's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuCounters {
    /// Containers that requested exclusive CPUs.
    pub requests: u64,
    /// Requests of containers that failed.
    pub container_errors: u64,
    /// Requests of pods that failed.
    pub pod_errors: u64,
    /// Allocations to a container.
    pub containers: u64,
    /// Allocations to a container from its pod's CPUs.
    pub pod_containers: u64,
    /// Of these, with exclusive CPUs.
    pub pod_exclusive: u64,
    /// Allocations from a single uncore cache.
    pub aligned_uncore: u64,
    /// Requests that got whole cores (option `full-pcpus-only`).
    pub aligned_cores: u64,
    /// Requests that failed with option `full-pcpus-only`.
    pub misaligned_cores: u64,
}

/// Current sizes, for upstream's metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuFigures {
    /// CPUs of the shared pool that are not reserved, in thousandths.
    pub shared_milli: usize,
    /// CPUs that are allocated exclusively.
    pub exclusive: usize,
    /// Of these, by NUMA node.
    pub exclusive_by_node: BTreeMap<u32, usize>,
}

/// Why CPUs are not allocated; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum AllocationError {
    #[error("SMT Alignment Error: requested {count} cpus not multiple cpus per core = {threads}")]
    PartOfCore { count: usize, threads: usize },
    #[error(
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = {free}, \
         requested CPUs = {count}, CPUs per core = {threads}"
    )]
    NoFreeCore {
        count: usize,
        threads: usize,
        free: usize,
    },
    #[error("{0}")]
    EmptyPool(&'static str),
    #[error(transparent)]
    Take(#[from] TakeError),
}

impl From<AllocationError> for NotAdmitted {
    fn from(error: AllocationError) -> Self {
        let (reason, message) = match &error {
            AllocationError::PartOfCore { .. } | AllocationError::NoFreeCore { .. } => {
                ("SMTAlignmentError", error.to_string())
            }
            AllocationError::EmptyPool(_) => ("EmptyPodSharedPoolError", error.to_string()),
            AllocationError::Take(_) => (
                "UnexpectedAdmissionError",
                format!("Allocate failed due to {error}, which is unexpected"),
            ),
        };
        Self {
            reason: reason.to_owned(),
            message,
        }
    }
}

impl CpuManager {
    /// Returns a manager without assignments.
    ///
    /// # Errors
    /// The configuration is invalid, or does not fit the machine.
    pub fn new(settings: &CpuSettings, machine: Arc<Machine>) -> Result<Self, CpuSettingsError> {
        settings.check()?;
        let policy = match settings.is_static {
            true => Some(Static::new(settings, &machine)?),
            false => None,
        };
        let mut manager = Self {
            policy,
            machine,
            state: State::default(),
            counters: CpuCounters::default(),
        };
        manager.state.shared = manager.usable();
        Ok(manager)
    }

    /// True with policy `static`; otherwise all calls do nothing.
    pub fn is_static(&self) -> bool {
        self.policy.is_some()
    }

    /// CPUs that a container may use: those assigned to it, else the shared pool. `None` leaves the
    /// choice to the kernel: with policy `none`, and if the shared pool is empty, which it can be with
    /// option `strict-cpu-reservation`.
    pub fn cpus_of(&self, uid: &PodUid, container: &str) -> Option<&CpuSet> {
        self.policy.as_ref()?;
        let cpus = self
            .assigned_to(uid, container)
            .unwrap_or(&self.state.shared);
        (!cpus.is_empty()).then_some(cpus)
    }

    /// CPUs that are assigned to a container, and not to the shared pool.
    pub fn assigned_to(&self, uid: &PodUid, container: &str) -> Option<&CpuSet> {
        self.state.containers.get(uid)?.get(container)
    }

    /// Who shares the CPUs of a container.
    pub fn isolation(&self, pod: &Pod, container: &Container) -> Isolation {
        if self.assigned_to(&pod.uid(), &container.name).is_none() {
            return Isolation::Host;
        }
        let resources = container.resources.as_ref();
        let is_part = self.policy.as_ref().is_some_and(|it| it.pod_level)
            && requests::has_pod_level_resources(pod)
            && !(requests::is_guaranteed(resources) && requests::has_whole_limit(resources));
        match is_part {
            true => Isolation::Pod,
            false => Isolation::Container,
        }
    }

    /// Pods with assignments.
    pub fn pods(&self) -> impl Iterator<Item = &PodUid> {
        self.state.containers.keys()
    }

    /// CPUs that can be assigned to containers; none with policy `none`.
    pub fn allocatable(&self) -> CpuSet {
        match &self.policy {
            Some(policy) => &self.machine.all_cpus() - &policy.reserved,
            None => CpuSet::new(),
        }
    }

    /// CPUs of containers without exclusive CPUs; empty with policy `none`.
    pub fn shared_pool(&self) -> &CpuSet {
        &self.state.shared
    }

    /// Numbers of events since the start.
    pub fn counters(&self) -> CpuCounters {
        self.counters
    }

    /// Current sizes.
    pub fn figures(&self) -> CpuFigures {
        let mut figures = CpuFigures::default();
        let Some(policy) = &self.policy else {
            return figures;
        };
        figures.shared_milli = (&self.state.shared - &policy.reserved).len() * 1000;
        for cpu in self.state.assigned().iter() {
            figures.exclusive += 1;
            if let Some(cpu) = self.machine.cpus.get(&cpu) {
                *figures.exclusive_by_node.entry(cpu.numa).or_default() += 1;
            }
        }
        figures
    }

    /// Assigns CPUs to a container, preferably of some NUMA nodes. Containers of a pod must be
    /// allocated in their order, init containers first. A container that has CPUs keeps them.
    /// Returns whether the state changed.
    ///
    /// # Errors
    /// There are not enough CPUs, or no whole cores. The pod's other containers keep their CPUs; the
    /// owner releases them.
    pub fn allocate(
        &mut self,
        pod: &Pod,
        container: &Container,
        nodes: Option<NumaSet>,
    ) -> Result<bool, NotAdmitted> {
        let Some(policy) = self.policy.clone() else {
            return Ok(false);
        };
        let count = requests::of_container(pod, container, policy.pod_level);
        if count == 0 || requests::has_pod_level_resources(pod) && !policy.pod_level {
            return Ok(false);
        }
        self.counters.requests += 1;
        let uid = pod.uid();
        let is_new = self.assigned_to(&uid, &container.name).is_none();
        if is_new {
            let reusable = self.reusable(pod);
            let cpus = self
                .choose(&policy, count, nodes, &reusable)
                .inspect_err(|_| {
                    self.counters.container_errors += 1;
                    self.counters.misaligned_cores += u64::from(policy.full_cores);
                })?;
            self.counters.containers += 1;
            self.counters.aligned_uncore += u64::from(self.is_one_uncore(&cpus));
            self.state.shared = &self.state.shared - &cpus;
            self.state.assign(&uid, &container.name, cpus);
        }
        self.counters.aligned_cores += u64::from(policy.full_cores);
        Ok(is_new)
    }

    /// Assigns CPUs to a pod with pod-level resources, and parts of them to its containers, for scope
    /// `pod` of the topology manager with feature gate `PodLevelResourceManagers`. A pod that has
    /// CPUs keeps them. Returns whether the state changed.
    ///
    /// # Errors
    /// There are not enough CPUs, or none would be left for the containers that share them.
    pub fn allocate_pod(&mut self, pod: &Pod, nodes: Option<NumaSet>) -> Result<bool, NotAdmitted> {
        let Some(policy) = self.policy.clone() else {
            return Ok(false);
        };
        let (uid, count) = (pod.uid(), requests::of_pod(pod, policy.pod_level));
        if count == 0 || self.state.pods.contains_key(&uid) {
            return Ok(false);
        }
        let parts = self.parts_of_pod(&policy, pod, count, nodes);
        let (cpus, parts) = parts.inspect_err(|_| self.counters.pod_errors += 1)?;
        self.counters.aligned_uncore += u64::from(self.is_one_uncore(&cpus));
        self.state.shared = &self.state.shared - &cpus;
        self.state.pods.insert(uid.clone(), cpus);
        for (container, (cpus, is_exclusive)) in parts {
            self.counters.requests += u64::from(is_exclusive);
            self.counters.pod_containers += 1;
            self.counters.pod_exclusive += u64::from(is_exclusive);
            self.state.assign(&uid, &container, cpus);
        }
        Ok(true)
    }

    /// Returns the CPUs of a pod to the shared pool. Returns whether the state changed.
    pub fn release(&mut self, uid: &PodUid) -> bool {
        let released = self.state.of_pod(uid);
        let had = self.state.containers.remove(uid).is_some();
        let had_pod = self.state.pods.remove(uid).is_some();
        self.state.shared.extend(released.iter());
        had || had_pod
    }

    /// CPUs that are in the shared pool without assignments.
    fn usable(&self) -> CpuSet {
        match &self.policy {
            None => CpuSet::new(),
            Some(policy) if policy.strict => &self.machine.all_cpus() - &policy.reserved,
            Some(_) => self.machine.all_cpus(),
        }
    }

    /// CPUs of completed init containers, which later containers of the pod use again.
    fn reusable(&self, pod: &Pod) -> CpuSet {
        let mut reusable = CpuSet::new();
        let uid = pod.uid();
        let cpus = |container: &Container| self.assigned_to(&uid, &container.name);
        for container in pod.init_containers() {
            match (cpus(container), is_sidecar(container)) {
                (Some(cpus), false) => reusable.extend(cpus.iter()),
                (Some(cpus), true) => reusable = &reusable - cpus,
                (None, _) => {}
            }
        }
        for cpus in pod.containers().iter().filter_map(cpus) {
            reusable = &reusable - cpus;
        }
        reusable
    }

    fn choose(
        &self,
        policy: &Static,
        count: usize,
        nodes: Option<NumaSet>,
        reusable: &CpuSet,
    ) -> Result<CpuSet, AllocationError> {
        self.check_cores(policy, count)?;
        let free = &(&self.state.shared - &policy.reserved) | reusable;
        let mut chosen = CpuSet::new();
        if let Some(nodes) = nodes {
            let aligned = &self.cpus_near(policy, nodes) & &free;
            let count = count.min(aligned.len());
            chosen = take(&self.machine, &aligned, count, policy.taking)?;
        }
        let rest = count - chosen.len();
        let rest = take(&self.machine, &(&free - &chosen), rest, policy.taking)?;
        Ok(&chosen | &rest)
    }

    /// Option `full-pcpus-only`: a request must be for whole cores, and these must be free.
    fn check_cores(&self, policy: &Static, count: usize) -> Result<(), AllocationError> {
        if !policy.full_cores {
            return Ok(());
        }
        let threads = self.machine.threads_per_core().max(1);
        if !count.is_multiple_of(threads) {
            return Err(AllocationError::PartOfCore { count, threads });
        }
        let free = (&self.state.shared - &policy.reserved_cores).len();
        match count > free {
            true => Err(AllocationError::NoFreeCore {
                count,
                threads,
                free,
            }),
            false => Ok(()),
        }
    }

    /// CPUs of some NUMA nodes, with option `align-by-socket` of all sockets of them.
    fn cpus_near(&self, policy: &Static, nodes: NumaSet) -> CpuSet {
        let near = self.machine.cpus_of_nodes(nodes);
        if !policy.by_socket {
            return near;
        }
        let sockets = self.machine.sockets_of_cpus(&near);
        self.machine.cpus_where(|cpu| sockets.contains(&cpu.socket))
    }

    fn is_one_uncore(&self, cpus: &CpuSet) -> bool {
        let mut uncores = cpus
            .iter()
            .map(|cpu| self.machine.cpus.get(&cpu).map(|it| it.uncore));
        let first = uncores.next();
        uncores.all(|uncore| Some(uncore) == first)
    }

    /// Chooses CPUs for a pod, and parts of them for its containers.
    fn parts_of_pod(
        &self,
        policy: &Static,
        pod: &Pod,
        count: usize,
        nodes: Option<NumaSet>,
    ) -> Result<(CpuSet, Parts), AllocationError> {
        check_pool_of_pod(pod)?;
        let all = self.choose(policy, count, nodes, &CpuSet::new())?;
        let mut parts = Parts::new();
        let mut pool = all.clone();
        let part = |pool: &CpuSet, container: &Container| match requests::of_container(
            pod, container, true,
        ) {
            0 => Ok(None),
            count => take(&self.machine, pool, count, policy.taking).map(Some),
        };
        for container in pod.init_containers() {
            match (part(&pool, container)?, is_sidecar(container)) {
                (Some(cpus), is_sidecar) => {
                    if is_sidecar {
                        pool = &pool - &cpus;
                    }
                    parts.insert(container.name.clone(), (cpus, true));
                }
                (None, false) => {
                    parts.insert(container.name.clone(), (pool.clone(), false));
                }
                (None, true) => {}
            }
        }
        for container in pod.containers() {
            if let Some(cpus) = part(&pool, container)? {
                pool = &pool - &cpus;
                parts.insert(container.name.clone(), (cpus, true));
            }
        }
        for container in pod.init_containers().iter().chain(pod.containers()) {
            let shared = || (pool.clone(), false);
            parts.entry(container.name.clone()).or_insert_with(shared);
        }
        Ok((all, parts))
    }
}

/// Checks that exclusive CPUs leave some for the containers that share the pod's (upstream
/// `validatePodScopeResources`).
fn check_pool_of_pod(pod: &Pod) -> Result<(), AllocationError> {
    let total = requests::of_pod(pod, true);
    let (mut exclusive, mut has_shared) = (0, false);
    for container in pod.init_containers() {
        match (
            requests::of_container(pod, container, true),
            is_sidecar(container),
        ) {
            (0, false) if exclusive >= total => {
                return Err(AllocationError::EmptyPool(
                    "pod rejected, pod has shared init containers but no cpus available for them",
                ));
            }
            (_, false) => {}
            (0, true) => has_shared = true,
            (count, true) => exclusive += count,
        }
    }
    for container in pod.containers() {
        match requests::of_container(pod, container, true) {
            0 => has_shared = true,
            count => exclusive += count,
        }
    }
    match has_shared && exclusive >= total {
        true => Err(AllocationError::EmptyPool(
            "pod rejected, sum of exclusive container cpu requests equals pod budget, leaving no \
             cpus for shared containers",
        )),
        false => Ok(()),
    }
}

impl State {
    fn assign(&mut self, uid: &PodUid, container: &str, cpus: CpuSet) {
        let containers = self.containers.entry(uid.clone()).or_default();
        containers.insert(container.to_owned(), cpus);
    }

    /// All CPUs of a pod.
    fn of_pod(&self, uid: &PodUid) -> CpuSet {
        let mut cpus = self.pods.get(uid).cloned().unwrap_or_default();
        let containers = self.containers.get(uid).into_iter().flatten();
        for (_, part) in containers {
            cpus.extend(part.iter());
        }
        cpus
    }

    /// CPUs that are assigned to containers and pods.
    fn assigned(&self) -> CpuSet {
        let of_containers = self.containers.values().flat_map(BTreeMap::values);
        let all = of_containers.chain(self.pods.values());
        all.flat_map(CpuSet::iter).collect()
    }
}

#[cfg(test)]
mod tests;
