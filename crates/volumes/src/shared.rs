//! The agent's directory on a mount that others can see through.
//!
//! A mount that one container makes in a volume (`Bidirectional`) reaches the node and other
//! containers only if the volume lies on a shared mount, and a volume that is mounted after the
//! runtime was started in a mount namespace of its own is seen there only then, too.

use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};

use crate::mount_info::mount_above;

/// Makes sure that a directory is on a shared mount, by binding it to itself if it is not
/// (upstream `MakeRShared`). Safe to repeat; what is mounted below stays.
///
/// # Errors
/// The kernel refuses: without CAP_SYS_ADMIN nothing can be mounted.
pub fn make_shared(dir: &Path) -> io::Result<()> {
    let mount = mount_above(dir)?;
    if mount.as_ref().is_some_and(|mount| mount.shared) {
        return Ok(());
    }
    let dir = dir.canonicalize()?;
    // an agent that was killed in between has bound it already
    if mount.is_none_or(|mount| mount.path != dir) {
        mount_bind_recursive(&dir, &dir)?;
    }
    let flags = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    Ok(mount_change(&dir, flags)?)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};

    use super::*;
    use crate::mount_info::mounts_beneath;

    #[test]
    fn a_directory_is_put_on_a_shared_mount_once_and_shows_what_was_mounted_below_it() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return;
        }
        let base = tempfile::tempdir().expect("directory");
        let (outer, root) = (base.path().join("outer"), base.path().join("outer/root"));
        let volume = root.join("volume");
        fs::create_dir_all(&volume).expect("directories");
        // whatever the mount of this machine is like
        mount_bind(&outer, &outer).expect("bound");
        mount_change(&outer, MountPropagationFlags::PRIVATE).expect("private");
        mount("tmpfs", &volume, "tmpfs", MountFlags::empty(), None).expect("mounted");
        fs::write(volume.join("there"), "").expect("file");
        let on_a_shared_mount = || {
            let mount = mount_above(&root).expect("table").expect("mount");
            (mount.path == root, mount.shared)
        };
        assert_eq!(on_a_shared_mount(), (false, false));
        make_shared(&root).expect("shared");
        assert_eq!(on_a_shared_mount(), (true, true));
        assert!(volume.join("there").exists());
        let before = mounts_beneath(&outer).expect("table");
        make_shared(&root).expect("again");
        assert_eq!(mounts_beneath(&outer).expect("table"), before);
        // of an agent that was killed after the first step
        mount_change(&root, MountPropagationFlags::PRIVATE).expect("private");
        make_shared(&root).expect("shared");
        assert_eq!(on_a_shared_mount(), (true, true));
        let after = mounts_beneath(&outer).expect("table");
        assert_eq!(after.len(), before.len());
        for mount in after.iter().rev() {
            unmount(&mount.path, UnmountFlags::DETACH).expect("released");
        }
    }
}
