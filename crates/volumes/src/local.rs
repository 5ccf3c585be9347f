//! `local`: a directory or block device of this node that a PersistentVolume names.
//!
//! A directory is bind-mounted for each pod. A block device in file system mode is formatted if it is
//! empty, mounted once for the node (`plugins/kubernetes.io/local-volume/mounts`), and that mount is
//! bind-mounted. The path comes from the PersistentVolume, so its links are followed. An existing
//! bind mount means that all previous steps completed.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};
use windlass_pod_inputs::paths::check_component;
use windlass_types::{DeviceName, MountedContent, MountedVolume, PodExt, Reason};
use windlass_volume_plan::volume_source::{LOCAL_PLUGIN, LocalVolume};

use crate::error::VolumeError;
use crate::format::format_and_mount;
use crate::io_queue::IoQueue;
use crate::machine::Machine;
use crate::mount_info::{MountPoint, mounts_of};
use crate::mounts::{bind, joined_options, mounted};
use crate::pod_volumes::pod_group;
use crate::port::VolumeRequest;
use crate::resize::resize_file_system;
use crate::walks::OwnershipChange;

/// Upstream's step that fails for a missing path.
const NEW_MOUNTER: &str = "MountVolume.NewMounter initialization";

/// Mounts the file system of a block device for the node. No-op for a directory or block mode.
pub(crate) async fn stage(
    machine: &Machine,
    request: &VolumeRequest,
    volume: &LocalVolume,
) -> Result<(), VolumeError> {
    if volume.block {
        return Ok(());
    }
    check(volume)?;
    let queue = device_queue(&volume.volume_name);
    let (path, target) = (volume.path.clone(), global_mount(machine, volume));
    let due = machine
        .step(&queue, "inspecting a local volume", move || {
            let due = kind(&path)? == Kind::Block && mounted(&target)?.is_none();
            if due {
                make_directory(&target)?;
            }
            Ok(due)
        })
        .await?;
    if !due {
        return Ok(());
    }
    let target = global_mount(machine, volume);
    let options = joined_options(&request.volume.mount_options, request.volume.read_only);
    let fs_type = volume
        .fs_type
        .as_deref()
        .filter(|fs_type| !fs_type.is_empty());
    let fs_type = fs_type.unwrap_or("ext4");
    let done = format_and_mount(machine, &queue, &volume.path, &target, fs_type, options).await;
    let Err(error) = done else {
        return Ok(());
    };
    let message = format!(
        "local: failed to mount device {} at {} (fstype: {fs_type}), error {error}",
        volume.path.display(),
        target.display(),
    );
    let removed = machine.step(&queue, "cleaning a local volume", move || {
        remove_empty(&target)
    });
    if let Err(error) = removed.await {
        tracing::warn!(%error, "cleanup failed");
    }
    Err(VolumeError::failed(message))
}

/// Unmounts what [`stage`] mounted.
pub(crate) async fn unstage(machine: &Machine, name: &str) -> Result<(), VolumeError> {
    check_name(name)?;
    let mount = machine.local_mounts().join(name);
    let devices = machine.local_devices().join(name);
    machine
        .step(
            &device_queue(name),
            "unmounting a local volume",
            move || {
                if mounted(&mount)?.is_some() {
                    check_unused(&mount)?;
                    unmount(&mount, UnmountFlags::NOFOLLOW)
                        .map_err(|error| VolumeError::io("unmount", &mount, error))?;
                }
                remove_empty(&mount)?;
                // not empty while a pod uses the device
                remove_if_empty(&devices)
            },
        )
        .await
}

/// Fails if the mount is still bind-mounted for a pod.
fn check_unused(mount: &Path) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::io("look for mounts of", mount, error);
    let others = mounts_of(mount).map_err(failed)?;
    if others.is_empty() {
        return Ok(());
    }
    let others: Vec<_> = others.iter().map(|m| m.path.to_string_lossy()).collect();
    Err(VolumeError::failed(format!(
        "The device mount path {mount:?} is still mounted by other references [{}]",
        others.join(" ")
    )))
}

