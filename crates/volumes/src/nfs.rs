//! `nfs`: an export of a server, mounted for each pod by the node's `mount` program.
//!
//! A hung server blocks only the helper process: the agent reads the mount table, never the mount.

use std::path::Path;

use windlass_types::{MountedContent, MountedVolume, PodExt, PodUid};
use windlass_volume_plan::volume_source::NfsVolume;

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, pod_volumes_queue};
use crate::local::{make_directory, remove_empty, target};
use crate::machine::Machine;
use crate::mount_info::mounts_beneath;
use crate::mounts::{MountCall, joined_options, mount_by_program, mounted, unmount_by_program};
use crate::port::VolumeRequest;

/// Directory of NFS volumes below a pod.
pub(crate) const PLUGIN_DIR: &str = "kubernetes.io~nfs";

/// Mounts the export unless it is mounted.
pub(crate) async fn set_up(
    machine: &Machine,
    request: &VolumeRequest,
    volume: &NfsVolume,
) -> Result<MountedVolume, VolumeError> {
    let uid = request.pod.uid();
    let queue = IoQueue::Disk(pod_volumes_queue(&uid));
    let dir = target(machine, request)?;
    let source = source(volume);
    check_source(request, &source)?;
    let read_only = request.volume.read_only;

    let place = dir.clone();
    let is_mounted = machine
        .step(&queue, "making a volume's directory", move || {
            let is_mounted = mounted(&place)?.is_some();
            if !is_mounted {
                make_directory(&place)?;
            }
            Ok(is_mounted)
        })
        .await?;
    if !is_mounted {
        machine.kill_point()?;
        let options = joined_options(&request.volume.mount_options, read_only);
        let call = MountCall {
            fs_type: "nfs",
            options: &options,
            source: &source,
            target: &dir,
        };
        let done = mount_by_program(&machine.config.programs, call).await;
        if let Err(error) = done {
            if let Err(error) = release(machine, &queue, &dir).await {
                tracing::warn!(%error, "cleanup failed");
            }
            return Err(error);
        }
    }
    Ok(MountedVolume {
        content: MountedContent::Path(dir),
        read_only,
        relabel: false,
    })
}

/// Unmounts the export and mounts of containers in it, and removes the empty directory. Content of
/// the server is never removed.
pub(crate) async fn tear_down(
    machine: &Machine,
    uid: &PodUid,
    dir: &Path,
) -> Result<(), VolumeError> {
    release(machine, &IoQueue::Disk(pod_volumes_queue(uid)), dir).await
}

async fn release(machine: &Machine, queue: &IoQueue, dir: &Path) -> Result<(), VolumeError> {
    let place = dir.to_owned();
    let mounts = machine
        .step(queue, "listing mounts", move || {
            mounts_beneath(&place)
                .map_err(|error| VolumeError::io("list the mounts below", &place, error))
        })
        .await?;
    for mount in mounts.iter().rev() {
        machine.kill_point()?;
        unmount_by_program(&machine.config.programs, &mount.path).await?;
    }
    let place = dir.to_owned();
    machine
        .step(queue, "tearing down a volume", move || {
            // removing a mounted directory would contact the server
            match mounted(&place)? {
                None => remove_empty(&place),
                Some(_) => Err(VolumeError::failed(format!(
                    "{} is still mounted",
                    place.display()
                ))),
            }
        })
        .await
}

/// `server:path`; an IPv6 address in brackets.
fn source(volume: &NfsVolume) -> String {
    let NfsVolume { server, path, .. } = volume;
    match server.parse::<std::net::Ipv6Addr>() {
        Ok(_) => format!("[{server}]:{path}"),
        Err(_) => format!("{server}:{path}"),
    }
}

/// Rejects server names that begin with a dash: `mount` treats them as options, and `--fstab=…` could
/// mount any directory of the node.
fn check_source(request: &VolumeRequest, source: &str) -> Result<(), VolumeError> {
    if !source.starts_with('-') {
        return Ok(());
    }
    Err(VolumeError::Invalid {
        volume: request.volume.name.clone(),
        message: format!("{source:?} is not an NFS export"),
    })
}
