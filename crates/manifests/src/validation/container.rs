//! Validates containers.

mod hook;
mod probe;
mod security;

use std::collections::BTreeSet;

use windlass_types::corev1::{
    Container, ContainerPort, EnvVar, ObjectFieldSelector, PodSpec, VolumeMount,
};

use super::amounts::amounts;
use super::field::Errors;
use super::names;

pub(super) use security::{numeric_id, seccomp};

/// Fields of a pod that are allowed in environment variables.
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that are allowed in downward API volumes.
pub(super) const VOLUME_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.labels",
    "metadata.annotations",
];

/// State of the containers of a pod.
struct Shared<'a> {
    spec: &'a PodSpec,
    volumes: &'a BTreeSet<&'a str>,
    names: BTreeSet<&'a str>,
    /// Used host ports, with protocol and address.
    host_ports: BTreeSet<(i32, &'a str, &'a str)>,
}

/// Validates `spec.initContainers` and `spec.containers`.
pub(super) fn all(spec: &PodSpec, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let mut shared = Shared {
        spec,
        volumes,
        names: BTreeSet::new(),
        host_ports: BTreeSet::new(),
    };
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let path = format!("spec.initContainers[{index}]");
        shared.container(container, &path, errors);
        init(container, &path, errors);
    }
    if spec.containers.is_empty() {
        errors.required("spec.containers", "");
    }
    // init containers have terminated before app containers start
    shared.host_ports.clear();
    for (index, container) in spec.containers.iter().enumerate() {
        shared.container(container, &format!("spec.containers[{index}]"), errors);
    }
}

/// Only a sidecar may have probes and a lifecycle.
fn init(container: &Container, path: &str, errors: &mut Errors) {
    if container.restart_policy.as_deref() == Some("Always") {
        return;
    }
    for (field, present) in [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ] {
        if present {
            let detail = "may not be set for init containers without restartPolicy=Always";
            errors.forbidden(&format!("{path}.{field}"), detail);
        }
    }
}

impl<'a> Shared<'a> {
    fn container(&mut self, container: &'a Container, path: &str, errors: &mut Errors) {
        let at = |field: &str| format!("{path}.{field}");
        errors.name(&at("name"), &container.name, names::label);
        if !container.name.is_empty() && !self.names.insert(&container.name) {
            errors.duplicate(&at("name"), &container.name);
        }
        match container.image.as_deref().unwrap_or_default() {
            "" => errors.required(&at("image"), ""),
            image if image.trim() != image => {
                let detail = "must not have leading or trailing whitespace";
                errors.invalid(&at("image"), image, detail);
            }
            _ => {}
        }
        let pull_policy = container.image_pull_policy.as_deref();
        let supported = ["Always", "IfNotPresent", "Never"];
        errors.one_of(&at("imagePullPolicy"), pull_policy, &supported);
        let message_policy = container.termination_message_policy.as_deref();
        let supported = ["File", "FallbackToLogsOnError"];
        errors.one_of(&at("terminationMessagePolicy"), message_policy, &supported);
        let restart_policy = container.restart_policy.as_deref();
        let supported = ["Always", "OnFailure", "Never"];
        errors.one_of(&at("restartPolicy"), restart_policy, &supported);
        self.ports(container.ports.as_deref().unwrap_or_default(), path, errors);
        for (index, variable) in container.env.iter().flatten().enumerate() {
            env(variable, &format!("{path}.env[{index}]"), errors);
        }
        self.mounts(container, path, errors);
        if let Some(resources) = &container.resources {
            amounts(resources, &at("resources"), errors);
        }
        if let Some(context) = &container.security_context {
            security::check(context, &at("securityContext"), errors);
        }
        probe::all(container, path, errors);
        if let Some(lifecycle) = &container.lifecycle {
            hook::check(lifecycle, self.spec, &at("lifecycle"), errors);
        }
    }

