//! An HTTPS server for a node: its certificate and its client CA may change while it serves, a
//! client may show a certificate and need not, and what a stranger can cost is bounded.
//!
//! It knows nothing of Kubernetes: it serves any `tower` service, and puts a [`Peer`] into each
//! request's extensions.

pub mod peer;

pub use peer::{ClientCertificate, Peer};
