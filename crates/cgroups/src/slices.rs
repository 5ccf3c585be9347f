//! Port to the slice manager, usually systemd.

#[cfg(feature = "systemd")]
mod systemd;

use std::fmt::Debug;
use std::io;

#[cfg(feature = "systemd")]
pub use systemd::SystemdSlices;

/// Property of a slice with its value, by its name in systemd's D-Bus interface.
pub type Property = (&'static str, u64);

/// Slice manager. Names are unit names, such as `kubepods-burstable.slice`.
pub trait Slices: Send + Sync + Debug + 'static {
    /// Starts a slice with these properties, or sets them on a started one. Its cgroup may appear
    /// later.
    fn start(&self, name: &str, properties: &[Property]) -> io::Result<()>;
    /// Begins to stop a slice with its content. Succeeds if it does not exist.
    fn stop(&self, name: &str) -> io::Result<()>;
}
