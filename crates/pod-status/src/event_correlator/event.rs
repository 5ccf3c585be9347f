//! An occurrence in the API's form, and references to what it is about.

use windlass_types::corev1::{Event, EventSource, ObjectReference};
use windlass_types::metav1::{ObjectMeta, Time};
use windlass_types::{Pod, PodExt, Timestamp};

use super::RecordedEvent;
use windlass_units::hash::fnv1a_64;

/// The component all node agents report as; tools filter by it.
const COMPONENT: &str = "kubelet";
/// Where events about objects without a namespace lie.
const DEFAULT_NAMESPACE: &str = "default";
/// Longest name of an object.
const NAME_LIMIT: usize = 253;

/// Who reports: the agent of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reporter {
    /// Name of the node.
    pub host: String,
}

impl Reporter {
    /// The first event of an occurrence, counted once.
    pub(super) fn event(&self, occurrence: &RecordedEvent) -> Event {
        let object = &occurrence.object;
        let namespace = object.namespace.as_deref().filter(|n| !n.is_empty());
        let at = whole_seconds(occurrence.at);
        Event {
            metadata: ObjectMeta {
                name: Some(name(object, occurrence.at)),
                namespace: Some(namespace.unwrap_or(DEFAULT_NAMESPACE).to_owned()),
                ..ObjectMeta::default()
            },
            involved_object: object.clone(),
            reason: Some(occurrence.reason.clone()),
            message: Some(occurrence.message.clone()),
            type_: Some(occurrence.event_type.as_str().to_owned()),
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

/// Reference to a pod or to one of its containers, in whichever list that is.
///
/// A static pod is referred to by its own UID, not by its mirror's: `kubectl describe` looks a
/// mirror pod's events up by the hash in its annotation.
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

/// Reference to a node. Its UID is its name: upstream never waits for the real one.
pub fn node_reference(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("Node".to_owned()),
        api_version: Some("v1".to_owned()),
        name: Some(name.to_owned()),
        uid: Some(name.to_owned()),
        ..ObjectReference::default()
    }
}

/// The API's times have whole seconds.
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

/// `<object>.<time in hex nanoseconds>`. A name too long for that is replaced by its hash.
fn name(object: &ObjectReference, at: Timestamp) -> String {
    let of = object.name.as_deref().unwrap_or_default();
    let nanos = at.as_nanosecond();
    let name = format!("{of}.{nanos:x}");
    if name.len() <= NAME_LIMIT && !of.is_empty() {
        return name;
    }
    format!("{:016x}.{nanos:x}", fnv1a_64(of.as_bytes()))
}
