//! The Node object: registration and status updates.
//!
//! [`initial_node`] is the object to create. [`reconciled_node`] corrects the fields of the agent
//! in an existing object. [`updated_node`] has the current status, and [`plan_node_status`] decides
//! whether to send a patch. Upstream: `kubelet_node_status.go`, `nodestatus/setters.go`.

mod patch;
mod resources;
mod status;

use std::collections::BTreeMap;
use std::net::IpAddr;

use windlass_types::corev1::{Node, NodeSpec, Taint};
use windlass_types::cri::{ImageInfo, RuntimeHandler, RuntimeVersion};
use windlass_types::metav1::ObjectMeta;
use windlass_types::{PluginResources, Reason, Timestamp};

use crate::node_conditions::{NodeEvent, NodeHealth};

pub use patch::{NodeStatusPlan, node_patch, plan_node_status};
pub use resources::{ResourceSettings, excessive_reservations};

/// Settings of the node from configuration and flags; constant in an agent run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeSettings {
    /// Name of the object.
    pub name: String,
    /// The `Hostname` address and the label `kubernetes.io/hostname`.
    pub hostname: String,
    /// Addresses, primary first, at most one of each family.
    pub ips: Vec<IpAddr>,
    /// `--node-ip` has addresses, not only a family.
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
    /// `nodeInfo.kubeletVersion`: a Kubernetes version. The agent version is after a `+`, because a
    /// `-` would make it older than the release.
    pub kubelet_version: String,
    /// `daemonEndpoints.kubeletEndpoint.port`.
    pub kubelet_port: i32,
    /// `nodeStatusMaxImages`; `None` for no limit.
    pub max_images: Option<usize>,
    /// `status.declaredFeatures`.
    pub declared_features: Vec<String>,
    /// Capacity and reservations.
    pub resources: ResourceSettings,
}

/// Facts about the host. An empty text is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// DMI product UUID.
    pub system_uuid: String,
    /// ID of the boot.
    pub boot_id: String,
    /// `uname -r`.
    pub kernel_version: String,
    /// `PRETTY_NAME` of `/etc/os-release`.
    pub os_image: String,
    /// Name of the OS in Go, `linux`.
    pub operating_system: String,
    /// Name of the architecture in Go, `amd64`.
    pub architecture: String,
    /// Online CPUs; 0 if unknown.
    pub cpus: u32,
    /// Memory in bytes; 0 if unknown.
    pub memory: u64,
    /// Swap in bytes.
    pub swap: u64,
    /// Size in bytes of the file system of pods; 0 if unknown.
    pub storage: u64,
    /// Page size in KiB → number of huge pages.
    pub huge_pages: BTreeMap<u64, u64>,
}

/// Facts about the container runtime. With `None`, the reported value stays.
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

/// Input of the Node object.
#[derive(Clone, Copy, Debug)]
pub struct NodeObjectInput<'a> {
    /// Configuration.
    pub settings: &'a NodeSettings,
    /// The host.
    pub machine: &'a MachineFacts,
    /// The container runtime.
    pub runtime: &'a RuntimeFacts,
    /// Input of the conditions.
    pub health: &'a NodeHealth,
    /// Attached volumes in use by pods; with `None`, the reported value stays.
    pub volumes_in_use: Option<&'a [String]>,
    /// Resources of device plugins.
    pub plugin_resources: &'a PluginResources,
    /// Now.
    pub now: Timestamp,
}

/// The desired Node object, and the events to send after its update.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeReport {
    /// The object.
    pub node: Node,
    /// Events.
    pub events: Vec<NodeEvent>,
}

/// Annotation: the attach/detach controller attaches the volumes of this node.
pub const ANN_ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Annotation: the addresses of `--node-ip`, for an external cloud provider.
pub(crate) const ANN_PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";

const LABEL_HOSTNAME: &str = "kubernetes.io/hostname";
const LABEL_OS: &str = "kubernetes.io/os";
const LABEL_ARCH: &str = "kubernetes.io/arch";
const LABEL_OS_BETA: &str = "beta.kubernetes.io/os";
const LABEL_ARCH_BETA: &str = "beta.kubernetes.io/arch";
/// Labels that are corrected on an existing object; other `--node-labels` are only set on a new
/// one.
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

/// Returns the object to create.
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

/// Returns an existing object with corrected fields and the current status.
///
/// `reset_extended_resources` sets extended resources to zero until a device plugin reports them. A
/// reboot always resets them.
pub fn reconciled_node(
    existing: &Node,
    input: &NodeObjectInput<'_>,
    reset_extended_resources: bool,
) -> NodeReport {
    let mut node = existing.clone();
    let desired = initial_labels(input);
    let labels = node.metadata.labels.get_or_insert_default();
    for name in RECONCILED_LABELS {
        match desired.get(name).map(String::as_str) {
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

/// Returns an existing object with the current status. The OS and architecture labels are
/// corrected, others are not changed.
pub fn updated_node(old: &Node, input: &NodeObjectInput<'_>) -> NodeReport {
    let mut node = old.clone();
    let settings = input.settings;
    let labels = node.metadata.labels.get_or_insert_default();
    for (name, value) in [
        (LABEL_OS, &input.machine.operating_system),
        (LABEL_ARCH, &input.machine.architecture),
    ] {
        // unlike upstream, --node-labels take precedence over the host
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
        // the cloud controller removes it after initialization
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
