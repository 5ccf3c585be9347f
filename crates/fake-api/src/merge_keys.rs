//! Merge rules of lists in a strategic merge patch: the tags of the Go types that a node uses.

/// The rule of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListRule {
    /// The list is replaced.
    Atomic,
    /// Elements with the same value under this key are merged.
    ByKey(&'static str),
    /// A set of plain values: the patch adds to it.
    Set,
}

use ListRule::{ByKey, Set};

/// Lists of all types.
const METADATA: &[(&str, ListRule)] = &[
    ("metadata.finalizers", Set),
    ("metadata.ownerReferences", ByKey("uid")),
];

const POD: &[(&str, ListRule)] = &[
    ("spec.volumes", ByKey("name")),
    ("spec.imagePullSecrets", ByKey("name")),
    ("spec.hostAliases", ByKey("ip")),
    ("spec.schedulingGates", ByKey("name")),
    ("spec.topologySpreadConstraints", ByKey("topologyKey")),
    ("spec.resourceClaims", ByKey("name")),
    ("spec.*ontainers", ByKey("name")),
    ("spec.*ontainers.ports", ByKey("containerPort")),
    ("spec.*ontainers.env", ByKey("name")),
    ("spec.*ontainers.volumeMounts", ByKey("mountPath")),
    ("spec.*ontainers.volumeDevices", ByKey("devicePath")),
    ("status.conditions", ByKey("type")),
    ("status.podIPs", ByKey("ip")),
    ("status.hostIPs", ByKey("ip")),
    ("status.resourceClaimStatuses", ByKey("name")),
];

const NODE: &[(&str, ListRule)] = &[
    ("spec.podCIDRs", Set),
    ("status.conditions", ByKey("type")),
    ("status.addresses", ByKey("type")),
];

const SERVICE_ACCOUNT: &[(&str, ListRule)] = &[
    ("secrets", ByKey("name")),
    ("imagePullSecrets", ByKey("name")),
];

const WITH_CONDITIONS: &[(&str, ListRule)] = &[("status.conditions", ByKey("type"))];

const SERVICE: &[(&str, ListRule)] = &[
    ("spec.ports", ByKey("port")),
    ("status.conditions", ByKey("type")),
];

/// The rule for the list at `path` (keys joined by dots, elements of lists left out).
pub(crate) fn list_rule(resource: &str, path: &str) -> ListRule {
    let own = match resource {
        "pods" => POD,
        "nodes" => NODE,
        "serviceaccounts" => SERVICE_ACCOUNT,
        "services" => SERVICE,
        "namespaces" | "persistentvolumeclaims" => WITH_CONDITIONS,
        _ => &[],
    };
    let mut rules = METADATA.iter().chain(own);
    rules
        .find(|(pattern, _)| matches(pattern, path))
        .map_or(ListRule::Atomic, |(_, rule)| *rule)
}

/// `*` is a prefix of one key: the three lists of containers share their rules.
fn matches(pattern: &str, path: &str) -> bool {
    let mut path = path.split('.');
    let fits = pattern.split('.').all(|want| {
        path.next().is_some_and(|key| match want.strip_prefix('*') {
            Some(end) => key.ends_with(end),
            None => key == want,
        })
    });
    fits && path.next().is_none()
}