pub(crate) fn device_name(volume: &str) -> DeviceName {
    DeviceName(format!("{LOCAL_PLUGIN}/{volume}"))
}

/// The PersistentVolume of a local device.
pub(crate) fn volume_of(device: &DeviceName) -> Option<&str> {
    device.0.strip_prefix(LOCAL_PLUGIN)?.strip_prefix('/')
}

/// Bind-mounts the volume in the directory of the pod.
pub(crate) async fn set_up(
    machine: &Machine,
    request: &VolumeRequest,
    volume: &LocalVolume,
) -> Result<MountedVolume, VolumeError> {
    check(volume)?;
    let queue = device_queue(&volume.volume_name);
    let read_only = request.volume.read_only;
    let options = joined_options(&request.volume.mount_options, read_only);
    let target = target(machine, request)?;
    let global = global_mount(machine, volume);
    let locks = &machine.directory_locks;
    let lock = locks.get_or_insert_with(volume.path.clone(), Default::default);
    let _guard = lock.lock().await;

    let (path, place) = (volume.path.clone(), target.clone());
    let (source, is_mounted) = machine
        .step(&queue, "inspecting a local volume", move || {
            let source = source(&path, &global)?;
            Ok((source, mounted(&place)?.is_some()))
        })
        .await?;
    if !is_mounted && !read_only {
        change_ownership(machine, request, volume, &source, &target).await?;
    }
    let place = target.clone();
    machine
        .step(&queue, "making a volume's directory", move || {
            make_directory(&place)
        })
        .await?;
    let place = target.clone();
    machine
        .step(&queue, "binding a local volume", move || {
            bind(&source, &place, &options)
        })
        .await?;
    Ok(MountedVolume {
        content: MountedContent::Path(target),
        read_only,
        // as upstream: a read-only volume keeps its labels
        relabel: !read_only,
    })
}

/// Resizes the file system of a block device. No-op for a directory or block mode.
pub(crate) async fn expand(
    machine: &Machine,
    request: &VolumeRequest,
    volume: &LocalVolume,
) -> Result<(), VolumeError> {
    if volume.block {
        return Ok(());
    }
    check(volume)?;
    let (queue, path) = (device_queue(&volume.volume_name), volume.path.clone());
    let found = machine.step(&queue, "inspecting a local volume", move || kind(&path));
    match found.await {
        Ok(Kind::Directory) => Ok(()),
        Ok(Kind::Block) => {
            resize_file_system(machine, &volume.path, &target(machine, request)?).await
        }
        // the volume is mounted, so the NewMounter step does not apply
        Err(VolumeError::Failed { message, .. }) => Err(VolumeError::failed(message)),
        Err(error) => Err(error),
    }
}

/// Changes the ownership unless another pod uses the volume: the first pod determines the group.
async fn change_ownership(
    machine: &Machine,
    request: &VolumeRequest,
    volume: &LocalVolume,
    source: &Path,
    target: &Path,
) -> Result<(), VolumeError> {
    let Some(group) = pod_group(&request.pod, false) else {
        return Ok(());
    };
    let (place, pods) = (source.to_owned(), machine.paths.pods_dir());
    let others = machine
        .step(
            &device_queue(&volume.volume_name),
            "finding other users of a local volume",
            move || group_of_others(&place, &pods),
        )
        .await?;
    match others {
        None => {
            machine.kill_point()?;
            let walk = OwnershipChange {
                pod: &request.pod,
                queue: device_queue(&volume.volume_name),
                dir: source,
                pod_path: target,
                group,
            };
            machine.change_ownership(walk).await
        }
        Some(current) => {
            if current != group.gid {
                let message = format!(
                    "The requested fsGroup is {}, but the volume {} has GID {current}. The volume \
                     may not be shareable.",
                    group.gid,
                    request.volume.dir_name(),
                );
                machine.record_event(&request.pod, Reason::AlreadyMountedVolume, &message);
            }
            Ok(())
        }
    }
}

