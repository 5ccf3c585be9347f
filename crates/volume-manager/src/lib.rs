//! Which volumes pods want, which they have, and the steps in between.
//!
//! What is to be done is decided by `windlass_core::volume_plan`.
//!
//! * [`actor`] the actor: hears requests, answers and the node, and keeps one timer
//! * `io` the steps, each one call of a plugin
//! * [`measured`] the plugins with counters around them
//! * [`usage`] what volumes hold

pub mod actor;
mod io;
pub mod measured;
pub mod usage;

pub use actor::{DriversCame, VolumeManager, VolumeManagerDeps};
pub use measured::MeasuredVolumes;
pub use usage::{PodVolumeStats, VolumeUsages, VolumeUsagesDeps};
