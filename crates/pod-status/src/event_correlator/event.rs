//! API events of recorded events, and object references.

use windlass_types::corev1::{Event, EventSource, ObjectReference};
use windlass_types::metav1::{ObjectMeta, Time};
use windlass_types::{Pod, PodExt, Timestamp};

use super::RecordedEvent;
use windlass_units::hash::fnv1a_64;

/// Reporting component of all kubelets; tools filter by it.
const COMPONENT: &str = "kubelet";
/// Namespace of events of objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";
/// Maximum bytes of an object name.
const MAX_NAME_BYTES: usize = 253;

/// Reporter of events: the agent of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// Name of the node.
    pub host: String,
}

impl Reporter {
    /// Returns the first event of a recorded event, with count 1.
    pub(super) fn event(&self, recorded: &RecordedEvent) -> Event {
        let object = &recorded.object;
        let namespace = object.namespace.as_deref().filter(|n| !n.is_empty());
        let at = whole_seconds(recorded.at);
        Event {
            metadata: ObjectMeta {
                name: Some(name(object, recorded.at)),
                namespace: Some(namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()),
                annotations: (!recorded.annotations.is_empty())
                    .then(|| recorded.annotations.clone()),
                ..ObjectMeta::default()
            },
            involved_object: object.clone(),
            reason: Some(recorded.reason.clone()),
            message: Some(recorded.message.clone()),
            type_: Some(recorded.event_type.as_str().to_owned()),
            count: Some(1),
            first_timestamp: Some(at.clone()),
            last_timestamp: Some(at),
            source: Some(EventSource {
                component: Some(COMPONENT.to_owned()),
                host: Some(self.host.clone()),
            }),
            reporting_component: Some(COMPONENT.to_owned()),
            reporting_instance: Some(self.host.clone()),
            ..Event::default()
        }
    }
}

/// Returns a reference to a pod or one of its containers.
///
/// The UID of a static pod is its own: `kubectl describe` finds the events of a mirror pod by its
/// hash annotation.
pub fn pod_reference(pod: &Pod, container: Option<&str>) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_owned()),
        api_version: Some("v1".to_owned()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        resource_version: pod.metadata.resource_version.clone(),
        field_path: container.map(|name| field_path(pod, name)),
    }
}

/// Returns a reference to a node, with its name as the UID, as upstream.
pub fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// Truncates to the whole seconds of the API.
pub(super) fn whole_seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn field_path(pod: &Pod, container: &str) -> String {
    let ephemeral = PodExt::spec(pod).ephemeral_containers.as_deref();
    let list = if pod.init_containers().iter().any(|c| c.name == container) {
        "initContainers"
    } else if ephemeral.is_some_and(|l| l.iter().any(|c| c.name == container)) {
        "ephemeralContainers"
    } else {
        "containers"
    };
    format!("spec.{list}{{{container}}}")
}

/// Returns `<object>.<time in hex nanoseconds>`; a too long object name is replaced by its hash.
fn name(object: &ObjectReference, at: Timestamp) -> String {
    let of = object.name.as_deref().unwrap_or_default();
    let nanos = at.as_nanosecond();
    let name = format!("{of}.{nanos:x}");
    if name.len() <= MAX_NAME_BYTES && !of.is_empty() {
        return name;
    }
    format!("{:016x}.{nanos:x}", fnv1a_64(of.as_bytes()))
}
