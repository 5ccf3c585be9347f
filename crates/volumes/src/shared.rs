//! The agent's root directory on a shared mount.
//!
//! A mount that a container makes in a volume (`Bidirectional`) reaches the node and other containers
//! only on a shared mount. The same holds for volumes mounted after a runtime with its own mount
//! namespace was started.

use std::io;
use std::path::Path;

use rustix::mount::{MountPropagationFlags, mount_bind_recursive, mount_change};

use crate::mount_info::mount_above;

/// Ensures that a directory is on a shared mount; bind-mounts it to itself if necessary (upstream
/// `MakeRShared`). Idempotent; mounts below it stay.
///
/// # Errors
/// The mount fails, for example without CAP_SYS_ADMIN.
pub fn make_shared(dir: &Path) -> io::Result<()> {
    let mount = mount_above(dir)?;
    if mount.as_ref().is_some_and(|mount| mount.shared) {
        return Ok(());
    }
    let dir = dir.canonicalize()?;
    // bound by a previous agent run that was killed
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
    fn make_shared_is_idempotent_and_keeps_mounts_below() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: mounts need root");
            return;
        }
        let base = tempfile::tempdir().expect("directory");
        let (outer, root) = (base.path().join("outer"), base.path().join("outer/root"));
        let volume = root.join("volume");
        fs::create_dir_all(&volume).expect("directories");
        // independent of the mounts of the host
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
        // as after a kill between the steps
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