/// The group of a directory that other pods mount; `None` without other pods.
fn group_of_others(source: &Path, pods: &Path) -> Result<Option<u32>, VolumeError> {
    let failed = |error| VolumeError::io("look for mounts of", source, error);
    let pods = pods.canonicalize().unwrap_or_else(|_| pods.to_owned());
    let of_pod = |mount: &MountPoint| mount.path.starts_with(&pods);
    if !mounts_of(source).map_err(failed)?.iter().any(of_pod) {
        return Ok(None);
    }
    let metadata = fs::metadata(source).map_err(failed)?;
    Ok(Some(metadata.gid()))
}

/// File type of a local volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Directory,
    Block,
}

fn kind(path: &Path) -> Result<Kind, VolumeError> {
    let unusable = |message: String| VolumeError::Failed {
        step: Some(NEW_MOUNTER),
        message,
    };
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Kind::Directory),
        Ok(found) if found.file_type().is_block_device() => Ok(Kind::Block),
        Ok(_) => Err(unusable(
            "only directory and block device are supported".to_owned(),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(unusable(format!("path {path:?} does not exist")))
        }
        Err(error) => Err(VolumeError::io("inspect", path, error)),
    }
}

/// The source of the bind mount.
fn source(path: &Path, global: &Path) -> Result<PathBuf, VolumeError> {
    match kind(path)? {
        // the ownership change does not follow links
        Kind::Directory => path
            .canonicalize()
            .map_err(|error| VolumeError::io("resolve", path, error)),
        Kind::Block if mounted(global)?.is_some() => Ok(global.to_owned()),
        Kind::Block => Err(VolumeError::failed(format!(
            "local: device {} is not mounted at {}",
            path.display(),
            global.display()
        ))),
    }
}

/// Validates a volume without accessing the node.
pub(crate) fn check(volume: &LocalVolume) -> Result<(), VolumeError> {
    check_name(&volume.volume_name)?;
    let path = volume.path.to_string_lossy();
    let message = if path.is_empty() {
        "local volume source is nil or local path is not set".to_owned()
    } else if path.split('/').any(|part| part == "..") {
        format!("invalid path: {path} must not contain '..'")
    } else if !volume.path.is_absolute() {
        format!("invalid path: {path} must be absolute")
    } else {
        return Ok(());
    };
    Err(VolumeError::Invalid {
        volume: volume.volume_name.clone(),
        message,
    })
}

fn check_name(name: &str) -> Result<(), VolumeError> {
    check_component("volume name", name).map_err(|error| VolumeError::Invalid {
        volume: name.to_owned(),
        message: error.to_string(),
    })
}

pub(crate) fn target(machine: &Machine, request: &VolumeRequest) -> Result<PathBuf, VolumeError> {
    check_name(request.volume.dir_name())?;
    let pod_dir = machine.paths.pod_dir(&request.pod.uid());
    let dir = request.volume.dir(&pod_dir);
    dir.ok_or_else(|| VolumeError::Invalid {
        volume: request.volume.name.clone(),
        message: "not a directory volume".to_owned(),
    })
}

fn global_mount(machine: &Machine, volume: &LocalVolume) -> PathBuf {
    machine.local_mounts().join(&volume.volume_name)
}

/// The queue of a PersistentVolume, shared by all pods that use it.
pub(crate) fn device_queue(volume: &str) -> IoQueue {
    IoQueue::Device(device_name(volume).0)
}

pub(crate) fn make_directory(dir: &Path) -> Result<(), VolumeError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o750);
    builder
        .create(dir)
        .map_err(|error| VolumeError::io("create directory", dir, error))
}

/// Removes a former mount directory. Unknown content is an error and stays.
pub(crate) fn remove_empty(dir: &Path) -> Result<(), VolumeError> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(VolumeError::io("remove", dir, error))
        }
        _ => Ok(()),
    }
}

/// Removes a directory unless it has content.
pub(crate) fn remove_if_empty(dir: &Path) -> Result<(), VolumeError> {
    match fs::remove_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(VolumeError::io("remove", dir, error))
        }
        _ => Ok(()),
    }
}
