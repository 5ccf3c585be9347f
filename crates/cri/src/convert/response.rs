//! Responses: sandboxes, containers, images, runtime status, events.

use std::net::IpAddr;

use windlass_proto::cri_v1 as pb;
use windlass_types::cri::{
    ContainerDetail, ContainerSummary, ImageInfo, RuntimeEvent, RuntimeEventKind, RuntimeHandler,
    RuntimeStatus, SandboxDetail, SandboxSummary,
};
use windlass_types::{
    ContainerId, ContainerSizes, ContainerState, ObservedContainer, ObservedUser, PodUid,
    SandboxId, Timestamp, names,
};

use super::moment;
use super::request::{mount_from_pb, resources_from_pb, signal_from_pb};

/// Condition that the runtime can take requests.
const RUNTIME_READY: &str = "RuntimeReady";
/// Condition that pods can get a network.
const NETWORK_READY: &str = "NetworkReady";

/// Status of the runtime. A condition that is not reported counts as not ready, as upstream.
pub(crate) fn runtime_status_from_pb(status: pb::RuntimeStatus) -> RuntimeStatus {
    let complaint = |name: &str| match status.conditions.iter().find(|c| c.r#type == name) {
        Some(condition) if condition.status => None,
        Some(condition) => Some(format!(
            "{name}=false reason:{} message:{}",
            condition.reason, condition.message
        )),
        None => Some(format!("the runtime does not report {name}")),
    };
    RuntimeStatus {
        runtime_error: complaint(RUNTIME_READY),
        network_error: complaint(NETWORK_READY),
        ..RuntimeStatus::default()
    }
}

/// Handlers of the runtime, in the order of their names: containerd's own order varies.
pub(crate) fn runtime_handlers_from_pb(handlers: Vec<pb::RuntimeHandler>) -> Vec<RuntimeHandler> {
    let mut handlers: Vec<_> = handlers
        .into_iter()
        .map(|handler| {
            let features = handler.features.unwrap_or_default();
            RuntimeHandler {
                name: handler.name,
                recursive_read_only_mounts: features.recursive_read_only_mounts,
                user_namespaces: features.user_namespaces,
            }
        })
        .collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    handlers
}

