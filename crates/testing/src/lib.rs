//! What tests stand on: models of the outside world, and the real thing from `windlass-testbed`.
//! A dev-dependency only: nothing that ships links it.

pub use windlass_testbed::{agent, containerd, images, pod_watch};

pub mod builders;
pub mod fake_runtime;
pub mod node_sim;

pub use builders::PodBuilder;
pub use fake_runtime::FakeRuntime;
pub use node_sim::{NodeSim, simulate};
