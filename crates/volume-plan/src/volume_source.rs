//! Resolved volumes of a pod: everything that a set-up needs.
//!
//! The source of a volume in the pod spec may be a PVC with its PersistentVolume, or a payload such
//! as the content of a ConfigMap. [`PodVolume`] is the resolved volume. Its directory below the pod
//! directory is that of upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_types::corev1::{EmptyDirVolumeSource, HostPathVolumeSource, Volume};
use windlass_types::{DeviceName, Pod, PodExt};

use windlass_manifests::defaults::default_pull_policy;
use windlass_pod_inputs::projection::{Projection, VolumePayload, VolumePayloads};

use crate::empty_dir::EMPTY_DIR_PLUGIN;

mod expansion;
mod in_tree;
mod other;
mod pvc;

pub(crate) use expansion::pvc_reference;
pub use expansion::{
    ExpansionFailure, FailureOutcome, expansion_decision, expansion_failure, resize_failed_patch,
    resize_finished_patch, resize_started_patch,
};
pub use pvc::{Lookup, PvcError, PvcInput, PvcState, bound_volume, pvc_volume};

/// The volumes of one pod, in the order of its spec.
pub type PodVolumes = Vec<PodVolume>;

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodVolume {
    /// `spec.volumes[].name`.
    pub name: String,
    /// Source.
    pub source: VolumeSource,
    /// The volume itself is read-only, not just the mount of a container.
    pub read_only: bool,
    /// Mount options of its PersistentVolume.
    pub mount_options: Vec<String>,
    /// Its PVC, if it has one.
    pub pvc: Option<BoundPvc>,
}

/// A bound PVC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPvc {
    /// Name, in the namespace of the pod.
    pub name: String,
    /// Name of the PersistentVolume.
    pub volume: String,
    /// The only access mode is `ReadWriteOncePod`: at most one pod uses it.
    pub exclusive: bool,
    /// Group of the files, from the provisioner: a supplemental group of the pod.
    pub group: Option<i64>,
}

/// Source of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// A directory of the pod, or memory.
    EmptyDir(EmptyDirVolumeSource),
    /// A path on the host.
    HostPath(HostPathVolumeSource),
    /// The payload of a configMap, secret, downwardAPI or projected volume.
    Payload(PayloadKind, VolumePayload),
    /// The payload is unavailable, with the cause. A mounted volume keeps its old payload.
    PayloadUnavailable(PayloadKind, String),
    /// An OCI image or artifact, mounted by the container runtime.
    Image(ImageVolume),
    /// A directory or device on the host, from a PersistentVolume.
    Local(LocalVolume),
    /// An NFS export.
    Nfs(NfsVolume),
    /// A volume of a CSI driver.
    Csi(Box<CsiVolume>),
    /// The payload or PVC was not resolved; the name of the field.
    Unresolved(String),
    /// An unsupported type; the name of the field.
    Unsupported(String),
    /// An invalid field: the field, the problem and what to write.
    Invalid(String),
}

/// Kinds of volume with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// `configMap`.
    ConfigMap,
    /// `secret`.
    Secret,
    /// `downwardAPI`.
    DownwardApi,
    /// `projected`.
    Projected,
}

/// `image`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageVolume {
    /// Image reference of the pod spec.
    pub reference: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
}

/// `local` of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalVolume {
    /// Name of the PersistentVolume: its directory under the pod.
    pub volume_name: String,
    /// Directory or block device on the host.
    pub path: PathBuf,
    /// File system to create on an empty block device; `ext4` if unset.
    pub fs_type: Option<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// Size of its PVC.
    pub size: Option<PvcSize>,
}

/// `nfs`, of a pod or of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfsVolume {
    /// Its directory under the pod: the volume's name, or the PersistentVolume's.
    pub volume_name: String,
    /// Host name or address.
    pub server: String,
    /// Exported directory.
    pub path: String,
}

