//! PVCs that are ready, and those that are not.

use std::sync::Arc;

use windlass_types::corev1::{Node, PersistentVolume, PersistentVolumeClaim};

use windlass_pod_inputs::pod_references::pvc_name;

use super::*;

/// Returns the source on one line.
pub(super) fn source_line(source: &VolumeSource) -> String {
    match source {
        VolumeSource::HostPath(source) => format!("hostPath {}", source.path),
        VolumeSource::Image(image) => format!("image {} {}", image.reference, image.pull_policy),
        VolumeSource::Nfs(nfs) => format!("nfs {}:{}", nfs.server, nfs.path),
        VolumeSource::Local(local) => {
            let block = if local.block { " block" } else { "" };
            let fs_type = local.fs_type.as_deref().unwrap_or("-");
            format!("local {} fs={fs_type}{block}", local.path.display())
        }
        VolumeSource::Csi(csi) => csi_line(csi),
        VolumeSource::Unsupported(field) => format!("unsupported {field}"),
        other => format!("{other:?}"),
    }
}

fn csi_line(csi: &CsiVolume) -> String {
    let mut line = format!("csi {}", csi.driver);
    match &csi.handle {
        Some(handle) => line.push_str(&format!(" {handle}")),
        None => line.push_str(" inline"),
    }
    line.push_str(&format!(" fs={}", csi.fs_type));
    for (key, value) in &csi.attributes {
        line.push_str(&format!(" {key}={value}"));
    }
    let secrets = [
        ("stage", &csi.stage_secret),
        ("publish", &csi.publish_secret),
        ("expand", &csi.expand_secret),
    ];
    for (what, secret) in secrets {
        if let Some(secret) = secret {
            line.push_str(&format!(" {what}={}/{}", secret.namespace, secret.name));
        }
    }
    if csi.block {
        line.push_str(" block");
    }
    if !csi.access_modes.is_empty() {
        line.push_str(&format!(" {}", csi.access_modes.join("+")));
    }
    if let Some(size) = &csi.size {
        let open = if size.actionable { "" } else { " closed" };
        line.push_str(&format!(" {}→{}{open}", size.reported, size.desired));
    }
    line
}

/// A pod with a bound PVC, for a test to change.
pub(super) struct Case {
    pod: Value,
    pvc: Option<Value>,
    volume: Option<Value>,
    labels: Value,
}

