//! Volumes of types that CSI drivers replaced.

use super::pvc::{Case, source_line};
use super::*;

/// Checks one inline volume: its directory, its source and whether it may be written.
fn check_inline(source: Value, dir: &str, expected: &str) {
    let mut spec = source;
    spec["name"] = "v".into();
    let volume = volumes(json!([spec])).remove(0);
    let read_only = if volume.read_only { " read-only" } else { "" };
    assert_eq!(volume.dir_name(), dir);
    assert_eq!(
        format!("{}{read_only}", source_line(&volume.source)),
        expected
    );
}

/// Checks the volume behind a bound PersistentVolume.
fn check_bound(spec: Value, expected: &str) {
    Case::new(spec).check(&format!("data/pv-1 csi {expected} 1073741824→2147483648"));
}

#[test]
fn inline_in_tree_volume_is_translated() {
    check_inline(
        json!({"awsElasticBlockStore": {"volumeID": "aws://eu-west-1a/vol-1", "fsType": "xfs"}}),
        "ebs.csi.aws.com-vol-1",
        "csi ebs.csi.aws.com vol-1 fs=xfs partition=0 ReadWriteOnce",
    );
    check_inline(
        json!({"awsElasticBlockStore": {"volumeID": "vol-1", "partition": 2, "readOnly": true}}),
        "ebs.csi.aws.com-vol-1",
        "csi ebs.csi.aws.com vol-1 fs= partition=2 ReadWriteOnce read-only",
    );
    check_inline(
        json!({"gcePersistentDisk": {"pdName": "d", "fsType": "ext4"}}),
        "pd.csi.storage.gke.io-d",
        "csi pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d fs=ext4 \
         partition= ReadWriteOnce",
    );
    check_inline(
        json!({"gcePersistentDisk": {"pdName": "d", "partition": 3, "readOnly": true}}),
        "pd.csi.storage.gke.io-d",
        "csi pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d fs= \
         partition=3 ReadOnlyMany read-only",
    );
    check_inline(
        json!({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/s/disks/d"}}),
        "disk.csi.azure.com-d",
        "csi disk.csi.azure.com /subscriptions/s/disks/d fs= csi-migration=true kind=Managed \
         ReadWriteOnce",
    );
    check_inline(
        json!({"azureDisk": {
            "diskName": "d", "diskURI": "u", "fsType": "ext4", "cachingMode": "None",
            "kind": "Dedicated", "readOnly": true,
        }}),
        "disk.csi.azure.com-d",
        "csi disk.csi.azure.com u fs=ext4 cachingMode=None csi-migration=true fsType=ext4 \
         kind=Dedicated ReadWriteOnce read-only",
    );
    check_inline(
        json!({"azureFile": {"secretName": "azure-storage-account-acc-secret", "shareName": "s"}}),
        "#acc#s#v#default",
        "csi file.csi.azure.com #acc#s#v#default fs= sharename=s \
         stage=default/azure-storage-account-acc-secret ReadWriteMany",
    );
    check_inline(
        json!({"cinder": {"volumeID": "c", "fsType": "ext4", "readOnly": true}}),
        "cinder.csi.openstack.org-c",
        "csi cinder.csi.openstack.org c fs=ext4 ReadWriteOnce read-only",
    );
    check_inline(
        json!({"portworxVolume": {"volumeID": "p", "readOnly": true}}),
        "pxd.portworx.com-p",
        "csi pxd.portworx.com p fs= ReadOnlyMany read-only",
    );
    check_inline(
        json!({"vsphereVolume": {"volumePath": "[ds] dir/d.vmdk", "storagePolicyName": "gold"}}),
        "csi.vsphere.vmware.com-[ds] dir~d.vmdk",
        "csi csi.vsphere.vmware.com [ds] dir/d.vmdk fs= storagepolicyname=gold ReadWriteOnce",
    );
}

#[test]
fn in_tree_persistent_volume_is_translated() {
    check_bound(
        json!({"awsElasticBlockStore": {"volumeID": "aws:///vol-1", "fsType": "ext4"}}),
        "ebs.csi.aws.com vol-1 fs=ext4 partition=0 ReadWriteOnce",
    );
    check_bound(
        json!({"azureDisk": {"diskName": "d", "diskURI": "u"}}),
        "disk.csi.azure.com u fs= csi-migration=true kind=Managed ReadWriteOnce",
    );
    // the namespace of the Secret is that of the PVC by default
    check_bound(
        json!({"azureFile": {"secretName": "key", "shareName": "s"}}),
        "file.csi.azure.com #key#s#pv-1#default fs= sharename=s stage=default/key ReadWriteOnce",
    );
    check_bound(
        json!({"azureFile": {"secretName": "key", "shareName": "s", "secretNamespace": "ns"}}),
        "file.csi.azure.com #key#s#pv-1#ns fs= sharename=s stage=ns/key ReadWriteOnce",
    );
    check_bound(
        json!({"cinder": {"volumeID": "c"}, "accessModes": ["ReadWriteMany"]}),
        "cinder.csi.openstack.org c fs= ReadWriteMany",
    );
    check_bound(
        json!({"portworxVolume": {"volumeID": "p", "fsType": "xfs"}}),
        "pxd.portworx.com p fs=xfs ReadWriteOnce",
    );
    check_bound(
        json!({"vsphereVolume": {"volumePath": "[ds] d.vmdk"}}),
        "csi.vsphere.vmware.com [ds] d.vmdk fs= ReadWriteOnce",
    );
    // the handle names the resource group that an annotation has
    let group = json!({"kubernetes.io/azure-file-resource-group": "rg"});
    Case::new(json!({"azureFile": {"secretName": "key", "shareName": "s"}}))
        .volume(json!({"metadata": {"annotations": group}}))
        .check(
            "data/pv-1 csi file.csi.azure.com rg#key#s#pv-1#default fs= sharename=s \
             stage=default/key ReadWriteOnce 1073741824→2147483648",
        );
}

#[test]
fn gce_disk_handle_follows_zone_labels() {
    let check = |labels: Value, expected: &str| {
        Case::new(json!({"gcePersistentDisk": {"pdName": "d"}}))
            .volume(json!({"metadata": {"labels": labels}}))
            .node(json!({"topology.gke.io/zone": "europe-west1-b"}))
            .check(&format!(
                "data/pv-1 csi pd.csi.storage.gke.io projects/UNSPECIFIED/{expected}/disks/d fs= \
                 partition= ReadWriteOnce 1073741824→2147483648"
            ));
    };
    check(json!({}), "zones/UNSPECIFIED");
    let zone = json!({"topology.kubernetes.io/zone": "europe-west1-b"});
    check(zone, "zones/europe-west1-b");
    let zones = json!({"failure-domain.beta.kubernetes.io/zone": "europe-west1-b__europe-west1-c"});
    check(zones, "regions/europe-west1");
}

#[test]
fn gce_access_modes_are_those_of_the_driver() {
    let check = |modes: Value, expected: &str| {
        check_bound(
            json!({"gcePersistentDisk": {"pdName": "d"}, "accessModes": modes}),
            &format!(
                "pd.csi.storage.gke.io projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d fs= \
                 partition= {expected}"
            ),
        );
    };
    check(json!(["ReadWriteMany"]), "ReadWriteOnce");
    check(json!(["ReadOnlyMany", "ReadWriteOnce"]), "ReadWriteOnce");
    check(json!(["ReadOnlyMany"]), "ReadOnlyMany");
}

#[test]
fn block_in_tree_volume_is_a_device() {
    Case::new(json!({"awsElasticBlockStore": {"volumeID": "vol-1"}, "volumeMode": "Block"}))
        .pod(json!({"spec": {"containers": [
            {"name": "c", "volumeDevices": [{"name": "v", "devicePath": "/dev/v"}]},
        ]}}))
        .check(
            "data/pv-1 csi ebs.csi.aws.com vol-1 fs= partition=0 block ReadWriteOnce \
             1073741824→2147483648",
        );
}

#[test]
fn node_affinity_uses_topology_of_the_driver() {
    let ebs = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
    let here = "data/pv-1 csi ebs.csi.aws.com vol-1 fs= partition=0 ReadWriteOnce \
                1073741824→2147483648";
    let elsewhere = "later: MountVolume.NodeAffinity check failed for volume \"pv-1\" : \
                     no matching NodeSelectorTerms";
    let terms = |key: &str| {
        json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": key, "operator": "In", "values": ["a"]},
        ]}]}}})
    };
    let node = |zone: &str| json!({"topology.ebs.csi.aws.com/zone": zone});
    for key in [
        "topology.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/zone",
        "topology.ebs.csi.aws.com/zone",
    ] {
        let case = || Case::new(ebs.clone()).volume(json!({"spec": terms(key)}));
        case().node(node("a")).check(here);
        case().node(node("b")).check(elsewhere);
    }
    // labels count where the affinity says nothing of zones
    let labels = json!({"failure-domain.beta.kubernetes.io/zone": "a__b"});
    let case = || Case::new(ebs.clone()).volume(json!({"metadata": {"labels": labels}}));
    case().node(node("b")).check(here);
    case().node(node("c")).check(elsewhere);
    // a beta region is renamed, and vSphere's driver has a key for regions
    let region = |key: &str, source: Value| {
        let zone = json!({"key": "failure-domain.beta.kubernetes.io/zone", "operator": "In",
            "values": ["a"]});
        let region = json!({"key": "failure-domain.beta.kubernetes.io/region", "operator": "In",
            "values": ["r"]});
        let terms = json!([{"matchExpressions": [zone, region]}]);
        let (zone_key, region_key) = match key {
            "" => (
                "topology.ebs.csi.aws.com/zone",
                "topology.kubernetes.io/region",
            ),
            _ => ("topology.csi.vmware.com/zone", key),
        };
        Case::new(source)
            .volume(json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}}))
            .node(json!({zone_key: "a", region_key: "r"}))
    };
    region("", ebs.clone()).check(here);
    let vsphere = json!({"vsphereVolume": {"volumePath": "[ds] d.vmdk"}});
    region("topology.csi.vmware.com/region", vsphere).check(
        "data/pv-1 csi csi.vsphere.vmware.com [ds] d.vmdk fs= ReadWriteOnce \
         1073741824→2147483648",
    );
}