/// A volume of a CSI driver, from a PersistentVolume or inline.
#[derive(Clone, Debug, PartialEq)]
pub struct CsiVolume {
    /// Its directory under the pod: the volume's name, or the PersistentVolume's
    /// (upstream `specVolumeName`).
    pub volume_name: String,
    /// Name of the driver.
    pub driver: String,
    /// `volumeHandle`; `None` for an inline volume, whose handle the node generates.
    pub handle: Option<String>,
    /// File system; empty selects the driver's default.
    pub fs_type: String,
    /// `volumeAttributes`.
    pub attributes: BTreeMap<String, String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// `accessModes` of the PersistentVolume.
    pub access_modes: Vec<String>,
    /// `nodeStageSecretRef`.
    pub stage_secret: Option<SecretRef>,
    /// `nodePublishSecretRef`.
    pub publish_secret: Option<SecretRef>,
    /// `nodeExpandSecretRef`.
    pub expand_secret: Option<SecretRef>,
    /// Size of its PVC, if it has one.
    pub size: Option<PvcSize>,
    /// A controller attaches the volume before the node stages it: `attachRequired` of the
    /// CSIDriver. Always false for an inline volume.
    pub attach_required: bool,
}

/// Reference to a Secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// Sizes of a PVC, for expansion on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcSize {
    /// Name of the PVC, in the namespace of the pod.
    pub pvc: String,
    /// UID of the PVC.
    pub uid: String,
    /// `spec.capacity.storage` of the PersistentVolume, in bytes.
    pub desired: u64,
    /// `status.capacity.storage` of the PVC, in bytes.
    pub reported: u64,
    /// The node may have to expand the volume: no controller acts first, and the size is feasible.
    pub actionable: bool,
}

/// Upstream's plugin name of the volumes of CSI drivers.
pub const CSI_PLUGIN: &str = "kubernetes.io/csi";
/// Upstream's plugin name of `local`.
pub const LOCAL_PLUGIN: &str = "kubernetes.io/local-volume";

impl PayloadKind {
    /// Returns the name of the field in the spec.
    pub fn field(self) -> &'static str {
        match self {
            Self::ConfigMap => "configMap",
            Self::Secret => "secret",
            Self::DownwardApi => "downwardAPI",
            Self::Projected => "projected",
        }
    }

    /// Returns the kind of a volume with a payload.
    pub fn for_volume(volume: &Volume) -> Option<Self> {
        let kinds = [
            (volume.config_map.is_some(), Self::ConfigMap),
            (volume.secret.is_some(), Self::Secret),
            (volume.downward_api.is_some(), Self::DownwardApi),
            (volume.projected.is_some(), Self::Projected),
        ];
        kinds
            .into_iter()
            .find_map(|(set, kind)| set.then_some(kind))
    }
}

impl VolumeSource {
    /// Returns the plugin directory below `volumes/` of a pod; `None` if the type has none.
    pub fn plugin_dir(&self) -> Option<&'static str> {
        Some(match self {
            Self::EmptyDir(_) => EMPTY_DIR_PLUGIN,
            Self::Payload(PayloadKind::ConfigMap, _)
            | Self::PayloadUnavailable(PayloadKind::ConfigMap, _) => "kubernetes.io~configmap",
            Self::Payload(PayloadKind::Secret, _)
            | Self::PayloadUnavailable(PayloadKind::Secret, _) => "kubernetes.io~secret",
            Self::Payload(PayloadKind::DownwardApi, _)
            | Self::PayloadUnavailable(PayloadKind::DownwardApi, _) => "kubernetes.io~downward-api",
            Self::Payload(PayloadKind::Projected, _)
            | Self::PayloadUnavailable(PayloadKind::Projected, _) => "kubernetes.io~projected",
            Self::Local(_) => "kubernetes.io~local-volume",
            Self::Nfs(_) => "kubernetes.io~nfs",
            Self::Csi(_) => "kubernetes.io~csi",
            Self::HostPath(_)
            | Self::Image(_)
            | Self::Unresolved(_)
            | Self::Unsupported(_)
            | Self::Invalid(_) => return None,
        })
    }

    /// Returns true for a volume with a payload.
    pub fn has_payload(&self) -> bool {
        matches!(self, Self::Payload(..) | Self::PayloadUnavailable(..))
    }

    /// Returns true if containers get a block device instead of a directory.
    pub fn is_block(&self) -> bool {
        match self {
            Self::Local(volume) => volume.block,
            Self::Csi(volume) => volume.block,
            _ => false,
        }
    }
}

