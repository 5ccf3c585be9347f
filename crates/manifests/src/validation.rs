//! Validates a defaulted static pod as the API server validates its pods.
//!
//! All errors of a pod are returned together, with the field paths and messages of upstream. Names
//! and paths that could leave their directory are rejected. Not validated: fields of the scheduler
//! and the API server (affinity, topology spread, service accounts, cluster volumes) and Windows
//! options. [`static_pod`](crate::static_pod) rejects references to API objects.

mod amounts;
mod container;
mod field;
mod isolation;
mod names;
mod volume;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use windlass_types::corev1::{PodSecurityContext, PodSpec};
use windlass_types::{Pod, PodExt, metav1::ObjectMeta};

pub(crate) use field::{FieldError, FieldErrorKind};
pub use names::qualified_name;

use field::Errors;

/// Max total size of annotation keys and values.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns all errors of a pod, in the order of its fields.
pub(crate) fn validate(pod: &Pod) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata(&pod.metadata, &mut errors);
    spec(PodExt::spec(pod), &mut errors);
    errors.into_vec()
}

fn metadata(meta: &ObjectMeta, errors: &mut Errors) {
    let name = meta.name.as_deref().unwrap_or_default();
    errors.name("metadata.name", name, names::subdomain);
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    errors.name("metadata.namespace", namespace, names::label);
    // the UID is a directory name and a label value
    errors.name(
        "metadata.uid",
        meta.uid.as_deref().unwrap_or_default(),
        names::label_value,
    );
    for (key, value) in meta.labels.iter().flatten() {
        errors.name("metadata.labels", key, names::qualified_name);
        if !value.is_empty() {
            errors.name(
                &format!("metadata.labels[{key}]"),
                value,
                names::label_value,
            );
        }
    }
    let mut size = 0;
    for (key, value) in meta.annotations.iter().flatten() {
        errors.name(
            "metadata.annotations",
            &key.to_lowercase(),
            names::qualified_name,
        );
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATION_BYTES {
        let detail = format!("may not be more than {MAX_ANNOTATION_BYTES} bytes");
        errors.add("metadata.annotations", FieldErrorKind::TooLong(detail));
    }
}

fn spec(spec: &PodSpec, errors: &mut Errors) {
    let volumes = volume::all(spec, errors);
    container::all(spec, &volumes, errors);

    errors.one_of(
        "spec.restartPolicy",
        spec.restart_policy.as_deref(),
        &["Always", "OnFailure", "Never"],
    );
    dns(spec, errors);
    let grace = spec.termination_grace_period_seconds;
    if let Some(seconds) = grace.filter(|s| *s < 0) {
        let field = "spec.terminationGracePeriodSeconds";
        errors.invalid(field, seconds, "must be greater than or equal to 0");
    }
    let deadline = spec.active_deadline_seconds;
    if let Some(seconds) = deadline.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let field = "spec.activeDeadlineSeconds";
        errors.invalid(
            field,
            seconds,
            "must be between 1 and 2147483647, inclusive",
        );
    }
    for (field, value) in [
        ("spec.hostname", &spec.hostname),
        ("spec.subdomain", &spec.subdomain),
    ] {
        if let Some(value) = value.as_deref().filter(|v| !v.is_empty()) {
            errors.name(field, value, names::label);
        }
    }
    let assigned = spec.node_name.as_deref().is_some_and(|n| !n.is_empty());
    if assigned
        && spec
            .scheduling_gates
            .as_ref()
            .is_some_and(|g| !g.is_empty())
    {
        errors.forbidden(
            "spec.schedulingGates",
            "cannot be set when `nodeName` is set",
        );
    }
    if spec
        .ephemeral_containers
        .as_ref()
        .is_some_and(|c| !c.is_empty())
    {
        let detail = "cannot be set on create";
        errors.forbidden("spec.ephemeralContainers", detail);
    }
    isolation::check(spec, errors);
    if spec.host_pid == Some(true) && spec.share_process_namespace == Some(true) {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid("spec.shareProcessNamespace", true, detail);
    }
    for (index, alias) in spec.host_aliases.iter().flatten().enumerate() {
        let path = format!("spec.hostAliases[{index}]");
        ip(&format!("{path}.ip"), &alias.ip, errors);
        for (n, host) in alias.hostnames.iter().flatten().enumerate() {
            errors.name(&format!("{path}.hostnames[{n}]"), host, names::subdomain);
        }
    }
    for (index, toleration) in spec.tolerations.iter().flatten().enumerate() {
        let path = format!("spec.tolerations[{index}]");
        let operator = toleration.operator.as_deref().filter(|o| !o.is_empty());
        let supported = ["Equal", "Exists", "Lt", "Gt"];
        errors.one_of(&format!("{path}.operator"), operator, &supported);
        let effect = toleration.effect.as_deref().filter(|e| !e.is_empty());
        let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        errors.one_of(&format!("{path}.effect"), effect, &supported);
        if toleration.toleration_seconds.is_some() && effect != Some("NoExecute") {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(
                &format!("{path}.effect"),
                effect.unwrap_or_default(),
                detail,
            );
        }
    }
    if let Some(security) = &spec.security_context {
        pod_security(security, errors);
    }
}

fn dns(spec: &PodSpec, errors: &mut Errors) {
    errors.one_of(
        "spec.dnsPolicy",
        spec.dns_policy.as_deref(),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    let config = spec.dns_config.as_ref();
    let servers = config.and_then(|c| c.nameservers.as_deref());
    let servers = servers.unwrap_or_default();
    if spec.dns_policy.as_deref() == Some("None") && servers.is_empty() {
        let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"; // lang: keep
        errors.required("spec.dnsConfig.nameservers", detail);
    }
    if servers.len() > 3 {
        let detail = "must not have more than 3 nameservers";
        errors.invalid("spec.dnsConfig.nameservers", servers.len(), detail);
    }
    for (index, server) in servers.iter().enumerate() {
        ip(
            &format!("spec.dnsConfig.nameservers[{index}]"),
            server,
            errors,
        );
    }
    let searches = config.and_then(|c| c.searches.as_deref());
    let searches = searches.unwrap_or_default();
    if searches.len() > 32 {
        let detail = "must not have more than 32 search paths";
        errors.invalid("spec.dnsConfig.searches", searches.len(), detail);
    }
    for (index, search) in searches.iter().enumerate() {
        let domain = search.strip_suffix('.').unwrap_or(search);
        if !domain.is_empty() {
            let field = format!("spec.dnsConfig.searches[{index}]");
            errors.name(&field, domain, names::search_domain);
        }
    }
}

fn pod_security(security: &PodSecurityContext, errors: &mut Errors) {
    let path = "spec.securityContext";
    for (field, id) in [
        ("runAsUser", security.run_as_user),
        ("runAsGroup", security.run_as_group),
        ("fsGroup", security.fs_group),
    ] {
        container::numeric_id(&format!("{path}.{field}"), id, errors);
    }
    for (index, group) in security.supplemental_groups.iter().flatten().enumerate() {
        let field = format!("{path}.supplementalGroups[{index}]");
        container::numeric_id(&field, Some(*group), errors);
    }
    container::seccomp(path, security.seccomp_profile.as_ref(), errors);
    for (index, sysctl) in security.sysctls.iter().flatten().enumerate() {
        let field = format!("{path}.sysctls[{index}].name");
        errors.name(&field, &sysctl.name, names::sysctl);
    }
}

fn ip(field: &str, text: &str, errors: &mut Errors) {
    if text.parse::<IpAddr>().is_err() {
        errors.invalid(field, text, "must be a valid IP address");
    }
}
