//! Limits of the cgroups beside those of single pods: all pods, the QoS classes, and the daemons for
//! which resources are reserved (upstream `enforceNodeAllocatableCgroups`, `setMemoryReserve`).

use std::collections::BTreeMap;
use std::fmt;

use windlass_pod_inputs::resources::{QosClass, cpu_shares, pod_request, qos_class, with_overhead};
use windlass_types::{Phase, Pod};
use windlass_units::quantity::Quantity;

use crate::pod_cgroup::{CgroupValues, burstable_shares};

/// The kernel's minimum CPU shares, those of the BestEffort class.
const MIN_SHARES: i64 = 2;

/// The daemons that a reservation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemons {
    /// `systemReserved`.
    System,
    /// `kubeReserved`.
    Kube,
}

/// Reservations of the configuration.
#[derive(Clone, Copy, Debug)]
pub struct Reservations<'a> {
    /// `systemReserved`.
    pub system: &'a BTreeMap<String, String>,
    /// `kubeReserved`.
    pub kube: &'a BTreeMap<String, String>,
    /// `systemReservedCgroup`.
    pub system_cgroup: &'a str,
    /// `kubeReservedCgroup`.
    pub kube_cgroup: &'a str,
    /// `MemoryQoS`: the reserved memory is protected.
    pub memory_qos: bool,
}

/// A limit of node allocatable that is enforced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeLimit {
    /// The limit of all pods; has the parts of the cgroup name, such as `kubepods`.
    Pods(Vec<String>),
    /// The limit of daemons.
    Reserved {
        /// Which daemons.
        daemons: Daemons,
        /// Only CPU shares.
        compressible: bool,
        /// Name of the cgroup in the configuration.
        cgroup: String,
        /// Values; `None` if nothing is reserved.
        values: Option<CgroupValues>,
    },
}

impl NodeLimit {
    /// Message of the event `NodeAllocatableEnforced`.
    pub fn enforced(&self) -> String {
        match self {
            Self::Pods(_) => "Updated Node Allocatable limit across pods".to_owned(),
            Self::Reserved {
                daemons, cgroup, ..
            } => {
                let daemons = match daemons {
                    Daemons::System => "system",
                    Daemons::Kube => "kube",
                };
                format!("Updated limits on {daemons} reserved cgroup {cgroup}")
            }
        }
    }

    /// Message of the event `FailedNodeAllocatableEnforcement`.
    pub fn failed(&self, error: &dyn fmt::Display) -> String {
        match self {
            Self::Pods(parts) => format!(
                "Failed to update Node Allocatable Limits {}: {error}",
                quoted(parts)
            ),
            Self::Reserved {
                daemons,
                compressible,
                cgroup,
                ..
            } => {
                let daemons = match daemons {
                    Daemons::System => "System",
                    Daemons::Kube => "Kube",
                };
                let kind = if *compressible { " Compressible" } else { "" };
                format!(
                    "Failed to enforce {daemons} Reserved{kind} Cgroup Limits on {cgroup:?}: \
                     {error}"
                )
            }
        }
    }
}

/// Returns parts of a cgroup name as upstream prints them, `["a" "b"]`.
fn quoted(parts: &[String]) -> String {
    let parts: Vec<String> = parts.iter().map(|part| format!("{part:?}")).collect();
    format!("[{}]", parts.join(" "))
}

/// Returns the limits of daemons that `enforceNodeAllocatable` names, in the order of upstream.
pub fn reserved_limits(enforced: &[String], reservations: Reservations<'_>) -> Vec<NodeLimit> {
    let keys = [
        ("system-reserved", Daemons::System, false),
        ("kube-reserved", Daemons::Kube, false),
        ("system-reserved-compressible", Daemons::System, true),
        ("kube-reserved-compressible", Daemons::Kube, true),
    ];
    let named = keys
        .into_iter()
        .filter(|(key, ..)| enforced.iter().any(|word| word == key));
    let limits = named.map(|(_, daemons, compressible)| {
        let (amounts, cgroup) = match daemons {
            Daemons::System => (reservations.system, reservations.system_cgroup),
            Daemons::Kube => (reservations.kube, reservations.kube_cgroup),
        };
        NodeLimit::Reserved {
            daemons,
            compressible,
            cgroup: cgroup.to_owned(),
            values: (!amounts.is_empty()).then(|| {
                let values = reserved_values(amounts, compressible);
                CgroupValues {
                    memory_min: values.memory_limit.filter(|_| reservations.memory_qos),
                    ..values
                }
            }),
        }
    });
    limits.collect()
}