impl PodVolume {
    /// Returns the name of its directory below the plugin directory.
    pub fn dir_name(&self) -> &str {
        match &self.source {
            VolumeSource::Local(volume) => &volume.volume_name,
            VolumeSource::Nfs(volume) => &volume.volume_name,
            VolumeSource::Csi(volume) => &volume.volume_name,
            _ => &self.name,
        }
    }

    /// Returns `volumes/<plugin>/<name>` below the pod directory (`volumeDevices/…` for a block
    /// volume); `None` if the type has no directory.
    pub fn dir(&self, pod_dir: &Path) -> Option<PathBuf> {
        let above = match self.source.is_block() {
            true => "volumeDevices",
            false => "volumes",
        };
        let kind = self.source.plugin_dir()?;
        Some(pod_dir.join(above).join(kind).join(self.dir_name()))
    }

    /// Returns the name for messages: that of the PersistentVolume, if any, including one from the
    /// translation to CSI (upstream `VolumeSpec.Name`).
    pub fn display_name(&self) -> &str {
        match (&self.pvc, &self.source) {
            (Some(pvc), _) => &pvc.volume,
            (None, VolumeSource::Csi(csi)) if csi.handle.is_some() => &csi.volume_name,
            (None, _) => &self.name,
        }
    }

    /// Returns true for an inline volume of a type that was migrated to CSI.
    pub fn is_migrated(&self) -> bool {
        let csi = match &self.source {
            VolumeSource::Csi(csi) => csi,
            _ => return false,
        };
        self.pvc.is_none() && csi.handle.is_some()
    }

    /// Returns the size of its PVC; `None` if the volume cannot be expanded.
    pub fn size(&self) -> Option<&PvcSize> {
        match &self.source {
            VolumeSource::Csi(volume) => volume.size.as_ref(),
            VolumeSource::Local(volume) => volume.size.as_ref(),
            _ => None,
        }
    }

    /// Returns the device that it shares with other pods of the node, if any.
    pub fn device(&self) -> Option<DeviceName> {
        match &self.source {
            VolumeSource::Csi(volume) => {
                let handle = volume.handle.as_ref()?;
                let name = format!("{CSI_PLUGIN}/{}^{handle}", volume.driver);
                Some(DeviceName(name))
            }
            VolumeSource::Local(volume) => {
                let name = format!("{LOCAL_PLUGIN}/{}", volume.volume_name);
                Some(DeviceName(name))
            }
            _ => None,
        }
    }
}

/// Returns the sorted groups of the volumes that are not in the pod spec (upstream
/// `GetExtraSupplementalGroupsForPod`).
pub fn extra_groups(pod: &Pod, volumes: &[PodVolume]) -> Vec<i64> {
    let security = PodExt::spec(pod).security_context.as_ref();
    let own = security.and_then(|security| security.supplemental_groups.as_deref());
    let own = own.unwrap_or_default();
    let pvcs = volumes.iter().filter_map(|volume| volume.pvc.as_ref());
    let groups: BTreeSet<_> = pvcs.filter_map(|pvc| pvc.group).collect();
    groups
        .into_iter()
        .filter(|group| !own.contains(group))
        .collect()
}

/// Returns the volumes of a pod with payloads or their errors, and without PVCs.
pub fn projected_volumes(pod: &Pod, projection: &Projection) -> PodVolumes {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    let one = |volume: &Volume| {
        let mut plain = plain_volume(pod, volume, projection.payloads.get(&volume.name));
        let errors = projection.errors.get(&volume.name);
        if let (Some(errors), Some(kind)) = (errors, PayloadKind::for_volume(volume)) {
            plain.source = VolumeSource::PayloadUnavailable(kind, errors.to_string());
        }
        plain
    };
    volumes.map(one).collect()
}

/// Returns the volumes of a pod without PVCs. A volume with a PVC or a missing payload is
/// [`VolumeSource::Unresolved`].
pub fn plain_volumes(pod: &Pod, payloads: &VolumePayloads) -> PodVolumes {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    volumes
        .map(|volume| plain_volume(pod, volume, payloads.get(&volume.name)))
        .collect()
}

