//! Requests of pods and their sum on the node, which is updated incrementally.

mod actual;

use std::collections::{BTreeMap, BTreeSet};

use windlass_types::corev1::{Container, ResourceRequirements};
use windlass_types::{Pod, PodExt, PodUid};

use windlass_pod_inputs::resources::{is_from_claim, pod_request, with_overhead};
use windlass_types::pod::is_sidecar;
use windlass_units::quantity::Quantity;

/// Address of ports without `hostIP`.
const ALL_ADDRESSES: &str = "0.0.0.0";

/// A host port of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Number, above 0.
    pub port: i32,
    /// Address; `0.0.0.0` for all.
    pub address: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodRequests {
    /// Requests with overhead by resource: CPU in thousandths, others in whole units.
    pub resources: BTreeMap<String, i64>,
    /// Host ports.
    pub ports: BTreeSet<HostPort>,
}

/// Sum of the requests of all admitted pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLoad {
    pods: BTreeMap<PodUid, PodRequests>,
    requests: BTreeMap<String, i64>,
    /// Number of pods by port: more than one while one replaces the other.
    ports: BTreeMap<HostPort, usize>,
}

/// A load without the requests of one pod.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeLoadExcluding<'a> {
    load: &'a NodeLoad,
    own: Option<&'a PodRequests>,
}

impl PodRequests {
    /// Sums the requests of a pod. Invalid quantities count as absent.
    pub(crate) fn from_pod(pod: &Pod) -> Self {
        #[cfg(test)]
        COMPUTED.with(|n| n.set(n.get() + 1));
        let mut resources = BTreeMap::new();
        let names = resource_names(pod).into_iter();
        for name in names.filter(|name| !is_from_claim(pod, None, name)) {
            let request = with_overhead(pod, name, pod_request(pod, name));
            let amount = in_units(name, request.unwrap_or(Quantity::ZERO));
            if amount > 0 {
                resources.insert(name.to_owned(), amount);
            }
        }
        let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
        Self {
            resources,
            ports: sidecars
                .chain(pod.containers())
                .flat_map(host_ports)
                .collect(),
        }
    }
}

impl NodeLoad {
    /// Adds or replaces a pod. A container counts with the requests in its status while smaller ones
    /// are allocated, but not in effect.
    pub fn add(&mut self, pod: &Pod) {
        let uid = pod.uid();
        self.remove(&uid);
        let requests = PodRequests::from_pod(&actual::with_actual_requests(pod));
        for (name, amount) in &requests.resources {
            let sum = self.requests.entry(name.clone()).or_default();
            *sum = sum.saturating_add(*amount);
        }
        for port in &requests.ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        self.pods.insert(uid, requests);
    }

    /// Removes a pod, if present.
    pub fn remove(&mut self, uid: &PodUid) {
        let Some(requests) = self.pods.remove(uid) else {
            return;
        };
        for (name, amount) in requests.resources {
            if let Some(sum) = self.requests.get_mut(&name) {
                *sum -= amount;
            }
        }
        for port in requests.ports {
            if let Some(users) = self.ports.get_mut(&port) {
                *users -= 1;
                if *users == 0 {
                    self.ports.remove(&port);
                }
            }
        }
    }

    /// Replaces a counted pod after a change of its status; true if it requests less CPU or memory.
    pub fn update(&mut self, pod: &Pod) -> bool {
        let uid = pod.uid();
        let counted = |load: &Self| {
            let requests = load.pods.get(&uid)?;
            let amount = |name| requests.resources.get(name).copied().unwrap_or(0);
            Some([amount("cpu"), amount("memory")])
        };
        let Some(before) = counted(self) else {
            return false;
        };
        self.add(pod);
        counted(self).is_some_and(|after| after[0] < before[0] || after[1] < before[1])
    }

    /// Returns whether the pod is counted.
    pub fn contains(&self, uid: &PodUid) -> bool {
        self.pods.contains_key(uid)
    }

    pub(super) fn without(&self, uid: &PodUid) -> NodeLoadExcluding<'_> {
        NodeLoadExcluding {
            load: self,
            own: self.pods.get(uid),
        }
    }
}

impl NodeLoadExcluding<'_> {
    /// Number of pods.
    pub(super) fn pods(self) -> i64 {
        let count = self.load.pods.len() - usize::from(self.own.is_some());
        i64::try_from(count).unwrap_or(i64::MAX)
    }

    /// Sum of the requests for one resource.
    pub(super) fn requested(self, name: &str) -> i64 {
        let all = self.load.requests.get(name).copied().unwrap_or(0);
        let own = self.own.and_then(|o| o.resources.get(name).copied());
        all - own.unwrap_or(0)
    }

    /// Returns whether another pod has the port on the same address, or on all addresses.
    pub(super) fn conflicts(self, wanted: &HostPort) -> bool {
        let first = HostPort {
            address: String::new(),
            ..wanted.clone()
        };
        let same_port =
            |held: &HostPort| held.port == wanted.port && held.protocol == wanted.protocol;
        let mut held = self
            .load
            .ports
            .range(first..)
            .take_while(|(p, _)| same_port(p));
        held.any(|(port, users)| {
            let own = self.own.is_some_and(|o| o.ports.contains(port));
            let by_others = *users > usize::from(own);
            let pair = [port.address.as_str(), wanted.address.as_str()];
            by_others && (pair[0] == pair[1] || pair.contains(&ALL_ADDRESSES))
        })
    }
}

pub(super) fn is_counted(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage")
        || name.contains('/')
        || name.starts_with("hugepages-")
        || name.starts_with("attachable-volumes-")
}

/// Returns a quantity in its unit: CPU in thousandths, others in whole units.
pub(super) fn in_units(name: &str, amount: Quantity) -> i64 {
    if name == "cpu" {
        amount.milli_value()
    } else {
        amount.value()
    }
}

fn resource_names(pod: &Pod) -> BTreeSet<&str> {
    let spec = PodExt::spec(pod);
    let containers = pod.containers().iter().chain(pod.init_containers());
    let lists = containers
        .filter_map(|c| c.resources.as_ref())
        .chain(spec.resources.as_ref())
        .flat_map(|r: &ResourceRequirements| [r.requests.as_ref(), r.limits.as_ref()])
        .chain([spec.overhead.as_ref()]);
    lists
        .flatten()
        .flat_map(|list| list.keys().map(String::as_str))
        .filter(|name| is_counted(name))
        .collect()
}

fn host_ports(container: &Container) -> impl Iterator<Item = HostPort> + '_ {
    let or = |text: &Option<String>, default: &str| {
        let text = text.as_deref().filter(|t| !t.is_empty());
        text.unwrap_or(default).to_owned()
    };
    let ports = container.ports.iter().flatten();
    ports.filter_map(move |p| {
        Some(HostPort {
            protocol: or(&p.protocol, "TCP"),
            port: p.host_port.filter(|n| *n > 0)?,
            address: or(&p.host_ip, ALL_ADDRESSES),
        })
    })
}

#[cfg(test)]
thread_local! {
    /// Number of summed pods on this thread.
    pub(super) static COMPUTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}