#[test]
fn invalid_in_tree_field_is_named_with_its_fix() {
    let inline = |source: Value, expected: &str| {
        let mut spec = source;
        spec["name"] = "v".into();
        let volume = volumes(json!([spec])).remove(0);
        assert_eq!(volume.source, VolumeSource::Invalid(expected.to_owned()));
    };
    inline(
        json!({"awsElasticBlockStore": {"volumeID": "aws://a/snap-1"}}),
        "spec.volumes[v].awsElasticBlockStore.volumeID: \"aws://a/snap-1\" is not an EBS volume; \
         write vol-ID or aws://ZONE/vol-ID",
    );
    inline(
        json!({"cinder": {"volumeID": ""}}),
        "spec.volumes[v].cinder.volumeID: is empty; name the volume",
    );
    inline(
        json!({"azureFile": {"secretName": "", "shareName": "s"}}),
        "spec.volumes[v].azureFile.secretName: is empty; name the Secret with the storage \
         account's key",
    );
    let bound = Case::new(json!({"gcePersistentDisk": {"pdName": "d"}}))
        .volume(json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a-b-c__d-e-f"}}}));
    let volume = bound.result().expect("a volume");
    let expected = "PersistentVolume \"pv-1\": spec.gcePersistentDisk: the zones [\"a-b-c\", \
                    \"d-e-f\"] of the volume's zone label are not in one region; write them as \
                    LOCALE-REGION-ZONE, joined by __";
    assert_eq!(volume.source, VolumeSource::Invalid(expected.to_owned()));
}

#[test]
fn inline_in_tree_volume_is_a_device_of_its_driver() {
    let spec = json!({"name": "v", "awsElasticBlockStore": {"volumeID": "vol-1"}});
    let volume = volumes(json!([spec])).remove(0);
    let device = volume.device().expect("a device");
    assert_eq!(device.0, "kubernetes.io/csi/ebs.csi.aws.com^vol-1");
    assert_eq!(volume.display_name(), "ebs.csi.aws.com-vol-1");
    assert!(volume.is_migrated());
    let spec: Volume = serde_json::from_value(spec).expect("a volume");
    assert!(needs_resync(&spec));
    assert_eq!(unsupported(&spec), None);
}
