//! May a pod run on this node at all (upstream's chain of `PodAdmitHandler`s)?
//!
//! A pod that is refused becomes Failed and nothing of it is ever started. The steps run in
//! upstream's order and the first refusal counts: eviction pressure, sysctls, the scheduler's
//! predicates, AppArmor, features, node shutdown. What cannot be told from the pod and the node
//! object comes in as [`AdmissionPolicy`]; what other pods use as a [`NodeLoad`], which is kept up
//! to date instead of being summed for every pod.
//!
//! Not here: preemption for critical pods. A critical pod that lacks resources is refused, and
//! [`Rejection::would_preempt`] says that upstream would have stopped other pods for it.

mod affinity;
mod app_armor;
mod fit;
mod load;
mod sysctl;
mod taints;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::corev1::{Node, PodSpec};
use windlass_types::{Pod, PodExt, Reason};

use windlass_pod_inputs::resources::{QosClass, is_critical, qos_class};
use windlass_types::{Phase, PhaseOverride};

pub use affinity::matches_node_selector;
pub use fit::Insufficient;
pub use load::{HostPort, NodeLoad};
pub use sysctl::{SysctlAllowList, SysctlPatternError};

/// The operating system every pod here runs on.
const OS: &str = "linux";
/// Label of a node or pod that names its operating system.
const OS_LABEL: &str = "kubernetes.io/os";
/// Why a pod with `supplementalGroupsPolicy: Strict` is refused.
pub const STRICT_NOT_SUPPORTED: &str =
    "SupplementalGroupsPolicy=Strict is not supported in this node";
/// What upstream writes before the message in the status of a refused pod.
pub const REJECTION_PREFIX: &str = "Pod was rejected: ";

/// What the decision is made from.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionInput<'a> {
    /// The pod that wants in.
    pub pod: &'a Pod,
    /// The node as the API server has it; without one, what the agent would register.
    pub node: &'a Node,
    /// What the admitted pods that are not finished yet use. If the pod itself is among them, its
    /// own share is not counted against it.
    pub load: &'a NodeLoad,
    /// What the machine and the configuration allow.
    pub policy: &'a AdmissionPolicy,
    /// The runtime can keep to `supplementalGroupsPolicy: Strict`, whatever the node object says
    /// yet; `None` before it was asked. It is asked again when the pod's sandbox is made.
    pub strict_groups: Option<bool>,
    /// Resources the node is short of.
    pub pressure: Pressure,
    /// The machine is about to shut down.
    pub shutting_down: bool,
}

/// What the machine and the configuration allow, fixed while the agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// Sysctls a pod may set.
    pub sysctls: SysctlAllowList,
    /// The kernel enforces AppArmor profiles.
    pub app_armor: bool,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// Features this node declares in its status; `None` with the gate `NodeDeclaredFeatures` off.
    pub declared_features: Option<BTreeSet<String>>,
}

/// Which resources the node is short of. Nothing sets these before there is eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Condition `MemoryPressure`.
    pub memory: bool,
    /// Condition `DiskPressure`.
    pub disk: bool,
    /// Condition `PIDPressure`.
    pub pid: bool,
}

/// Why a pod is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`, for example `OutOfcpu`.
    pub reason: String,
    /// The whole story, without the prefix that the pod's status gets.
    pub message: String,
    /// The pod is critical and only resources are missing: upstream would have stopped other pods.
    pub would_preempt: bool,
}

impl Rejection {
    /// For this reason, without anything being preempted.
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
            would_preempt: false,
        }
    }

    /// The reason for the event, whose reasons are a closed list: a resource that is not one of
    /// the node's own is in the message only.
    pub fn event_reason(&self) -> Reason {
        Reason::from_rejection(&self.reason)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)?;
        if self.would_preempt {
            f.write_str(" (critical, but nothing is preempted)")?;
        }
        Ok(())
    }
}

/// A refused pod is Failed, whichever step refused it.
impl From<Rejection> for PhaseOverride {
    fn from(rejection: Rejection) -> Self {
        Self {
            phase: Phase::Failed,
            reason: rejection.reason,
            message: format!("{REJECTION_PREFIX}{}", rejection.message),
            disruption: None,
        }
    }
}

/// Decides whether a pod may run here.
///
/// # Errors
/// The first step that refuses it.
pub fn admit(input: AdmissionInput<'_>) -> Result<(), Rejection> {
    let pod = input.pod;
    eviction(pod, input.pressure)?;
    sysctls(pod, &input.policy.sysctls)?;
    predicates(input)?;
    app_armor::check(pod, input.policy.app_armor)?;
    features(pod, input.policy)?;
    if input.shutting_down {
        return Err(Rejection::new(
            "NodeShutdown",
            "Pod was rejected as the node is shutting down.",
        ));
    }
    Ok(())
}

/// A node short of something takes critical pods only. Short of memory alone it still takes what
/// requests some, and what tolerates the pressure.
fn eviction(pod: &Pod, pressure: Pressure) -> Result<(), Rejection> {
    let names = [
        (pressure.memory, "MemoryPressure"),
        (pressure.disk, "DiskPressure"),
        (pressure.pid, "PIDPressure"),
    ];
    let on: Vec<&str> = names
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, n)| *n)
        .collect();
    if on.is_empty() || is_critical(pod) {
        return Ok(());
    }
    if on == ["MemoryPressure"]
        && (qos_class(pod) != QosClass::BestEffort || taints::tolerates_memory_pressure(pod))
    {
        return Ok(());
    }
    // upstream's text has this space at its end
    let message = format!("The node had condition: [{}]. ", on.join(" "));
    Err(Rejection::new("Evicted", message))
}

