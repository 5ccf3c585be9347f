//! The Node object: what the agent registers, and what it makes of the object that exists.
//!
//! [`initial_node`] is created where there is none. [`reconciled_node`] takes over one that
//! exists: what is ours is set right, everything else is kept. [`updated_node`] is the same
//! object with the present status; [`plan_node_status`] says whether the difference is worth a
//! patch, and which. Upstream: `kubelet_node_status.go`, `nodestatus/setters.go`.

mod patch;
mod resources;
mod status;

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_types::corev1::{Node, NodeSpec, Taint};
use windlass_types::cri::{ImageInfo, RuntimeHandler, RuntimeVersion};
use windlass_types::metav1::ObjectMeta;
use windlass_types::{Reason, Timestamp};

use crate::node_conditions::{NodeEvent, NodeHealth};

pub use patch::{NodeStatusPlan, node_patch, plan_node_status};
pub use resources::{ResourceSettings, excessive_reservations};

/// What configuration and flags say of the node; fixed while the agent runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    /// Name of the object.
    pub name: String,
    /// The `Hostname` address and the label `kubernetes.io/hostname`.
    pub hostname: String,
    /// Addresses, primary first, at most one of each family.
    pub ips: Vec<IpAddr>,
    /// `--node-ip` names addresses (not only a family).
    pub ips_specified: bool,
    /// `--cloud-provider=external`.
    pub external_cloud: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<Taint>,
    /// `--register-schedulable=false`.
    pub unschedulable: bool,
    /// `providerID`; may be empty.
    pub provider_id: String,
    /// `enableControllerAttachDetach`.
    pub controller_attach_detach: bool,
    /// `nodeInfo.kubeletVersion`: a semantic version of Kubernetes. What is our own goes after a
    /// `+`: behind a `-` the version would count as older than the release it follows.
    pub kubelet_version: String,
    /// `daemonEndpoints.kubeletEndpoint.port`.
    pub kubelet_port: i32,
    /// `nodeStatusMaxImages`; `None` is no limit.
    pub max_images: Option<usize>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<String>,
    /// Capacity and what is reserved of it.
    pub resources: ResourceSettings,
}

/// What the machine says of itself. An empty text could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// DMI product UUID.
    pub system_uuid: String,
    /// Changes with every boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub os_image: String,
    /// Go's name of the system, `linux`.
    pub operating_system: String,
    /// Go's name of the architecture, `amd64`.
    pub architecture: String,
    /// CPUs online; 0 if unknown.
    pub cpus: u32,
    /// Memory in bytes; 0 if unknown.
    pub memory: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Size in bytes of the file system that holds pods; 0 if unknown.
    pub storage: u64,
    /// Page size in KiB → number of huge pages.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// What the container runtime says of itself. `None`: not known, what was reported stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeFacts {
    /// Name and version.
    pub version: Option<RuntimeVersion>,
    /// Handlers.
    pub handlers: Option<Vec<RuntimeHandler>>,
    /// `features.supplementalGroupsPolicy`.
    pub supplemental_groups_policy: Option<bool>,
    /// Images on the node, in any order.
    pub images: Option<Vec<ImageInfo>>,
}

/// Everything a Node object is made of.
#[derive(Clone, Copy, Debug)]
pub struct NodeObjectInput<'a> {
    /// Configuration.
    pub settings: &'a NodeSettings,
    /// The machine.
    pub machine: &'a MachineFacts,
    /// The container runtime.
    pub runtime: &'a RuntimeFacts,
    /// What the conditions are made of.
    pub health: &'a NodeHealth,
    /// Attached devices that pods use; `None` leaves what was told.
    pub volumes_in_use: Option<&'a [String]>,
    /// The present.
    pub now: Timestamp,
}

/// A Node object as it should be, and the events that are due when the API server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The object.
    pub node: Node,
    /// What changed for the user.
    pub events: Vec<NodeEvent>,
}

/// Annotation: the attach/detach controller is in charge of this node's volumes.
pub const ANN_ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Annotation: the addresses `--node-ip` names, for an external cloud provider.
pub(crate) const ANN_PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
const LABEL_OS: &str = "kubernetes.io/os";
const LABEL_ARCH: &str = "kubernetes.io/arch";
const LABEL_OS_BETA: &str = "beta.kubernetes.io/os";
const LABEL_ARCH_BETA: &str = "beta.kubernetes.io/arch";
/// Labels that are set right on an object that exists; others of `--node-labels` are only given
/// to a new one.
const RECONCILED_LABELS: [&str; 11] = [
    LABEL_HOSTNAME,
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    LABEL_OS,
    LABEL_ARCH,
    LABEL_OS_BETA,
    LABEL_ARCH_BETA,
];

