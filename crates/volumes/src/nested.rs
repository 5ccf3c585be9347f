//! Mount points inside a volume that is mounted read-only.
//!
//! A container may mount another volume below this one. The runtime cannot create the directory in a
//! read-only mount, so the agent creates it.

use std::path::Path;

use rustix::fs::{CWD, Mode, fchmod, mkdirat, openat};
use rustix::io::Errno;
use windlass_types::corev1::Container;
use windlass_types::{Pod, PodExt};

use crate::atomic_writer::DIRECTORY;
use crate::error::VolumeError;

/// Paths relative to the volume's root at which a container mounts another volume.
pub(crate) fn nested_mount_points(pod: &Pod, volume: &str) -> Vec<String> {
    let all = pod.init_containers().iter().chain(pod.containers());
    let mut points: Vec<String> = all.flat_map(|c| nested_in(c, volume)).collect();
    points.sort();
    points.dedup();
    points
}

/// Creates the mount points. Existing entries, also links to content, are kept.
pub(crate) fn make_nested_mount_points(dir: &Path, points: &[String]) -> Result<(), VolumeError> {
    for point in points {
        make_beneath(dir, point)
            .map_err(|error| VolumeError::io("make a mount point in", dir, error))?;
    }
    Ok(())
}

fn nested_in(container: &Container, volume: &str) -> Vec<String> {
    let mounts = container.volume_mounts.as_deref().unwrap_or_default();
    let clean = |path: &str| {
        let parts = path.split('/').filter(|p| !matches!(*p, "" | "."));
        parts.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut all: Vec<Vec<String>> = mounts.iter().map(|m| clean(&m.mount_path)).collect();
    all.sort();
    let mut points = Vec::new();
    for own in mounts.iter().filter(|m| m.name == volume) {
        let own = clean(&own.mount_path);
        let mut above: Option<&[String]> = None;
        for other in &all {
            let Some(below) = other.strip_prefix(own.as_slice()) else {
                continue;
            };
            // a nested point belongs to the inner volume
            if below.is_empty() || above.is_some_and(|above| below.starts_with(above)) {
                continue;
            }
            above = Some(below);
            if !below.iter().any(|part| part.starts_with("..")) {
                points.push(below.join("/"));
            }
        }
    }
    points
}

fn make_beneath(dir: &Path, point: &str) -> Result<(), Errno> {
    let mut fd = openat(CWD, dir, DIRECTORY, Mode::empty())?;
    for part in point.split('/') {
        let new = match mkdirat(&fd, part, Mode::from_raw_mode(0o755)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error),
        };
        fd = match openat(&fd, part, DIRECTORY, Mode::empty()) {
            Ok(fd) => fd,
            // a file of the content: the runtime mounts onto it or fails
            Err(Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error),
        };
        if new {
            fchmod(&fd, Mode::from_raw_mode(0o755))?;
        }
    }
    Ok(())
}
