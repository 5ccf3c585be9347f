//! Mounts of CSI volumes: staged once for the node, published to each pod, unpublished, unstaged.
//!
//! The volume data file is written before a driver is called and removed after the driver reports
//! that the volume is gone. After a kill in between, the next agent run finds the volume and repeats
//! the call, which CSI requires drivers to support. A completed call is not repeated while the
//! volume is mounted, except for `requiresRepublish`; so an unavailable driver does not affect
//! running pods, also after an agent restart.
//!
//! * `paths`: directories and names; `volume_data`: the `vol_data.json` files
//! * `inputs`: the fields of a call, from the volume and API server objects
//! * `stage` and `publish`: volumes with a file system; `block`: block volumes
//! * `discovery`: volumes found on the node
//! * `expand`: expansion and usage
//! * `host`: the port to the host

mod block;
mod discovery;
mod error;
mod expand;
mod host;
mod inputs;
mod paths;
mod publish;
mod stage;
mod volume_data;

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use windlass_types::{DeviceName, MountedVolume, PodExt, PodUid, SharedPod};
use windlass_volume_plan::volume_source::{CsiVolume, PodVolume, VolumeSource};

use crate::drivers::CsiDrivers;
use crate::port::CsiObjects;

pub use error::MountError;
pub use host::{FileWork, IoQueueKind, VolumeHost};
pub(crate) use paths::inline_handle;
pub use paths::{CsiPaths, attachment_name, is_csi_device};

use paths::CsiDevice;

/// What [`CsiVolumes`] works with.
#[derive(Clone, Debug)]
pub struct CsiVolumesDeps {
    /// Paths of volumes.
    pub paths: CsiPaths,
    /// Name of this node, part of VolumeAttachment names.
    pub node_name: String,
    /// Registered drivers.
    pub drivers: CsiDrivers,
    /// API server objects.
    pub objects: Arc<dyn CsiObjects>,
    /// Port to the host.
    pub host: Arc<dyn VolumeHost>,
}

/// Mounts, expands, measures and unmounts CSI volumes. Every call may be repeated at any time, also
/// after an agent restart. The caller runs at most one operation per volume of a pod, and none on a
/// device while it is staged or unstaged.
#[derive(Debug)]
pub struct CsiVolumes {
    deps: CsiVolumesDeps,
    /// Completed calls of this agent run; those of previous runs are in the volume data files.
    done: Mutex<Done>,
}

#[derive(Debug, Default)]
struct Done {
    staged: BTreeSet<DeviceName>,
    published: BTreeSet<(PodUid, String)>,
}

/// One volume of one pod, with its names checked.
#[derive(Clone, Debug)]
struct CheckedVolume<'a> {
    pod: &'a SharedPod,
    uid: PodUid,
    volume: &'a PodVolume,
    csi: &'a CsiVolume,
    device: CsiDevice,
    /// `-o context=` for the mount, if SELinux is on.
    se_linux: Option<String>,
}

impl CsiVolumes {
    /// Creates the volumes, without calls of previous agent runs.
    pub fn new(deps: CsiVolumesDeps) -> Self {
        Self {
            deps,
            done: Mutex::default(),
        }
    }

    /// NodeStageVolume, for a driver that stages; once for all pods of the node that use the volume.
    /// `se_linux` is the label to mount it with if its driver can (`seLinuxMount`).
    ///
    /// # Errors
    /// [`MountError::is_final`] is false if the volume may be staged.
    pub async fn stage(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        se_linux: Option<&str>,
    ) -> Result<(), MountError> {
        let mut checked = check_volume(pod, volume)?;
        checked.se_linux = se_linux.map(str::to_owned);
        if checked.csi.handle.is_none() {
            // an inline volume is only published
            return Ok(());
        }
        match checked.csi.block {
            true => self.stage_block(&checked).await,
            false => self.stage_mount(&checked).await,
        }
    }

    /// NodeUnstageVolume and removal of the device directories. A missing device is not an error.
    ///
    /// # Errors
    /// A pod still uses the device, or a step failed.
    pub async fn unstage(&self, device: &DeviceName) -> Result<(), MountError> {
        let Some(parts) = CsiDevice::parse(device) else {
            return Err(MountError::Invalid(format!("{device} is not a CSI device")));
        };
        self.check_unused(&parts).await?;
        self.done.lock().staged.remove(device);
        self.unstage_mount(&parts).await?;
        self.unstage_blocks(&parts).await
    }

