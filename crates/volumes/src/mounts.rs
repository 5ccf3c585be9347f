//! Bind mounts, and the arguments of `mount` and `umount`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_bind, mount_remount};

use crate::error::VolumeError;
use crate::mount_info::{MountPoint, mount_at};
use crate::programs::{ProgramError, Programs};

/// Options of a bind mount; others belong to its file system and are ignored.
const BIND_OPTIONS: [(&str, MountFlags); 9] = [
    ("ro", MountFlags::RDONLY),
    ("nodev", MountFlags::NODEV),
    ("nosuid", MountFlags::NOSUID),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
];

/// Options for `mount`: sorted, without duplicates, as upstream.
pub(crate) fn joined_options(options: &[String], read_only: bool) -> Vec<String> {
    let mut all: BTreeSet<&str> = options.iter().map(String::as_str).collect();
    if read_only {
        all.insert("ro");
    }
    all.into_iter().map(str::to_owned).collect()
}

/// Bind-mounts a directory or device. An incomplete mount of a previous agent run is completed.
pub(crate) fn bind(source: &Path, target: &Path, options: &[String]) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::io("bind a volume to", target, error);
    if mounted(target)?.is_none() {
        mount_bind(source, target).map_err(failed)?;
    }
    set_bind_options(target, options)
}

/// Sets the options of an existing bind mount, as the kernel requires.
fn set_bind_options(target: &Path, options: &[String]) -> Result<(), VolumeError> {
    let failed = |error| VolumeError::io("set the options of", target, error);
    let wanted = bind_flags(options);
    if wanted.is_empty() {
        return Ok(());
    }
    let current = current_flags(statvfs(target).map_err(failed)?.f_flag);
    if current.contains(wanted) {
        return Ok(());
    }
    // keep restrictions of the source
    let flags = MountFlags::BIND | wanted | current;
    mount_remount(target, flags, c"").map_err(failed)
}

fn bind_flags(options: &[String]) -> MountFlags {
    let flag = |option: &String| BIND_OPTIONS.iter().find(|(name, _)| name == option);
    let flags = options.iter().filter_map(flag);
    flags.fold(MountFlags::empty(), |all, (_, flag)| all | *flag)
}

fn current_flags(present: StatVfsMountFlags) -> MountFlags {
    let pairs = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
    ];
    let flags = pairs
        .into_iter()
        .filter(|(flag, _)| present.contains(*flag));
    flags.fold(MountFlags::empty(), |all, (_, flag)| all | flag)
}

/// The mount at a directory.
pub(crate) fn mounted(dir: &Path) -> Result<Option<MountPoint>, VolumeError> {
    mount_at(dir).map_err(|error| VolumeError::io("read the mount table for", dir, error))
}

/// Arguments of `mount`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MountCall<'a> {
    pub(crate) fs_type: &'a str,
    pub(crate) options: &'a [String],
    pub(crate) source: &'a str,
    pub(crate) target: &'a Path,
}

impl MountCall<'_> {
    /// `-t <type> [-o <options>] <source> <target>`.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-t".into(), self.fs_type.into()];
        if !self.options.is_empty() {
            arguments.extend(["-o".into(), self.options.join(",").into()]);
        }
        arguments.extend([self.source.into(), self.target.into()]);
        arguments
    }
}

/// Runs `mount`. The error has upstream's text.
pub(crate) async fn mount_by_program(
    programs: &Programs,
    call: MountCall<'_>,
) -> Result<(), VolumeError> {
    let arguments = call.arguments();
    let ended = programs.succeed("mount", &arguments, programs.mount_deadline);
    ended.await.map_err(|error| {
        let arguments: Vec<_> = arguments.iter().map(|a| a.to_string_lossy()).collect();
        VolumeError::failed(format!(
            "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
            error.cause(),
            arguments.join(" "),
            error.output(),
        ))
    })
}

/// Runs `umount`, with force after a timeout. A missing mount is not an error. The error has
/// upstream's text.
pub(crate) async fn unmount_by_program(
    programs: &Programs,
    target: &Path,
) -> Result<(), VolumeError> {
    let plain = [target.into()];
    let deadline = programs.unmount_deadline;
    let ended = match programs.succeed("umount", &plain, deadline).await {
        Err(ProgramError::Hung { .. }) => {
            tracing::warn!(target = %target.display(), "umount hung, retrying with force");
            let forced = ["-f".into(), target.into()];
            programs.succeed("umount", &forced, deadline).await
        }
        ended => ended,
    };
    match ended {
        Err(error) if !error.output().contains("not mounted") => Err(VolumeError::failed(format!(
            "unmount failed: {}\nUnmounting arguments: {}\nOutput: {}",
            error.cause(),
            target.display(),
            error.output(),
        ))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_sorted_and_unique() {
        let check = |options: &[&str], read_only, expected: &str| {
            let options: Vec<String> = options.iter().map(|o| (*o).to_owned()).collect();
            assert_eq!(joined_options(&options, read_only).join(","), expected);
        };
        check(&[], false, "");
        check(&[], true, "ro");
        check(&["vers=4.1", "noatime"], false, "noatime,vers=4.1");
        check(&["ro", "hard", "ro"], true, "hard,ro");
    }

    #[test]
    fn mount_arguments_are_type_options_source_and_target() {
        let options = ["hard".to_owned(), "ro".to_owned()];
        let call = MountCall {
            fs_type: "nfs",
            options: &options,
            source: "server:/a b;rm -rf /",
            target: Path::new("/var/lib/kubelet/x"),
        };
        let expected = [
            "-t",
            "nfs",
            "-o",
            "hard,ro",
            "server:/a b;rm -rf /",
            "/var/lib/kubelet/x",
        ];
        assert_eq!(call.arguments(), expected);
        let bare = MountCall {
            options: &[],
            ..call
        };
        assert_eq!(bare.arguments()[2], "server:/a b;rm -rf /");
    }
}
