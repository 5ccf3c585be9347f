//! The file system of a block device (upstream `FormatAndMount`).
//!
//! A device is formatted only if `blkid` finds neither a file system nor partitions and the device is
//! readable: an unreadable device is not empty.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::VolumeError;
use crate::io_queue::IoQueue;
use crate::machine::Machine;
use crate::mounts::{MountCall, mount_by_program};
use crate::programs::{ProgramError, ProgramOutput, Programs};

/// Exit code of `blkid` that found nothing.
const NOTHING_FOUND: i32 = 2;
/// Bytes at either end of a device with the signatures of file systems, RAIDs and partition tables,
/// and the size of one read.
const ENDS_BYTES: u64 = 1 << 20;
const READ_BYTES: usize = 64 << 10;
/// Exit codes of `fsck`: errors corrected, errors left.
const CORRECTED: i32 = 1;
const UNCORRECTED: i32 = 4;

/// Mounts a device, after formatting it if it is empty.
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
        // `blkid` also finds nothing on an unreadable device
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
                tracing::warn!(device = %device.display(), fs_type, present, "unexpected file system");
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

/// Content type of a device; `None` only if it is empty.
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

/// Fails if the first or last blocks of a device are unreadable.
async fn check_readable(
    machine: &Machine,
    queue: &IoQueue,
    device: &Path,
) -> Result<(), VolumeError> {
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
    let mut block = vec![0; READ_BYTES];
    for begin in [0, size.saturating_sub(ENDS_BYTES)] {
        let end = size.min(begin.saturating_add(ENDS_BYTES));
        let mut at = begin;
        while at < end {
            let wanted = READ_BYTES.min(usize::try_from(end - at).unwrap_or(READ_BYTES));
            let wanted = block.get_mut(..wanted).unwrap_or_default();
            file.read_exact_at(wanted, at)?;
            at += wanted.len() as u64;
        }
    }
    Ok(())
}

/// Parses the output of `blkid -o export`.
fn read_format(output: &str) -> Result<Option<String>, String> {
    let mut fs_type = None;
    for line in output.lines().filter(|line| !line.is_empty()) {
        let pair = line
            .split_once('=')
            .filter(|(_, value)| !value.contains('='));
        let (key, value) = pair.ok_or_else(|| format!("blkid returns invalid output: {output}"))?;
        match key {
            "TYPE" => fs_type = Some(value.to_owned()),
            // a partitioned device is not empty
            "PTTYPE" => return Ok(Some("unknown data, probably partitions".to_owned())),
            _ => {}
        }
    }
    // `blkid` found unknown content
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
        // force, without blocks reserved for root
        "ext3" | "ext4" => vec!["-F".into(), "-m0".into()],
        "xfs" => vec!["-f".into()],
        _ => Vec::new(),
    };
    arguments.push(device.into());
    tracing::info!(device = %device.display(), fs_type, "formatting an empty device");
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

/// Runs `fsck`; only errors that it left prevent the mount.
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
        // it may still write to the device
        Err(error @ ProgramError::Hung { .. }) => Err(VolumeError::failed(error.to_string())),
        Err(error) => {
            tracing::warn!(device = %device.display(), %error, "mounting without fsck");
            Ok(())
        }
    }
}

/// Rejects types that are unsafe as part of a program name.
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
    fn blkid_output_is_parsed() {
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
    fn unsafe_file_system_types_are_rejected() {
        for fs_type in ["ext4", "xfs", "btrfs", "ext4-x"] {
            assert!(check_fs_type(fs_type).is_ok(), "{fs_type}");
        }
        for fs_type in ["../../bin/sh", "a b", ".", "x;y"] {
            assert!(check_fs_type(fs_type).is_err(), "{fs_type}");
        }
    }
}
