//! Resolves a PVC and its PersistentVolume to a volume of a pod.
//!
//! Checks, order and error texts are those of upstream's `desired_state_of_world_populator`, plus
//! the node affinity of the PersistentVolume, which upstream checks at mount.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use windlass_types::corev1::{
    Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, SecretReference, Volume,
};
use windlass_types::{ExpansionDecision, Pod, PodExt, Retry};

use super::expansion::expansion_decision;
use super::{
    BoundPvc, CsiVolume, LocalVolume, NfsVolume, PodVolume, PvcSize, SecretRef, VolumeSource,
    in_tree, other,
};
use windlass_node_rules::admission::matches_node_selector;
use windlass_pod_inputs::pod_references;
use windlass_units::quantity;

/// Access mode for a single pod.
const ONE_POD: &str = "ReadWriteOncePod";
/// Volume mode for a block device.
const BLOCK: &str = "Block";
/// Finalizer that keeps a PVC until no pod uses it.
const PROTECTED: &str = "kubernetes.io/pvc-protection";

/// Result of reading an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup<T> {
    /// The read failed, with this error.
    Unread(String),
    /// The object does not exist.
    Missing,
    /// The object.
    Found(Arc<T>),
}

/// A PVC and its PersistentVolume.
#[derive(Clone, Debug, PartialEq)]
pub struct PvcState {
    /// The PVC.
    pub pvc: Lookup<PersistentVolumeClaim>,
    /// The PersistentVolume; not read before the PVC is bound.
    pub volume: Lookup<PersistentVolume>,
}

/// Input of [`pvc_volume`].
#[derive(Clone, Copy, Debug)]
pub struct PvcInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The volume.
    pub volume: &'a Volume,
    /// Name of its PVC.
    pub pvc: &'a str,
    /// The PVC and its PersistentVolume.
    pub state: &'a PvcState,
    /// The Node object; without it, node affinity is not checked.
    pub node: Option<&'a Node>,
}

/// Error of a PVC; the texts are upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PvcError {
    /// The PVC or its PersistentVolume is not ready.
    #[error("error processing PVC {namespace}/{pvc}: {why}")]
    NotReady {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the PVC.
        pvc: String,
        /// Cause.
        why: String,
        /// The object could not be read.
        unread: bool,
    },
    /// The PVC of an ephemeral volume belongs to another owner.
    #[error("PVC {namespace}/{pvc} was not created for pod {namespace}/{pod} (pod is not owner)")]
    NotOwner {
        /// Namespace of both.
        namespace: String,
        /// Name of the PVC.
        pvc: String,
        /// Name of the pod.
        pod: String,
    },
    /// Containers mount a block device or use a file system as a device.
    #[error("volume {volume} has volumeMode {mode}, but is specified in {used}")]
    Mode {
        /// Name of the volume in the pod.
        volume: String,
        /// `Filesystem` or `Block`.
        mode: String,
        /// `volumeMounts` or `volumeDevices`.
        used: &'static str,
    },
    /// The node affinity of the PersistentVolume excludes this node.
    #[error(
        "MountVolume.NodeAffinity check failed for volume \"{0}\" : no matching NodeSelectorTerms"
    )]
    Affinity(String),
}

impl PvcError {
    /// Returns the retry class.
    pub fn retry(&self) -> Retry {
        match self {
            Self::NotReady { unread: true, .. } => Retry::Soon,
            _ => Retry::Later,
        }
    }
}

