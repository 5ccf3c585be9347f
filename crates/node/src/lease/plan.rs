//! Computes the desired lease.

use windlass_types::Timestamp;
use windlass_types::coordinationv1::{Lease, LeaseSpec};
use windlass_types::corev1::Node;
use windlass_types::metav1::{MicroTime, ObjectMeta, OwnerReference};

use super::NAMESPACE;

pub(crate) fn new_lease(owner: &Node, duration_seconds: u32, now: Timestamp) -> Lease {
    let name = owner.metadata.name.clone().unwrap_or_default();
    let empty = Lease {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        spec: None,
    };
    renewed_lease(&empty, &name, Some(owner), duration_seconds, now)
}

/// Returns the renewed lease. It gets an owner if it has none or a stale one; other fields are
/// kept.
pub(crate) fn renewed_lease(
    lease: &Lease,
    node_name: &str,
    owner: Option<&Node>,
    duration_seconds: u32,
    now: Timestamp,
) -> Lease {
    let mut lease = lease.clone();
    if let Some(reference) = owner.and_then(owner_reference) {
        let owners = lease.metadata.owner_references.get_or_insert_default();
        owners.retain(|o| o.kind != reference.kind || o.uid == reference.uid);
        if owners.is_empty() {
            owners.push(reference);
        }
    }
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(node_name.to_owned()),
        lease_duration_seconds: i32::try_from(duration_seconds).ok(),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.unwrap_or_default()
    });
    lease
}

fn owner_reference(node: &Node) -> Option<OwnerReference> {
    Some(OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Node".to_owned(),
        name: node.metadata.name.clone()?,
        uid: node.metadata.uid.clone()?,
        ..OwnerReference::default()
    })
}
