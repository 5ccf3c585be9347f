//! The file system of a block device (upstream `FormatAndMount`).
//!
//! A device is formatted only if `blkid` finds nothing on it: no file system and no partitions. Where
//! that is not certain nothing is done: what cannot be read is not empty.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::VolumeError;
use crate::io_queue::IoQueue;
use crate::machine::Machine;
use crate::mounts::{MountCall, mount_by_program};
use crate::programs::{ProgramOutput, ProgramError, Programs};

/// `blkid` found nothing.
const NOTHING_FOUND: i32 = 2;
/// Bytes at either end of a device in which file systems, RAIDs and partition tables write who they
/// are, and how many of them are read at a time.
const ENDS: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;
/// `fsck` corrected errors; `fsck` left errors.
const CORRECTED: i32 = 1;
const UNCORRECTED: i32 = 4;

/// Mounts a device, with a new file system if it has none.
pub(crate) async fn format_and_mount(
    machine: &Machine,
    queue: &IoQueue,
    device: &Path,
    target: &Path,
    fs_type: &str,
    mut options: Vec<String>,
) -> Result<(), VolumeError> {
    check_fs_type(fs_type)?;
    let programs = &machine.config.programs;
    let read_only = options.iter().any(|option| option == "ro");
    machine.kill_point()?;
    let mut present = detect_format(programs, device).await?;
    if present.is_none() {
        // `blkid` says "nothing" also of what it cannot read
        check_readable(machine, queue, device).await?;
        present = detect_format(programs, device).await?;
    }
    machine.kill_point()?;
    match present {
        None if read_only => {
            return Err(VolumeError::failed(format!(
                "cannot mount unformatted disk {} as we are manipulating it in read-only mode",
                device.display()
            )));
        }
        None => format(programs, device, target, fs_type, &options).await?,
        Some(present) => {
            if present != fs_type {
                tracing::warn!(device = %device.display(), fs_type, present, "another file system");
            }
            if !read_only {
                repair(programs, device).await?;
            }
        }
    }
    machine.kill_point()?;
    options.push("defaults".to_owned());
    let call = MountCall {
        fs_type,
        options: &options,
        source: &device.to_string_lossy(),
        target,
    };
    mount_by_program(programs, call).await
}

/// What is on a device; `None` only if there is nothing.
pub(crate) async fn detect_format(
    programs: &Programs,
    device: &Path,
) -> Result<Option<String>, VolumeError> {
    let failed = |why: &dyn std::fmt::Display| {
        VolumeError::failed(format!(
            "failed to get disk format of disk {}: {why}",
            device.display()
        ))
    };
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export"];
    let mut arguments: Vec<OsString> = arguments.map(OsString::from).to_vec();
    arguments.push(device.into());
    let ended = programs.run("blkid", &arguments, programs.mount_deadline);
    let ProgramOutput { status, output } = ended.await.map_err(|error| failed(&error))?;
    match status.code() {
        Some(0) => read_format(&output).map_err(|error| failed(&error)),
        Some(NOTHING_FOUND) => Ok(None),
        _ => Err(failed(&format!("{status}: {}", output.trim_end()))),
    }
}

/// A device whose first and last blocks cannot be read may hold anything.
async fn check_readable(machine: &Machine, queue: &IoQueue, device: &Path) -> Result<(), VolumeError> {
    let path = device.to_owned();
    let work = move || {
        read_ends(&path).map_err(|error| {
            VolumeError::failed(format!(
                "failed to get disk format of disk {}: {error}",
                path.display()
            ))
        })
    };
    machine.step(queue, "reading a device", work).await
}

fn read_ends(device: &Path) -> io::Result<()> {
    let mut file = File::open(device)?;
    let size = file.seek(io::SeekFrom::End(0))?;
    let mut block = vec![0; BLOCK];
    for begin in [0, size.saturating_sub(ENDS)] {
        let end = size.min(begin.saturating_add(ENDS));
        let mut at = begin;
        while at < end {
            let wanted = BLOCK.min(usize::try_from(end - at).unwrap_or(BLOCK));
            let wanted = block.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(wanted, at)?;
            at += wanted.len() as u64;
        }
    }
    Ok(())
}

