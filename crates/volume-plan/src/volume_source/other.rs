//! Unsupported volume types: iSCSI, Fibre Channel, Flexvolume, and those removed by Kubernetes
//! 1.36.

use windlass_types::corev1::{PersistentVolumeSpec, Volume};

/// Text for an unknown type.
const UNKNOWN: &str = "other than those of Kubernetes 1.36";

/// Returns the field that is set.
pub(super) fn for_pod(volume: &Volume) -> &'static str {
    first(&[
        ("iscsi", volume.iscsi.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        (
            "photonPersistentDisk",
            volume.photon_persistent_disk.is_some(),
        ),
        ("quobyte", volume.quobyte.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("storageos", volume.storageos.is_some()),
    ])
}

/// Returns the field that is set.
pub(super) fn for_persistent_volume(spec: &PersistentVolumeSpec) -> &'static str {
    first(&[
        ("iscsi", spec.iscsi.is_some()),
        ("fc", spec.fc.is_some()),
        ("flexVolume", spec.flex_volume.is_some()),
        ("cephfs", spec.cephfs.is_some()),
        ("flocker", spec.flocker.is_some()),
        ("glusterfs", spec.glusterfs.is_some()),
        (
            "photonPersistentDisk",
            spec.photon_persistent_disk.is_some(),
        ),
        ("quobyte", spec.quobyte.is_some()),
        ("rbd", spec.rbd.is_some()),
        ("scaleIO", spec.scale_io.is_some()),
        ("storageos", spec.storageos.is_some()),
    ])
}

fn first(fields: &[(&'static str, bool)]) -> &'static str {
    let set = fields.iter().find(|(_, set)| *set);
    set.map_or(UNKNOWN, |(name, _)| name)
}