/// Resolves a volume of a pod to the PersistentVolume of its PVC.
///
/// `attach_required` of a CSI volume is the API default; the caller sets it from the CSIDriver.
///
/// # Errors
/// The PVC is not ready, or does not match the pod or the node.
pub fn pvc_volume(input: PvcInput<'_>) -> Result<PodVolume, PvcError> {
    let name = input.pvc;
    let error = |why: String, unread: bool| PvcError::NotReady {
        namespace: input.pod.namespace().to_owned(),
        pvc: name.to_owned(),
        why,
        unread,
    };
    let pvc = bound_pvc(&input.state.pvc, name).map_err(|(why, unread)| error(why, unread))?;
    if input.volume.persistent_volume_claim.is_none() && !is_owner(input.pod, pvc) {
        return Err(PvcError::NotOwner {
            namespace: input.pod.namespace().to_owned(),
            pvc: name.to_owned(),
            pod: input.pod.name().to_owned(),
        });
    }
    let volume = bound_persistent_volume(&input.state.volume, pvc)
        .map_err(|(why, unread)| error(why, unread))?;
    let default = PersistentVolumeSpec::default();
    let spec = volume.spec.as_ref().unwrap_or(&default);
    check_mode(input, spec)?;
    let volume_name = volume.metadata.name.clone().unwrap_or_default();
    let migrated = in_tree::persistent_volume(volume, spec).transpose();
    let affinity = spec.node_affinity.as_ref();
    let required = match &migrated {
        Ok(Some((_, required))) => required.as_ref(),
        _ => affinity.and_then(|affinity| affinity.required.as_ref()),
    };
    if let (Some(required), Some(node)) = (required, input.node)
        && !matches_node_selector(required, node)
    {
        return Err(PvcError::Affinity(volume_name));
    }
    let pvc_field = input.volume.persistent_volume_claim.as_ref();
    let mut read_only = pvc_field.and_then(|source| source.read_only) == Some(true);
    // only NFS enforces this in the PersistentVolume
    read_only |= spec.nfs.as_ref().and_then(|nfs| nfs.read_only) == Some(true);
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let size = size(name, pvc, spec);
    let source = match migrated {
        Ok(Some((csi, _))) => VolumeSource::Csi(Box::new(CsiVolume {
            volume_name: volume_name.clone(),
            block: spec.volume_mode.as_deref() == Some(BLOCK),
            size: Some(size),
            ..csi
        })),
        Ok(None) => source(&volume_name, spec, size),
        Err(error) => VolumeSource::Invalid(error.to_string()),
    };
    Ok(PodVolume {
        name: input.volume.name.clone(),
        source,
        read_only,
        mount_options: mount_options(volume, spec),
        pvc: Some(BoundPvc {
            name: name.to_owned(),
            volume: volume_name,
            exclusive: modes == [ONE_POD],
            group: group(volume),
        }),
    })
}

/// Cause, and whether the object could not be read.
type NotReady = (String, bool);

fn bound_pvc<'a>(
    pvc: &'a Lookup<PersistentVolumeClaim>,
    name: &str,
) -> Result<&'a PersistentVolumeClaim, NotReady> {
    let unread = |error: &str| format!("failed to fetch PVC from API server: {error}");
    let pvc = match pvc {
        Lookup::Unread(error) => return Err((unread(error), true)),
        Lookup::Missing => {
            let error = format!("persistentvolumeclaims {name:?} not found");
            return Err((unread(&error), false));
        }
        Lookup::Found(pvc) => pvc,
    };
    let protected = pvc.metadata.finalizers.iter().flatten();
    let mut protected = protected.filter(|name| *name == PROTECTED);
    let why = if pvc.metadata.deletion_timestamp.is_some() && protected.next().is_none() {
        "PVC is being deleted"
    } else if pvc.status.as_ref().and_then(|s| s.phase.as_deref()) != Some("Bound") {
        "PVC is not bound"
    } else if bound_volume(pvc).is_none() {
        "PVC has empty pvc.Spec.VolumeName"
    } else {
        return Ok(pvc);
    };
    Err((why.to_owned(), false))
}

/// Returns `spec.volumeName`, if set.
pub fn bound_volume(pvc: &PersistentVolumeClaim) -> Option<&str> {
    let name = pvc.spec.as_ref()?.volume_name.as_deref();
    name.filter(|name| !name.is_empty())
}

fn is_owner(pod: &Pod, pvc: &PersistentVolumeClaim) -> bool {
    let owners = pvc.metadata.owner_references.iter().flatten();
    let mut controllers = owners.filter(|owner| owner.controller == Some(true));
    controllers.any(|owner| owner.uid == pod.uid().as_str())
}

fn bound_persistent_volume<'a>(
    volume: &'a Lookup<PersistentVolume>,
    pvc: &PersistentVolumeClaim,
) -> Result<&'a PersistentVolume, NotReady> {
    let name = bound_volume(pvc).unwrap_or_default();
    let unread = |error: &str| format!("failed to fetch PV {name} from API server: {error}");
    let volume = match volume {
        Lookup::Unread(error) => return Err((unread(error), true)),
        Lookup::Missing => {
            let error = format!("persistentvolumes {name:?} not found");
            return Err((unread(&error), false));
        }
        Lookup::Found(volume) => volume,
    };
    let claim_ref = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref());
    let Some(claim_ref) = claim_ref else {
        let why = format!(
            "found PV object {name} but it has a nil pv.Spec.ClaimRef indicating it is not yet \
             bound to the claim"
        );
        return Err((why, false));
    };
    let (has, wants) = (claim_ref.uid.as_deref(), pvc.metadata.uid.as_deref());
    let (has, wants) = (has.unwrap_or_default(), wants.unwrap_or_default());
    if has != wants {
        let why = format!(
            "found PV object {name} but its pv.Spec.ClaimRef.UID {has} does not point to \
             claim.UID {wants}"
        );
        return Err((why, false));
    }
    Ok(volume)
}

