//! The pods of a plan, by kind and number.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use windlass_testing::PodBuilder;
use windlass_testing::fake_runtime::Behavior;
use windlass_types::Pod;
use windlass_types::corev1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use windlass_types::storagev1::CSIDriver;

use crate::generate::CONFIGS;
use crate::step::PodKind;

/// Name of the node.
pub(crate) const NODE: &str = "sim";
/// Image of all containers.
pub(crate) const IMAGE: &str = "busybox:1";
/// Image after an edit.
pub(crate) const OTHER_IMAGE: &str = "busybox:2";
/// Port of servers.
pub(crate) const PORT: u16 = 8080;
/// Resource of the device plugin.
pub(crate) const DEVICE: &str = "vendor.com/gpu";
/// Grace period of pods, in seconds.
pub(crate) const GRACE_SECONDS: i64 = 5;

/// The name of a container and its behavior.
type NamedBehavior = (&'static str, fn() -> Behavior);
/// Behaviors by container name, which is the kind.
pub(crate) const BEHAVIORS: [NamedBehavior; 5] = [
    ("job", || Behavior::exits(Duration::from_secs(20), 0)),
    ("fail", || Behavior::exits(Duration::from_secs(7), 3)),
    ("crash", || Behavior::exits(Duration::from_secs(5), 1)),
    ("first", || Behavior::exits(Duration::from_secs(2), 0)),
    ("stubborn", Behavior::stubborn),
];

/// A value of a Kubernetes type from JSON of this module.
#[expect(clippy::expect_used, reason = "constants of this module")]
fn parse<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a value of this type")
}

/// The pod of a kind and number, bound to the node.
pub(crate) fn pod(kind: PodKind, number: u32) -> Pod {
    let name = format!("{kind}-{number}");
    let builder = PodBuilder::new(&name).bound_to(NODE).grace(GRACE_SECONDS);
    let builder = match kind {
        PodKind::Init => builder.init_container("first", IMAGE),
        PodKind::Sidecar => builder.init_container_with("proxy", IMAGE, |container| {
            container.restart_policy = Some("Always".to_owned());
        }),
        _ => builder,
    };
    let builder = builder.container_with(kind.as_str(), IMAGE, |container| {
        let probe = json!({
            "httpGet": {"port": PORT}, "periodSeconds": 5, "failureThreshold": 2,
        });
        match kind {
            PodKind::Web => container.readiness_probe = Some(parse(probe)),
            PodKind::Live => container.liveness_probe = Some(parse(probe)),
            PodKind::Env => {
                let from = json!([{"configMapRef": {"name": config_name(number)}}]);
                container.env_from = Some(parse(from));
            }
            PodKind::Config | PodKind::Secret | PodKind::Claim | PodKind::Disk => {
                container.volume_mounts = Some(parse(json!([{"name": "v", "mountPath": "/v"}])));
            }
            PodKind::Device => container.resources = Some(parse(limits(DEVICE, "1"))),
            PodKind::Sized => container.resources = Some(parse(size(250))),
            PodKind::Big => container.resources = Some(parse(limits("cpu", "100000"))),
            _ => {}
        }
    });
    let builder = match kind {
        PodKind::Pair => builder.container("second", IMAGE),
        PodKind::Job | PodKind::Fail => builder.restart_policy("Never"),
        PodKind::Host => builder.host_network(),
        _ => builder,
    };
    let builder = builder.with(|pod| {
        let spec = pod.spec.get_or_insert_default();
        let volume = match kind {
            PodKind::Config => json!({"configMap": {"name": config_name(number)}}),
            PodKind::Secret => json!({"secret": {"secretName": config_name(number)}}),
            PodKind::Claim => json!({"persistentVolumeClaim": {"claimName": name}}),
            PodKind::Disk => json!({"persistentVolumeClaim": {"claimName": disk_name(number)}}),
            PodKind::Deadline => {
                spec.active_deadline_seconds = Some(60);
                return;
            }
            _ => return,
        };
        let mut volume = volume;
        volume["name"] = json!("v");
        spec.volumes = Some(parse(json!([volume])));
    });
    builder.build()
}

/// Requests and limits of one resource.
fn limits(resource: &str, amount: &str) -> Value {
    json!({"requests": {resource: amount}, "limits": {resource: amount}})
}

/// Requests and limits of a Guaranteed container.
pub(crate) fn size(thousandths: u32) -> Value {
    let amounts = json!({"cpu": format!("{thousandths}m"), "memory": "64Mi"});
    json!({"requests": amounts, "limits": amounts})
}

/// Name of the ConfigMap and Secret of a pod.
pub(crate) fn config_name(number: u32) -> String {
    format!("config-{}", number % CONFIGS)
}

pub(crate) fn config_map(number: u32, content: &str) -> ConfigMap {
    let name = config_name(number);
    parse(json!({
        "metadata": {"namespace": "default", "name": name},
        "data": {"NOW": content},
    }))
}

pub(crate) fn secret(number: u32) -> Secret {
    let name = config_name(number);
    parse(json!({
        "metadata": {"namespace": "default", "name": name},
        "data": {"KEY": "c2lt"},
    }))
}

/// A bound PVC.
pub(crate) fn claim(name: &str) -> PersistentVolumeClaim {
    parse(json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"volumeName": format!("pv-{name}")},
        "status": {"phase": "Bound"},
    }))
}

/// The volume of a PVC: a directory of the node.
pub(crate) fn volume(name: &str, claim_uid: Option<&str>) -> PersistentVolume {
    parse(json!({
        "metadata": {"name": format!("pv-{name}")},
        "spec": {
            "hostPath": {"path": "/data"},
            "claimRef": {"namespace": "default", "name": name, "uid": claim_uid},
        },
    }))
}

/// Number of shared volumes of the CSI driver.
pub(crate) const DISKS: u32 = 2;

/// Name of the PVC of a shared volume.
pub(crate) fn disk_name(number: u32) -> String {
    format!("shared-{}", number % DISKS)
}

/// Name of the device of a shared volume.
pub(crate) fn device_name(number: u32) -> String {
    format!("kubernetes.io/csi/disks.example.com^{}", disk_name(number))
}

/// The CSI driver; its volumes need no attachment.
pub(crate) fn csi_driver() -> CSIDriver {
    parse(json!({
        "metadata": {"name": "disks.example.com"},
        "spec": {"attachRequired": false},
    }))
}

/// A bound PVC of a shared volume.
pub(crate) fn disk_claim(number: u32) -> PersistentVolumeClaim {
    let name = disk_name(number);
    parse(json!({
        "metadata": {"namespace": "default", "name": name,
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": format!("pv-{name}"),
            "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"}},
    }))
}

/// A shared volume.
pub(crate) fn disk_volume(number: u32, claim_uid: Option<&str>) -> PersistentVolume {
    let name = disk_name(number);
    parse(json!({
        "metadata": {"name": format!("pv-{name}")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": name, "uid": claim_uid},
            "csi": {"driver": "disks.example.com", "volumeHandle": name},
        },
        "status": {"phase": "Bound"},
    }))
}

/// UID of a version of a static pod.
pub(crate) fn static_uid(name: &str, version: u32) -> String {
    format!("{name}-v{version}-uid")
}

pub(crate) fn static_pod(name: &str, version: u32) -> Pod {
    PodBuilder::new(name)
        .uid(&static_uid(name, version))
        .container("app", IMAGE)
        .grace(GRACE_SECONDS)
        .build()
}
