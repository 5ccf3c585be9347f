//! What the volumes of a pod come to: each with everything that is needed to set it up.
//!
//! A pod's spec names volumes; what some of them are stands elsewhere, in a claim and its
//! PersistentVolume, or is computed, as the content of a configMap. [`PodVolume`] is the volume
//! with all of that, and where it lies under the pod's directory, spelled as upstream spells it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use windlass_types::corev1::{EmptyDirVolumeSource, HostPathVolumeSource, Volume};
use windlass_types::{DeviceName, Pod, PodExt};

use windlass_manifests::defaults::default_pull_policy;
use windlass_pod_inputs::projection::{Projection, VolumePayload, VolumePayloads};

mod pvc;
mod expansion;
mod in_tree;
mod other;

pub use pvc::{PvcError, PvcInput, PvcState, Lookup, bound_volume, pvc_volume};
pub(crate) use expansion::pvc_reference;
pub use expansion::{
    ExpansionFailure, FailureOutcome, resize_failed_patch, resize_started_patch, resize_finished_patch, expansion_decision, expansion_failure,
};

/// The volumes of one pod, in the order of its spec.
pub type PodVolumes = Vec<PodVolume>;

/// One volume of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodVolume {
    /// `spec.volumes[].name`.
    pub name: String,
    /// What it is.
    pub source: VolumeSource,
    /// Nobody may write to it, by its own definition (not by a container's mount).
    pub read_only: bool,
    /// Options of its PersistentVolume for `mount`.
    pub mount_options: Vec<String>,
    /// The claim that it stands for, if it stands for one.
    pub pvc: Option<BoundPvc>,
}

/// A claim and its PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundPvc {
    /// Name of the claim, in the pod's namespace.
    pub name: String,
    /// Name of the PersistentVolume.
    pub volume: String,
    /// Its only access mode is `ReadWriteOncePod`: one pod at a time may have it.
    pub exclusive: bool,
    /// The group that its files belong to, as their provisioner says: the pod's processes are in it.
    pub group: Option<i64>,
}

/// What a volume is.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumeSource {
    /// A directory of the pod, or memory.
    EmptyDir(EmptyDirVolumeSource),
    /// A path of the node.
    HostPath(HostPathVolumeSource),
    /// Files that are computed: configMap, secret, downwardAPI, projected.
    Payload(PayloadKind, VolumePayload),
    /// The same, whose files cannot be computed at present, and why. Whoever shows it already goes on
    /// to show what it did.
    PayloadUnavailable(PayloadKind, String),
    /// An image or artifact that the runtime mounts.
    Image(ImageVolume),
    /// A directory or device of this node that a PersistentVolume names.
    Local(LocalVolume),
    /// An NFS export.
    Nfs(NfsVolume),
    /// A volume of a CSI driver.
    Csi(Box<CsiVolume>),
    /// Nobody looked up what it shows or stands for; the field's name.
    Unresolved(String),
    /// A type that this agent cannot set up; the field's name.
    Unsupported(String),
    /// A field of its definition makes no sense: the field, what is wrong with it, what to write.
    Invalid(String),
}

/// The four kinds of volume whose files are computed.
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
    /// As the pod names it.
    pub reference: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
}

/// `local` of a PersistentVolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalVolume {
    /// Name of the PersistentVolume: its directory under the pod.
    pub volume_name: String,
    /// Directory or block device of the node.
    pub path: PathBuf,
    /// File system to make on a block device that has none; `ext4` if unset.
    pub fs_type: Option<String>,
    /// `volumeMode: Block`.
    pub block: bool,
    /// What its claim has and is to have.
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
    /// `volumeHandle`; `None` for an inline volume of the driver, whose handle the node makes up.
    pub handle: Option<String>,
    /// File system, empty for the driver's choice.
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
    /// What its claim has and is to have; `None` without a claim.
    pub size: Option<PvcSize>,
    /// A controller attaches it to the node before the node may stage it: `attachRequired` of its
    /// CSIDriver, never of an inline volume.
    pub attach_required: bool,
}

/// Where a secret is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretRef {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
}

/// The size of a claim, for expansion on the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PvcSize {
    /// Name of the claim in the pod's namespace.
    pub pvc: String,
    /// Its UID.
    pub uid: String,
    /// `spec.capacity.storage` of the PersistentVolume, in bytes: what the volume has where it
    /// comes from.
    pub desired: u64,
    /// `status.capacity.storage` of the claim, in bytes: what it is known to have.
    pub reported: u64,
    /// It is not the turn of a controller, nor infeasible: the node may have something to do.
    pub actionable: bool,
}

/// Upstream's plugin name of the volumes of CSI drivers.
pub const CSI_PLUGIN: &str = "kubernetes.io/csi";
/// Upstream's plugin name of `local`.
pub const LOCAL_PLUGIN: &str = "kubernetes.io/local-volume";

