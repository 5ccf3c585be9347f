//! The pod workers: a registry, and a worker for each pod UID.
//!
//! * [`registry`] who has a worker, who waits for a predecessor of the same name, who is to
//!   come back after it stopped: pure state and the `PodWorkers` actor
//! * [`worker`] the `PodWorker` actor around `windlass_core::pod_worker`, and its jobs
//! * [`pacer`] how many pods start at a time, in order

pub mod pacer;
pub mod registry;
pub mod worker;

pub use pacer::StartPacer;
pub use registry::{PodWorkers, PodWorkersDeps};
pub use worker::WorkerDeps;
