//! Container status fields besides the state: resources, user, stop signal, mounts.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_types::corev1::{
    Container, ContainerStatus, ContainerUser, LinuxContainerUser, ResourceRequirements,
    VolumeMount, VolumeMountStatus,
};
use windlass_types::cri::LinuxResources;
use windlass_types::{ContainerState, ObservedContainer};

use windlass_pod_inputs::resources::{milli_cpu_of_quota, milli_cpu_of_shares};
use windlass_units::quantity::{Quantity, QuantityFormat, lookup};

/// CPU requests up to this have the same effect (2 shares), in millicores.
pub(super) const MIN_EFFECTIVE_CPU_REQUEST: i64 = 2;
/// CPU limits up to this have the same effect (a quota of 1 ms in 100 ms), in millicores.
pub(super) const MIN_EFFECTIVE_CPU_LIMIT: i64 = 10;

/// Resources that the runtime reports; never the memory request, nothing from older runtimes.
#[derive(Clone, Copy, Debug, Default)]
struct RuntimeResources {
    cpu_request: Option<Quantity>,
    cpu_limit: Option<Quantity>,
    memory_limit: Option<Quantity>,
}

impl RuntimeResources {
    fn new(reported: Option<&LinuxResources>) -> Self {
        let Some(reported) = reported else {
            return Self::default();
        };
        let positive = |milli: i64| (milli > 0).then(|| Quantity::from_milli(milli));
        let bytes = (reported.memory_limit > 0).then_some(reported.memory_limit);
        Self {
            cpu_request: positive(milli_cpu_of_shares(reported.cpu_shares)),
            cpu_limit: positive(milli_cpu_of_quota(reported.cpu_quota, reported.cpu_period)),
            memory_limit: bytes.map(|b| Quantity::from_units(b, QuantityFormat::BinarySi)),
        }
    }
}

/// Returns `resources` of a container in the runtime: reported by the runtime while it runs, else
/// from the spec. During a resize, what is not reported is from `before`, the previous status of the
/// instance; that is always the memory request.
pub(super) fn resources(
    spec: &Container,
    instance: &ObservedContainer,
    before: Option<&ContainerStatus>,
    resizing: bool,
) -> ResourceRequirements {
    let mut resources = spec.resources.clone().unwrap_or_default();
    if instance.state != ContainerState::Running {
        return resources;
    }
    let now = RuntimeResources::new(instance.resources.as_ref());
    let running = before.filter(|b| b.state.as_ref().is_some_and(|s| s.running.is_some()));
    let running = running.filter(|_| resizing);
    let before = running.and_then(|b| b.resources.as_ref());
    if let Some(limits) = &mut resources.limits {
        let old = before.and_then(|b| b.limits.as_ref());
        settle(limits, "cpu", now.cpu_limit, MIN_EFFECTIVE_CPU_LIMIT, old);
        settle(limits, "memory", now.memory_limit, 0, old);
    }
    if let Some(requests) = &mut resources.requests {
        let old = before.and_then(|b| b.requests.as_ref());
        settle(
            requests,
            "cpu",
            now.cpu_request,
            MIN_EFFECTIVE_CPU_REQUEST,
            old,
        );
        settle(requests, "memory", None, 0, old);
    }
    resources
}

/// Replaces a desired quantity by the reported one. Amounts up to `least` thousandths are equal.
pub(super) fn settle(
    list: &mut BTreeMap<String, ApiQuantity>,
    name: &str,
    reported: Option<Quantity>,
    least: i64,
    before: Option<&BTreeMap<String, ApiQuantity>>,
) {
    let Some(reported) = reported else {
        if let Some(before) = before.and_then(|b| b.get(name)) {
            list.insert(name.to_owned(), before.clone());
        }
        return;
    };
    let desired = lookup(Some(list), name).ok().flatten();
    let tiny = |amount: Quantity| amount.milli_value() <= least;
    // an equal amount keeps its spelling in the spec
    if desired == Some(reported) || tiny(reported) && desired.is_none_or(tiny) {
        return;
    }
    list.insert(name.to_owned(), ApiQuantity(reported.to_string()));
}

/// Returns `allocatedResources`: the allocated requests.
pub(super) fn allocated(spec: &Container) -> Option<BTreeMap<String, ApiQuantity>> {
    spec.resources.as_ref()?.requests.clone()
}

/// Returns `user`, if the runtime reports it.
pub(super) fn user(instance: &ObservedContainer) -> Option<ContainerUser> {
    let user = instance.user.as_ref()?;
    Some(ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: super::non_empty(user.supplemental_groups.clone()),
        }),
    })
}

/// Returns `stopSignal`, if the runtime reports it.
pub(super) fn stop_signal(instance: &ObservedContainer) -> Option<String> {
    Some(instance.stop_signal.clone()).filter(|signal| !signal.is_empty())
}

/// Returns `volumeMounts` in spec order. Recursive read-only mounts are reported by the runtime for
/// the `latest` instance.
pub(super) fn volume_mounts(
    spec: &Container,
    latest: Option<&ObservedContainer>,
) -> Option<Vec<VolumeMountStatus>> {
    let recursive = |m: &VolumeMount| {
        let paths = latest.map_or(&[][..], |latest| &latest.recursive_read_only);
        let path = m.mount_path.trim_start_matches('/');
        match paths.iter().any(|p| p.trim_start_matches('/') == path) {
            true => "Enabled",
            false => "Disabled",
        }
    };
    let one = |m: &VolumeMount| VolumeMountStatus {
        name: m.name.clone(),
        mount_path: m.mount_path.clone(),
        read_only: m.read_only.filter(|r| *r),
        recursive_read_only: m.read_only.filter(|r| *r).map(|_| recursive(m).to_owned()),
        volume_status: None,
    };
    super::non_empty(spec.volume_mounts.iter().flatten().map(one).collect())
}
