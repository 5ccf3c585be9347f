//! Validates user namespaces, groups, the host name override and `fileKeyRef`.

use windlass_types::corev1::{Container, PodSpec, SecurityContext};

use super::field::Errors;
use super::names;

/// Max length of a host name in Linux.
const MAX_HOSTNAME: usize = 64;

pub(super) fn check(spec: &PodSpec, errors: &mut Errors) {
    let own_users = spec.host_users == Some(false);
    for (field, shared) in [
        ("spec.hostNetwork", spec.host_network),
        ("spec.hostPID", spec.host_pid),
        ("spec.hostIPC", spec.host_ipc),
    ] {
        if own_users && shared == Some(true) {
            errors.forbidden(field, "when `pod.Spec.HostUsers` is false");
        }
    }
    let security = spec.security_context.as_ref();
    errors.one_of(
        "spec.securityContext.supplementalGroupsPolicy",
        security.and_then(|s| s.supplemental_groups_policy.as_deref()),
        &["Merge", "Strict"],
    );
    hostname_override(spec, errors);
    let lists = [
        ("initContainers", spec.init_containers.as_deref()),
        ("containers", Some(spec.containers.as_slice())),
    ];
    for (list, containers) in lists {
        for (index, container) in containers.unwrap_or_default().iter().enumerate() {
            let path = format!("spec.{list}[{index}]");
            let security = container.security_context.as_ref();
            escalation(security, &path, errors);
            let proc_mount = security.and_then(|s| s.proc_mount.as_deref());
            if proc_mount == Some("Unmasked") && !own_users {
                let field = format!("{path}.securityContext.procMount");
                let detail = "`hostUsers` must be false to use `Unmasked`";
                errors.invalid(&field, "Unmasked", detail);
            }
            file_keys(spec, container, &path, errors);
        }
    }
}

/// Rejects `CAP_SYS_ADMIN`, which allows privilege escalation.
fn escalation(security: Option<&SecurityContext>, path: &str, errors: &mut Errors) {
    let Some(security) = security.filter(|s| s.allow_privilege_escalation == Some(false)) else {
        return;
    };
    let capabilities = security.capabilities.as_ref();
    let mut added = capabilities
        .and_then(|c| c.add.as_ref())
        .into_iter()
        .flatten();
    if added.any(|name| name == "CAP_SYS_ADMIN") {
        let field = format!("{path}.securityContext.allowPrivilegeEscalation");
        let detail =
            "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.invalid(&field, false, detail);
    }
}

fn hostname_override(spec: &PodSpec, errors: &mut Errors) {
    let Some(name) = spec.hostname_override.as_deref() else {
        return;
    };
    let field = "spec.hostnameOverride";
    errors.name(field, name, names::subdomain);
    if name.len() > MAX_HOSTNAME {
        errors.invalid(field, name, "must be no more than 64 characters");
    }
    for (other, set) in [
        ("hostNetwork", spec.host_network),
        ("setHostnameAsFQDN", spec.set_hostname_as_fqdn),
    ] {
        if set == Some(true) {
            let detail = format!("may not be set when `{other}` is true");
            errors.forbidden(field, &detail);
        }
    }
}

/// A `fileKeyRef` must refer to an emptyDir of the pod.
fn file_keys(spec: &PodSpec, container: &Container, path: &str, errors: &mut Errors) {
    for (index, variable) in container.env.iter().flatten().enumerate() {
        let source = variable.value_from.as_ref();
        let Some(selector) = source.and_then(|s| s.file_key_ref.as_ref()) else {
            continue;
        };
        let path = format!("{path}.env[{index}].valueFrom.fileKeyRef");
        if selector.key.is_empty() {
            errors.required(&format!("{path}.key"), "");
        }
        errors.name(
            &format!("{path}.path"),
            &selector.path,
            names::descending_path,
        );
        let field = format!("{path}.volumeName");
        let mut volumes = spec.volumes.iter().flatten();
        match volumes.find(|volume| volume.name == selector.volume_name) {
            None => errors.not_found(&field, &selector.volume_name),
            Some(volume) if volume.empty_dir.is_none() => {
                errors.invalid(&field, &selector.volume_name, "must be an emptyDir volume");
            }
            Some(_) => {}
        }
    }
}
