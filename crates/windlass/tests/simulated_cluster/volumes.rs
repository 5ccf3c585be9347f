//! Volumes of PVCs: shared devices, attachment, expansion and reconstruction.

use serde_json::{Value, json};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{AttachedVolume, Node, PersistentVolume, PersistentVolumeClaim};
use windlass_types::{DeviceName, Pod, PodUid};
use windlass_volumes::VolumeStep;

use crate::fixture::*;
use crate::{MINUTE, SECOND};

/// The CSI driver.
pub(crate) const DRIVER: &str = "disks.example.com";
/// The device of PVC `disk`.
const DEVICE: &str = "kubernetes.io/csi/disks.example.com^disk";

pub(crate) fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("an object")
}

/// A driver, and a PVC `disk` bound to one of its volumes.
pub(crate) fn disk(sim: &NodeSim, attach_required: bool) {
    let driver: k8s_openapi::api::storage::v1::CSIDriver = object(json!({
        "metadata": { "name": "disks.example.com" },
        "spec": { "attachRequired": attach_required },
    }));
    sim.api.create(&driver);
    let claim: PersistentVolumeClaim = object(json!({
        "metadata": { "name": "disk", "namespace": "default",
            "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "accessModes": ["ReadWriteOnce"], "volumeName": "pv-disk",
            "resources": { "requests": { "storage": "1Gi" } } },
    }));
    let claim = sim.api.create(&claim);
    let volume: PersistentVolume = object(json!({
        "metadata": { "name": "pv-disk" },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"],
            "claimRef": { "namespace": "default", "name": "disk", "uid": claim.metadata.uid },
            "csi": { "driver": "disks.example.com", "volumeHandle": "disk" },
        },
    }));
    sim.api.create(&volume);
    sim.api
        .modify::<PersistentVolumeClaim>(Some("default"), "disk", |claim| {
            claim.status = object(json!({ "phase": "Bound", "accessModes": ["ReadWriteOnce"],
                "capacity": { "storage": "1Gi" } }));
        });
    sim.api
        .modify::<PersistentVolume>(None, "pv-disk", |volume| {
            volume.status = object(json!({ "phase": "Bound" }));
        });
}

/// A pod that mounts the PVC.
pub(crate) fn with_disk(name: &str) -> PodBuilder {
    pod(name).with(|pod: &mut Pod| {
        let spec = pod.spec.as_mut().expect("spec");
        spec.volumes = object(json!([
            { "name": "data", "persistentVolumeClaim": { "claimName": "disk" } },
        ]));
        spec.containers[0].volume_mounts =
            object(json!([{ "name": "data", "mountPath": "/data" }]));
    })
}

pub(crate) fn count(sim: &NodeSim, call: &str) -> usize {
    let calls = sim.volumes.calls();
    calls.iter().filter(|line| line.starts_with(call)).count()
}

pub(crate) fn staged(sim: &NodeSim) -> bool {
    sim.volumes.staged().contains(&DeviceName(DEVICE.into()))
}

pub(crate) fn has_disk(sim: &NodeSim, uid: &PodUid) -> bool {
    sim.volumes.mounted(uid).contains("pv-disk")
}

/// `volumesInUse` in the API.
fn in_use(sim: &NodeSim) -> Vec<String> {
    let status = node(sim).and_then(|node| node.status);
    status.and_then(|s| s.volumes_in_use).unwrap_or_default()
}

fn message(sim: &NodeSim, name: &str) -> String {
    let blocker = sim.view(name).and_then(|view| view.blocker);
    blocker.map_or_else(String::new, |blocker| blocker.to_string())
}

fn sound(sim: &NodeSim) {
    assert_eq!(sim.volumes.violations(), [""; 0]);
}

