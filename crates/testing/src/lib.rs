//! What tests stand on: models of the outside world, and the real thing from `windlass-testbed`.
//! A dev-dependency only: nothing that ships links it.
//!
//! For tests of code that runs pods: a container runtime that does what it is told, on a clock that a
//! test moves, in the same process.
//!
//! # The way in
//!
//! * [`simulate`] runs a scenario with the whole agent on a virtual clock; [`NodeSim`] is what the scenario
//!   holds. [`simulate_cluster`] gives it an API server, too
//! * [`FakeRuntime`] is a container runtime as a state machine: scripted containers and images, latencies,
//!   faults, lost events. It also serves CRI on a socket ([`FakeRuntime::serve`])
//! * [`FakeChecks`] answers probes and hooks, [`PodBuilder`] is a short way to a pod
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
//!     // 10 s, doubling to 5 min: an hour has room for so many starts
//!     let starts = sim.runtime.starts(&"web-uid".into(), "app");
//!     assert!((14..20).contains(&starts), "{starts}");
//!     sim.runtime.assert_invariants();
//! });
//! ```
//!
//! `cargo run -p windlass-testing --example simulate_an_hour` prints everything that happened.
//!
//! # What it promises
//!
//! * The same seed and scenario give the same log, line for line. An hour takes as long as the work in it,
//!   some milliseconds.
//! * Nothing of the agent is replaced but its edges. `NodeSim::kill_agent` is `kill -9`: what was under way
//!   never reaches the runtime.
//! * [`FakeRuntime::assert_invariants`] fails if two instances of one container ever lived at once, or one
//!   was started in a sandbox that was not ready.
//!
//! # What it does not do
//!
//! Containers run nothing: they are times and exit codes. There is no network, no image content and no file
//! system of a container. Methods panic when a scenario is wrong: it is for tests.

pub use windlass_fake_api::FakeApiServer;
pub use windlass_testbed::{
    agent, containerd, control_plane, cri_proxy, csi_driver, environment, images, kustomize,
    node_images, pod_watch, registry, small_disk,
};

mod builders;
pub mod fake_checks;
pub mod fake_runtime;
mod node_sim;

pub use builders::PodBuilder;
pub use fake_checks::FakeChecks;
pub use fake_runtime::FakeRuntime;
pub use node_sim::{NodeSim, simulate, simulate_cluster};
