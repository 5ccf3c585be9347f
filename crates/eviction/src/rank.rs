//! Which pod goes first.
//!
//! Pods above their request come first, then those of lower priority, then those that exceed their
//! request most (upstream `rankMemoryPressure`, `rankDiskPressureFunc`). For processes, priority
//! comes first, then their number (upstream `rankPIDPressure`). A pod that was not measured comes
//! before measured ones.

use std::cmp::Reverse;
use std::fmt;

use windlass_units::quantity::Quantity;

use crate::layout::FileSystems;
use crate::pod::PodFigures;
use crate::signal::{Resource, Signal};

/// Why a pod is where it is in the ranking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Resource that is short.
    pub resource: Resource,
    /// What the pod uses of it; `None` if it was not measured.
    pub used: Option<Quantity>,
    /// What it requests.
    pub request: Quantity,
    /// Priority.
    pub priority: i32,
    /// Number of pods that were ranked.
    pub pods: usize,
}

/// Order of a pod in the ranking; lower goes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    is_measured: bool,
    is_within_request: bool,
    priority: i32,
    overage: Reverse<i128>,
}

/// Order for processes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ProcessKey {
    priority: i32,
    is_measured: bool,
    processes: Reverse<u64>,
}

/// Ranks pods for a signal, the first to evict first. Critical pods and those that are already
/// evicted are left out.
pub(crate) fn rank<'a>(
    signal: Signal,
    file_systems: FileSystems,
    pods: &'a [PodFigures],
) -> Vec<(&'a PodFigures, Rank)> {
    let candidates = pods
        .iter()
        .filter(|pod| !pod.is_critical && !pod.is_evicted);
    let mut ranked: Vec<(&PodFigures, u64)> = candidates
        .map(|pod| (pod, used(signal, file_systems, pod)))
        .collect();
    let resource = signal.resource();
    let name = |pod: &'a PodFigures| (&pod.namespace, &pod.name, &pod.uid);
    match resource {
        Resource::Pids => ranked.sort_by_cached_key(|(pod, used)| {
            let key = ProcessKey {
                priority: pod.priority,
                is_measured: pod.usage.is_some(),
                processes: Reverse(*used),
            };
            (key, name(pod))
        }),
        Resource::Memory | Resource::EphemeralStorage | Resource::Inodes => {
            ranked.sort_by_cached_key(|(pod, used)| (key(pod, resource, *used), name(pod)));
        }
    }
    let pods = ranked.len();
    let with_rank = ranked.into_iter().map(|(pod, used)| {
        let rank = Rank {
            resource,
            used: pod.usage.as_ref().map(|_| resource.quantity(used)),
            request: pod.request(resource),
            priority: pod.priority,
            pods,
        };
        (pod, rank)
    });
    with_rank.collect()
}

fn used(signal: Signal, file_systems: FileSystems, pod: &PodFigures) -> u64 {
    let parts = file_systems.disk_parts(signal);
    let usage = pod.usage.as_ref();
    usage.map_or(0, |usage| usage.of(signal.resource(), parts))
}

fn key(pod: &PodFigures, resource: Resource, used: u64) -> Key {
    let overage = overage(resource.quantity(used), pod.request(resource));
    let is_measured = pod.usage.is_some();
    Key {
        is_measured,
        is_within_request: is_measured && overage <= 0,
        priority: pod.priority,
        overage: Reverse(if is_measured { overage } else { 0 }),
    }
}

fn overage(used: Quantity, request: Quantity) -> i128 {
    used.nanos() - request.nanos()
}

/// `it uses 312Mi of memory, 212Mi above its request of 100Mi, at priority 0, of 5 pods`.
impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.resource;
        match (self.used, resource) {
            (None, _) => f.write_str("its usage is not known")?,
            (Some(used), Resource::Pids) => write!(f, "it runs {used} processes")?,
            (Some(used), Resource::Inodes) => write!(f, "it uses {used} inodes")?,
            (Some(used), _) => {
                write!(f, "it uses {used} of {resource}, ")?;
                let amount = resource.difference(used, self.request);
                match (self.request.is_zero(), used > self.request) {
                    (true, _) => f.write_str("without a request")?,
                    (false, true) => write!(f, "{amount} above its request of {}", self.request)?,
                    (false, false) => write!(f, "within its request of {}", self.request)?,
                }
            }
        }
        write!(
            f,
            ", at priority {}, first of {} pods",
            self.priority, self.pods
        )
    }
}

#[cfg(test)]
mod tests;