#[test]
fn shared_device_is_staged_once_and_unstaged_after_last_pod() {
    on_a_ready_node(61, async |sim| {
        disk(sim, false);
        sim.volumes.set_latency(SECOND / 20);
        let first = create(sim, with_disk("first"));
        let second = create(sim, with_disk("second"));
        sim.until("both are ready", 5 * SECOND, |sim| {
            ready(sim, "first") && ready(sim, "second")
        })
        .await;
        assert_eq!(count(sim, "stage "), 1);
        assert!(has_disk(sim, &first) && has_disk(sim, &second));
        delete(sim, "first", None);
        sim.until("the first is gone", MINUTE, |sim| {
            get(sim, "first").is_none()
        })
        .await;
        sim.pass(MINUTE).await;
        assert!(staged(sim) && runs(sim, &second) && !has_disk(sim, &first));
        sim.volumes
            .fail(VolumeStep::Unstage, DEVICE, Some("device or resource busy"));
        delete(sim, "second", None);
        // a busy device does not block the pod
        sim.until("the second is gone", MINUTE, |sim| {
            get(sim, "second").is_none()
        })
        .await;
        sim.pass(MINUTE).await;
        assert!(staged(sim) && count(sim, "unstage ") > 3);
        sim.volumes.fail(VolumeStep::Unstage, DEVICE, None);
        sim.until("it is unstaged", 2 * MINUTE + 2 * SECOND, |sim| {
            !staged(sim)
        })
        .await;
        assert_eq!(in_use(sim), [""; 0], "no controller attaches it");
        sound(sim);
    });
}

#[test]
fn volume_is_reported_in_use_before_waiting_for_attach() {
    on_a_ready_node(62, async |sim| {
        disk(sim, true);
        let uid = create(sim, with_disk("web"));
        create(sim, pod("free"));
        sim.until("the node reports it", 2 * SECOND, |sim| {
            in_use(sim) == [DEVICE]
        })
        .await;
        sim.until("the other runs", 2 * SECOND, |sim| ready(sim, "free"))
            .await;
        sim.until("the pod reports what it waits for", 15 * SECOND, |sim| {
            let words = "Volume not attached according to node status for volume \"pv-disk\"";
            message(sim, "web").contains(words)
        })
        .await;
        assert_eq!(sim.blocker("web"), "FailedAttachVolume");
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.volumes.calls(), [""; 0], "nothing is touched before");
        let attach = |sim: &NodeSim, attached: bool| {
            sim.api
                .modify::<windlass_types::corev1::Node>(None, NODE, |node| {
                    let volume = AttachedVolume {
                        name: DEVICE.into(),
                        device_path: String::new(),
                    };
                    let status = node.status.get_or_insert_default();
                    status.volumes_attached = attached.then(|| vec![volume]);
                });
        };
        attach(sim, true);
        sim.until("it runs at once", 2 * SECOND, |sim| ready(sim, "web"))
            .await;
        assert_eq!(in_use(sim), [DEVICE]);
        // a restart without an API server changes no running pod
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(MINUTE).await;
        assert!(runs(sim, &uid) && staged(sim) && in_use(sim) == [DEVICE]);
        delete(sim, "web", None);
        sim.until("the node no longer reports it", MINUTE, |sim| {
            in_use(sim).is_empty()
        })
        .await;
        assert!(!staged(sim) && get(sim, "web").is_none());
        sound(sim);
    });
}

#[test]
fn attach_limit_rejects_pod_with_upstream_message() {
    on_a_ready_node(66, async |sim| {
        disk(sim, true);
        sim.volumes.set_node_full_for(&DeviceName(DEVICE.into()));
        let uid = create(sim, with_disk("web"));
        let phase = |sim: &NodeSim| {
            let status = get(sim, "web").and_then(|pod| pod.status);
            let status = status.unwrap_or_default();
            (status.phase, status.reason, status.message)
        };
        // a controller may still attach it
        sim.pass(2 * MINUTE).await;
        assert_eq!(phase(sim).0.as_deref(), Some("Pending"));
        sim.until("it fails", MINUTE, |sim| {
            phase(sim).0.as_deref() == Some("Failed")
        })
        .await;
        let (_, reason, message) = phase(sim);
        assert_eq!(reason.as_deref(), Some("VolumeAttachmentLimitExceeded"));
        assert_eq!(
            message.as_deref(),
            Some(
                "Pod was rejected: Node has reached its volume attachment limit, rejecting pod. \
                 unmounted volumes=[data], unattached volumes=[data], failed to process \
                 volumes=[]: context deadline exceeded"
            )
        );
        sim.until("the node does not use it", MINUTE, |sim| {
            in_use(sim).is_empty()
        })
        .await;
        assert!(!runs(sim, &uid) && sim.runtime.starts(&uid, "app") == 0);
        sound(sim);
    });
}

