//! Requests that containers still have while a resize makes them smaller.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_types::corev1::{PodStatus, ResourceRequirements};
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, lookup};

type Amounts = BTreeMap<String, ApiQuantity>;

/// Returns the pod with the larger of the requests in its spec and in its status (upstream
/// `UseStatusResources`).
pub(super) fn with_actual_requests(pod: &Pod) -> Cow<'_, Pod> {
    let Some(status) = &pod.status else {
        return Cow::Borrowed(pod);
    };
    let spec = PodExt::spec(pod);
    // the status has the overhead, the spec does not
    let pod_level = status
        .resources
        .as_ref()
        .filter(|_| spec.overhead.is_none());
    let pod_level = pod_level.and_then(|resources| resources.requests.as_ref());
    let mut containers = pod.containers().iter().chain(pod.init_containers());
    let is_smaller = exceeds(spec.resources.as_ref(), pod_level)
        || containers.any(|c| exceeds(c.resources.as_ref(), of_container(status, &c.name)));
    if !is_smaller {
        return Cow::Borrowed(pod);
    }
    let mut raised = pod.clone();
    let spec = raised.spec.get_or_insert_default();
    raise(spec.resources.as_mut(), pod_level);
    let inits = spec.init_containers.iter_mut().flatten();
    for container in spec.containers.iter_mut().chain(inits) {
        let actual = of_container(status, &container.name);
        raise(container.resources.as_mut(), actual);
    }
    Cow::Owned(raised)
}

fn of_container<'a>(status: &'a PodStatus, name: &str) -> Option<&'a Amounts> {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    let mut all = lists.into_iter().flatten().flatten();
    let container = all.find(|container| container.name == name)?;
    container.resources.as_ref()?.requests.as_ref()
}

fn exceeds(spec: Option<&ResourceRequirements>, actual: Option<&Amounts>) -> bool {
    let requests = spec.and_then(|spec| spec.requests.as_ref());
    let (Some(requests), Some(actual)) = (requests, actual) else {
        return false;
    };
    larger(requests, actual).next().is_some()
}

fn raise(spec: Option<&mut ResourceRequirements>, actual: Option<&Amounts>) {
    let requests = spec.and_then(|spec| spec.requests.as_mut());
    let (Some(requests), Some(actual)) = (requests, actual) else {
        return;
    };
    let larger: Vec<_> = larger(requests, actual).collect();
    requests.extend(larger);
}

/// Returns the requests for CPU and memory that are larger in the status.
fn larger(requests: &Amounts, actual: &Amounts) -> impl Iterator<Item = (String, ApiQuantity)> {
    ["cpu", "memory"].into_iter().filter_map(|name| {
        let amount = |list| -> Option<Quantity> { lookup(Some(list), name).ok().flatten() };
        let is_larger = amount(actual)? > amount(requests)?;
        let amount = actual.get(name).filter(|_| is_larger)?;
        Some((name.to_owned(), amount.clone()))
    })
}
