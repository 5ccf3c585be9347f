//! Resizing of the file system on a block device to the size of its device (upstream
//! `ResizeFs.Resize`).

use std::ffi::OsString;
use std::path::Path;

use crate::error::VolumeError;
use crate::format::detect_format;
use crate::machine::Machine;

/// Resizes the file system on `device`, which is mounted at `mounted_at`. No-op for a device without
/// a file system.
pub(crate) async fn resize_file_system(
    machine: &Machine,
    device: &Path,
    mounted_at: &Path,
) -> Result<(), VolumeError> {
    let programs = &machine.config.programs;
    machine.kill_point()?;
    let current = detect_format(programs, device).await;
    let current = current.map_err(|error| {
        let device = device.display();
        VolumeError::failed(format!(
            "ResizeFS.Resize - error checking format for device {device}: {error}"
        ))
    })?;
    // upstream: `mkfs` will use the whole device
    let Some(fs_type) = current else {
        return Ok(());
    };
    let on_mount = |words: &[&str]| (words.iter().map(OsString::from).collect(), mounted_at);
    let (program, (mut arguments, subject)): (_, (Vec<OsString>, &Path)) = match fs_type.as_str() {
        "ext3" | "ext4" => ("resize2fs", (Vec::new(), device)),
        "xfs" => ("xfs_growfs", on_mount(&["-d"])),
        "btrfs" => ("btrfs", on_mount(&["filesystem", "resize", "max"])),
        _ => {
            return Err(VolumeError::failed(format!(
                "ResizeFS.Resize - resize of format {fs_type} is not supported for device {} \
                 mounted at {}",
                device.display(),
                mounted_at.display()
            )));
        }
    };
    arguments.push(subject.into());
    machine.kill_point()?;
    let ended = programs.succeed(program, &arguments, programs.format_deadline);
    ended.await.map_err(|error| {
        VolumeError::failed(format!(
            "resize of device {} failed: {}. {program} output: {}",
            subject.display(),
            error.cause(),
            error.output()
        ))
    })
}
