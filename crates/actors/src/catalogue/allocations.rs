//! Messages about the allocation of CPUs, memory nodes and devices.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;
use windlass_mailboxes::{Merge, SlotSender};
use windlass_types::corev1::Container;
use windlass_types::{PluginResources, Pod, PodExt, PodUid, SharedPod};

/// Message: the SyncLoop requests resources for a pod that it admitted, or releases those of a pod
/// that will not run (coalesced per UID). A pod that runs already is not rejected.
#[derive(Clone, Debug, PartialEq)]
pub struct AllocateResources {
    /// Releases what the pod has, before the allocation.
    pub release: bool,
    /// The pod that gets resources; `None` only releases.
    pub pod: Option<SharedPod>,
    /// Reason and message of a check that rejects the pod if the managers do not: they decide, and
    /// count, first.
    pub rejection: Option<(String, String)>,
}

impl Merge for AllocateResources {
    fn merge(&mut self, newer: Self) {
        self.release |= newer.release;
        self.rejection = newer.rejection;
        self.pod = match newer.release {
            true => newer.pod,
            false => newer.pod.or_else(|| self.pod.take()),
        };
    }
}

/// Message: the ContainerManager answers a request for resources (coalesced per UID).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourcesAllocated {
    /// The pod has its resources.
    Done,
    /// The pod fails: reason and message of its status.
    Rejected(String, String),
    /// The pod waits; the message is for users.
    Waiting(String),
}

impl Merge for ResourcesAllocated {
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// Message: the ContainerManager publishes the resources of device plugins for the node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginResourceUpdate(pub Arc<PluginResources>);

/// The pods that need an allocation before they run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllocationScope {
    /// A policy assigns CPUs or memory, or aligns resources: every pod.
    pub every_pod: bool,
    /// Resources of device plugins: the pods that request one.
    pub resources: BTreeSet<String>,
    /// Pods that have resources.
    pub owners: BTreeSet<PodUid>,
}

impl AllocationScope {
    /// True if the pod needs an allocation.
    pub fn covers(&self, pod: &Pod) -> bool {
        self.every_pod || self.requested(pod).next().is_some()
    }

    /// Names of the resources of device plugins that the pod requests.
    pub fn requested<'a>(&'a self, pod: &'a Pod) -> impl Iterator<Item = &'a str> {
        let containers = pod.init_containers().iter().chain(pod.containers());
        let limits = |container: &'a Container| {
            let resources = container.resources.as_ref();
            resources.and_then(|resources| resources.limits.as_ref())
        };
        let names = containers.filter_map(limits).flat_map(|list| list.keys());
        let names = names.filter(|name| self.resources.contains(*name));
        names.map(String::as_str)
    }
}

/// Handle to the ContainerManager.
#[derive(Clone, Debug)]
pub struct AllocationsHandle {
    /// Requests.
    pub requests: SlotSender<PodUid, AllocateResources>,
    /// Pods that need an allocation.
    pub scope: watch::Receiver<Arc<AllocationScope>>,
}

impl AllocationsHandle {
    /// Requests the resources of a pod.
    pub fn allocate(&self, pod: &SharedPod) {
        self.request(pod, None);
    }

    /// Requests the rejection of a pod: by the managers, else with this reason and message.
    pub fn reject(&self, pod: &SharedPod, reason: &str, message: &str) {
        let rejection = (reason.to_owned(), message.to_owned());
        self.request(pod, Some(rejection));
    }

    fn request(&self, pod: &SharedPod, rejection: Option<(String, String)>) {
        let request = AllocateResources {
            release: false,
            pod: Some(SharedPod::clone(pod)),
            rejection,
        };
        self.requests.put(pod.uid(), request);
    }

    /// Ends the allocation of a pod, and releases its resources unless its containers may run.
    pub fn release(&self, uid: PodUid) {
        let request = AllocateResources {
            release: true,
            pod: None,
            rejection: None,
        };
        self.requests.put(uid, request);
    }
}