impl PayloadKind {
    /// Name of the field in the spec.
    pub fn field(self) -> &'static str {
        match self {
            Self::ConfigMap => "configMap",
            Self::Secret => "secret",
            Self::DownwardApi => "downwardAPI",
            Self::Projected => "projected",
        }
    }

    /// The kind of a volume, if it is one of the four.
    pub fn of(volume: &Volume) -> Option<Self> {
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
    /// Directory of its kind under `volumes/` of a pod; `None` for what has none there.
    pub fn plugin_dir(&self) -> Option<&'static str> {
        Some(match self {
            Self::EmptyDir(_) => "kubernetes.io~empty-dir",
            Self::Payload(PayloadKind::ConfigMap, _)
            | Self::PayloadUnavailable(PayloadKind::ConfigMap, _) => "kubernetes.io~configmap",
            Self::Payload(PayloadKind::Secret, _) | Self::PayloadUnavailable(PayloadKind::Secret, _) => {
                "kubernetes.io~secret"
            }
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

    /// True if its files are computed from API objects or the pod.
    pub fn is_computed(&self) -> bool {
        matches!(self, Self::Payload(..) | Self::PayloadUnavailable(..))
    }

    /// True if containers are given a block device instead of a directory.
    pub fn is_block(&self) -> bool {
        match self {
            Self::Local(volume) => volume.block,
            Self::Csi(volume) => volume.block,
            _ => false,
        }
    }
}

impl PodVolume {
    /// Name of its directory under its kind's.
    pub fn dir_name(&self) -> &str {
        match &self.source {
            VolumeSource::Local(volume) => &volume.volume_name,
            VolumeSource::Nfs(volume) => &volume.volume_name,
            VolumeSource::Csi(volume) => &volume.volume_name,
            _ => &self.name,
        }
    }

    /// `volumes/<kind>/<name>` below the pod's directory (`volumeDevices/…` for a block volume);
    /// `None` for what has no directory there.
    pub fn dir(&self, pod_dir: &Path) -> Option<PathBuf> {
        let above = match self.source.is_block() {
            true => "volumeDevices",
            false => "volumes",
        };
        let kind = self.source.plugin_dir()?;
        Some(pod_dir.join(above).join(kind).join(self.dir_name()))
    }

    /// Its name in messages: the PersistentVolume's, if it stands for one, also for one that only
    /// the translation to CSI made up (upstream `VolumeSpec.Name`).
    pub fn display_name(&self) -> &str {
        match (&self.pvc, &self.source) {
            (Some(pvc), _) => &pvc.volume,
            (None, VolumeSource::Csi(csi)) if csi.handle.is_some() => &csi.volume_name,
            (None, _) => &self.name,
        }
    }

    /// True for an inline volume of a type that a CSI driver replaced.
    pub fn is_migrated(&self) -> bool {
        let csi = match &self.source {
            VolumeSource::Csi(csi) => csi,
            _ => return false,
        };
        self.pvc.is_none() && csi.handle.is_some()
    }

    /// What its claim has and is to have; `None` for what does not grow.
    pub fn size(&self) -> Option<&PvcSize> {
        match &self.source {
            VolumeSource::Csi(volume) => volume.size.as_ref(),
            VolumeSource::Local(volume) => volume.size.as_ref(),
            _ => None,
        }
    }

    /// The device that it shares with other pods of the node; `None` if it shares none.
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

/// The groups of a pod's volumes that its own spec does not name (upstream
/// `GetExtraSupplementalGroupsForPod`), in order.
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

/// The volumes of a pod whose claims nobody looked up, with what they show or why that is unknown.
pub fn projected_volumes(pod: &Pod, projection: &Projection) -> PodVolumes {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    let one = |volume: &Volume| {
        let mut plain = plain_volume(pod, volume, projection.payloads.get(&volume.name));
        let errors = projection.errors.get(&volume.name);
        if let (Some(errors), Some(kind)) = (errors, PayloadKind::of(volume)) {
            plain.source = VolumeSource::PayloadUnavailable(kind, errors.to_string());
        }
        plain
    };
    volumes.map(one).collect()
}

/// The volumes of a pod whose claims nobody looked up. What has no payload and no claim behind it is
/// [`VolumeSource::Unresolved`].
pub fn plain_volumes(pod: &Pod, payloads: &VolumePayloads) -> PodVolumes {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    volumes
        .map(|volume| plain_volume(pod, volume, payloads.get(&volume.name)))
        .collect()
}

/// One volume that needs nothing of the API server but its payload.
pub fn plain_volume(pod: &Pod, volume: &Volume, payload: Option<&VolumePayload>) -> PodVolume {
    let mut migrated_read_only = false;
    let source = if let Some(source) = &volume.empty_dir {
        VolumeSource::EmptyDir(source.clone())
    } else if let Some(source) = &volume.host_path {
        VolumeSource::HostPath(source.clone())
    } else if let Some(kind) = PayloadKind::of(volume) {
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

/// What the pod itself says all of, of a kind that others provide.
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

/// `readOnly` of an inline source that has such a field.
fn read_only(volume: &Volume) -> Option<bool> {
    let nfs = volume.nfs.as_ref().and_then(|nfs| nfs.read_only);
    nfs.or(volume.csi.as_ref().and_then(|csi| csi.read_only))
}

/// The field by which a volume stands for a claim.
pub fn pvc_field(volume: &Volume) -> Option<&'static str> {
    if volume.persistent_volume_claim.is_some() {
        return Some("persistentVolumeClaim");
    }
    volume.ephemeral.is_some().then_some("ephemeral")
}

/// True if something about the volume may change while its pod runs, or somebody has to watch or
/// measure it, also an agent that found it: each sync sets it up again.
pub fn needs_resync(volume: &Volume) -> bool {
    PayloadKind::of(volume).is_some()
        || pvc_field(volume).is_some()
        || volume.csi.is_some()
        || in_tree::is_migrated(volume)
        || volume.empty_dir.is_some()
}

/// The field of a volume that this agent cannot set up; `None` for one that it can.
pub fn unsupported(volume: &Volume) -> Option<&'static str> {
    let known = volume.empty_dir.is_some()
        || volume.host_path.is_some()
        || PayloadKind::of(volume).is_some()
        || pvc_field(volume).is_some()
        || volume.image.is_some()
        || volume.nfs.is_some()
        || volume.csi.is_some()
        || in_tree::is_migrated(volume);
    (!known).then(|| other::for_pod(volume))
}

#[cfg(test)]
mod tests;
