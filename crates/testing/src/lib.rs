//! What tests, the demo and the benchmark stand on: a private containerd with images, and models
//! of the outside world. A dev-dependency only: nothing that ships links it.

pub mod containerd;
pub mod debian;
pub mod images;

pub mod agent;
pub mod pod_watch;

pub mod builders;
pub mod fake_runtime;
pub mod node_sim;

pub use builders::PodBuilder;
pub use fake_runtime::FakeRuntime;
pub use node_sim::{NodeSim, simulate};