/// A row of ListPodSandbox.
pub(crate) fn sandbox_summary_from_pb(sandbox: pb::PodSandbox) -> SandboxSummary {
    let ready = sandbox.state() == pb::PodSandboxState::SandboxReady;
    let metadata = sandbox.metadata.unwrap_or_default();
    SandboxSummary {
        id: SandboxId::from(sandbox.id),
        uid: PodUid::from(metadata.uid),
        name: metadata.name,
        namespace: metadata.namespace,
        attempt: metadata.attempt,
        ready,
        created_at: moment(sandbox.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
    }
}

/// PodSandboxStatus. Addresses that do not parse are left out.
pub(crate) fn sandbox_detail_from_pb(status: pb::PodSandboxStatus) -> SandboxDetail {
    let ready = status.state() == pb::PodSandboxState::SandboxReady;
    let host_network = status
        .linux
        .and_then(|linux| linux.namespaces)
        .and_then(|namespaces| namespaces.options)
        .is_some_and(|options| options.network() == pb::NamespaceMode::Node);
    let ips = match status.network {
        Some(network) if !host_network => std::iter::once(network.ip)
            .chain(network.additional_ips.into_iter().map(|ip| ip.ip))
            .filter_map(|ip| ip.parse::<IpAddr>().ok())
            .collect(),
        _ => Vec::new(),
    };
    let metadata = status.metadata.unwrap_or_default();
    SandboxDetail {
        summary: SandboxSummary {
            id: SandboxId::from(status.id),
            uid: PodUid::from(metadata.uid),
            name: metadata.name,
            namespace: metadata.namespace,
            attempt: metadata.attempt,
            ready,
            created_at: moment(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        },
        ips,
        host_network,
    }
}

fn state_from_pb(state: pb::ContainerState) -> ContainerState {
    match state {
        pb::ContainerState::ContainerCreated => ContainerState::Created,
        pb::ContainerState::ContainerRunning => ContainerState::Running,
        pb::ContainerState::ContainerExited => ContainerState::Exited,
        pb::ContainerState::ContainerUnknown => ContainerState::Unknown,
    }
}

/// A number outside the enum is an unknown state, not "created".
fn state_from_number(state: i32) -> ContainerState {
    pb::ContainerState::try_from(state).map_or(ContainerState::Unknown, state_from_pb)
}

/// A row of ListContainers.
pub(crate) fn container_summary_from_pb(container: pb::Container) -> ContainerSummary {
    let metadata = container.metadata.unwrap_or_default();
    ContainerSummary {
        id: ContainerId::from(container.id),
        sandbox_id: SandboxId::from(container.pod_sandbox_id),
        uid: PodUid::from(
            container
                .labels
                .get(names::LABEL_POD_UID)
                .map(String::as_str)
                .unwrap_or_default(),
        ),
        name: metadata.name,
        attempt: metadata.attempt,
        state: state_from_number(container.state),
        created_at: moment(container.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
        image_id: first_filled(container.image_id, container.image_ref),
    }
}

/// ContainerStatus.
///
/// The response has no sandbox, so `sandbox_id` is empty; callers take it from the list.
/// `image_id` is the runtime's image reference, which upstream publishes as
/// `containerStatuses[].imageID`.
pub(crate) fn container_detail_from_pb(status: pb::ContainerStatus) -> ContainerDetail {
    let metadata = status.metadata.unwrap_or_default();
    let image = status.image.unwrap_or_default();
    let annotation = |key| status.annotations.get(key).map(String::as_str);
    let hash =
        annotation(names::ANN_CONTAINER_HASH).and_then(|text| u32::from_str_radix(text, 16).ok());
    let restart_count = annotation(names::ANN_RESTART_COUNT)
        .and_then(|text| text.parse().ok())
        .unwrap_or(metadata.attempt);
    let sizes = annotation(names::ANN_SIZES).and_then(ContainerSizes::parse);
    let mounts: Vec<_> = status.mounts.into_iter().map(mount_from_pb).collect();
    ContainerDetail {
        observed: ObservedContainer {
            id: ContainerId::from(status.id),
            name: metadata.name,
            sandbox_id: SandboxId::from(""),
            state: state_from_number(status.state),
            created_at: moment(status.created_at).unwrap_or(Timestamp::UNIX_EPOCH),
            started_at: moment(status.started_at),
            finished_at: moment(status.finished_at),
            exit_code: status.exit_code,
            reason: status.reason,
            message: status.message,
            image: first_filled(image.image, image.user_specified_image),
            image_id: first_filled(status.image_ref, status.image_id),
            hash,
            restart_count,
            log_path: status.log_path,
            user: status
                .user
                .and_then(|user| user.linux)
                .map(|user| ObservedUser {
                    uid: user.uid,
                    gid: user.gid,
                    supplemental_groups: user.supplemental_groups,
                }),
            stop_signal: signal_from_pb(status.stop_signal),
            resources: status
                .resources
                .and_then(|resources| resources.linux)
                .map(resources_from_pb),
            created_sizes: sizes,
            recursive_read_only: mounts
                .iter()
                .filter(|mount| mount.recursive_read_only)
                .map(|mount| mount.container_path.clone())
                .collect(),
            image_mounts: mounts
                .iter()
                .filter_map(|mount| Some(mount.image.as_ref()?.image.clone()))
                .collect(),
            oom_kills: None,
        },
        labels: status.labels,
        annotations: status.annotations,
        mounts,
    }
}

fn first_filled(first: String, second: String) -> String {
    if first.is_empty() { second } else { first }
}

/// An image on the node.
pub(crate) fn image_from_pb(image: pb::Image) -> ImageInfo {
    ImageInfo {
        id: image.id,
        repo_tags: image.repo_tags,
        repo_digests: image.repo_digests,
        size: image.size,
        uid: image.uid.map(|uid| uid.value),
        username: image.username,
        pinned: image.pinned,
    }
}

/// Converts a CRI event.
pub(crate) fn event_from_pb(event: pb::ContainerEventResponse) -> RuntimeEvent {
    let kind = match event.container_event_type() {
        pb::ContainerEventType::ContainerCreatedEvent => RuntimeEventKind::Created,
        pb::ContainerEventType::ContainerStartedEvent => RuntimeEventKind::Started,
        pb::ContainerEventType::ContainerStoppedEvent => RuntimeEventKind::Stopped,
        pb::ContainerEventType::ContainerDeletedEvent => RuntimeEventKind::Deleted,
    };
    let uid = event
        .pod_sandbox_status
        .and_then(|status| status.metadata)
        .map(|metadata| metadata.uid)
        .filter(|uid| !uid.is_empty());
    RuntimeEvent {
        kind,
        id: event.container_id,
        uid: uid.map(PodUid::from),
    }
}
