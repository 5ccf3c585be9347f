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
