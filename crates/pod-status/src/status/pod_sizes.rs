//! Sizes of a pod: pod-level resources, the condition of a resize in progress, and its events.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use serde::Serialize;
use windlass_types::corev1::{
    Container, PodCondition, PodStatus, ResourceRequirements as Requirements,
};
use windlass_types::cri::LinuxResources;
use windlass_types::metav1::Time;
use windlass_types::{Phase, Pod, PodExt};

use windlass_pod_inputs::resources::{
    milli_cpu_of_quota, milli_cpu_of_shares, pod_limit, pod_request, with_overhead,
};
use windlass_units::quantity::{Quantity, QuantityFormat, lookup};

use super::fields::{MIN_EFFECTIVE_CPU_LIMIT, MIN_EFFECTIVE_CPU_REQUEST, settle};
use super::{StatusInput, whole_seconds};

/// The condition of a resize in progress.
pub(crate) const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";
/// Its reason after a failed attempt.
const ERROR: &str = "Error";

/// Sizes of a pod, as far as its status does not follow from the observed containers.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodSizes<'a> {
    /// The resize in progress.
    pub in_progress: Option<&'a ResizeInProgress>,
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`: reports pod-level resources.
    pub pod_level: bool,
    /// Resources in the pod's cgroup, if known.
    pub cgroup: Option<&'a LinuxResources>,
}

/// A resize in progress: the running containers do not have their allocated sizes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResizeInProgress {
    /// Generation of the pod whose sizes were allocated.
    pub generation: Option<i64>,
    /// Error of the last attempt.
    pub error: Option<String>,
}

impl ResizeInProgress {
    /// Returns the resize of a previous agent run: the reported one, or one that ended before it was
    /// reported. Then the status is of an older generation and has other sizes than those allocated.
    pub fn from_previous_run(pod: &Pod) -> Option<Self> {
        let status = pod.status.as_ref()?;
        let generation = pod.metadata.generation;
        let is_older =
            status.observed_generation.is_some() && status.observed_generation < generation;
        Self::from_status(status).or_else(|| {
            let is_unreported = is_older && has_other_sizes(pod, status);
            is_unreported.then_some(Self {
                generation,
                error: None,
            })
        })
    }

    /// Reads the condition of a status.
    pub fn from_status(status: &PodStatus) -> Option<Self> {
        let mut conditions = status.conditions.iter().flatten();
        let condition = conditions.find(|c| c.type_ == RESIZE_IN_PROGRESS)?;
        let failed = condition.reason.as_deref() == Some(ERROR);
        Some(Self {
            generation: condition.observed_generation,
            error: condition.message.clone().filter(|_| failed),
        })
    }

    pub(super) fn condition(
        &self,
        input: &StatusInput<'_>,
        before: &[PodCondition],
    ) -> PodCondition {
        let reason = self.error.as_ref().map(|_| ERROR.to_owned());
        let since = before
            .iter()
            .find(|c| c.type_ == RESIZE_IN_PROGRESS && c.reason == reason)
            .and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: RESIZE_IN_PROGRESS.to_owned(),
            status: "True".to_owned(),
            reason,
            message: self.error.clone(),
            last_transition_time: since.or_else(|| Some(Time(whole_seconds(input.now)))),
            last_probe_time: None,
            observed_generation: self.generation,
        }
    }
}

/// True if the status of the pod or of a running container has other requests or limits than its
/// spec.
fn has_other_sizes(pod: &Pod, status: &PodStatus) -> bool {
    has_other_containers(pod, status) || has_other_pod_level(pod, status)
}

fn has_other_pod_level(pod: &Pod, status: &PodStatus) -> bool {
    let (Some(_), Some(actual), Some(_)) = (
        &PodExt::spec(pod).resources,
        &status.resources,
        &status.allocated_resources,
    ) else {
        return false;
    };
    differ(&Some(requests(pod)), &status.allocated_resources)
        || differ(&Some(limits(pod)), &actual.limits)
}

fn has_other_containers(pod: &Pod, status: &PodStatus) -> bool {
    let lists = [&status.container_statuses, &status.init_container_statuses];
    lists.into_iter().flatten().flatten().any(|reported| {
        let mut specs = pod.containers().iter().chain(pod.init_containers());
        let spec = specs.find(|spec| spec.name == reported.name);
        let state = reported.state.as_ref();
        let (Some(spec), Some(actual), true) = (
            spec.and_then(|spec| spec.resources.as_ref()),
            &reported.resources,
            state.is_some_and(|state| state.running.is_some()),
        ) else {
            return false;
        };
        // a Go kubelet may report no allocated requests
        (reported.allocated_resources.is_some()
            && differ(&spec.requests, &reported.allocated_resources))
            || differ(&spec.limits, &actual.limits)
    })
}

fn differ(a: &Option<Amounts>, b: &Option<Amounts>) -> bool {
    let amount = |list: &Option<Amounts>, name| lookup(list.as_ref(), name).ok().flatten();
    ["cpu", "memory"]
        .iter()
        .any(|name| amount(a, name) != amount(b, name))
}

/// Sets the pod-level fields `resources` and `allocatedResources`.
pub(super) fn set(status: &mut PodStatus, input: &StatusInput<'_>, previous: &PodStatus) {
    if !input.sizes.pod_level {
        return;
    }
    let requests = requests(input.pod);
    // upstream looks at the status in the pod, which is never Running in a static pod's manifest
    let runs = status.phase.as_deref() == Some(Phase::Running.as_str()) && !input.pod.is_static();
    let resources = match runs {
        true => running(input, &requests, previous),
        false => Requirements {
            requests: non_empty(requests.clone()),
            limits: non_empty(limits(input.pod)),
            ..PodExt::spec(input.pod)
                .resources
                .clone()
                .unwrap_or_default()
        },
    };
    status.resources = Some(resources);
    status.allocated_resources = non_empty(requests);
}

type Amounts = BTreeMap<String, ApiQuantity>;

fn non_empty(amounts: Amounts) -> Option<Amounts> {
    (!amounts.is_empty()).then_some(amounts)
}

/// The requests of a pod with its overhead.
fn requests(pod: &Pod) -> Amounts {
    amounts(pod, |name| with_overhead(pod, name, pod_request(pod, name)))
}

/// The limits of a pod with the overhead of what is limited.
fn limits(pod: &Pod) -> Amounts {
    amounts(pod, |name| {
        let limit = pod_limit(pod, name)?;
        with_overhead(pod, name, Some(limit))
    })
}

fn amounts(pod: &Pod, amount: impl Fn(&str) -> Option<Quantity>) -> Amounts {
    let spec = PodExt::spec(pod);
    let containers = pod.init_containers().iter().chain(pod.containers());
    let own = containers.filter_map(|c| c.resources.as_ref());
    let lists = own.chain(spec.resources.as_ref());
    let lists = lists.flat_map(|r| [&r.requests, &r.limits]);
    let lists = lists.chain([&spec.overhead]).flatten();
    let names: BTreeSet<&String> = lists.flat_map(BTreeMap::keys).collect();
    let amount = |name: &String| Some((name.clone(), ApiQuantity(amount(name)?.to_string())));
    names.into_iter().filter_map(amount).collect()
}

/// The resources of a running pod: as in its cgroup, else as before.
fn running(input: &StatusInput<'_>, requests: &Amounts, previous: &PodStatus) -> Requirements {
    let mut resources = PodExt::spec(input.pod)
        .resources
        .clone()
        .unwrap_or_default();
    let resizing = input.sizes.in_progress.is_some();
    let cgroup = input.sizes.cgroup;
    // a previous agent run read the cgroup
    let reported = input.pod.status.as_ref();
    let reported = reported.and_then(|status| status.resources.as_ref());
    let reported = reported.filter(|_| cgroup.is_none());
    let before = reported.or(previous.resources.as_ref());
    let positive = |milli: i64| (milli > 0).then(|| Quantity::from_milli(milli));
    let own = resources.requests.get_or_insert_default();
    let old = before.and_then(|b| b.requests.as_ref());
    let cpu = cgroup.and_then(|c| positive(milli_cpu_of_shares(c.cpu_shares)));
    settle(own, "cpu", cpu, MIN_EFFECTIVE_CPU_REQUEST, old);
    if let Some(memory) = requests.get("memory") {
        let old = old.and_then(|old| old.get("memory")).filter(|_| resizing);
        own.insert("memory".to_owned(), old.unwrap_or(memory).clone());
    }
    let own = resources.limits.get_or_insert_default();
    let old = before.and_then(|b| b.limits.as_ref());
    let cpu = cgroup.and_then(|c| positive(milli_cpu_of_quota(c.cpu_quota, c.cpu_period)));
    settle(own, "cpu", cpu, MIN_EFFECTIVE_CPU_LIMIT, old);
    let bytes = cgroup.map(|c| c.memory_limit).filter(|bytes| *bytes > 0);
    let memory = bytes.map(|bytes| Quantity::from_units(bytes, QuantityFormat::BinarySi));
    settle(own, "memory", memory, 0, old);
    resources.requests = resources.requests.and_then(non_empty);
    resources.limits = resources.limits.and_then(non_empty);
    resources
}

/// Returns the message of an event of a resize: `Pod resize started: {…}` with the resources of the
/// pod's containers as JSON.
pub fn resize_event(title: &str, pod: &Pod, generation: Option<i64>, error: &str) -> String {
    let list = |containers: &[Container]| {
        let one = |c: &Container| ContainerText {
            name: c.name.clone(),
            resources: c.resources.clone().unwrap_or_default(),
        };
        containers.iter().map(one).collect()
    };
    let text = ResizeText {
        init_containers: list(pod.init_containers()),
        containers: list(pod.containers()),
        generation: generation.unwrap_or_default(),
        error,
    };
    match serde_json::to_string(&text) {
        Ok(json) => format!("{title}: {json}"),
        Err(_) => title.to_owned(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResizeText<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<ContainerText>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    containers: Vec<ContainerText>,
    generation: i64,
    #[serde(skip_serializing_if = "str::is_empty")]
    error: &'a str,
}

#[derive(Serialize)]
struct ContainerText {
    name: String,
    resources: Requirements,
}
