//! Mounts of CSI volumes: staged once for the node, published to each pod, taken back.
//!
//! Notes lie on the disk before a driver is called, and go after it said that the volume is gone:
//! whoever is killed in between is followed by an agent that finds the volume and repeats the call,
//! which CSI asks drivers to bear. What a driver has said to be done is not asked for again while
//! it is mounted, but for `requiresRepublish`; so a driver that is away costs a running pod
//! nothing, also after a restart.
//!
//! * `paths` where everything lies; `notes` what is written beside it
//! * `inputs` what a call is made of, with what the API server knows
//! * `stage` and `publish` for volumes with a file system, `block` for the others
//! * `found` what lies on the node
//! * `grow` expansion and usage
//! * `host` the port to the machine

mod block;
mod error;
mod found;
mod grow;
mod host;
mod inputs;
mod notes;
mod paths;
mod publish;
mod stage;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use windlass_volume_plan::volume_source::{CsiVolume, PodVolume, VolumeSource};
use windlass_types::{DeviceName, MountedVolume, PodExt, PodUid, SharedPod};

use crate::drivers::CsiDrivers;
use crate::port::CsiObjects;

pub use error::MountError;
pub use host::{FileLane, FileWork, VolumeHost};
pub(crate) use paths::inline_handle;
pub use paths::{CsiPaths, attachment_name, is_csi_device};

use paths::CsiDevice;

/// What [`CsiVolumes`] works with.
#[derive(Clone, Debug)]
pub struct CsiVolumesDeps {
    /// Where volumes lie.
    pub paths: CsiPaths,
    /// Name of this node, of which names of VolumeAttachments are made.
    pub node_name: String,
    /// Who is registered.
    pub drivers: CsiDrivers,
    /// What the API server knows.
    pub objects: Arc<dyn CsiObjects>,
    /// The machine.
    pub host: Arc<dyn VolumeHost>,
}

/// Mounts, grows, measures and takes back the volumes of CSI drivers. Every call may be repeated at
/// any time, also by a new agent. Whoever calls has one operation under way for each volume of a
/// pod, and none on a device while it is staged or unstaged.
#[derive(Debug)]
pub struct CsiVolumes {
    deps: CsiVolumesDeps,
    /// What this agent has seen done; what an earlier one did stands in the notes.
    done: Mutex<Done>,
}

#[derive(Debug, Default)]
struct Done {
    staged: BTreeSet<DeviceName>,
    published: BTreeSet<(PodUid, String)>,
}

/// One volume of one pod, with its names checked.
#[derive(Clone, Debug)]
struct Asked<'a> {
    pod: &'a SharedPod,
    uid: PodUid,
    volume: &'a PodVolume,
    csi: &'a CsiVolume,
    device: CsiDevice,
    /// `-o context=` for the mount, if SELinux is on.
    se_linux: Option<String>,
}

impl CsiVolumes {
    /// Touches nothing yet.
    pub fn new(deps: CsiVolumesDeps) -> Self {
        Self {
            deps,
            done: Mutex::default(),
        }
    }

    /// NodeStageVolume, for a driver that stages; one for all pods of the node that use the volume.
    /// `se_linux` is the label to mount it with if its driver can (`seLinuxMount`).
    ///
    /// # Errors
    /// What did not work; [`MountError::is_final`] tells whether something may be left of it.
    pub async fn stage(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        se_linux: Option<&str>,
    ) -> Result<(), MountError> {
        let mut asked = asked(pod, volume)?;
        asked.se_linux = se_linux.map(str::to_owned);
        if asked.csi.handle.is_none() {
            // an inline volume is published and nothing else
            return Ok(());
        }
        match asked.csi.block {
            true => self.stage_block(&asked).await,
            false => self.stage_mount(&asked).await,
        }
    }