fn check_mode(input: PvcInput<'_>, spec: &PersistentVolumeSpec) -> Result<(), PvcError> {
    let mode = spec.volume_mode.as_deref().unwrap_or("Filesystem");
    let uses = pod_references::volume_use(input.pod, &input.volume.name);
    let used = match mode {
        BLOCK if uses.mounts => "volumeMounts",
        mode if mode != BLOCK && uses.devices => "volumeDevices",
        _ => return Ok(()),
    };
    Err(PvcError::Mode {
        volume: input.volume.name.clone(),
        mode: mode.to_owned(),
        used,
    })
}

fn source(name: &str, spec: &PersistentVolumeSpec, size: PvcSize) -> VolumeSource {
    let block = spec.volume_mode.as_deref() == Some(BLOCK);
    let secret = |secret: &Option<SecretReference>| {
        let secret = secret.as_ref()?;
        Some(SecretRef {
            namespace: secret.namespace.clone().unwrap_or_default(),
            name: secret.name.clone().filter(|name| !name.is_empty())?,
        })
    };
    if let Some(csi) = &spec.csi {
        return VolumeSource::Csi(Box::new(CsiVolume {
            volume_name: name.to_owned(),
            driver: csi.driver.clone(),
            handle: Some(csi.volume_handle.clone()),
            fs_type: csi.fs_type.clone().unwrap_or_default(),
            attributes: csi.volume_attributes.clone().unwrap_or_default(),
            block,
            access_modes: spec.access_modes.clone().unwrap_or_default(),
            stage_secret: secret(&csi.node_stage_secret_ref),
            publish_secret: secret(&csi.node_publish_secret_ref),
            expand_secret: secret(&csi.node_expand_secret_ref),
            size: Some(size),
            attach_required: true,
        }));
    }
    if let Some(local) = &spec.local {
        return VolumeSource::Local(LocalVolume {
            volume_name: name.to_owned(),
            path: PathBuf::from(&local.path),
            fs_type: local.fs_type.clone(),
            block,
            size: Some(size),
        });
    }
    if let Some(nfs) = &spec.nfs {
        return VolumeSource::Nfs(NfsVolume {
            volume_name: name.to_owned(),
            server: nfs.server.clone(),
            path: nfs.path.clone(),
        });
    }
    match &spec.host_path {
        Some(host_path) => VolumeSource::HostPath(host_path.clone()),
        None => VolumeSource::Unsupported(other::for_persistent_volume(spec).to_owned()),
    }
}

/// Returns the group of the provisioner's annotation, if it is a number.
fn group(volume: &PersistentVolume) -> Option<i64> {
    let annotations = volume.metadata.annotations.as_ref()?;
    annotations.get("pv.beta.kubernetes.io/gid")?.parse().ok()
}

/// Returns the mount options: the annotation takes precedence over `spec.mountOptions`.
fn mount_options(volume: &PersistentVolume, spec: &PersistentVolumeSpec) -> Vec<String> {
    let annotations = volume.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get("volume.beta.kubernetes.io/mount-options")) {
        Some(options) => options.split(',').map(str::to_owned).collect(),
        None => spec.mount_options.clone().unwrap_or_default(),
    }
}

fn size(name: &str, pvc: &PersistentVolumeClaim, spec: &PersistentVolumeSpec) -> PvcSize {
    let status = pvc.status.as_ref();
    let capacity = storage(spec.capacity.as_ref());
    PvcSize {
        pvc: name.to_owned(),
        uid: pvc.metadata.uid.clone().unwrap_or_default(),
        desired: capacity,
        reported: storage(status.and_then(|s| s.capacity.as_ref())),
        actionable: expansion_decision(pvc, capacity, false) != ExpansionDecision::Deferred,
    }
}

/// Returns the storage in bytes; 0 if it is missing or invalid.
pub(super) fn storage(list: Option<&BTreeMap<String, ApiQuantity>>) -> u64 {
    let amount = quantity::lookup(list, "storage").ok().flatten();
    u64::try_from(amount.map_or(0, |amount| amount.value())).unwrap_or_default()
}
