//! Dynamic resource allocation (DRA) on a node: drivers, prepared claims and their devices.
//!
//! For agents that start pods with ResourceClaims. A driver is a foreign program behind a socket: it
//! may hang, return wrong results or restart at any time.
//!
//! # Entry points
//!
//! * [`DraClaims`] prepares and unprepares the claims of pods; it implements
//!   `windlass_runtime_config::port::PodClaims` for pod workers
//! * [`DraRegistration`] registers drivers: pass it to `windlass_plugins::run_plugin_registry` for
//!   plugins of the type [`DRA_PLUGIN`]
//! * [`DraDrivers`] holds the registered drivers; [`ClaimDriver`] is the port to one
//! * [`run_slice_cleanup`] and [`run_reconciliation`] clean up after drivers and pods
//!
//! # Example
//!
//! ```
//! use windlass_dra::DraDrivers;
//!
//! let drivers = DraDrivers::default();
//! // a plugin registry adds plugins; pods wait until theirs is registered
//! drivers.remove("gpu.example.com", "/var/lib/kubelet/plugins/gpu/dra.sock".as_ref());
//! ```
//!
//! # Guarantees
//!
//! * A call ends within 45 s, which is also its gRPC deadline; calls for one claim never overlap.
//! * A claim is in the checkpoint before its driver is called, and until the driver has unprepared
//!   it. The checkpoint has upstream's name and format, so that a node can change agents.
//! * A plugin that hangs delays only pods that use its claims.
//! * Without claims nothing runs and nothing is written.
//!
//! # Limits
//!
//! It does not allocate: the scheduler does. The health of devices is not stored; drivers report it
//! again.

mod checkpoint;
mod claim_info;
mod client;
mod drivers;
mod health;
mod link;
mod manager;
mod pod_claims;
mod port;
mod reconcile;
mod register;
mod slices;

pub use drivers::DraDrivers;
pub use manager::{DraClaims, DraDeps};
pub use pod_claims::ClaimOwners;
pub use port::{ClaimDevice, ClaimDriver, ClaimRef, ClaimResult};
pub use reconcile::run_reconciliation;
pub use register::{DRA_PLUGIN, DraRegistration};
pub use slices::run_slice_cleanup;
