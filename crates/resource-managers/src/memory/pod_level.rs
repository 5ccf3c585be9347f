//! Pods with pod-level resources in the scope `pod` (gate `PodLevelResourceManagers`): one
//! allocation, which exclusive and sharing containers divide.

use windlass_types::pod::is_sidecar;
use windlass_types::{Pod, PodExt};

use super::requests::{self, Requests};
use super::state::{Block, PodEntry};
use super::{AllocationError, MemoryManager};
use crate::hints::{Hint, NotAdmitted};

/// `status.reason` of a pod whose containers leave no memory for one without own resources.
const EMPTY_POOL: &str = "EmptyPodSharedPoolError";

/// Why the memory of a pod cannot be divided, as upstream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DivisionError {
    #[error(transparent)]
    Request(#[from] AllocationError),
    #[error("pod rejected, pod has shared init containers but no {0} available for them")]
    InitContainers(String),
    #[error(
        "pod rejected, sum of exclusive container {0} requests equals pod budget, leaving no \
         memory for shared containers"
    )]
    Containers(String),
}

/// Checks that containers without own memory have some left.
///
/// # Errors
/// The others request all memory of the pod.
pub(super) fn check_shared_pool(pod: &Pod) -> Result<(), DivisionError> {
    let total = requests::of_pod(pod)?;
    let mut exclusive = Requests::new();
    let exhausted = |exclusive: &Requests| {
        let taken = |name: &String| exclusive.get(name).copied().unwrap_or(0);
        let mut amounts = total.iter();
        let found = amounts.find(|(name, size)| taken(name) >= **size);
        found.map(|(name, _)| name.clone())
    };
    let mut shares = false;
    for init in pod.init_containers() {
        let own = requests::of_container(pod, init)?;
        if is_sidecar(init) {
            shares |= own.is_empty();
            add(&mut exclusive, own);
        } else if own.is_empty()
            && let Some(name) = exhausted(&exclusive)
        {
            return Err(DivisionError::InitContainers(name));
        }
    }
    for container in pod.containers() {
        let own = requests::of_container(pod, container)?;
        shares |= own.is_empty();
        add(&mut exclusive, own);
    }
    match exhausted(&exclusive).filter(|_| shares) {
        Some(name) => Err(DivisionError::Containers(name)),
        None => Ok(()),
    }
}

fn add(to: &mut Requests, amounts: Requests) {
    for (name, size) in amounts {
        *to.entry(name).or_default() += size;
    }
}

impl MemoryManager {
    /// Assigns memory to a pod with pod-level resources and divides it among its containers, in the
    /// scope `pod` (upstream `AllocatePod`). A pod with an assignment keeps it.
    ///
    /// # Errors
    /// As [`Self::allocate`], and `EmptyPodSharedPoolError`.
    pub fn allocate_pod(&mut self, pod: &Pod, hint: Hint) -> Result<(), NotAdmitted> {
        let uid = pod.uid().to_string();
        if !self.manages(pod) || self.state.entries.contains_key(&uid) {
            return Ok(());
        }
        let Ok(total) = requests::of_pod(pod) else {
            return Ok(());
        };
        if total.is_empty() {
            return Ok(());
        }
        check_shared_pool(pod).map_err(|error| NotAdmitted {
            reason: EMPTY_POOL.to_owned(),
            message: error.to_string(),
        })?;
        let nodes = self
            .nodes_for(pod, &total, hint)
            .map_err(NotAdmitted::unexpected)?;
        let blocks = |amounts: &Requests| -> Vec<Block> {
            let amounts = amounts.iter().filter(|(_, size)| **size > 0);
            amounts
                .map(|(name, size)| Block::new(nodes, name, *size))
                .collect()
        };
        let divided = divide(pod, &total).map_err(NotAdmitted::unexpected)?;
        for (name, size) in &total {
            self.state.take(nodes, name, *size);
        }
        let memory_blocks = blocks(&total);
        let entry = PodEntry { memory_blocks };
        self.state.pod_entries.insert(uid.clone(), entry);
        for (container, amounts) in divided {
            self.state
                .set_blocks(uid.clone(), &container, blocks(&amounts));
        }
        Ok(())
    }
}

/// Returns the memory of each container: its own, or the pool that it shares. An init container
/// shares all memory that no sidecar before it has.
fn divide(pod: &Pod, total: &Requests) -> Result<Vec<(String, Requests)>, AllocationError> {
    let mut divided = Vec::new();
    let mut sharing = Vec::new();
    let mut pool = total.clone();
    for init in pod.init_containers() {
        let own = requests::of_container(pod, init)?;
        match (own.is_empty(), is_sidecar(init)) {
            (true, true) => sharing.push(&init.name),
            (true, false) => divided.push((init.name.clone(), pool.clone())),
            (false, sidecar) => {
                if sidecar {
                    subtract(&mut pool, &own);
                }
                divided.push((init.name.clone(), own));
            }
        }
    }
    for container in pod.containers() {
        let own = requests::of_container(pod, container)?;
        if own.is_empty() {
            sharing.push(&container.name);
        } else {
            subtract(&mut pool, &own);
            divided.push((container.name.clone(), own));
        }
    }
    let sharing = sharing.into_iter();
    divided.extend(sharing.map(|name| (name.clone(), pool.clone())));
    Ok(divided)
}

fn subtract(pool: &mut Requests, amounts: &Requests) {
    for (name, size) in amounts {
        if let Some(left) = pool.get_mut(name) {
            *left = left.saturating_sub(*size);
        }
    }
}
