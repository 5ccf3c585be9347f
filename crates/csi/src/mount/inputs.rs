//! What a call to a driver is made of: the volume's definition, and what the API server knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_volume_plan::volume_source::{CsiVolume, SecretRef};
use windlass_types::PodExt;

use super::error::MountError;
use super::paths::{CsiDevice, attachment_name};
use super::{Asked, CsiVolumes};
use crate::attach_limits::ask_limit;
use crate::port::{CsiDriverSpec, CsiNode, FsGroupPolicy, NodeAbility, ObjectError, StageRequest};

/// Key of the tokens that a driver asks for.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A driver that can be called, and what it can do.
pub(super) struct Driver {
    pub(super) node: Arc<dyn CsiNode>,
    pub(super) abilities: BTreeSet<NodeAbility>,
}

impl Driver {
    pub(super) fn can(&self, ability: NodeAbility) -> bool {
        self.abilities.contains(&ability)
    }
}

impl CsiVolumes {
    /// The driver of a volume. `absent` and `silent` are upstream's names of the two steps.
    pub(super) async fn driver(
        &self,
        device: &CsiDevice,
        absent: &'static str,
        silent: &'static str,
    ) -> Result<Driver, MountError> {
        let registered = self.deps.drivers.get(&device.driver);
        let node = registered.map_err(MountError::driver(absent))?.node;
        let abilities = node.abilities().await.map_err(MountError::driver(silent))?;
        Ok(Driver { node, abilities })
    }

    /// What the CSIDriver object says; `None` if there is none.
    pub(super) async fn spec(
        &self,
        asked: &Asked<'_>,
    ) -> Result<Option<CsiDriverSpec>, ObjectError> {
        self.deps.objects.driver(&asked.device.driver).await
    }

    /// What is common to all calls with a volume, without secrets.
    pub(super) fn request(&self, asked: &Asked<'_>) -> StageRequest {
        let csi = asked.csi;
        StageRequest {
            handle: asked.device.handle.clone(),
            block: csi.block,
            fs_type: if csi.block {
                String::new()
            } else {
                csi.fs_type.clone()
            },
            mount_flags: if csi.block {
                Vec::new()
            } else {
                asked.volume.mount_options.clone()
            },
            access_modes: match (&csi.handle, csi.access_modes.is_empty()) {
                (Some(_), false) => csi.access_modes.clone(),
                _ => vec!["ReadWriteOnce".to_owned()],
            },
            context: csi.attributes.clone(),
            ..StageRequest::default()
        }
    }

    /// What the attacher of the driver left for the node; empty for a driver without one.
    pub(super) async fn publish_context(
        &self,
        asked: &Asked<'_>,
        spec: Option<&CsiDriverSpec>,
        step: &'static str,
    ) -> Result<BTreeMap<String, String>, MountError> {
        let needed = spec.is_none_or(|spec| spec.attach_required);
        if !needed || asked.csi.handle.is_none() {
            return Ok(BTreeMap::new());
        }
        let CsiDevice { driver, handle } = &asked.device;
        let name = attachment_name(handle, driver, &self.deps.node_name);
        let attachment = self.deps.objects.attachment(&name).await;
        let attachment = attachment.map_err(MountError::object(step))?;
        let Some(attachment) = attachment else {
            return Err(MountError::NotAttached(format!(
                "volumeattachments.storage.k8s.io {name:?} not found"
            )));
        };
        match (attachment.attached, attachment.error) {
            (true, _) => Ok(attachment.metadata),
            (false, Some(error)) => Err(MountError::NotAttached(error)),
            (false, None) => Err(MountError::NotAttached(format!(
                "waiting for external-attacher of {driver} CSI driver to attach volume {handle}"
            ))),
        }
    }

    /// The volume is not attached because the node has no room for it, as its driver's attacher says.
    /// The driver is asked then how many fit by now. That is done only for drivers whose limit may
    /// change (`nodeAllocatableUpdatePeriodSeconds`, upstream `VerifyExhaustedResource`).
    pub async fn is_node_full(&self, volume: &CsiVolume) -> bool {
        let (driver, objects) = (&volume.driver, &self.deps.objects);
        let Some(handle) = &volume.handle else {
            return false;
        };
        let spec = objects.driver(driver).await.ok().flatten();
        if spec.and_then(|spec| spec.allocatable_update).is_none() {
            return false;
        }
        let name = attachment_name(handle, driver, &self.deps.node_name);
        let attachment = objects.attachment(&name).await.ok().flatten();
        let full = attachment.is_some_and(|attachment| attachment.node_full);
        if full {
            ask_limit(&self.deps.drivers, driver).await;
        }
        full
    }