    /// NodeUnstageVolume, and what the node keeps of the device. One that is not there is fine.
    ///
    /// # Errors
    /// A pod still has it, or what did not work.
    pub async fn unstage(&self, device: &DeviceName) -> Result<(), MountError> {
        let Some(parts) = CsiDevice::parse(device) else {
            return Err(MountError::Invalid(format!(
                "{device} is no volume of a CSI driver"
            )));
        };
        self.check_unused(&parts).await?;
        self.done().staged.remove(device);
        self.unstage_mount(&parts).await?;
        self.unstage_blocks(&parts).await
    }

    /// NodePublishVolume, unless it was done before and the driver does not ask for more.
    ///
    /// # Errors
    /// What did not work. A volume that was published before stays published, and it is no error
    /// that the driver could not be asked again.
    pub async fn set_up(
        &self,
        pod: &SharedPod,
        volume: &PodVolume,
        se_linux: Option<&str>,
    ) -> Result<MountedVolume, MountError> {
        let mut asked = asked(pod, volume)?;
        asked.se_linux = se_linux.map(str::to_owned);
        match asked.csi.block {
            true => self.set_up_block(&asked).await,
            false => self.set_up_mount(&asked).await,
        }
    }

    /// NodeUnpublishVolume, and what the node keeps of the volume. One that is not there is fine.
    ///
    /// # Errors
    /// What did not work; nothing is removed before the driver has said that the volume is gone.
    pub async fn tear_down(
        &self,
        uid: &PodUid,
        volume: &str,
        block: bool,
    ) -> Result<(), MountError> {
        paths::check_names(uid, "unknown", volume)?;
        self.done()
            .published
            .remove(&(uid.clone(), volume.to_owned()));
        match block {
            true => self.tear_down_block(uid, volume).await,
            false => self.tear_down_mount(uid, volume).await,
        }
    }

    /// Runs work on files in a lane, and waits for what it comes to.
    async fn files<T: Send + 'static>(
        &self,
        lane: &FileLane,
        action: &'static str,
        work: impl FnOnce(&dyn VolumeHost) -> Result<T, MountError> + Send + 'static,
    ) -> Result<T, MountError> {
        let (told, answer) = oneshot::channel();
        let host = Arc::clone(&self.deps.host);
        let work = Box::new(move || {
            // a caller that has gone asks again
            let _ = told.send(work(&*host));
        });
        let ended = self.deps.host.run(lane, action, work).await;
        ended.map_err(MountError::Files)?;
        let lost = |_| MountError::Files(format!("{action} was interrupted"));
        answer.await.map_err(lost)?
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked<'_> {
    /// Its directory under the pod's.
    fn name(&self) -> &str {
        &self.csi.volume_name
    }

    /// The lane of its device: what a driver mounted is looked at, or may be.
    fn lane(&self) -> FileLane {
        device_lane(&self.device)
    }

    /// What it is in [`Done`].
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

fn asked<'a>(pod: &'a SharedPod, volume: &'a PodVolume) -> Result<Asked<'a>, MountError> {
    let VolumeSource::Csi(csi) = &volume.source else {
        let message = format!("volume {:?} is not one of a CSI driver", volume.name);
        return Err(MountError::Invalid(message));
    };
    let uid = pod.uid();
    paths::check_names(&uid, &csi.driver, &csi.volume_name)?;
    let handle = match csi.handle.as_deref() {
        Some("") => return Err(MountError::Invalid("missing volume id".to_owned())),
        Some(handle) => handle.to_owned(),
        None => inline_handle(&uid, &csi.volume_name),
    };
    Ok(Asked {
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

/// The lane of a pod's volumes, shared with those that are no CSI volumes.
fn pod_lane(uid: &PodUid) -> FileLane {
    FileLane::Pod(uid.clone())
}

/// The lane of a device, shared by all pods that have it.
fn device_lane(device: &CsiDevice) -> FileLane {
    FileLane::Device(device.name())
}

#[cfg(test)]
mod tests;
