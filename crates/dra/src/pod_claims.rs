//! Claims of a pod: their names, whether the pod may use them, and what each container gets.

use std::collections::{BTreeMap, BTreeSet};

use windlass_node_proto::podresources_v1::{CdiDevice, ClaimResource, DynamicResource};
use windlass_types::corev1::{
    Container, PodExtendedResourceClaimStatus, ResourceHealth, ResourceStatus,
};
use windlass_types::metav1::OwnerReference;
use windlass_types::resourcev1::{ResourceClaim, ResourceClaimConsumerReference};
use windlass_types::{Pod, PodExt, PodUid};

use crate::claim_info::ClaimTable;
use crate::health::HealthTable;
use crate::port::ClaimDevice;

/// API group of PodGroups.
const SCHEDULING_GROUP: &str = "scheduling.k8s.io";

/// Objects whose claims a pod may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClaimOwners {
    /// The pod itself.
    #[default]
    Pod,
    /// Also the PodGroup that its `spec.schedulingGroup` names (gate `DRAWorkloadResourceClaims`).
    PodOrPodGroup,
}

impl ClaimOwners {
    fn consumers(self, pod: &Pod) -> Consumers<'_> {
        let group = PodExt::spec(pod).scheduling_group.as_ref();
        let group = group.filter(|_| self == Self::PodOrPodGroup);
        Consumers {
            pod: pod.uid(),
            group: group.and_then(|it| it.pod_group_name.as_deref()),
        }
    }
}

/// A pod, and the name of the PodGroup whose claims it may use. A pod does not know the group's UID.
struct Consumers<'a> {
    pod: PodUid,
    group: Option<&'a str>,
}

impl Consumers<'_> {
    fn include_owner(&self, owner: &OwnerReference) -> bool {
        let (api_group, _) = owner.api_version.split_once('/').unwrap_or_default();
        let is_group = owner.kind == "PodGroup" && self.include_group(api_group, &owner.name);
        is_group || owner.uid == self.pod.as_str()
    }

    fn include(&self, reserved: &ResourceClaimConsumerReference) -> bool {
        let api_group = reserved.api_group.as_deref().unwrap_or_default();
        let is_group =
            reserved.resource == "podgroups" && self.include_group(api_group, &reserved.name);
        is_group || reserved.uid == self.pod.as_str()
    }

    fn include_group(&self, api_group: &str, name: &str) -> bool {
        api_group == SCHEDULING_GROUP && self.group == Some(name)
    }
}

/// A claim that a pod refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodClaim {
    /// Name in `spec.resourceClaims`; `None` for the claim of extended resources.
    pub(crate) reference: Option<String>,
    /// Name of the ResourceClaim.
    pub(crate) name: String,
    /// The pod must own it: it was generated from a template.
    pub(crate) owned: bool,
}

/// Returns the claims of a pod, without those that need no ResourceClaim; `with_extended` adds the
/// claim of its extended resources.
///
/// # Errors
/// A claim has not been generated yet, or its reference is not supported.
pub(crate) fn pod_claims(pod: &Pod, with_extended: bool) -> Result<Vec<PodClaim>, String> {
    let status = pod.status.as_ref();
    let generated = status.and_then(|it| it.resource_claim_statuses.as_ref());
    let full_name = || format!("pod \"{}/{}\"", pod.namespace(), pod.name());
    let mut claims = Vec::new();
    for claim in PodExt::spec(pod).resource_claims.iter().flatten() {
        let (name, owned) = match (
            &claim.resource_claim_name,
            &claim.resource_claim_template_name,
        ) {
            (Some(name), _) => (Some(name.clone()), false),
            (None, Some(_)) => {
                let mut statuses = generated.into_iter().flatten();
                let Some(status) = statuses.find(|it| it.name == claim.name) else {
                    return Err(format!("{}: ResourceClaim not created yet", full_name()));
                };
                (status.resource_claim_name.clone(), true)
            }
            (None, None) => {
                return Err(format!(
                    "{}, spec.resourceClaim \"{}\": none of the supported fields are set",
                    full_name(),
                    claim.name
                ));
            }
        };
        claims.extend(name.map(|name| PodClaim {
            reference: Some(claim.name.clone()),
            name,
            owned,
        }));
    }
    let extended = extended(pod).filter(|_| with_extended);
    claims.extend(extended.map(|status| PodClaim {
        reference: None,
        name: status.resource_claim_name.clone(),
        owned: false,
    }));
    Ok(claims)
}

fn extended(pod: &Pod) -> Option<&PodExtendedResourceClaimStatus> {
    let status = pod.status.as_ref()?;
    status.extended_resource_claim_status.as_ref()
}

