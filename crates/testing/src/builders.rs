//! Builder of defaulted pods, by default static pods of the file source.

use std::collections::BTreeMap;

use windlass_manifests::defaults;
use windlass_types::corev1::{
    Container, ContainerPort, EmptyDirVolumeSource, EnvVar, PodSpec, PodStatus, Volume, VolumeMount,
};
use windlass_types::metav1::ObjectMeta;
use windlass_types::{Pod, PodSource, names};

/// Builds a pod container by container, with API defaults.
#[derive(Clone, Debug)]
pub struct PodBuilder {
    pod: Pod,
}

impl PodBuilder {
    /// A static pod in namespace `default` with UID `<name>-uid`, from a file.
    pub fn new(name: &str) -> Self {
        let annotations = [
            (
                names::ANN_CONFIG_SOURCE,
                PodSource::File.as_str().to_owned(),
            ),
            (names::ANN_CONFIG_HASH, format!("{name}-uid")),
        ];
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("default".to_owned()),
            uid: Some(format!("{name}-uid")),
            annotations: Some(annotations.map(|(k, v)| (k.to_owned(), v)).into()),
            ..ObjectMeta::default()
        };
        let status = PodStatus {
            phase: Some("Pending".to_owned()),
            ..PodStatus::default()
        };
        Self {
            pod: Pod {
                metadata,
                spec: Some(PodSpec::default()),
                status: Some(status),
            },
        }
    }

    fn spec(&mut self) -> &mut PodSpec {
        self.pod.spec.get_or_insert_default()
    }

    /// Namespace.
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.pod.metadata.namespace = Some(namespace.to_owned());
        self
    }

    /// UID, and with it the hash of a static pod.
    pub fn uid(mut self, uid: &str) -> Self {
        self.pod.metadata.uid = Some(uid.to_owned());
        self.annotation(names::ANN_CONFIG_HASH, uid)
    }

    /// Pod source; the API source has no annotation.
    pub fn source(mut self, source: PodSource) -> Self {
        let annotations = self.pod.metadata.annotations.get_or_insert_default();
        if source == PodSource::Api {
            annotations.remove(names::ANN_CONFIG_SOURCE);
            annotations.remove(names::ANN_CONFIG_HASH);
            return self;
        }
        self.annotation(names::ANN_CONFIG_SOURCE, source.as_str())
    }

    /// An API pod bound to a node; the server assigns the UID.
    pub fn bound_to(self, node: &str) -> Self {
        let mut builder = self.source(PodSource::Api);
        builder.pod.metadata.uid = None;
        builder.spec().node_name = Some(node.to_owned());
        builder
    }

    /// One annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        let annotations = self.pod.metadata.annotations.get_or_insert_default();
        annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// One label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        let labels: &mut BTreeMap<_, _> = self.pod.metadata.labels.get_or_insert_default();
        labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// An app container.
    pub fn container(self, name: &str, image: &str) -> Self {
        self.container_with(name, image, |_| ())
    }

    /// An app container with changes.
    pub fn container_with(
        mut self,
        name: &str,
        image: &str,
        change: impl FnOnce(&mut Container),
    ) -> Self {
        let mut container = container(name, image);
        change(&mut container);
        self.spec().containers.push(container);
        self
    }

    /// An init container.
    pub fn init_container(self, name: &str, image: &str) -> Self {
        self.init_container_with(name, image, |_| ())
    }

    /// An init container with changes, such as the restart policy of a sidecar.
    pub fn init_container_with(
        mut self,
        name: &str,
        image: &str,
        change: impl FnOnce(&mut Container),
    ) -> Self {
        let mut container = container(name, image);
        change(&mut container);
        self.spec()
            .init_containers
            .get_or_insert_default()
            .push(container);
        self
    }

    /// Environment of the last app container.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        if let Some(container) = self.spec().containers.last_mut() {
            let value = Some(value.to_owned());
            let env = EnvVar {
                name: name.to_owned(),
                value,
                value_from: None,
            };
            container.env.get_or_insert_default().push(env);
        }
        self
    }

    /// A port of the last app container.
    pub fn port(mut self, port: i32) -> Self {
        if let Some(container) = self.spec().containers.last_mut() {
            let port = ContainerPort {
                container_port: port,
                ..ContainerPort::default()
            };
            container.ports.get_or_insert_default().push(port);
        }
        self
    }

    /// `Always`, `OnFailure` or `Never`.
    pub fn restart_policy(mut self, policy: &str) -> Self {
        self.spec().restart_policy = Some(policy.to_owned());
        self
    }

    /// `terminationGracePeriodSeconds`.
    pub fn grace(mut self, seconds: i64) -> Self {
        self.spec().termination_grace_period_seconds = Some(seconds);
        self
    }

    /// An `emptyDir` that is mounted at `/<name>` in all containers so far.
    pub fn empty_dir(mut self, name: &str) -> Self {
        let spec = self.spec();
        spec.volumes.get_or_insert_default().push(Volume {
            name: name.to_owned(),
            empty_dir: Some(EmptyDirVolumeSource::default()),
            ..Volume::default()
        });
        for container in &mut spec.containers {
            let mount = VolumeMount {
                name: name.to_owned(),
                mount_path: format!("/{name}"),
                ..VolumeMount::default()
            };
            container.volume_mounts.get_or_insert_default().push(mount);
        }
        self
    }

    /// Host network.
    pub fn host_network(mut self) -> Self {
        self.spec().host_network = Some(true);
        self
    }

    /// Other changes.
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.pod);
        self
    }

    /// Returns the pod with API defaults.
    pub fn build(mut self) -> Pod {
        defaults::apply(&mut self.pod);
        self.pod
    }
}

fn container(name: &str, image: &str) -> Container {
    Container {
        name: name.to_owned(),
        image: Some(image.to_owned()),
        ..Container::default()
    }
}

#[cfg(test)]
mod tests {
    use windlass_types::{PodExt, PodSource};

    use super::PodBuilder;

    #[test]
    fn built_pod_is_static_and_defaulted() {
        let pod = PodBuilder::new("web")
            .container("app", "nginx")
            .env("A", "1")
            .build();
        assert_eq!(PodExt::uid(&pod).as_str(), "web-uid");
        assert_eq!(pod.full_name().to_string(), "web_default");
        assert!(pod.is_static());
        let container = &pod.containers()[0];
        assert_eq!(container.image_pull_policy.as_deref(), Some("Always"));
        assert_eq!(pod.termination_grace_seconds(), 30);
        let pod = PodBuilder::new("web").source(PodSource::Api).build();
        assert!(!pod.is_static());
    }
}