#[test]
fn expanded_pvc_resizes_file_system_without_restart() {
    on_a_ready_node(63, async |sim| {
        disk(sim, false);
        let uid = create(sim, with_disk("web"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        assert_eq!(count(sim, "expand "), 0);
        sim.volumes
            .fail(VolumeStep::Expand, uid.as_str(), Some("resize2fs failed"));
        sim.api
            .modify::<PersistentVolume>(None, "pv-disk", |volume| {
                let spec = volume.spec.get_or_insert_default();
                spec.capacity = object(json!({ "storage": "2Gi" }));
            });
        sim.until("it is tried", 2 * MINUTE, |sim| count(sim, "expand ") > 1)
            .await;
        let told = |sim: &NodeSim, reason: &str| {
            let view = sim.view("web").expect("an entry");
            view.events.iter().any(|e| e.reason.as_str() == reason)
        };
        assert!(told(sim, "VolumeResizeFailed"));
        sim.volumes.fail(VolumeStep::Expand, uid.as_str(), None);
        sim.until("it has grown", 2 * MINUTE, |sim| {
            told(sim, "FileSystemResizeSuccessful")
        })
        .await;
        assert_eq!(restarts(sim, "web"), 0);
        sound(sim);
    });
}

#[test]
fn staged_device_survives_restart_without_api_server() {
    on_a_ready_node(64, async |sim| {
        disk(sim, false);
        let uid = create(sim, with_disk("web"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        sim.kill_agent().await;
        let left = DeviceName("kubernetes.io/csi/disks.example.com^left".into());
        sim.volumes.add_staged_device(&left);
        let outage = sim.api.faults().outage();
        sim.start_agent().await;
        sim.pass(10 * MINUTE).await;
        assert!(runs(sim, &uid) && staged(sim));
        assert!(
            sim.volumes.staged().contains(&left),
            "not every source has spoken"
        );
        sim.api.faults().lift(outage);
        sim.until("unused volumes are removed", 2 * MINUTE, |sim| {
            !sim.volumes.staged().contains(&left)
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert!(runs(sim, &uid) && staged(sim) && has_disk(sim, &uid));
        assert_eq!(count(sim, "unmount "), 0);
        sound(sim);
    });
}

#[test]
fn agent_kill_between_staging_steps_converges() {
    for step in 0..24_u32 {
        on_a_ready_node(65, async |sim| {
            disk(sim, step % 2 == 0);
            let attached = AttachedVolume {
                name: DEVICE.into(),
                device_path: String::new(),
            };
            sim.api.modify::<Node>(None, NODE, |node| {
                let status = node.status.get_or_insert_default();
                status.volumes_attached = Some(vec![attached]);
            });
            sim.volumes.set_latency(SECOND / 40);
            let moment = SECOND / 50 * step;
            let uid = create(sim, with_disk("web"));
            sim.pass(moment).await;
            sim.kill_agent().await;
            sim.start_agent().await;
            sim.until("it is ready", MINUTE, |sim| ready(sim, "web"))
                .await;
            assert!(has_disk(sim, &uid) && staged(sim));
            delete(sim, "web", Some(1));
            sim.pass(moment).await;
            sim.kill_agent().await;
            sim.start_agent().await;
            let gone = |sim: &NodeSim| get(sim, "web").is_none() && !staged(sim);
            sim.until("nothing is left", 2 * MINUTE, gone).await;
            assert!(sim.volumes.mounted(&uid).is_empty());
            sim.until("nothing is in use", MINUTE, |sim| in_use(sim).is_empty())
                .await;
            sound(sim);
        });
    }
}

/// Sets fields of the PersistentVolume of PVC `disk`.
fn change_volume(sim: &NodeSim, change: impl FnOnce(&mut PersistentVolume)) {
    sim.api.modify::<PersistentVolume>(None, "pv-disk", change);
}

#[test]
fn gid_annotation_of_volume_is_supplemental_group() {
    on_a_ready_node(67, async |sim| {
        disk(sim, false);
        change_volume(sim, |volume| {
            let gid = ("pv.beta.kubernetes.io/gid".to_owned(), "1234".to_owned());
            volume.metadata.annotations = Some([gid].into());
        });
        let uid = create(sim, with_disk("web"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "web"))
            .await;
        let app = sim.runtime.running(&uid, "app").expect("runs");
        let config = sim.runtime.container_config(&app.id).expect("created");
        assert_eq!(config.security.supplemental_groups, [1234]);
    });
}

#[test]
fn read_write_once_pod_volume_blocks_second_pod() {
    on_a_ready_node(68, async |sim| {
        disk(sim, false);
        let only = || Some(vec!["ReadWriteOncePod".to_owned()]);
        change_volume(sim, |volume| {
            volume.spec.get_or_insert_default().access_modes = only();
        });
        sim.api
            .modify::<PersistentVolumeClaim>(Some("default"), "disk", |claim| {
                claim.spec.get_or_insert_default().access_modes = only();
            });
        create(sim, with_disk("first"));
        sim.until("the first runs", 5 * SECOND, |sim| ready(sim, "first"))
            .await;
        let second = create(sim, with_disk("second"));
        let words = "volume uses the ReadWriteOncePod access mode and is already in use by \
                     another pod";
        sim.until("the second reports the first", 15 * SECOND, |sim| {
            message(sim, "second").contains(words)
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert!(!has_disk(sim, &second) && sim.runtime.starts(&second, "app") == 0);
        delete(sim, "first", None);
        sim.until("the second runs", 3 * MINUTE, |sim| ready(sim, "second"))
            .await;
        sound(sim);
    });
}

#[test]
fn failed_expansion_blocks_new_pod_but_no_restart() {
    on_a_ready_node(69, async |sim| {
        disk(sim, false);
        let old = create(sim, with_disk("old"));
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "old"))
            .await;
        let failing = |sim: &NodeSim, uid: &PodUid, fails: bool| {
            let text = fails.then_some("resize2fs failed");
            sim.volumes.fail(VolumeStep::Expand, uid.as_str(), text);
        };
        failing(sim, &old, true);
        change_volume(sim, |volume| {
            let spec = volume.spec.get_or_insert_default();
            spec.capacity = object(json!({ "storage": "2Gi" }));
        });
        // as a current resizer
        sim.api
            .modify::<PersistentVolumeClaim>(Some("default"), "disk", |claim| {
                let resources = json!({ "requests": { "storage": "2Gi" } });
                claim.spec.get_or_insert_default().resources = object(resources);
                let status = claim.status.get_or_insert_default();
                status.allocated_resources = object(json!({ "storage": "2Gi" }));
                let stage = json!({ "storage": "NodeResizePending" });
                status.allocated_resource_statuses = object(stage);
            });
        let conditions = |sim: &NodeSim| -> Vec<String> {
            let claim = sim
                .api
                .get::<PersistentVolumeClaim>(Some("default"), "disk");
            let conditions = claim.and_then(|claim| claim.status?.conditions);
            let conditions = conditions.into_iter().flatten();
            conditions.map(|condition| condition.type_).collect()
        };
        sim.until("the PVC reports the error", 3 * MINUTE, |sim| {
            conditions(sim) == ["NodeResizeError"]
        })
        .await;
        let app = sim.runtime.running(&old, "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        sim.until("the old pod is restarted", MINUTE, |sim| {
            sim.runtime.starts(&old, "app") == 2
        })
        .await;
        delete(sim, "old", Some(1));
        sim.until("it is gone", MINUTE, |sim| get(sim, "old").is_none())
            .await;
        let new = with_disk("new").build();
        let new = sim.api.create(&new);
        let new = windlass_types::PodExt::uid(&new);
        failing(sim, &new, true);
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&new, "app"), 0, "waits for the space");
        failing(sim, &new, false);
        sim.until("the new pod runs", 3 * MINUTE, |sim| ready(sim, "new"))
            .await;
        sound(sim);
    });
}