impl Case {
    pub(super) fn new(spec: Value) -> Self {
        let mut pv = json!({"metadata": {"name": "pv-1"}, "spec": {
            "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteOnce"],
            "claimRef": {"namespace": "default", "name": "data", "uid": "claim-uid"},
        }});
        merge(&mut pv["spec"], spec);
        Self {
            pod: json!({
                "metadata": {"namespace": "default", "name": "web", "uid": "pod-uid"},
                "spec": {
                    "containers": [{
                        "name": "c", "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }],
                    "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                },
            }),
            pvc: Some(json!({
                "metadata": {"namespace": "default", "name": "data", "uid": "claim-uid"},
                "spec": {"volumeName": "pv-1"},
                "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
            })),
            volume: Some(pv),
            labels: json!({"kubernetes.io/hostname": "n1"}),
        }
    }

    fn host_path() -> Self {
        Self::new(json!({"hostPath": {"path": "/data"}}))
    }

    pub(super) fn pod(mut self, change: Value) -> Self {
        merge(&mut self.pod, change);
        self
    }

    fn pvc(mut self, change: Value) -> Self {
        merge(self.pvc.as_mut().expect("there is one"), change);
        self
    }

    pub(super) fn volume(mut self, change: Value) -> Self {
        merge(self.volume.as_mut().expect("there is one"), change);
        self
    }

    /// The labels of the node.
    pub(super) fn node(mut self, labels: Value) -> Self {
        self.labels = labels;
        self
    }

    pub(super) fn result(&self) -> Result<PodVolume, PvcError> {
        let read = |value: &Value| -> Pod { serde_json::from_value(value.clone()).expect("pod") };
        let pod = read(&self.pod);
        let pvc = match &self.pvc {
            Some(pvc) => Lookup::Found(Arc::new(
                serde_json::from_value::<PersistentVolumeClaim>(pvc.clone()).expect("PVC"),
            )),
            None => Lookup::Missing,
        };
        let volume = match &self.volume {
            Some(volume) => Lookup::Found(Arc::new(
                serde_json::from_value::<PersistentVolume>(volume.clone()).expect("volume"),
            )),
            None => Lookup::Missing,
        };
        let node: Node =
            serde_json::from_value(json!({"metadata": {"name": "n1", "labels": self.labels}}))
                .expect("node");
        let spec = &PodExt::spec(&pod).volumes.as_ref().expect("volumes")[0];
        let input = PvcInput {
            pod: &pod,
            volume: spec,
            pvc: &pvc_name(&pod, spec).expect("PVC"),
            state: &PvcState { pvc, volume },
            node: Some(&node),
        };
        pvc_volume(input)
    }

    pub(super) fn check(&self, expected: &str) {
        let line = match self.result() {
            Ok(volume) => {
                let pvc = volume.pvc.as_ref().expect("PVC");
                let mut line = format!(
                    "{}/{} {}",
                    pvc.name,
                    pvc.volume,
                    source_line(&volume.source)
                );
                for (on, word) in [
                    (volume.read_only, " read-only"),
                    (pvc.exclusive, " exclusive"),
                ] {
                    if on {
                        line.push_str(word);
                    }
                }
                if !volume.mount_options.is_empty() {
                    line.push_str(&format!(" -o {}", volume.mount_options.join(",")));
                }
                line
            }
            Err(error) => format!("{}: {error}", error.retry()),
        };
        assert_eq!(line, expected);
    }
}

/// Applies a merge patch; `null` removes a field.
fn merge(into: &mut Value, patch: Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                match value {
                    Value::Null => {
                        into.remove(&key);
                    }
                    value => merge(into.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        (into, patch) => *into = patch,
    }
}

#[test]
fn bound_pvc_resolves_to_persistent_volume() {
    Case::host_path().check("data/pv-1 hostPath /data");
    Case::new(json!({"local": {"path": "/disk", "fsType": "xfs"}}))
        .check("data/pv-1 local /disk fs=xfs");
    Case::new(json!({"nfs": {"server": "s", "path": "/p"}, "mountOptions": ["soft", "vers=4"]}))
        .check("data/pv-1 nfs s:/p -o soft,vers=4");
    Case::new(json!({"csi": {
        "driver": "d", "volumeHandle": "h", "fsType": "ext4", "readOnly": true,
        "volumeAttributes": {"a": "b"},
        "nodeStageSecretRef": {"namespace": "kube-system", "name": "stage"},
        "nodePublishSecretRef": {"namespace": "kube-system", "name": "publish"},
        "nodeExpandSecretRef": {"namespace": "kube-system", "name": "expand"},
    }}))
    .check(
        "data/pv-1 csi d h fs=ext4 a=b stage=kube-system/stage publish=kube-system/publish \
         expand=kube-system/expand ReadWriteOnce 1073741824→2147483648",
    );
    Case::new(json!({"rbd": {"monitors": [], "image": "i"}})).check("data/pv-1 unsupported rbd");
}

#[test]
fn read_only_and_exclusive_follow_pod_and_volume() {
    let read_only = json!({"spec": {"volumes": [
        {"name": "v", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
    ]}});
    Case::host_path()
        .pod(read_only.clone())
        .check("data/pv-1 hostPath /data read-only");
    Case::new(json!({"csi": {"driver": "d", "volumeHandle": "h"}}))
        .pod(read_only)
        .check("data/pv-1 csi d h fs= ReadWriteOnce 1073741824→2147483648 read-only");
    Case::new(json!({"nfs": {"server": "s", "path": "/p", "readOnly": true}}))
        .check("data/pv-1 nfs s:/p read-only");
    // an access mode does not make the volume read-only
    Case::new(json!({"hostPath": {"path": "/data"}, "accessModes": ["ReadOnlyMany"]}))
        .check("data/pv-1 hostPath /data");
    Case::new(json!({"hostPath": {"path": "/data"}, "accessModes": ["ReadWriteOncePod"]}))
        .check("data/pv-1 hostPath /data exclusive");
    Case::new(json!({
        "hostPath": {"path": "/data"}, "accessModes": ["ReadWriteOncePod", "ReadWriteOnce"],
    }))
    .check("data/pv-1 hostPath /data");
}

#[test]
fn expansion_is_actionable_after_controller_expansion() {
    let check = |status: Value, size: &str| {
        Case::new(json!({"csi": {"driver": "d", "volumeHandle": "h"}}))
            .pvc(json!({"status": status}))
            .check(&format!("data/pv-1 csi d h fs= ReadWriteOnce{size}"));
    };
    let stage = |stage: &str| {
        json!({
            "allocatedResources": {"storage": "3Gi"},
            "allocatedResourceStatuses": {"storage": stage},
        })
    };
    let size = " 1073741824→2147483648";
    let closed = format!("{size} closed");
    check(json!({}), size);
    check(stage("NodeResizePending"), size);
    check(stage("ControllerResizeInProgress"), &closed);
    check(stage("NodeResizeInfeasible"), &closed);
    check(json!({"allocatedResources": {"storage": "3Gi"}}), &closed);
    // another node may have reported it
    let mut done = json!({"allocatedResources": {"storage": "2Gi"}});
    done["capacity"] = json!({"storage": "2Gi"});
    check(done, " 2147483648→2147483648");
}

#[test]
fn group_is_read_from_annotation() {
    let group = |value: &str| {
        let annotations = json!({"pv.beta.kubernetes.io/gid": value});
        let case = Case::host_path().volume(json!({"metadata": {"annotations": annotations}}));
        let pvc = case.result().expect("a volume").pvc;
        pvc.expect("a PVC").group
    };
    assert_eq!(group("1234"), Some(1234));
    assert_eq!(group("staff"), None);
    assert_eq!(group(""), None);
}

#[test]
fn mount_options_are_read_from_old_annotation() {
    let options = json!({"volume.beta.kubernetes.io/mount-options": "ro,soft"});
    Case::new(json!({"nfs": {"server": "s", "path": "/p"}, "mountOptions": ["hard"]}))
        .volume(json!({"metadata": {"annotations": options}}))
        .check("data/pv-1 nfs s:/p -o ro,soft");
}

#[test]
fn unready_pvc_reports_cause() {
    let mut case = Case::host_path();
    case.pvc = None;
    case.check(
        "later: error processing PVC default/data: failed to fetch PVC from API server: \
         persistentvolumeclaims \"data\" not found",
    );
    Case::host_path()
        .pvc(json!({"metadata": {"deletionTimestamp": "2026-11-22T00:00:00Z"}}))
        .check("later: error processing PVC default/data: PVC is being deleted");
    // the finalizer keeps it until no pod uses it
    Case::host_path()
        .pvc(json!({"metadata": {
            "deletionTimestamp": "2026-11-22T00:00:00Z",
            "finalizers": ["kubernetes.io/pvc-protection"],
        }}))
        .check("data/pv-1 hostPath /data");
    Case::host_path()
        .pvc(json!({"status": {"phase": "Pending"}}))
        .check("later: error processing PVC default/data: PVC is not bound");
    Case::host_path()
        .pvc(json!({"status": null}))
        .check("later: error processing PVC default/data: PVC is not bound");
    Case::host_path()
        .pvc(json!({"spec": {"volumeName": ""}}))
        .check("later: error processing PVC default/data: PVC has empty pvc.Spec.VolumeName");
}

#[test]
fn persistent_volume_of_other_pvc_reports_cause() {
    let mut case = Case::host_path();
    case.volume = None;
    case.check(
        "later: error processing PVC default/data: failed to fetch PV pv-1 from API server: \
         persistentvolumes \"pv-1\" not found",
    );
    Case::host_path()
        .volume(json!({"spec": {"claimRef": null}}))
        .check(
            "later: error processing PVC default/data: found PV object pv-1 but it has a nil \
             pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        );
    Case::host_path()
        .volume(json!({"spec": {"claimRef": {"uid": "other"}}}))
        .check(
            "later: error processing PVC default/data: found PV object pv-1 but its \
             pv.Spec.ClaimRef.UID other does not point to claim.UID claim-uid",
        );
}

#[test]
fn unread_pvc_is_retried_soon() {
    let pod: Pod = serde_json::from_value(Case::host_path().pod).expect("pod");
    let volume = &PodExt::spec(&pod).volumes.as_ref().expect("volumes")[0];
    let state = PvcState {
        pvc: Lookup::Unread("the API server did not answer".to_owned()),
        volume: Lookup::Missing,
    };
    let input = PvcInput {
        pod: &pod,
        volume,
        pvc: "data",
        state: &state,
        node: None,
    };
    let error = pvc_volume(input).expect_err("unread");
    assert_eq!(
        format!("{}: {error}", error.retry()),
        "soon: error processing PVC default/data: failed to fetch PVC from API server: \
         the API server did not answer"
    );
}

#[test]
fn ephemeral_volume_requires_owned_pvc() {
    let ephemeral = || {
        Case::host_path().pod(json!({"spec": {"volumes": [
            {"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]}}))
    };
    ephemeral()
        .check("later: PVC default/web-v was not created for pod default/web (pod is not owner)");
    let owner = |uid: &str, controller: bool| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid,
            "controller": controller,
        }]}})
    };
    ephemeral()
        .pvc(owner("pod-uid", false))
        .check("later: PVC default/web-v was not created for pod default/web (pod is not owner)");
    ephemeral()
        .pvc(owner("pod-uid", true))
        .check("web-v/pv-1 hostPath /data");
}

#[test]
fn volume_mode_mismatch_is_rejected() {
    let devices = json!({"spec": {"containers": [{
        "name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}],
    }]}});
    let block = || Case::new(json!({"local": {"path": "/dev/sdb"}, "volumeMode": "Block"}));
    block().check("later: volume v has volumeMode Block, but is specified in volumeMounts");
    block()
        .pod(devices.clone())
        .check("data/pv-1 local /dev/sdb fs=- block");
    Case::host_path()
        .pod(devices)
        .check("later: volume v has volumeMode Filesystem, but is specified in volumeDevices");
}

#[test]
fn node_affinity_mismatch_is_rejected() {
    let case = |node: &str| {
        Case::new(json!({
            "local": {"path": "/disk"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]},
            ]}]}},
        }))
    };
    case("n1").check("data/pv-1 local /disk fs=-");
    case("n2").check(
        "later: MountVolume.NodeAffinity check failed for volume \"pv-1\" : \
         no matching NodeSelectorTerms",
    );
}
