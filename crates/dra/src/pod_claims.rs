//! Claims of a pod: their names, whether the pod may use them, and what each container gets.

use std::collections::{BTreeMap, BTreeSet};

use windlass_proto::podresources_v1::{CdiDevice, ClaimResource, DynamicResource};
use windlass_types::corev1::{
    Container, PodExtendedResourceClaimStatus, ResourceHealth, ResourceStatus,
};
use windlass_types::resourcev1::ResourceClaim;
use windlass_types::{Pod, PodExt};

use crate::claim_info::ClaimTable;
use crate::health::HealthTable;
use crate::port::ClaimDevice;

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

/// Returns the claims of a pod, without those that need no ResourceClaim.
///
/// # Errors
/// A claim has not been generated yet, or its reference is not supported.
pub(crate) fn pod_claims(pod: &Pod) -> Result<Vec<PodClaim>, String> {
    let status = pod.status.as_ref();
    let generated = status.and_then(|it| it.resource_claim_statuses.as_ref());
    let full_name = || format!("pod \"{}/{}\"", pod.namespace(), pod.name());
    let mut claims = Vec::new();
    for claim in PodExt::spec(pod).resource_claims.iter().flatten() {
        let (name, owned) = match (&claim.resource_claim_name, &claim.resource_claim_template_name)
        {
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
    claims.extend(extended(pod).map(|status| PodClaim {
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

/// True if the pod has claims.
pub(crate) fn has_claims(pod: &Pod) -> bool {
    let claims = PodExt::spec(pod).resource_claims.as_ref();
    claims.is_some_and(|it| !it.is_empty()) || extended(pod).is_some()
}

/// Checks that a pod may use a claim.
///
/// # Errors
/// It may not, in upstream's text.
pub(crate) fn check_claim(pod: &Pod, of: &PodClaim, claim: &ResourceClaim) -> Result<(), String> {
    let uid = pod.uid();
    let claim_uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let owners = claim.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|it| it.controller == Some(true));
    if of.owned && !controllers.any(|it| it.uid == uid.as_str()) {
        let (namespace, name) = (pod.namespace(), pod.name());
        return Err(format!(
            "ResourceClaim {namespace}/{} was not created for Pod {namespace}/{name} (Pod is not owner)",
            of.name
        ));
    }
    let reserved = claim.status.iter();
    let mut reserved = reserved.flat_map(|it| it.reserved_for.iter().flatten());
    match reserved.any(|it| it.uid == uid.as_str()) {
        true => Ok(()),
        false => Err(format!(
            "pod {} ({uid}) is not allowed to use ResourceClaim {} ({claim_uid})",
            pod.name(),
            of.name
        )),
    }
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
    if let Some(extended) = extended(pod) {
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
        let found = requests.into_iter().flat_map(|request| claim.devices(request));
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
        let claim = claims.iter().find(|it| it.reference.as_ref() == Some(&used.name));
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
