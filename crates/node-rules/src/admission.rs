//! Pod admission (upstream `PodAdmitHandler`s).
//!
//! A rejected pod becomes Failed without a start. The checks run in the order of upstream, and the
//! first rejection counts: eviction pressure, sysctls, scheduler predicates, AppArmor, features,
//! node shutdown. Upstream's resource managers are between sysctls and predicates, see
//! [`admit_before_resources`]. [`AdmissionPolicy`] has the limits of node and configuration. [`NodeLoad`] has
//! the requests of other pods, updated incrementally.
//!
//! A critical pod that lacks only resources is rejected with the list of them
//! ([`Rejection::lacking`]); [`crate::preemption`] chooses the pods that it preempts.

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

use crate::resize::ResizePolicy;

pub use affinity::matches_node_selector;
pub use fit::Insufficient;
pub(crate) use load::PodRequests;
pub use load::{HostPort, NodeLoad};
pub use sysctl::{SysctlAllowList, SysctlPatternError};
pub use windlass_eviction::Pressure;

/// OS of the node.
const OS: &str = "linux";
/// OS label of nodes and pods.
const OS_LABEL: &str = "kubernetes.io/os";
/// Message for `supplementalGroupsPolicy: Strict` without support.
pub const STRICT_NOT_SUPPORTED: &str =
    "SupplementalGroupsPolicy=Strict is not supported in this node";
/// Prefix of the message in the status of a rejected pod, as upstream.
pub const REJECTION_PREFIX: &str = "Pod was rejected: ";

/// Input of [`admit`].
#[derive(Clone, Copy, Debug)]
pub struct AdmissionInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The Node object; in standalone mode, the object that the agent would register.
    pub node: &'a Node,
    /// Requests of admitted pods that are not terminal. The requests of the pod itself are
    /// excluded.
    pub load: &'a NodeLoad,
    /// Limits of node and configuration.
    pub policy: &'a AdmissionPolicy,
    /// Support for `supplementalGroupsPolicy: Strict` in the runtime; `None` if not known yet. It
    /// is checked again before the sandbox is created.
    pub strict_groups: Option<bool>,
    /// Pressure conditions of the node.
    pub pressure: Pressure,
    /// Graceful node shutdown is in progress.
    pub shutting_down: bool,
}

/// Limits of node and configuration; constant in an agent run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// Allowed sysctls.
    pub sysctls: SysctlAllowList,
    /// AppArmor is enabled.
    pub app_armor: bool,
    /// Feature gate `PodLevelResources`.
    pub pod_level_resources: bool,
    /// Declared features of the node; `None` without the gate `NodeDeclaredFeatures`.
    pub declared_features: Option<BTreeSet<String>>,
    /// What resizes are possible.
    pub resize: ResizePolicy,
}

/// Why a pod is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// `status.reason`, for example `OutOfcpu`.
    pub reason: String,
    /// Message, without [`REJECTION_PREFIX`].
    pub message: String,
    /// All resources that a critical pod lacks, if it fails for nothing else: it preempts other
    /// pods.
    pub lacking: Vec<Insufficient>,
}

impl Rejection {
    /// Creates a rejection without preemption.
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            message: message.into(),
            lacking: Vec::new(),
        }
    }

    /// True for a critical pod that lacks only resources.
    pub(crate) fn would_preempt(&self) -> bool {
        !self.lacking.is_empty()
    }

    /// Returns the reason of the event. Extended resources have one reason, and are in the message.
    pub fn event_reason(&self) -> Reason {
        Reason::from_rejection(&self.reason)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)?;
        if self.would_preempt() {
            f.write_str(" (critical pod)")?;
        }
        Ok(())
    }
}

/// A rejected pod is Failed.
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

/// Admits or rejects a pod.
///
/// # Errors
/// The first check that rejects it.
pub fn admit(input: AdmissionInput<'_>) -> Result<(), Rejection> {
    let pod = input.pod;
    admit_before_resources(input)?;
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

/// Runs the checks that precede the resource managers: eviction pressure and sysctls.
///
/// # Errors
/// The first check that rejects the pod.
pub fn admit_before_resources(input: AdmissionInput<'_>) -> Result<(), Rejection> {
    eviction(input.pod, input.pressure)?;
    sysctls(input.pod, &input.policy.sysctls)
}

/// A node under pressure admits only critical pods; under memory pressure alone, also pods with
/// requests and pods that tolerate the taint.
fn eviction(pod: &Pod, pressure: Pressure) -> Result<(), Rejection> {
    let on = pressure.names();
    if on.is_empty() || is_critical(pod) {
        return Ok(());
    }
    if on == ["MemoryPressure"]
        && (qos_class(pod) != QosClass::BestEffort || taints::tolerates_memory_pressure(pod))
    {
        return Ok(());
    }
    // the text of upstream ends with a space
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

/// Failure of a scheduler predicate.
enum Failure {
    Insufficient(Insufficient),
    Predicate(&'static str, &'static str),
}

impl From<&Failure> for Rejection {
    fn from(failure: &Failure) -> Self {
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

    let requests = load::PodRequests::from_pod(pod);
    let used = input.load.without(&pod.uid());
    let mut failures: Vec<Failure> = fit::insufficient(&requests, used, input.node)
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
    if requests.ports.iter().any(|port| used.conflicts(port)) {
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

/// Returns the first failure. For a critical pod, resources are last, because it preempts.
fn first_failure(pod: &Pod, mut failures: Vec<Failure>) -> Result<(), Rejection> {
    let critical = is_critical(pod);
    if critical {
        failures.sort_by_key(|f| matches!(f, Failure::Insufficient(_)));
    }
    let Some(first) = failures.first() else {
        return Ok(());
    };
    let only_resources = critical && matches!(first, Failure::Insufficient(_));
    let lacking = failures.iter().filter_map(|failure| match failure {
        Failure::Insufficient(what) if only_resources => Some(what.clone()),
        _ => None,
    });
    Err(Rejection {
        lacking: lacking.collect(),
        ..Rejection::from(first)
    })
}

/// Checks the OS, independent of preemption.
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
    let is_declared = features.and_then(|f| f.supplemental_groups_policy) == Some(true);
    if policy == Some("Strict") && !is_declared && !input.strict_groups.unwrap_or(true) {
        return Err(Rejection::new(
            "SupplementalGroupsPolicyNotSupported",
            STRICT_NOT_SUPPORTED,
        ));
    }
    Ok(())
}

/// Checks features that the node must enable or declare.
///
/// As upstream, missing user namespaces or recursive read-only mounts fail the sandbox or the
/// container, not the pod.
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

/// Returns the declared features that a pod requires, sorted.
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