/// The object to create where there is none.
pub fn initial_node(input: &NodeObjectInput<'_>) -> NodeReport {
    let settings = input.settings;
    let annotations = settings
        .controller_attach_detach
        .then(|| BTreeMap::from([(ANN_ATTACH_DETACH.to_owned(), "true".to_owned())]));
    let empty = Node {
        metadata: ObjectMeta {
            name: Some(settings.name.clone()),
            labels: Some(initial_labels(input)),
            annotations,
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: some(&settings.provider_id),
            unschedulable: settings.unschedulable.then_some(true),
            taints: Some(initial_taints(settings)).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: None,
    };
    updated_node(&empty, input)
}

/// The object that exists, with what is ours set right and the present status.
///
/// `reset_extended_resources`: no device plugin is known to have reported them, so they are zero
/// until one does. A machine that was booted since the last report resets them in any case.
pub fn reconciled_node(
    existing: &Node,
    input: &NodeObjectInput<'_>,
    reset_extended_resources: bool,
) -> NodeReport {
    let mut node = existing.clone();
    let ours = initial_labels(input);
    let labels = node.metadata.labels.get_or_insert_default();
    for name in RECONCILED_LABELS {
        match ours.get(name).map(String::as_str) {
            None => {}
            Some("") => drop(labels.remove(name)),
            Some(value) => drop(labels.insert(name.to_owned(), value.to_owned())),
        }
    }
    let wanted = input.settings.controller_attach_detach.then_some("true");
    annotate(&mut node.metadata, ANN_ATTACH_DETACH, wanted);
    if reset_extended_resources && let Some(status) = &mut node.status {
        resources::reset_extended(status);
    }
    updated_node(&node, input)
}

/// The object as it is, with the present status. Labels other than the operating system and
/// architecture are left as someone made them.
pub fn updated_node(old: &Node, input: &NodeObjectInput<'_>) -> NodeReport {
    let mut node = old.clone();
    let settings = input.settings;
    let labels = node.metadata.labels.get_or_insert_default();
    for (name, value) in [
        (LABEL_OS, &input.machine.operating_system),
        (LABEL_ARCH, &input.machine.architecture),
    ] {
        // upstream goes back to the machine's own; who names another in --node-labels means it
        let named = settings.labels.get(name);
        labels.insert(name.to_owned(), named.unwrap_or(value).clone());
    }
    let ips: Vec<_> = settings.ips.iter().map(IpAddr::to_string).collect();
    let provided = (settings.external_cloud && settings.ips_specified).then(|| ips.join(","));
    annotate(&mut node.metadata, ANN_PROVIDED_IP, provided.as_deref());

    let mut status = node.status.take().unwrap_or_default();
    let mut events = Vec::new();
    let info = status.node_info.get_or_insert_default();
    let boot_id = &input.machine.boot_id;
    if !info.boot_id.is_empty() && !boot_id.is_empty() && info.boot_id != *boot_id {
        let name = &settings.name;
        events.push(NodeEvent {
            event_type: windlass_types::view::EventType::Warning,
            reason: Reason::Rebooted,
            message: format!("Node {name} has been rebooted, boot id: {boot_id}"),
        });
        resources::reset_extended(&mut status);
    }
    let reasons = status::fill(&mut status, input);
    let event = |reason| NodeEvent::status(&settings.name, reason);
    events.extend(reasons.into_iter().map(event));
    node.status = Some(status);
    NodeReport { node, events }
}

fn initial_labels(input: &NodeObjectInput<'_>) -> BTreeMap<String, String> {
    let machine = input.machine;
    let mut labels = BTreeMap::from([
        (LABEL_HOSTNAME.to_owned(), input.settings.hostname.clone()),
        (LABEL_OS.to_owned(), machine.operating_system.clone()),
        (LABEL_ARCH.to_owned(), machine.architecture.clone()),
        (LABEL_OS_BETA.to_owned(), machine.operating_system.clone()),
        (LABEL_ARCH_BETA.to_owned(), machine.architecture.clone()),
    ]);
    labels.extend(input.settings.labels.clone());
    labels
}

fn initial_taints(settings: &NodeSettings) -> Vec<Taint> {
    const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
    const NO_SCHEDULE: &str = "NoSchedule";
    let taint = |key: &str, value: Option<&str>| Taint {
        key: key.to_owned(),
        value: value.map(str::to_owned),
        effect: NO_SCHEDULE.to_owned(),
        time_added: None,
    };
    let mut taints = settings.taints.clone();
    let has = taints
        .iter()
        .any(|t| t.key == UNSCHEDULABLE && t.effect == NO_SCHEDULE);
    if settings.unschedulable && !has {
        taints.push(taint(UNSCHEDULABLE, None));
    }
    if settings.external_cloud {
        // the cloud's controller removes it when it has filled the node in
        let key = "node.cloudprovider.kubernetes.io/uninitialized";
        taints.push(taint(key, Some("true")));
    }
    taints
}

fn annotate(metadata: &mut ObjectMeta, name: &str, value: Option<&str>) {
    match value {
        Some(value) => {
            let annotations = metadata.annotations.get_or_insert_default();
            annotations.insert(name.to_owned(), value.to_owned());
        }
        None => {
            if let Some(annotations) = &mut metadata.annotations {
                annotations.remove(name);
            }
        }
    }
}

fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

#[cfg(test)]
mod tests;
