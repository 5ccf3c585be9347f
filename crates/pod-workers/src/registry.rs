//! Who has a worker: [`state`] decides, [`actor`] carries out.

pub mod actor;
pub mod state;

pub use actor::{PodWorkers, PodWorkersDeps};