/// Checks that a pod may use a claim.
///
/// # Errors
/// It may not, in upstream's text.
pub(crate) fn check_claim(
    pod: &Pod,
    owners: ClaimOwners,
    of: &PodClaim,
    claim: &ResourceClaim,
) -> Result<(), String> {
    let consumers = owners.consumers(pod);
    let all = claim.metadata.owner_references.iter().flatten();
    let mut controllers = all.filter(|it| it.controller == Some(true));
    if of.owned && !controllers.any(|it| consumers.include_owner(it)) {
        let (namespace, name) = (pod.namespace(), pod.name());
        let who = match consumers.group {
            Some(group) => format!("neither Pod nor PodGroup {group} is the owner"),
            None => "Pod is not owner".to_owned(),
        };
        return Err(format!(
            "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{name} ({who})",
            of.name
        ));
    }
    let reserved = claim.status.iter();
    let mut reserved = reserved.flat_map(|it| it.reserved_for.iter().flatten());
    if reserved.any(|it| consumers.include(it)) {
        return Ok(());
    }
    let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    Err(format!(
        "pod {} ({}) is not allowed to use ResourceClaim {} ({claim_uid})",
        pod.name(),
        consumers.pod,
        of.name
    ))
}

/// Requests of a container, by name of the ResourceClaim; an empty request is the whole claim.
fn requests<'a>(
    pod: &'a Pod,
    claims: &'a [PodClaim],
    container: &'a Container,
) -> BTreeMap<&'a str, BTreeSet<&'a str>> {
    let mut requests = BTreeMap::<&str, BTreeSet<&str>>::new();
    let resources = container.resources.as_ref();
    let used = resources.and_then(|it| it.claims.as_ref());
    for used in used.into_iter().flatten() {
        for claim in claims {
            if claim.reference.as_ref() == Some(&used.name) {
                let request = used.request.as_deref().unwrap_or_default();
                requests.entry(&claim.name).or_default().insert(request);
            }
        }
    }
    let has_extended = claims.iter().any(|it| it.reference.is_none());
    if let Some(extended) = extended(pod).filter(|_| has_extended) {
        let wanted = resources.and_then(|it| it.requests.as_ref());
        let asks = |resource: &str| {
            let amount = wanted.and_then(|it| it.get(resource));
            amount.is_some_and(|it| it.0 != "0")
        };
        for mapping in &extended.request_mappings {
            if mapping.container_name == container.name && asks(&mapping.resource_name) {
                let of_claim = requests.entry(&extended.resource_claim_name).or_default();
                of_claim.insert(&mapping.request_name);
            }
        }
    }
    requests
}

/// Returns the CDI devices of a container, each once.
///
/// # Errors
/// A claim is not prepared.
pub(crate) fn cdi_devices(
    table: &ClaimTable,
    pod: &Pod,
    claims: &[PodClaim],
    container: &Container,
) -> Result<Vec<String>, String> {
    let mut devices = Vec::new();
    for (name, requests) in requests(pod, claims, container) {
        let namespace = pod.namespace();
        let Some(claim) = table.get(namespace, name) else {
            return Err(format!(
                "internal error: unable to get claim info for ResourceClaim {name} in namespace \
                 {namespace}"
            ));
        };
        let found = requests
            .into_iter()
            .flat_map(|request| claim.devices(request));
        for id in found.flat_map(|(_, device)| &device.cdi_devices) {
            if !devices.contains(id) {
                devices.push(id.clone());
            }
        }
    }
    Ok(devices)
}

/// Returns the claims of a container, for PodResources; without those that are not prepared.
pub(crate) fn container_claims(
    table: &ClaimTable,
    pod: &Pod,
    claims: &[PodClaim],
    container: &Container,
) -> Vec<DynamicResource> {
    let cdi_device = |name: &String| CdiDevice { name: name.clone() };
    let resource = |(driver, device): (&str, &ClaimDevice)| ClaimResource {
        cdi_devices: device.cdi_devices.iter().map(cdi_device).collect(),
        driver_name: driver.to_owned(),
        pool_name: device.pool.clone(),
        device_name: device.device.clone(),
        share_id: device.share_id.clone(),
    };
    let names = requests(pod, claims, container).into_keys();
    let claims = names.filter_map(|name| table.get(pod.namespace(), name));
    let of_container = claims.map(|claim| DynamicResource {
        claim_name: claim.name.clone(),
        claim_namespace: claim.namespace.clone(),
        claim_resources: claim.devices("").map(resource).collect(),
    });
    of_container.collect()
}

