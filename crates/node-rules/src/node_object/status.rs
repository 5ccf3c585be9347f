//! Fields of the node status, in the order of the setters of upstream.

use std::cmp::Reverse;

use windlass_types::Reason;
use windlass_types::Timestamp;
use windlass_types::corev1::{
    ContainerImage, DaemonEndpoint, NodeAddress, NodeDaemonEndpoints, NodeFeatures,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeStatus, NodeSwapStatus, NodeSystemInfo,
};
use windlass_types::cri::{ImageInfo, RuntimeHandler, RuntimeVersion};

use super::{NodeObjectInput, NodeSettings, resources};
use crate::node_conditions::node_conditions;

const NAMES_PER_IMAGE: usize = 5;

/// Updates a status; returns the event reasons of its conditions.
pub(super) fn fill(status: &mut NodeStatus, input: &NodeObjectInput<'_>) -> Vec<Reason> {
    let settings = input.settings;
    if let Some(addresses) = addresses(status, settings) {
        status.addresses = Some(addresses);
    }
    let missing = resources::fill(
        status,
        input.machine,
        &settings.resources,
        input.plugin_resources,
    );
    node_info(status.node_info.get_or_insert_default(), input);
    status.daemon_endpoints = Some(NodeDaemonEndpoints {
        kubelet_endpoint: Some(DaemonEndpoint {
            port: settings.kubelet_port,
        }),
    });
    let runtime = input.runtime;
    if let Some(listed) = &runtime.images {
        status.images = Some(images(listed, settings.max_images)).filter(|list| !list.is_empty());
    }
    if let Some(known) = &runtime.handlers {
        status.runtime_handlers = Some(handlers(known)).filter(|list| !list.is_empty());
    }
    if let Some(policy) = runtime.supplemental_groups_policy {
        status.features = Some(NodeFeatures {
            supplemental_groups_policy: Some(policy),
        });
    }
    if let Some(devices) = input.volumes_in_use {
        status.volumes_in_use = Some(devices.to_vec()).filter(|list| !list.is_empty());
    }
    let mut features = settings.declared_features.clone();
    features.sort();
    status.declared_features = Some(features).filter(|list| !list.is_empty());
    // the API keeps whole seconds
    let now = Timestamp::from_second(input.now.as_second()).unwrap_or(input.now);
    let old = status.conditions.take().unwrap_or_default();
    let (conditions, events) = node_conditions(&old, input.health, &missing, now);
    status.conditions = Some(conditions);
    events
}

/// Returns the addresses; `None` if an external cloud provider has set them.
fn addresses(status: &NodeStatus, settings: &NodeSettings) -> Option<Vec<NodeAddress>> {
    let has_addresses = status
        .addresses
        .as_ref()
        .is_some_and(|list| !list.is_empty());
    if settings.external_cloud && has_addresses {
        return None;
    }
    let address = |type_: &str, address: String| NodeAddress {
        type_: type_.to_owned(),
        address,
    };
    let mut list: Vec<_> = settings
        .ips
        .iter()
        // detected addresses could conflict with those of the provider
        .filter(|_| !settings.external_cloud || settings.ips_specified)
        .map(|ip| address("InternalIP", ip.to_string()))
        .collect();
    list.push(address("Hostname", settings.hostname.clone()));
    Some(list)
}

fn node_info(info: &mut NodeSystemInfo, input: &NodeObjectInput<'_>) {
    let machine = input.machine;
    for (field, read) in [
        (&mut info.machine_id, &machine.machine_id),
        (&mut info.system_uuid, &machine.system_uuid),
        (&mut info.boot_id, &machine.boot_id),
        (&mut info.kernel_version, &machine.kernel_version),
        (&mut info.os_image, &machine.os_image),
        (&mut info.operating_system, &machine.operating_system),
        (&mut info.architecture, &machine.architecture),
        (&mut info.kubelet_version, &input.settings.kubelet_version),
    ] {
        if !read.is_empty() {
            field.clone_from(read);
        }
    }
    match &input.runtime.version {
        Some(version) => info.container_runtime_version = runtime_version(version),
        None if info.container_runtime_version.is_empty() => {
            "unknown://Unknown".clone_into(&mut info.container_runtime_version);
        }
        None => {}
    }
    info.kube_proxy_version.clear();
    info.swap = (machine.swap > 0).then(|| NodeSwapStatus {
        capacity: i64::try_from(machine.swap).ok(),
    });
}

/// Returns `containerd://1.6.20`. As upstream, a version that is not semantic is truncated after
/// its numbers, for example `1.6.20~ds1` of Debian.
fn runtime_version(version: &RuntimeVersion) -> String {
    let text = version.version.trim_start_matches('v');
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let semantic = rest
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-+.".contains(c));
    let kept = if semantic && (rest.is_empty() || rest.starts_with(['-', '+'])) {
        text
    } else {
        numbers.trim_end_matches('.')
    };
    let kept = if kept.is_empty() { "Unknown" } else { kept };
    format!("{}://{kept}", version.name)
}

/// Returns the largest images first, then by ID in descending order.
fn images(listed: &[ImageInfo], max: Option<usize>) -> Vec<ContainerImage> {
    let mut sorted: Vec<_> = listed.iter().collect();
    sorted.sort_by_key(|image| Reverse((image.size, &image.id)));
    let names = |image: &ImageInfo| {
        let digests = image.repo_digests.iter().chain(&image.repo_tags);
        digests.take(NAMES_PER_IMAGE).cloned().collect::<Vec<_>>()
    };
    sorted
        .into_iter()
        .take(max.unwrap_or(usize::MAX))
        .map(|image| ContainerImage {
            names: Some(names(image)).filter(|names| !names.is_empty()),
            size_bytes: i64::try_from(image.size).ok(),
        })
        .collect()
}

fn handlers(known: &[RuntimeHandler]) -> Vec<NodeRuntimeHandler> {
    known
        .iter()
        .map(|handler| NodeRuntimeHandler {
            name: Some(handler.name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(handler.recursive_read_only_mounts),
                user_namespaces: Some(handler.user_namespaces),
            }),
        })
        .collect()
}
