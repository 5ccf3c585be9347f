//! The registry of workers: [`state`] decides, [`actor`] executes.

pub mod actor;
pub mod state;

pub use actor::{PodWorkers, PodWorkersDeps};