    /// NodePublishVolume, unless it has completed and `requiresRepublish` is false.
    ///
    /// # Errors
    /// A step failed. A failed republish is not an error: the volume stays published.
    pub async fn set_up(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        se_linux: Option<&str>,
    ) -> Result<MountedVolume, MountError> {
        let mut checked = check_volume(pod, volume)?;
        checked.se_linux = se_linux.map(str::to_owned);
        match checked.csi.block {
            true => self.set_up_block(&checked).await,
            false => self.set_up_mount(&checked).await,
        }
    }

    /// NodeUnpublishVolume and removal of the volume directories. A missing volume is not an error.
    ///
    /// # Errors
    /// A step failed; nothing is removed before NodeUnpublishVolume succeeded.
    pub async fn tear_down(
        &self,
        uid: &PodUid,
        volume: &str,
        block: bool,
    ) -> Result<(), MountError> {
        paths::check_names(uid, "unknown", volume)?;
        self.done
            .lock()
            .published
            .remove(&(uid.clone(), volume.to_owned()));
        match block {
            true => self.tear_down_block(uid, volume).await,
            false => self.tear_down_mount(uid, volume).await,
        }
    }

    /// Runs file work in an I/O queue and returns its result.
    async fn files<T: Send + 'static>(
        &self,
        queue: &IoQueueKind,
        action: &'static str,
        work: impl FnOnce(&dyn VolumeHost) -> Result<T, MountError> + Send + 'static,
    ) -> Result<T, MountError> {
        let (sender, result) = oneshot::channel();
        let host = Arc::clone(&self.deps.host);
        let work = Box::new(move || {
            let _ = sender.send(work(&*host));
        });
        let ended = self.deps.host.run(queue, action, work).await;
        ended.map_err(MountError::Files)?;
        let lost = |_| MountError::Files(format!("{action} was interrupted"));
        result.await.map_err(lost)?
    }
}

impl CheckedVolume<'_> {
    /// Name of its directory below the pod directory.
    fn name(&self) -> &str {
        &self.csi.volume_name
    }

    /// The I/O queue of its device: work may access the mount.
    fn queue(&self) -> IoQueueKind {
        device_queue(&self.device)
    }

    /// Its key in [`Done`].
    fn key(&self) -> (PodUid, String) {
        (self.uid.clone(), self.csi.volume_name.clone())
    }

    fn fs_group(&self) -> Option<u32> {
        let context = PodExt::spec(&**self.pod).security_context.as_ref();
        context
            .and_then(|context| context.fs_group)
            .and_then(|gid| u32::try_from(gid).ok())
    }

    /// `Persistent` or `Ephemeral`.
    fn mode(&self) -> &'static str {
        match self.csi.handle {
            Some(_) => "Persistent",
            None => "Ephemeral",
        }
    }
}

fn check_volume<'a>(
    pod: &'a SharedPod,
    volume: &'a PodVolume,
) -> Result<CheckedVolume<'a>, MountError> {
    let VolumeSource::Csi(csi) = &volume.source else {
        let message = format!("volume {:?} is not a CSI volume", volume.name);
        return Err(MountError::Invalid(message));
    };
    let uid = pod.uid();
    paths::check_names(&uid, &csi.driver, &csi.volume_name)?;
    let handle = match csi.handle.as_deref() {
        Some("") => return Err(MountError::Invalid("missing volume id".to_owned())),
        Some(handle) => handle.to_owned(),
        None => inline_handle(&uid, &csi.volume_name),
    };
    Ok(CheckedVolume {
        pod,
        uid,
        volume,
        csi,
        device: CsiDevice {
            driver: csi.driver.clone(),
            handle,
        },
        se_linux: None,
    })
}

/// The I/O queue of a pod's volumes, shared with other volume types.
fn pod_queue(uid: &PodUid) -> IoQueueKind {
    IoQueueKind::Pod(uid.clone())
}

/// The I/O queue of a device, shared by all pods that use it.
fn device_queue(device: &CsiDevice) -> IoQueueKind {
    IoQueueKind::Device(device.name())
}

#[cfg(test)]
mod tests;