/// From the output of `blkid -o export`.
fn read_format(output: &str) -> Result<Option<String>, String> {
    let mut fs_type = None;
    for line in output.lines().filter(|line| !line.is_empty()) {
        let pair = line
            .split_once('=')
            .filter(|(_, value)| !value.contains('='));
        let (key, value) = pair.ok_or_else(|| format!("blkid returns invalid output: {output}"))?;
        match key {
            "TYPE" => fs_type = Some(value.to_owned()),
            // whatever is in the partitions, it is not nothing
            "PTTYPE" => return Ok(Some("unknown data, probably partitions".to_owned())),
            _ => {}
        }
    }
    // it found something that it has no name for
    Ok(Some(fs_type.unwrap_or_else(|| "unknown data".to_owned())))
}

async fn format(
    programs: &Programs,
    device: &Path,
    target: &Path,
    fs_type: &str,
    options: &[String],
) -> Result<(), VolumeError> {
    let mut arguments: Vec<OsString> = match fs_type {
        // force, and no blocks that only root may use
        "ext3" | "ext4" => vec!["-F".into(), "-m0".into()],
        "xfs" => vec!["-f".into()],
        _ => Vec::new(),
    };
    arguments.push(device.into());
    tracing::info!(device = %device.display(), fs_type, "formats an empty device");
    let program = format!("mkfs.{fs_type}");
    let ended = programs.succeed(&program, &arguments, programs.format_deadline);
    ended.await.map_err(|error| {
        VolumeError::failed(format!(
            "format of disk {:?} failed: type:({fs_type:?}) target:({:?}) options:({:?}) \
             errcode:({}) output:({}) ",
            device.display().to_string(),
            target.display().to_string(),
            options.join(","),
            error.cause(),
            error.output(),
        ))
    })
}

/// Only errors that `fsck` found and left keep the device from being mounted.
async fn repair(programs: &Programs, device: &Path) -> Result<(), VolumeError> {
    let arguments = ["-a".into(), device.into()];
    let ended = programs.run("fsck", &arguments, programs.format_deadline);
    match ended.await {
        Ok(ended) if ended.code() == Some(UNCORRECTED) => Err(VolumeError::failed(format!(
            "'fsck' found errors on device {} but could not correct them: {}",
            device.display(),
            ended.output
        ))),
        Ok(ended) => {
            if ended.code() == Some(CORRECTED) {
                tracing::info!(device = %device.display(), "fsck corrected errors");
            } else if !ended.status.success() {
                let output = &ended.output;
                tracing::warn!(device = %device.display(), status = %ended.status, output, "fsck");
            }
            Ok(())
        }
        // it still works on the device, which must not be mounted meanwhile
        Err(error @ ProgramError::Hung { .. }) => Err(VolumeError::failed(error.to_string())),
        Err(error) => {
            tracing::warn!(device = %device.display(), %error, "mounts without fsck");
            Ok(())
        }
    }
}

/// The name becomes part of a program's.
fn check_fs_type(fs_type: &str) -> Result<(), VolumeError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !fs_type.starts_with('.') && fs_type.bytes().all(plain) {
        return Ok(());
    }
    Err(VolumeError::failed(format!(
        "{fs_type:?} is not a file system type"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_device_on_which_nothing_was_found_counts_as_empty() {
        let check = |output: &str, expected: &str| {
            let line = match read_format(output) {
                Ok(Some(found)) => found,
                Ok(None) => "nothing".to_owned(),
                Err(error) => error,
            };
            assert_eq!(line, expected);
        };
        check("DEVNAME=/dev/a\nTYPE=ext4\n", "ext4");
        check("TYPE=xfs\n\n", "xfs");
        check(
            "PTTYPE=gpt\nTYPE=ext4\n",
            "unknown data, probably partitions",
        );
        check("DEVNAME=/dev/a\n", "unknown data");
        check("", "unknown data");
        check("odd\n", "blkid returns invalid output: odd\n");
        check("TYPE=a=b\n", "blkid returns invalid output: TYPE=a=b\n");
    }

    #[test]
    fn a_file_system_type_names_no_other_program() {
        for fs_type in ["ext4", "xfs", "btrfs", "ext4-x"] {
            assert!(check_fs_type(fs_type).is_ok(), "{fs_type}");
        }
        for fs_type in ["../../bin/sh", "a b", ".", "x;y"] {
            assert!(check_fs_type(fs_type).is_err(), "{fs_type}");
        }
    }
}
