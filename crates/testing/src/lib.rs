//! Test doubles of the outside world on a virtual clock, and re-exports of `windlass-testbed`. A
//! dev-dependency only.
//!
//! # Entry points
//!
//! * [`simulate`] runs a scenario with the whole agent on a virtual clock, through a [`NodeSim`];
//!   [`simulate_cluster`] adds an API server
//! * [`FakeRuntime`] is a container runtime as a state machine: scripted containers and images,
//!   latencies, faults, lost events; it can serve CRI on a socket ([`FakeRuntime::serve`])
//! * [`FakeChecks`] responds to probes and hooks, [`PodBuilder`] builds pods
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass_testing::fake_runtime::Behavior;
//! use windlass_testing::{PodBuilder, simulate};
//!
//! simulate(1, async |sim| {
//!     sim.runtime.add_image("busybox:1");
//!     let dies = Behavior::exits(Duration::from_secs(1), 1);
//!     sim.runtime.set_behavior("app", dies);
//!     sim.desire([PodBuilder::new("web").container("app", "busybox:1").build()])
//!         .await;
//!     sim.pass(Duration::from_secs(3600)).await;
//!     // back-off: 10 s, doubling to 5 min
//!     let starts = sim.runtime.starts(&"web-uid".into(), "app");
//!     assert!((14..20).contains(&starts), "{starts}");
//!     sim.runtime.assert_invariants();
//! });
//! ```
//!
//! `cargo run -p windlass-testing --example simulate_an_hour` prints the log of a simulation.
//!
//! # Guarantees
//!
//! * Equal seeds and scenarios give equal logs. A simulated hour takes some milliseconds.
//! * Only the edges of the agent are replaced. `NodeSim::kill_agent` is `kill -9`: calls in progress
//!   do not reach the runtime.
//! * [`FakeRuntime::assert_invariants`] fails if a container ever had two live instances, or was
//!   started in a sandbox that was not ready.
//!
//! # Limits
//!
//! Containers are durations and exit codes, without processes, network or files. Methods panic on
//! invalid scenarios.

pub use windlass_fake_api::FakeApiServer;
pub use windlass_testbed::{
    agent, containerd, control_plane, cri_proxy, csi_driver, device_plugin, environment, hung_disk,
    images, kustomize, node_images, pod_watch, registry, small_disk,
};

mod builders;
pub mod fake_checks;
pub(crate) mod fake_devices;
mod fake_disk;
mod fake_image_disk;
pub(crate) mod fake_pressure;
pub mod fake_runtime;
mod fake_state_disk;
mod node_sim;

pub use builders::PodBuilder;
pub use fake_checks::FakeChecks;
pub use fake_devices::{FakeDevices, ResourcePolicies};
pub use fake_disk::FakeDisk;
pub use fake_pressure::{FakePressure, hard_eviction};
pub use fake_runtime::FakeRuntime;
pub use fake_state_disk::{DiskFault, FakeStateDisk};
pub use node_sim::{EPOCH, KillMoment, NodeSim, simulate, simulate_cluster};
