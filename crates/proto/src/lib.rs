//! gRPC types of container runtimes and gRPC probes, generated from the texts in `proto/` by
//! `cargo run -p windlass-codegen`.
//!
//! The generated code is checked in, so builds do not need `protoc`. Messages use `prost`, clients
//! and servers `tonic`. Protocols of plugins are in `windlass-plugin-proto`, APIs of the agent in
//! `windlass-node-proto`.
//!
//! # The way in
//!
//! * [`cri_v1`] the Container Runtime Interface
//! * [`containerd_events`] events of containerd
//! * [`health_v1`] the health service of gRPC probes
//!
//! # Example
//!
//! ```
//! use prost::Message;
//! use windlass_proto::cri_v1::{AuthConfig, PullImageRequest};
//!
//! let request = PullImageRequest {
//!     auth: Some(AuthConfig { password: "hunter2".to_owned(), ..AuthConfig::default() }),
//!     ..PullImageRequest::default()
//! };
//! let bytes = request.encode_to_vec();
//! let read = PullImageRequest::decode(bytes.as_slice())?;
//! assert_eq!(read.auth.map(|auth| auth.password).as_deref(), Some("hunter2"));
//! assert!(!format!("{request:?}").contains("hunter2"), "no log line can print it");
//! # Ok::<(), prost::DecodeError>(())
//! ```
//!
//! `cargo run -p windlass-proto --example decode_cri` takes a message apart.
//!
//! # What it promises
//!
//! Maps are ordered, so that equal messages have equal bytes. Byte fields are `Bytes`, which are
//! shared and not copied. `Debug` of messages that carry secrets leaves these out. Server traits
//! answer `Unimplemented` for every call that an implementation leaves out.
//!
//! # What it does not do
//!
//! No connection, no timeout, no limit of a message's size. `windlass-cri` has these and converts the
//! messages to `windlass-types`.

mod secret;

/// `runtime.v1`: the Container Runtime Interface.
#[allow(
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::large_futures
)]
#[allow(rustdoc::all)]
pub mod cri_v1 {
    include!("gen/runtime.v1.rs");
}

/// `containerd.events`: payloads of containerd's events.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod containerd_events {
    include!("gen/containerd.events.rs");

    /// `containerd.services.events.v1`: the service that delivers them.
    pub mod service {
        include!("gen/containerd.services.events.v1.rs");
    }
}

/// `grpc.health.v1`: what a gRPC probe asks.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod health_v1 {
    include!("gen/grpc.health.v1.rs");
}