/// Returns the health of the devices of an app container, for `allocatedResourcesStatus`.
pub(crate) fn resource_statuses(
    (table, health): (&ClaimTable, &HealthTable),
    pod: &Pod,
    claims: &[PodClaim],
    container: &Container,
) -> Vec<ResourceStatus> {
    let resources = container.resources.as_ref();
    let used = resources.and_then(|it| it.claims.as_ref());
    let mut statuses = Vec::new();
    for used in used.into_iter().flatten() {
        let request = used.request.as_deref().unwrap_or_default();
        let claim = claims
            .iter()
            .find(|it| it.reference.as_ref() == Some(&used.name));
        let Some(claim) = claim.and_then(|it| table.get(pod.namespace(), &it.name)) else {
            continue;
        };
        let mut list = Vec::new();
        for (driver, device) in claim.devices(request) {
            let id = match device.cdi_devices.first() {
                Some(id) => id.clone(),
                None => format!("{driver}/{}/{}", device.pool, device.device),
            };
            if list.iter().all(|it: &ResourceHealth| it.resource_id != id) {
                list.push(health.resource_health(driver, device, id));
            }
        }
        let name = match request {
            "" => format!("claim:{}", used.name),
            request => format!("claim:{}/{request}", used.name),
        };
        if !list.is_empty() {
            statuses.push(ResourceStatus {
                name,
                resources: Some(list),
            });
        }
    }
    statuses
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use windlass_types::corev1::PodSchedulingGroup;

    use super::*;
    use crate::claim_info::ClaimInfo;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "p", "uid": "u" },
            "spec": {
                "resourceClaims": [
                    { "name": "gpu", "resourceClaimName": "gpus" },
                    { "name": "nic", "resourceClaimTemplateName": "t" },
                    { "name": "unneeded", "resourceClaimTemplateName": "t" },
                ],
                "containers": [
                    { "name": "all", "resources": { "claims": [{ "name": "gpu" }] } },
                    { "name": "one", "resources": { "claims": [
                        { "name": "gpu", "request": "big" }, { "name": "nic" },
                    ] } },
                    { "name": "none" },
                    { "name": "extended", "resources": {
                        "requests": { "example.com/gpu": "1", "example.com/zero": "0" },
                    } },
                    { "name": "unneeded", "resources": { "claims": [{ "name": "unneeded" }] } },
                ],
            },
            "status": {
                "resourceClaimStatuses": [
                    { "name": "nic", "resourceClaimName": "p-nic" }, { "name": "unneeded" },
                ],
                "extendedResourceClaimStatus": {
                    "resourceClaimName": "p-extended",
                    "requestMappings": [
                        { "containerName": "extended", "resourceName": "example.com/gpu",
                          "requestName": "r0" },
                        { "containerName": "extended", "resourceName": "example.com/zero",
                          "requestName": "r1" },
                    ],
                },
            },
        }))
        .expect("pod")
    }

    fn table() -> ClaimTable {
        let device = |name: &str, requests: &[&str]| ClaimDevice {
            pool: "pool".to_owned(),
            device: name.to_owned(),
            requests: requests.iter().map(|it| (*it).to_owned()).collect(),
            cdi_devices: vec![format!("d/c={name}")],
            ..ClaimDevice::default()
        };
        let claim = |name: &str, devices: Vec<ClaimDevice>| ClaimInfo {
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            drivers: BTreeMap::from([("d".to_owned(), devices)]),
            ..ClaimInfo::default()
        };
        let mut twin = device("gpu1", &["small"]);
        twin.cdi_devices.push("d/c=common".to_owned());
        let mut shared = device("gpu0", &["big/first"]);
        shared.cdi_devices.push("d/c=common".to_owned());
        shared.share_id = Some("share".to_owned());
        ClaimTable::from_iter([
            claim("gpus", vec![shared, twin]),
            claim("p-nic", vec![device("nic0", &[])]),
            claim(
                "p-extended",
                vec![device("x0", &["r0"]), device("x1", &["r1"])],
            ),
        ])
    }

    #[test]
    fn devices_of_containers_follow_their_requests() {
        let (pod, table) = (pod(), table());
        let claims = pod_claims(&pod, true).expect("generated");
        let check = |name: &str, expected: &str| {
            let mut containers = pod.containers().iter();
            let container = containers.find(|it| it.name == name).expect("container");
            let devices = cdi_devices(&table, &pod, &claims, container).expect("prepared");
            assert_eq!(devices.join(" "), expected, "{name}");
        };
        check("all", "d/c=gpu0 d/c=common d/c=gpu1");
        // a subrequest was allocated for `big`
        check("one", "d/c=gpu0 d/c=common d/c=nic0");
        check("none", "");
        check("extended", "d/c=x0");
        check("unneeded", "");
        let error = cdi_devices(&ClaimTable::default(), &pod, &claims, &pod.containers()[0]);
        let expected = "internal error: unable to get claim info for ResourceClaim gpus in \
                        namespace ns";
        assert_eq!(error, Err(expected.to_owned()));
        let listed = container_claims(&table, &pod, &claims, &pod.containers()[1]);
        let names: Vec<_> = listed.iter().map(|it| it.claim_name.as_str()).collect();
        assert_eq!(names, ["gpus", "p-nic"]);
        let shared = &listed[0].claim_resources[0];
        assert_eq!(shared.share_id.as_deref(), Some("share"));
    }

    #[test]
    fn claims_of_a_pod_are_checked() {
        let pod = pod();
        let check = |owned: bool, claim: serde_json::Value, expected: Result<(), &str>| {
            let claim = serde_json::from_value(claim).expect("claim");
            let of = PodClaim {
                reference: None,
                name: "c".to_owned(),
                owned,
            };
            let checked = check_claim(&pod, ClaimOwners::Pod, &of, &claim);
            assert_eq!(checked, expected.map_err(str::to_owned));
        };
        let reserved = json!([{ "name": "p", "resource": "pods", "uid": "u" }]);
        let status = json!({ "reservedFor": reserved });
        let named = json!({ "metadata": { "uid": "c-uid" }, "spec": {}, "status": status });
        check(false, named.clone(), Ok(()));
        let not_owner = "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)";
        check(true, named, Err(not_owner));
        let owner = json!([{
            "apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true,
        }]);
        let owned = json!({ "uid": "c-uid", "ownerReferences": owner });
        check(
            true,
            json!({ "metadata": owned, "spec": {}, "status": status }),
            Ok(()),
        );
        let not_reserved = "pod p (u) is not allowed to use ResourceClaim c (c-uid)";
        check(
            false,
            json!({ "metadata": { "uid": "c-uid" }, "spec": {} }),
            Err(not_reserved),
        );
    }

    #[test]
    fn claims_of_the_pod_group_are_used_with_their_gate_only() {
        let mut pod = pod();
        let spec = pod.spec.as_mut().expect("spec");
        spec.scheduling_group = Some(PodSchedulingGroup {
            pod_group_name: Some("g".to_owned()),
        });
        let of = PodClaim {
            reference: None,
            name: "c".to_owned(),
            owned: true,
        };
        let check = |owner: [&str; 3], reserved: [&str; 3], expected: [Result<(), &str>; 2]| {
            let claim = serde_json::from_value(json!({
                "metadata": { "uid": "c-uid", "ownerReferences": [{
                    "apiVersion": owner[0], "kind": owner[1], "name": owner[2], "uid": "g-uid",
                    "controller": true,
                }]},
                "spec": {},
                "status": { "reservedFor": [{
                    "apiGroup": reserved[0], "resource": reserved[1], "name": reserved[2],
                    "uid": "g-uid",
                }]},
            }));
            let claim = claim.expect("claim");
            let owners = [ClaimOwners::Pod, ClaimOwners::PodOrPodGroup];
            let checked = owners.map(|owners| check_claim(&pod, owners, &of, &claim));
            assert_eq!(checked, expected.map(|it| it.map_err(str::to_owned)));
        };
        let owner = ["scheduling.k8s.io/v1alpha2", "PodGroup", "g"];
        let reserved = ["scheduling.k8s.io", "podgroups", "g"];
        let gate = "ResourceClaim ns/c was not created for Pod ns/p (Pod is not owner)";
        let other = "ResourceClaim ns/c was not created for Pod ns/p (neither Pod nor PodGroup g \
                     is the owner)";
        let not_reserved = "pod p (u) is not allowed to use ResourceClaim c (c-uid)";
        check(owner, reserved, [Err(gate), Ok(())]);
        for foreign in [
            ["scheduling.k8s.io/v1alpha2", "PodGroup", "h"],
            ["scheduling.k8s.io/v1alpha2", "Workload", "g"],
            ["other.io/v1", "PodGroup", "g"],
        ] {
            check(foreign, reserved, [Err(gate), Err(other)]);
        }
        for foreign in [
            ["scheduling.k8s.io", "podgroups", "h"],
            ["scheduling.k8s.io", "pods", "g"],
            ["", "podgroups", "g"],
        ] {
            check(owner, foreign, [Err(gate), Err(not_reserved)]);
        }
    }
}