fn sysctls(pod: &Pod, allowed: &SysctlAllowList) -> Result<(), Rejection> {
    let security = PodExt::spec(pod).security_context.as_ref();
    for sysctl in security
        .and_then(|s| s.sysctls.as_ref())
        .into_iter()
        .flatten()
    {
        allowed
            .check(pod, &sysctl.name)
            .map_err(|why| Rejection::new("SysctlForbidden", format!("forbidden sysctl: {why}")))?;
    }
    Ok(())
}

/// What fails among the scheduler's predicates.
enum Failure {
    Insufficient(Insufficient),
    Predicate(&'static str, &'static str),
}

impl From<Failure> for Rejection {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Insufficient(what) => {
                Self::new(&format!("OutOf{}", what.resource), what.to_string())
            }
            Failure::Predicate(name, why) => {
                Self::new(name, format!("Predicate {name} failed: {why}"))
            }
        }
    }
}

fn predicates(input: AdmissionInput<'_>) -> Result<(), Rejection> {
    let pod = input.pod;
    let spec = PodExt::spec(pod);
    operating_system(pod, spec)?;
    supplemental_groups(spec, input)?;

    let demand = load::PodRequests::from_pod(pod);
    let used = input.load.without(&pod.uid());
    let mut failures: Vec<Failure> = fit::insufficient(&demand, used, input.node)
        .into_iter()
        .map(Failure::Insufficient)
        .collect();
    if !affinity::matches(spec, input.node) {
        failures.push(Failure::Predicate(
            "NodeAffinity",
            "node(s) didn't match Pod's node affinity/selector",
        ));
    }
    let wanted = spec.node_name.as_deref().unwrap_or_default();
    if !wanted.is_empty() && Some(wanted) != input.node.metadata.name.as_deref() {
        failures.push(Failure::Predicate(
            "NodeName",
            "node(s) didn't match the requested node name",
        ));
    }
    if demand.ports.iter().any(|port| used.conflicts(port)) {
        failures.push(Failure::Predicate(
            "NodePorts",
            "node(s) didn't have free ports for the requested pod ports",
        ));
    }
    if !pod.is_static() && taints::has_untolerated_no_execute(spec, input.node) {
        failures.push(Failure::Predicate(
            "TaintToleration",
            "node(s) had taints that the pod didn't tolerate",
        ));
    }
    first_failure(pod, failures)
}

/// The first failure counts. For a critical pod missing resources come last, because upstream
/// would make room.
fn first_failure(pod: &Pod, mut failures: Vec<Failure>) -> Result<(), Rejection> {
    let critical = is_critical(pod);
    if critical {
        failures.sort_by_key(|f| matches!(f, Failure::Insufficient(_)));
    }
    let Some(first) = failures.into_iter().next() else {
        return Ok(());
    };
    let would_preempt = critical && matches!(first, Failure::Insufficient(_));
    Err(Rejection {
        would_preempt,
        ..first.into()
    })
}

/// Checks that no making of room could help with.
fn operating_system(pod: &Pod, spec: &PodSpec) -> Result<(), Rejection> {
    let label = pod.metadata.labels.as_ref().and_then(|l| l.get(OS_LABEL));
    if label.is_some_and(|os| os != OS) {
        return Err(Rejection::new(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        ));
    }
    if spec.os.as_ref().is_some_and(|os| os.name != OS) {
        return Err(Rejection::new(
            "PodOSNotSupported",
            "Failed to admit pod as the OS field doesn't match node OS",
        ));
    }
    Ok(())
}

fn supplemental_groups(spec: &PodSpec, input: AdmissionInput<'_>) -> Result<(), Rejection> {
    let security = spec.security_context.as_ref();
    let policy = security.and_then(|s| s.supplemental_groups_policy.as_deref());
    let status = input.node.status.as_ref();
    let features = status.and_then(|s| s.features.as_ref());
    let told = features.and_then(|f| f.supplemental_groups_policy) == Some(true);
    if policy == Some("Strict") && !told && !input.strict_groups.unwrap_or(true) {
        return Err(Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            STRICT_NOT_SUPPORTED,
        ));
    }
    Ok(())
}

/// Features of the pod that the node must have switched on or declared.
///
/// User namespaces and recursive read-only mounts are not among them: as upstream, a handler
/// without them fails the sandbox or the container, not the pod.
fn features(pod: &Pod, policy: &AdmissionPolicy) -> Result<(), Rejection> {
    let spec = PodExt::spec(pod);
    let pod_level = spec.resources.as_ref();
    let amounts = pod_level.map(|r| (r.requests.as_ref(), r.limits.as_ref()));
    let set = amounts.is_some_and(|(requests, limits)| {
        [requests, limits]
            .into_iter()
            .flatten()
            .any(|m| !m.is_empty())
    });
    if set && !policy.pod_level_resources {
        return Err(Rejection::new(
            "PodLevelResourcesNotSupported",
            "PodLevelResources feature gate is disabled",
        ));
    }
    let Some(declared) = &policy.declared_features else {
        return Ok(());
    };
    let missing: Vec<&str> = required_features(pod)
        .into_iter()
        .filter(|name| !declared.contains(*name))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(", ");
    Err(Rejection::new(
        "PodFeatureUnsupported",
        format!("Pod requires node features that are not available: {list}"),
    ))
}

/// Declared features a pod cannot do without, sorted.
fn required_features(pod: &Pod) -> Vec<&'static str> {
    let mut containers = pod.containers().iter().chain(pod.init_containers());
    let restarts_all = containers.any(|c| {
        let mut rules = c.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    });
    restarts_all
        .then_some("RestartAllContainersOnContainerExits")
        .into_iter()
        .collect()
}
