//! Mounts and loop devices of the driver.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

/// Returns the mount points at or below a path, in mount order.
pub fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount_points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mount_points = mount_points.map(|point| PathBuf::from(point.replace("\\040", " ")));
    mount_points
        .filter(|point| point.starts_with(path))
        .collect()
}

fn is_mounted(path: &Path) -> bool {
    mounts_below(path).iter().any(|point| point == path)
}

/// Binds `source` to `target`, unless something is mounted there.
pub(super) fn bind(source: &Path, target: &Path, read_only: bool) -> io::Result<()> {
    if is_mounted(target) {
        return Ok(());
    }
    mount_bind(source, target)?;
    if read_only {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

/// Removes all mounts from `target`, if it exists.
pub(super) fn unbind(target: &Path) -> io::Result<()> {
    while is_mounted(target) {
        unmount(target, UnmountFlags::NOFOLLOW)?;
    }
    Ok(())
}

/// A loop device over `file`.
pub(super) fn attach(file: &Path) -> io::Result<PathBuf> {
    let device = run(Command::new("losetup").args(["--find", "--show"]).arg(file))?;
    Ok(PathBuf::from(device.trim()))
}

/// Updates the device to the new size of its file.
pub(super) fn resize(device: &Path) -> io::Result<()> {
    run(Command::new("losetup").arg("--set-capacity").arg(device)).map(drop)
}

/// Frees a loop device.
pub(super) fn detach(device: &Path) -> io::Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device)).map(drop)
}

fn run(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{command:?}: {text}")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
