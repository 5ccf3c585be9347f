//! What tests stand on: models of the outside world, and the real thing from `windlass-testbed`.
//! A dev-dependency only: nothing that ships links it.

pub use windlass_fake_api::FakeApiServer;
pub use windlass_testbed::{
    agent, containerd, control_plane, cri_proxy, csi_driver, images, node_images, oci, pod_watch,
    registry, small_disk,
};

pub mod builders;
pub mod fake_checks;
pub mod fake_runtime;
pub mod node_sim;

pub use builders::PodBuilder;
pub use fake_checks::FakeChecks;
pub use fake_runtime::FakeRuntime;
pub use node_sim::{NodeSim, simulate, simulate_cluster};