    /// The data of a Secret that a volume refers to; none if it refers to none.
    pub(super) async fn secrets(
        &self,
        field: &'static str,
        secret: Option<&SecretRef>,
    ) -> Result<BTreeMap<String, Vec<u8>>, MountError> {
        let Some(secret) = secret else {
            return Ok(BTreeMap::new());
        };
        let data = self.deps.objects.secret(secret).await;
        data.map_err(|source| MountError::Secret {
            field,
            secret: format!("{}/{}", secret.namespace, secret.name),
            source,
        })
    }

    /// The tokens that a driver asks for, as the JSON that it gets; `None` if it asks for none.
    pub(super) async fn tokens(
        &self,
        asked: &Asked<'_>,
        spec: &CsiDriverSpec,
    ) -> Result<Option<String>, MountError> {
        if spec.token_requests.is_empty() {
            return Ok(None);
        }
        let mut all = serde_json::Map::new();
        for request in &spec.token_requests {
            let token = self.deps.objects.token(asked.pod, request).await;
            let token = token.map_err(MountError::object(
                "mounter.SetUpAt failed to get service accoount token attributes",
            ))?;
            let status = serde_json::json!({
                "token": token.token,
                "expirationTimestamp": token.expires,
            });
            all.insert(request.audience.clone(), status);
        }
        Ok(Some(serde_json::Value::Object(all).to_string()))
    }
}

/// The driver has volumes of this kind, as its object says. Without an object it has only those of
/// PersistentVolumes.
pub(super) fn check_lifecycle_mode(
    asked: &Asked<'_>,
    spec: Option<&CsiDriverSpec>,
) -> Result<(), MountError> {
    let inline = asked.csi.handle.is_none();
    let refused = |why: String| MountError::LifecycleMode {
        mode: asked.mode(),
        driver: asked.device.driver.clone(),
        why,
    };
    let Some(spec) = spec else {
        return match inline {
            true => Err(refused("no CSIDriver object".to_owned())),
            false => Ok(()),
        };
    };
    let has = if inline {
        spec.ephemeral
    } else {
        spec.persistent
    };
    if has {
        return Ok(());
    }
    let modes = [
        (spec.persistent, "Persistent"),
        (spec.ephemeral, "Ephemeral"),
    ];
    let modes: Vec<String> = modes
        .iter()
        .filter(|(has, _)| *has)
        .map(|(_, mode)| format!("{mode:?}"))
        .collect();
    Err(refused(format!("only supports [{}]", modes.join(" "))))
}

/// `csi.storage.k8s.io/…`: what a driver with `podInfoOnMount` is told of the pod.
pub(super) fn pod_info(asked: &Asked<'_>) -> [(String, String); 5] {
    let pod = asked.pod;
    let account = PodExt::spec(&**pod).service_account_name.as_deref();
    let entry = |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    [
        entry("pod.name", pod.name()),
        entry("pod.namespace", pod.namespace()),
        entry("pod.uid", asked.uid.as_str()),
        entry("serviceAccount.name", account.unwrap_or_default()),
        entry("ephemeral", &asked.csi.handle.is_none().to_string()),
    ]
}

/// The group that the node has to give a published volume to; `None` if it is to be left alone.
pub(super) fn group_to_apply(asked: &Asked<'_>, spec: Option<&CsiDriverSpec>) -> Option<u32> {
    let policy = spec.map_or(FsGroupPolicy::ReadWriteOnceWithFsType, |s| {
        s.fs_group_policy
    });
    if asked.volume.read_only {
        return None;
    }
    let once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    let applies = match policy {
        FsGroupPolicy::None => false,
        FsGroupPolicy::File => true,
        // an inline volume is ReadWriteOnce by itself
        FsGroupPolicy::ReadWriteOnceWithFsType => {
            !asked.csi.fs_type.is_empty()
                && (asked.csi.handle.is_none() || asked.csi.access_modes.iter().any(once))
        }
    };
    if applies { asked.fs_group() } else { None }
}

/// The SELinux context to mount with: only for a driver that says that it can.
pub(super) fn mount_context(asked: &Asked<'_>, spec: Option<&CsiDriverSpec>) -> Option<String> {
    let can = spec.is_some_and(|spec| spec.se_linux_mount);
    asked.se_linux.clone().filter(|_| can)
}

/// Adds `context="…"` to mount options, as upstream writes it.
pub(super) fn with_context(mut flags: Vec<String>, label: Option<&str>) -> Vec<String> {
    if let Some(label) = label {
        flags.push(format!("context=\"{label}\""));
    }
    flags
}