fn reserved_values(amounts: &BTreeMap<String, String>, compressible: bool) -> CgroupValues {
    let amount = |name: &str| amounts.get(name)?.parse::<Quantity>().ok();
    let whole = |name| amount(name).filter(|_| !compressible).map(Quantity::value);
    CgroupValues {
        cpu_shares: amount("cpu").map(|cpu| cpu_shares(cpu.milli_value())),
        cpu_quota: None,
        memory_limit: whole("memory"),
        pids_limit: whole("pid"),
        ..CgroupValues::default()
    }
}

/// `reservedSystemCPUs` in the reservations: its number of CPUs replaces those that the system and
/// the Kubernetes daemons reserve.
pub fn reserve_cpus(
    count: usize,
    system: &mut BTreeMap<String, String>,
    kube: &mut BTreeMap<String, String>,
) {
    kube.remove("cpu");
    system.insert("cpu".to_owned(), count.to_string());
}

/// Memory that `qosReserved` keeps for the requests of higher classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QosMemory {
    /// Share of the requests, from 0 to 100.
    pub percent: i64,
    /// Memory of all pods in bytes.
    pub allocatable: i64,
}

/// Memory settings of the QoS classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassMemory {
    /// Memory that is reserved, with `qosReserved`.
    pub reserved: Option<QosMemory>,
    /// With `MemoryQoS`: whether requests are protected.
    pub protects_requests: Option<bool>,
}

/// Settings of the cgroups of QoS classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassValues {
    /// All pods: only the protection of memory.
    pub all: CgroupValues,
    /// The Burstable class.
    pub burstable: CgroupValues,
    /// The BestEffort class.
    pub best_effort: CgroupValues,
}

impl fmt::Display for ClassValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all != CgroupValues::default() {
            write!(f, "all({}) ", self.all)?;
        }
        write!(
            f,
            "burstable({}) besteffort({})",
            self.burstable, self.best_effort
        )
    }
}

impl ClassValues {
    /// Returns the memory in bytes that is protected for Guaranteed and for Burstable pods; `None`
    /// without `MemoryQoS`.
    pub fn protected(&self) -> Option<(i64, i64)> {
        let (all, burstable) = (self.all.memory_min?, self.burstable.memory_low?);
        Some((all - burstable, burstable))
    }
}

/// Returns the settings of the classes for the pods of the node. Memory that Guaranteed pods request
/// is kept from the Burstable class, and the memory that both request from the BestEffort class.
/// The protection of all pods includes that of the Burstable class, which has no effect otherwise.
pub fn class_values<'a>(
    pods: impl Iterator<Item = &'a Pod> + Clone,
    memory: ClassMemory,
) -> ClassValues {
    let limits = memory
        .reserved
        .filter(|memory| memory.allocatable > 0)
        .map(|memory| {
            let kept = |class| reserved_memory(pods.clone(), class, memory.percent);
            let burstable = memory.allocatable - kept(QosClass::Guaranteed);
            (burstable, burstable - kept(QosClass::Burstable))
        });
    let (burstable, best_effort) = limits.unzip();
    let values = |cpu_shares, limit: Option<i64>| CgroupValues {
        cpu_shares: Some(cpu_shares),
        memory_limit: limit.map(|limit| limit.max(0)),
        ..CgroupValues::default()
    };
    let protected = memory.protects_requests.map(|protects| {
        let request = |class| match protects {
            true => reserved_memory(pods.clone(), class, 100),
            false => 0,
        };
        (request(QosClass::Guaranteed), request(QosClass::Burstable))
    });
    ClassValues {
        all: CgroupValues {
            memory_min: protected
                .map(|(guaranteed, burstable)| guaranteed.saturating_add(burstable)),
            ..CgroupValues::default()
        },
        burstable: CgroupValues {
            memory_low: protected.map(|(_, burstable)| burstable),
            ..values(burstable_shares(pods.clone()), burstable)
        },
        best_effort: values(MIN_SHARES, best_effort),
    }
}

fn reserved_memory<'a>(pods: impl Iterator<Item = &'a Pod>, class: QosClass, percent: i64) -> i64 {
    let has_ended = |pod: &Pod| pod.status.as_ref().is_some_and(Phase::is_terminal_in);
    let of_class = pods.filter(|pod| qos_class(pod) == class && !has_ended(pod));
    let requests = of_class.map(|pod| {
        let request = with_overhead(pod, "memory", pod_request(pod, "memory"));
        request.map_or(0, Quantity::value)
    });
    let sum = requests.fold(0, i64::saturating_add);
    i64::try_from(i128::from(sum) * i128::from(percent) / 100).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
