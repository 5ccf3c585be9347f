//! Inputs of driver calls: fields of the volume's definition and of API server objects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use windlass_types::PodExt;
use windlass_volume_plan::volume_source::{CsiVolume, SecretRef};

use super::error::MountError;
use super::paths::{CsiDevice, attachment_name};
use super::{CheckedVolume, CsiVolumes};
use crate::attach_limits::refresh_attach_limit;
use crate::port::{CsiDriverSpec, CsiNode, FsGroupPolicy, NodeCapability, StageRequest};

/// Key of the requested service account tokens.
pub(super) const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// A registered driver and its capabilities.
pub(super) struct Driver {
    pub(super) node: Arc<dyn CsiNode>,
    pub(super) capabilities: BTreeSet<NodeCapability>,
}

impl Driver {
    pub(super) fn can(&self, capability: NodeCapability) -> bool {
        self.capabilities.contains(&capability)
    }
}

impl CsiVolumes {
    /// The driver of a volume. `no_client` and `unknown_capability` are upstream's names of the two steps.
    pub(super) async fn driver(
        &self,
        device: &CsiDevice,
        no_client: &'static str,
        unknown_capability: &'static str,
    ) -> Result<Driver, MountError> {
        let registered = self.deps.drivers.get(&device.driver);
        let node = registered.map_err(MountError::driver(no_client))?.node;
        let capabilities = node
            .capabilities()
            .await
            .map_err(MountError::driver(unknown_capability))?;
        Ok(Driver { node, capabilities })
    }

    /// The spec of the CSIDriver object; `None` without an object.
    pub(super) async fn spec(
        &self,
        checked: &CheckedVolume<'_>,
        step: &'static str,
    ) -> Result<Option<CsiDriverSpec>, MountError> {
        let spec = self.deps.objects.driver(&checked.device.driver).await;
        spec.map_err(MountError::object(step))
    }

    /// The fields common to all calls for a volume, without secrets.
    pub(super) fn request(&self, checked: &CheckedVolume<'_>) -> StageRequest {
        let csi = checked.csi;
        let (fs_type, mount_flags) = match csi.block {
            true => Default::default(),
            false => (csi.fs_type.clone(), checked.volume.mount_options.clone()),
        };
        StageRequest {
            handle: checked.device.handle.clone(),
            block: csi.block,
            fs_type,
            mount_flags,
            access_modes: match (&csi.handle, csi.access_modes.is_empty()) {
                (Some(_), false) => csi.access_modes.clone(),
                _ => vec!["ReadWriteOnce".to_owned()],
            },
            context: csi.attributes.clone(),
            ..StageRequest::default()
        }
    }

    /// The publish context from the driver's attacher; empty for a driver without one.
    pub(super) async fn publish_context(
        &self,
        checked: &CheckedVolume<'_>,
        spec: Option<&CsiDriverSpec>,
        step: &'static str,
    ) -> Result<BTreeMap<String, String>, MountError> {
        let needed = spec.is_none_or(|spec| spec.attach_required);
        if !needed || checked.csi.handle.is_none() {
            return Ok(BTreeMap::new());
        }
        let CsiDevice { driver, handle } = &checked.device;
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

    /// Whether the attacher reports that the node is at its attach limit; if so, refreshes the limit.
    /// Only for drivers with `nodeAllocatableUpdatePeriodSeconds` (upstream
    /// `VerifyExhaustedResource`).
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
            refresh_attach_limit(&self.deps.drivers, driver).await;
        }
        full
    }

    /// The data of the Secret that a volume refers to; empty without a reference.
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

    /// The requested tokens as the JSON for the driver; `None` if it requests none.
    pub(super) async fn tokens(
        &self,
        checked: &CheckedVolume<'_>,
        spec: &CsiDriverSpec,
    ) -> Result<Option<String>, MountError> {
        if spec.token_requests.is_empty() {
            return Ok(None);
        }
        let mut all = serde_json::Map::new();
        for request in &spec.token_requests {
            let token = self.deps.objects.token(checked.pod, request).await;
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

/// Checks that the CSIDriver object allows this volume mode. Without an object only persistent
/// volumes are allowed.
pub(super) fn check_lifecycle_mode(
    checked: &CheckedVolume<'_>,
    spec: Option<&CsiDriverSpec>,
) -> Result<(), MountError> {
    let inline = checked.csi.handle.is_none();
    let rejection = |why: String| MountError::LifecycleMode {
        mode: checked.mode(),
        driver: checked.device.driver.clone(),
        why,
    };
    let modes = match spec {
        None if inline => return Err(rejection("no CSIDriver object".to_owned())),
        Some(spec) if inline && !spec.ephemeral => spec.persistent.then_some(r#""Persistent""#),
        Some(spec) if !inline && !spec.persistent => spec.ephemeral.then_some(r#""Ephemeral""#),
        _ => return Ok(()),
    };
    let modes = modes.unwrap_or_default();
    Err(rejection(format!("only supports [{modes}]")))
}

/// `csi.storage.k8s.io/…`: the pod information for a driver with `podInfoOnMount`.
pub(super) fn pod_info(checked: &CheckedVolume<'_>) -> [(String, String); 5] {
    let pod = checked.pod;
    let account = PodExt::spec(&**pod).service_account_name.as_deref();
    let entry = |key: &str, value: &str| (format!("csi.storage.k8s.io/{key}"), value.to_owned());
    [
        entry("pod.name", pod.name()),
        entry("pod.namespace", pod.namespace()),
        entry("pod.uid", checked.uid.as_str()),
        entry("serviceAccount.name", account.unwrap_or_default()),
        entry("ephemeral", &checked.csi.handle.is_none().to_string()),
    ]
}

/// The fsGroup that the node applies to a published volume; `None` for no ownership change.
pub(super) fn group_to_apply(
    checked: &CheckedVolume<'_>,
    spec: Option<&CsiDriverSpec>,
) -> Option<u32> {
    let policy = spec.map_or(FsGroupPolicy::ReadWriteOnceWithFsType, |s| {
        s.fs_group_policy
    });
    if checked.volume.read_only {
        return None;
    }
    let once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    let applies = match policy {
        FsGroupPolicy::None => false,
        FsGroupPolicy::File => true,
        // an inline volume is always ReadWriteOnce
        FsGroupPolicy::ReadWriteOnceWithFsType => {
            !checked.csi.fs_type.is_empty()
                && (checked.csi.handle.is_none() || checked.csi.access_modes.iter().any(once))
        }
    };
    if applies { checked.fs_group() } else { None }
}

/// The SELinux context to mount with, only for drivers with `seLinuxMount`.
pub(super) fn mount_context(
    checked: &CheckedVolume<'_>,
    spec: Option<&CsiDriverSpec>,
) -> Option<String> {
    let supported = spec.is_some_and(|spec| spec.se_linux_mount);
    checked.se_linux.clone().filter(|_| supported)
}

/// Adds `context="…"` to mount options, as upstream writes it.
pub(super) fn with_context(mut flags: Vec<String>, label: Option<&str>) -> Vec<String> {
    if let Some(label) = label {
        flags.push(format!("context=\"{label}\""));
    }
    flags
}
