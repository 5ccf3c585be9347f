//! `volumeMode: Block` of a local volume: a device of this node that containers see as a device.
//!
//! The pod directory contains a link to the device for its containers. As upstream, the device is
//! also bind-mounted for each pod below
//! `plugins/kubernetes.io~local-volume/volumeDevices/<volume>`. The link is created first and removed
//! last, so that discovery finds the volume. The device stays open while a pod uses it, so that its
//! number is not reused (upstream binds a loop device for that).

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::mount::{UnmountFlags, unmount};
use windlass_types::{MountedContent, MountedVolume, PodExt, PodUid};
use windlass_volume_plan::volume_source::LocalVolume;

use crate::error::VolumeError;
use crate::io_queue::IoQueue;
use crate::local::{self, make_directory, remove_if_empty, target};
use crate::machine::Machine;
use crate::mounts::{bind, mounted};
use crate::port::VolumeRequest;
use crate::programs::Programs;

/// Open devices by the link of the pod that uses them.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenDevices(Arc<Mutex<HashMap<PathBuf, File>>>);

impl OpenDevices {
    fn insert(&self, link: &Path, device: File) {
        let mut devices = self.0.lock();
        devices.insert(link.to_owned(), device);
    }

    fn remove(&self, link: &Path) {
        let mut devices = self.0.lock();
        devices.remove(link);
    }
}

/// Maps the device for one pod.
pub(crate) async fn set_up(
    machine: &Machine,
    open: &OpenDevices,
    request: &VolumeRequest,
    volume: &LocalVolume,
) -> Result<MountedVolume, VolumeError> {
    local::check(volume)?;
    let uid = request.pod.uid();
    let queue = local::device_queue(&volume.volume_name);
    let link = target(machine, request)?;
    let node = machine.local_devices().join(&volume.volume_name);
    let node = node.join(uid.as_str());

    let path = volume.path.clone();
    let (device, file) = machine
        .step(&queue, "opening a device", move || open_device(&path))
        .await?;
    let (place, to) = (link.clone(), device.clone());
    machine
        .step(&queue, "linking a device", move || make_link(&place, &to))
        .await?;
    machine
        .step(&queue, "binding a device", move || {
            bind_node(&device, &node)
        })
        .await?;
    open.insert(&link, file);
    Ok(MountedVolume {
        content: MountedContent::Device(link),
        read_only: request.volume.read_only,
        relabel: false,
    })
}

/// Unmaps the device of a pod.
pub(crate) async fn tear_down(
    machine: &Machine,
    open: &OpenDevices,
    uid: &PodUid,
    link: PathBuf,
    volume: &str,
) -> Result<(), VolumeError> {
    open.remove(&link);
    let queue = local::device_queue(volume);
    let node = machine.local_devices().join(volume).join(uid.as_str());
    release_node(machine, &queue, node).await?;
    machine
        .step(&queue, "unlinking a device", move || {
            remove_file(&link)?;
            link.parent().map_or(Ok(()), remove_if_empty)
        })
        .await
}

/// Removes the bind mount of a device and the loop device of the Go kubelet.
pub(crate) async fn release_node(
    machine: &Machine,
    queue: &IoQueue,
    node: PathBuf,
) -> Result<(), VolumeError> {
    release_loop(machine, queue, &node).await?;
    machine
        .step(queue, "unbinding a device", move || {
            if mounted(&node)?.is_some() {
                unmount(&node, UnmountFlags::NOFOLLOW)
                    .map_err(|error| VolumeError::io("unmount", &node, error))?;
            }
            remove_file(&node)
        })
        .await
}

/// Resolves and opens the device.
fn open_device(path: &Path) -> Result<(PathBuf, File), VolumeError> {
    let missing = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => VolumeError::Failed {
            step: Some("MapVolume.EvalHostSymlinks"),
            message: format!("path {path:?} does not exist"),
        },
        _ => VolumeError::io("open", path, error),
    };
    let device = path.canonicalize().map_err(missing)?;
    let found = fs::metadata(&device).map_err(missing)?;
    if !found.file_type().is_block_device() {
        return Err(VolumeError::failed(format!(
            "path {path:?} is not a block device"
        )));
    }
    // non-blocking: a drive without a medium is still a device
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(&device);
    Ok((device, file.map_err(missing)?))
}

/// Creates the link, or replaces one to another device from before a reboot.
fn make_link(link: &Path, device: &Path) -> Result<(), VolumeError> {
    if fs::read_link(link).is_ok_and(|to| to == device) {
        return Ok(());
    }
    if let Some(parent) = link.parent() {
        make_directory(parent)?;
    }
    remove_file(link)?;
    std::os::unix::fs::symlink(device, link).map_err(|error| VolumeError::io("link", link, error))
}

fn bind_node(device: &Path, node: &Path) -> Result<(), VolumeError> {
    if let Some(parent) = node.parent() {
        make_directory(parent)?;
    }
    let mut options = OpenOptions::new();
    let made = options.write(true).create_new(true).mode(0o640).open(node);
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(VolumeError::io("create file", node, error));
        }
        _ => {}
    }
    bind(device, node, &[])
}

/// Detaches the loop device by which the Go kubelet keeps the file busy.
async fn release_loop(machine: &Machine, queue: &IoQueue, node: &Path) -> Result<(), VolumeError> {
    let place = node.to_owned();
    let found = machine.step(queue, "finding loop devices", move || {
        Ok(loop_device_of(&place))
    });
    let Some(device) = found.await? else {
        return Ok(());
    };
    let programs: &Programs = &machine.config.programs;
    let arguments = ["-d".into(), device.into()];
    let ended = programs.succeed("losetup", &arguments, programs.unmount_deadline);
    ended
        .await
        .map_err(|error| VolumeError::failed(format!("losetup -d failed: {error}")))
}

fn loop_device_of(node: &Path) -> Option<PathBuf> {
    let devices = fs::read_dir("/sys/block").ok()?;
    for device in devices.flatten() {
        let Ok(file) = fs::read_to_string(device.path().join("loop/backing_file")) else {
            continue;
        };
        if Path::new(file.trim_end()) == node {
            return Some(Path::new("/dev").join(device.file_name()));
        }
    }
    None
}

fn remove_file(path: &Path) -> Result<(), VolumeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(VolumeError::io("remove", path, error))
        }
        _ => Ok(()),
    }
}
