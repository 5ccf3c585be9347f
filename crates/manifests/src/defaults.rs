//! Defaults of the v1 API (upstream `SetObjectDefaults_Pod`).
//!
//! The API server applies them to its pods; a manifest needs them too. A zero value counts as
//! absent where the Go field is not a pointer. Volume sources that need a cluster (ISCSI, RBD,
//! AzureDisk, ScaleIO) get no defaults. The function is idempotent.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use windlass_types::Pod;
use windlass_types::corev1::{
    Container, ContainerPort, ContainerResizePolicy, EmptyDirVolumeSource, EnvVar,
    EphemeralContainer, Lifecycle, LifecycleHandler, Probe, ResourceRequirements, SecurityContext,
    Volume,
};

/// Mode of files from ConfigMaps, Secrets, the downward API and projections.
const FILE_MODE: i32 = 0o644;

/// Applies the defaults of the v1 API to a pod.
pub fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_default();
    spec.enable_service_links.get_or_insert(true);
    // the deprecated field always equals its successor
    if is_empty(&spec.service_account_name) {
        spec.service_account_name
            .clone_from(&spec.service_account.clone().filter(|s| !s.is_empty()));
    }
    spec.service_account.clone_from(&spec.service_account_name);

    let host_network = spec.host_network.unwrap_or(false);
    let regular = spec.containers.iter_mut();
    for container in spec.init_containers.iter_mut().flatten().chain(regular) {
        let mut fields = Fields::from(&mut *container);
        fields.apply();
        if host_network {
            fields.host_ports();
        }
        requests_from_limits(&mut container.resources);
    }
    for container in spec.ephemeral_containers.iter_mut().flatten() {
        Fields::from(container).apply();
    }
    for volume in spec.volumes.iter_mut().flatten() {
        apply_to_volume(volume);
    }
}

/// The fields that containers and ephemeral containers have in common.
struct Fields<'a> {
    image: &'a Option<String>,
    pull_policy: &'a mut Option<String>,
    message_path: &'a mut Option<String>,
    message_policy: &'a mut Option<String>,
    ports: &'a mut Option<Vec<ContainerPort>>,
    env: &'a mut Option<Vec<EnvVar>>,
    probes: [&'a mut Option<Probe>; 3],
    lifecycle: &'a mut Option<Lifecycle>,
    security: &'a mut Option<SecurityContext>,
    resources: &'a Option<ResourceRequirements>,
    resize: &'a mut Option<Vec<ContainerResizePolicy>>,
}

macro_rules! fields_from {
    ($type:ty) => {
        impl<'a> From<&'a mut $type> for Fields<'a> {
            fn from(c: &'a mut $type) -> Self {
                Self {
                    image: &c.image,
                    pull_policy: &mut c.image_pull_policy,
                    message_path: &mut c.termination_message_path,
                    message_policy: &mut c.termination_message_policy,
                    ports: &mut c.ports,
                    env: &mut c.env,
                    probes: [
                        &mut c.liveness_probe,
                        &mut c.readiness_probe,
                        &mut c.startup_probe,
                    ],
                    lifecycle: &mut c.lifecycle,
                    security: &mut c.security_context,
                    resources: &c.resources,
                    resize: &mut c.resize_policy,
                }
            }
        }
    };
}

fields_from!(Container);
fields_from!(EphemeralContainer);

impl Fields<'_> {
    fn apply(&mut self) {
        let image = self.image.as_deref().unwrap_or_default();
        text(self.pull_policy, default_pull_policy(image));
        text(self.message_path, "/dev/termination-log");
        text(self.message_policy, "File");
        for port in self.ports.iter_mut().flatten() {
            text(&mut port.protocol, "TCP");
        }
        for variable in self.env.iter_mut().flatten() {
            let source = variable.value_from.as_mut();
            if let Some(field) = source.and_then(|s| s.field_ref.as_mut()) {
                text(&mut field.api_version, "v1");
            }
        }
        for probe in self.probes.iter_mut().filter_map(|p| p.as_mut()) {
            apply_to_probe(probe);
        }
        if let Some(lifecycle) = self.lifecycle.as_mut() {
            let hooks = [&mut lifecycle.post_start, &mut lifecycle.pre_stop];
            hooks.into_iter().flatten().for_each(apply_to_handler);
        }
        if let Some(security) = self.security.as_mut() {
            text(&mut security.proc_mount, "Default");
        }
        self.resize_policies();
    }

    /// On the host network, a container port is also a host port.
    fn host_ports(&mut self) {
        for port in self.ports.iter_mut().flatten() {
            if port.host_port.unwrap_or(0) == 0 {
                port.host_port = Some(port.container_port);
            }
        }
    }

    /// The default resize policy of CPU and memory is `NotRequired`.
    fn resize_policies(&mut self) {
        let Some(resources) = self.resources else {
            return;
        };
        let named = |list: &Option<BTreeMap<String, Quantity>>, name: &str| {
            list.as_ref().is_some_and(|list| list.contains_key(name))
        };
        for name in ["cpu", "memory"] {
            if !named(&resources.limits, name) && !named(&resources.requests, name) {
                continue;
            }
            let policies = self.resize.get_or_insert_default();
            if !policies.iter().any(|p| p.resource_name == name) {
                policies.push(ContainerResizePolicy {
                    resource_name: name.to_owned(),
                    restart_policy: "NotRequired".to_owned(),
                });
            }
        }
    }
}

/// Returns `Always` for the tag `latest` or no tag, else `IfNotPresent`.
pub fn default_pull_policy(image: &str) -> &'static str {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    // a colon before the last slash separates the port of the registry
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, "latest")), _) | (None, None) if !image.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

fn apply_to_probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        text(&mut get.path, "/");
        text(&mut get.scheme, "HTTP");
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn apply_to_handler(handler: &mut LifecycleHandler) {
    if let Some(get) = &mut handler.http_get {
        text(&mut get.path, "/");
        text(&mut get.scheme, "HTTP");
    }
}

/// A missing request defaults to the limit.
fn requests_from_limits(resources: &mut Option<ResourceRequirements>) {
    let Some(resources) = resources else { return };
    let Some(limits) = resources.limits.as_ref().filter(|l| !l.is_empty()) else {
        return;
    };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests
            .entry(name.clone())
            .or_insert_with(|| limit.clone());
    }
}

fn apply_to_volume(volume: &mut Volume) {
    let bare = Volume {
        name: volume.name.clone(),
        ..Volume::default()
    };
    if *volume == bare {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(host_path) = &mut volume.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(config_map) = &mut volume.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(secret) = &mut volume.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut volume.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        for file in downward.items.iter_mut().flatten() {
            if let Some(field) = &mut file.field_ref {
                text(&mut field.api_version, "v1");
            }
        }
    }
    if let Some(image) = &mut volume.image {
        let reference = image.reference.as_deref().unwrap_or_default();
        text(&mut image.pull_policy, default_pull_policy(reference));
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(FILE_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(token) = &mut source.service_account_token {
                token.expiration_seconds.get_or_insert(3600);
            }
            let files = source.downward_api.iter_mut().flat_map(|d| &mut d.items);
            for file in files.flatten() {
                if let Some(field) = &mut file.field_ref {
                    text(&mut field.api_version, "v1");
                }
            }
        }
    }
}

fn is_empty(field: &Option<String>) -> bool {
    field.as_deref().unwrap_or_default().is_empty()
}

fn text(field: &mut Option<String>, default: &str) {
    if is_empty(field) {
        *field = Some(default.to_owned());
    }
}

fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}