    fn ports(&mut self, ports: &'a [ContainerPort], path: &str, errors: &mut Errors) {
        let mut seen = BTreeSet::new();
        for (index, port) in ports.iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
                let field = format!("{path}.name");
                errors.name(&field, name, names::port);
                if !seen.insert(name) {
                    errors.duplicate(&field, name);
                }
            }
            let field = format!("{path}.containerPort");
            match port.container_port {
                0 => errors.required(&field, ""),
                number => port_number(&field, number, errors),
            }
            let protocol = port.protocol.as_deref().unwrap_or("TCP");
            let field = format!("{path}.protocol");
            errors.one_of(&field, Some(protocol), &["SCTP", "TCP", "UDP"]);
            let host_port = port.host_port.unwrap_or(0);
            if host_port == 0 {
                continue;
            }
            let field = format!("{path}.hostPort");
            port_number(&field, host_port, errors);
            if self.spec.host_network == Some(true) && host_port != port.container_port {
                let field = format!("{path}.containerPort");
                let detail = "must match `hostPort` when `hostNetwork` is true";
                errors.invalid(&field, port.container_port, detail);
            }
            let address = port.host_ip.as_deref().unwrap_or_default();
            if !self.host_ports.insert((host_port, protocol, address)) {
                errors.duplicate(&field, &format!("{protocol}/{address}/{host_port}"));
            }
        }
    }

    fn mounts(&self, container: &Container, path: &str, errors: &mut Errors) {
        let mut paths = BTreeSet::new();
        for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
            recursive_read_only(mount, path, errors);
            let path = format!("{path}.volumeMounts[{index}]");
            let field = format!("{path}.name");
            if mount.name.is_empty() {
                errors.required(&field, "");
            } else if !self.volumes.contains(mount.name.as_str()) {
                errors.not_found(&field, &mount.name);
            }
            let field = format!("{path}.mountPath");
            if mount.mount_path.is_empty() {
                errors.required(&field, "");
            } else if mount.mount_path.contains(':') {
                errors.invalid(&field, &mount.mount_path, "must not contain ':'");
            } else if !paths.insert(mount.mount_path.as_str()) {
                errors.invalid(&field, &mount.mount_path, "must be unique");
            }
            mount_options(mount, container, &path, errors);
        }
        for (index, device) in container.volume_devices.iter().flatten().enumerate() {
            if !self.volumes.contains(device.name.as_str()) {
                let field = format!("{path}.volumeDevices[{index}].name");
                errors.not_found(&field, &device.name);
            }
        }
    }
}

fn mount_options(mount: &VolumeMount, container: &Container, path: &str, errors: &mut Errors) {
    let sub_path = mount.sub_path.as_deref().unwrap_or_default();
    let expression = mount.sub_path_expr.as_deref().unwrap_or_default();
    for (field, value) in [("subPath", sub_path), ("subPathExpr", expression)] {
        if !value.is_empty() {
            let field = format!("{path}.{field}");
            errors.name(&field, value, names::descending_path);
        }
    }
    if !sub_path.is_empty() && !expression.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(&format!("{path}.subPathExpr"), expression, detail);
    }
    let propagation = mount.mount_propagation.as_deref();
    let field = format!("{path}.mountPropagation");
    let supported = ["Bidirectional", "HostToContainer", "None"];
    errors.one_of(&field, propagation, &supported);
    let context = container.security_context.as_ref();
    let privileged = context.and_then(|c| c.privileged) == Some(true);
    if propagation == Some("Bidirectional") && !privileged {
        let detail = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&field, detail);
    }
}

/// As upstream, the field path has no index.
fn recursive_read_only(mount: &VolumeMount, container_path: &str, errors: &mut Errors) {
    let field = format!("{container_path}.volumeMounts.recursiveReadOnly");
    let mode = mount.recursive_read_only.as_deref();
    if !matches!(mode, Some("Enabled" | "IfPossible")) {
        return errors.one_of(&field, mode, &["Disabled", "Enabled", "IfPossible"]);
    }
    if mount.read_only != Some(true) {
        errors.forbidden(&field, "may only be specified when readOnly is true");
    }
    if !matches!(mount.mount_propagation.as_deref(), None | Some("None")) {
        let detail = "may only be specified when mountPropagation is None or not specified"; // lang: keep
        errors.forbidden(&field, detail);
    }
}

fn env(variable: &EnvVar, path: &str, errors: &mut Errors) {
    errors.name(&format!("{path}.name"), &variable.name, names::env);
    let Some(source) = &variable.value_from else {
        return;
    };
    let path = format!("{path}.valueFrom");
    if variable.value.as_deref().is_some_and(|v| !v.is_empty()) {
        let detail = "may not be specified when `value` is not empty";
        errors.invalid(&path, "", detail);
    }
    let present = [
        source.field_ref.is_some(),
        source.resource_field_ref.is_some(),
        source.config_map_key_ref.is_some(),
        source.secret_key_ref.is_some(),
        source.file_key_ref.is_some(),
    ];
    match present.iter().filter(|present| **present).count() {
        0 => {
            let detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
            errors.invalid(&path, "", detail);
        }
        1 => {}
        _ => {
            let detail = "may not have more than one field specified at a time";
            errors.invalid(&path, "", detail);
        }
    }
    if let Some(field) = &source.field_ref {
        field_path(&path, field, ENV_FIELDS, errors);
    }
}

/// `metadata.labels['key']` and `metadata.annotations['key']` are always supported.
pub(super) fn field_path(
    path: &str,
    selector: &ObjectFieldSelector,
    supported: &[&'static str],
    errors: &mut Errors,
) {
    let field = format!("{path}.fieldRef.fieldPath");
    let text = selector.field_path.as_str();
    if text.is_empty() {
        return errors.required(&field, "");
    }
    let subscripted = ["metadata.labels['", "metadata.annotations['"]
        .iter()
        .any(|prefix| text.starts_with(prefix) && text.ends_with("']"));
    if !subscripted {
        errors.one_of(&field, Some(text), supported);
    }
}

fn port_number(field: &str, number: i32, errors: &mut Errors) {
    if !(1..=65535).contains(&number) {
        errors.invalid(field, number, "must be between 1 and 65535, inclusive");
    }
}
