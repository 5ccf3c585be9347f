//! Which volumes pods want, which they have, and the steps in between.
//!
//! * [`actor`] the actor: requests of pods' jobs, the operations it starts

pub mod actor;

pub use actor::{VolumeManager, VolumeManagerDeps};
