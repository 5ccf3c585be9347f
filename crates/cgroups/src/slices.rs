//! Port to whoever manages slices: systemd, as a rule.

#[cfg(feature = "systemd")]
mod systemd;

use std::fmt::Debug;
use std::io;

#[cfg(feature = "systemd")]
pub use systemd::SystemdSlices;

/// A property of a slice that holds a value, by its name in systemd's D-Bus interface.
pub type Property = (&'static str, u64);

/// The manager of slices. Names are those of units, `kubepods-burstable.slice`.
pub trait Slices: Send + Sync + Debug + 'static {
    /// Starts a slice with these properties; one that is there gets them. Its cgroup may appear a
    /// moment later.
    fn start(&self, name: &str, properties: &[Property]) -> io::Result<()>;
    /// Begins to stop a slice with all that is in it; fine if there is none.
    fn stop(&self, name: &str) -> io::Result<()>;
}