/// Returns one volume that needs no API object except for its payload.
pub fn plain_volume(pod: &Pod, volume: &Volume, payload: Option<&VolumePayload>) -> PodVolume {
    let mut migrated_read_only = false;
    let source = if let Some(source) = &volume.empty_dir {
        VolumeSource::EmptyDir(source.clone())
    } else if let Some(source) = &volume.host_path {
        VolumeSource::HostPath(source.clone())
    } else if let Some(kind) = PayloadKind::for_volume(volume) {
        match payload {
            Some(payload) => VolumeSource::Payload(kind, payload.clone()),
            None => VolumeSource::Unresolved(kind.field().to_owned()),
        }
    } else if let Some(kind) = pvc_field(volume) {
        VolumeSource::Unresolved(kind.to_owned())
    } else if let Some(translated) = in_tree::inline_volume(pod.namespace(), volume) {
        match translated {
            Ok(inline) => {
                migrated_read_only = inline.read_only;
                VolumeSource::Csi(Box::new(inline.volume))
            }
            Err(error) => VolumeSource::Invalid(error.to_string()),
        }
    } else {
        inline_volume(pod, volume)
    };
    PodVolume {
        name: volume.name.clone(),
        source,
        read_only: volume.image.is_some() || read_only(volume) == Some(true) || migrated_read_only,
        mount_options: Vec::new(),
        pvc: None,
    }
}

/// Returns the source of an inline volume.
fn inline_volume(pod: &Pod, volume: &Volume) -> VolumeSource {
    if let Some(image) = &volume.image {
        let reference = image.reference.clone().unwrap_or_default();
        let policy = image
            .pull_policy
            .clone()
            .filter(|policy| !policy.is_empty());
        return VolumeSource::Image(ImageVolume {
            pull_policy: policy.unwrap_or_else(|| default_pull_policy(&reference).to_owned()),
            reference,
        });
    }
    if let Some(nfs) = &volume.nfs {
        return VolumeSource::Nfs(NfsVolume {
            volume_name: volume.name.clone(),
            server: nfs.server.clone(),
            path: nfs.path.clone(),
        });
    }
    if let Some(csi) = &volume.csi {
        let secret = csi.node_publish_secret_ref.as_ref();
        return VolumeSource::Csi(Box::new(CsiVolume {
            volume_name: volume.name.clone(),
            driver: csi.driver.clone(),
            handle: None,
            fs_type: csi.fs_type.clone().unwrap_or_default(),
            attributes: csi.volume_attributes.clone().unwrap_or_default(),
            block: false,
            access_modes: Vec::new(),
            stage_secret: None,
            publish_secret: secret.map(|secret| SecretRef {
                namespace: pod.namespace().to_owned(),
                name: secret.name.clone(),
            }),
            expand_secret: None,
            size: None,
            attach_required: false,
        }));
    }
    VolumeSource::Unsupported(other::for_pod(volume).to_owned())
}

/// Returns `readOnly` of an inline source with this field.
fn read_only(volume: &Volume) -> Option<bool> {
    let nfs = volume.nfs.as_ref().and_then(|nfs| nfs.read_only);
    nfs.or(volume.csi.as_ref().and_then(|csi| csi.read_only))
}

/// Returns the field by which a volume refers to a PVC.
pub fn pvc_field(volume: &Volume) -> Option<&'static str> {
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentVolumeClaim");
    }
    volume.ephemeral.is_some().then_some("ephemeral")
}

/// Returns true if each sync sets the volume up again, because it may change or is measured.
pub fn needs_resync(volume: &Volume) -> bool {
    PayloadKind::for_volume(volume).is_some()
        || pvc_field(volume).is_some()
        || volume.csi.is_some()
        || in_tree::is_migrated(volume)
        || volume.empty_dir.is_some()
}

/// Returns the field of an unsupported volume type.
pub fn unsupported(volume: &Volume) -> Option<&'static str> {
    let known = volume.empty_dir.is_some()
        || volume.host_path.is_some()
        || PayloadKind::for_volume(volume).is_some()
        || pvc_field(volume).is_some()
        || volume.image.is_some()
        || volume.nfs.is_some()
        || volume.csi.is_some()
        || in_tree::is_migrated(volume);
    (!known).then(|| other::for_pod(volume))
}

#[cfg(test)]
mod tests;
