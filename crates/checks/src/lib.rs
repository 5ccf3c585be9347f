//! HTTP, TCP and gRPC health requests to containers, as probes and lifecycle hooks make them.
//!
//! What is asked is decided in `windlass_core::probe` and `windlass_core::http_target`; what an
//! answer means is decided there too. Here it is only carried out.

mod net;
mod port;

pub use net::NetChecks;
pub use port::Checks;
pub use windlass_core::probe::{CheckError, GrpcHealth, HttpAnswer};
