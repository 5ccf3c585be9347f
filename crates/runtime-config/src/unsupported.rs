//! Fields of a pod that this version does not support, with their consequence.
//!
//! `describe` prints the list, and the agent logs it once per pod. Fields that are unsafe to ignore
//! are also rejected with a [`crate::config_error::ConfigError`].

use windlass_types::corev1::Container;
use windlass_types::{Pod, PodExt};

use windlass_volume_plan::volume_source;

/// Returns one line per field: of the pod, its volumes, and its containers in spec order.
pub fn unsupported_fields(pod: &Pod) -> Vec<String> {
    let spec = PodExt::spec(pod);
    let mut lines = Vec::new();
    pod_fields(pod, &mut lines);
    for volume in spec.volumes.iter().flatten() {
        if let Some(kind) = volume_source::unsupported(volume) {
            lines.push(format!(
                "volume {}: {kind} volumes are not supported",
                volume.name
            ));
        }
    }
    for container in pod.init_containers().iter().chain(pod.containers()) {
        container_fields(container, &mut lines);
    }
    lines
}

fn pod_fields(pod: &Pod, lines: &mut Vec<String>) {
    if pod.is_static() && has(&PodExt::spec(pod).readiness_gates) {
        lines.push(
            "readinessGates: not supported for static pods; the pod never becomes Ready".to_owned(),
        );
    }
}

fn container_fields(container: &Container, lines: &mut Vec<String>) {
    let lifecycle = container.lifecycle.as_ref();
    let checks = [(
        lifecycle.is_some_and(|l| l.stop_signal.is_some()),
        "lifecycle.stopSignal: the image's signal is used while the feature gate ContainerStopSignals is off",
    )];
    let on = checks.iter().filter(|(on, _)| *on);
    lines.extend(on.map(|(_, text)| format!("container {}: {text}", container.name)));
}

fn has<T>(list: &Option<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|l| !l.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &[&str]) {
        let pod: Pod = serde_json::from_value(json!({"spec": spec})).expect("pod");
        assert_eq!(unsupported_fields(&pod), expected);
    }

    #[test]
    fn supported_pod_has_no_unsupported_fields() {
        check(
            json!({
                "securityContext": {"fsGroup": 2000},
                "volumes": [
                    {"name": "a", "emptyDir": {}},
                    {"name": "b", "emptyDir": {"medium": "Memory"}},
                    {"name": "c", "hostPath": {"path": "/x"}},
                    {"name": "d", "configMap": {"name": "x"}},
                    {"name": "e", "secret": {"secretName": "x"}},
                    {"name": "f", "downwardAPI": {}},
                    {"name": "g", "projected": {}},
                    {"name": "h", "persistentVolumeClaim": {"claimName": "x"}},
                    {"name": "i", "ephemeral": {}},
                    {"name": "j", "csi": {"driver": "d"}},
                    {"name": "k", "nfs": {"server": "s", "path": "/"}},
                    {"name": "l", "image": {"reference": "i"}},
                ],
                "runtimeClassName": "gvisor",
                "resources": {"requests": {"cpu": "1m"}, "limits": {"memory": "64Mi"}},
                "imagePullSecrets": [{"name": "registry"}],
                "containers": [{
                    "name": "c",
                    "volumeMounts": [{
                        "name": "a", "mountPath": "/a", "subPath": "s", "readOnly": true,
                        "recursiveReadOnly": "Enabled",
                    }],
                    "lifecycle": {
                        "postStart": {"exec": {"command": ["true"]}},
                        "preStop": {"sleep": {"seconds": 1}},
                    },
                    "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}},
                    "envFrom": [{"configMapRef": {"name": "x"}}],
                    "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
                    "restartPolicyRules": [
                        {"action": "Restart"}, {"action": "RestartAllContainers"},
                    ],
                }],
                "activeDeadlineSeconds": 5,
                "ephemeralContainers": [{"name": "debug"}],
            }),
            &[],
        );
    }

    #[test]
    fn unsupported_fields_are_listed_with_consequence() {
        check(
            json!({
                "readinessGates": [{"conditionType": "x"}],
                "volumes": [
                    {"name": "huge", "emptyDir": {"medium": "HugePages"}},
                    {"name": "odd", "glusterfs": {"endpoints": "e", "path": "p"}},
                ],
                "containers": [{
                    "name": "c",
                    "lifecycle": {"stopSignal": "SIGUSR1"},
                }],
            }),
            &[
                "volume odd: glusterfs volumes are not supported",
                "container c: lifecycle.stopSignal: the image's signal is used while the feature gate ContainerStopSignals is off",
            ],
        );
    }
}
