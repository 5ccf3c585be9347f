//! gRPC types generated from the texts in `proto/` by `cargo run -p windlass-codegen`.
//!
//! The protocols of container runtimes, CSI drivers, plugin registration and the control socket of
//! the agent. The generated code is checked in, so builds do not need `protoc`. Messages use
//! `prost`, clients and servers `tonic`.
//!
//! # The way in
//!
//! * [`cri_v1`] the Container Runtime Interface
//! * [`containerd_events`] events of containerd
//! * [`dra_v1`], [`dra_v1beta1`] and [`drahealth_v1alpha1`] DRA drivers
//! * [`csi_v1`], [`deviceplugin_v1beta1`] and [`pluginregistration_v1`] CSI drivers, device plugins
//!   and plugin registration
//! * [`podresources_v1`] and [`pods_v1alpha1`] APIs of the agent for programs on the node
//! * [`windlass_v1`] the control socket of the agent, for `windlassctl`
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
//! No connection, no deadline, no bound on a message's size, no meaning: that is for those who
//! speak. For a container runtime use `windlass-cri`, which has deadlines and turns messages into
//! `windlass-types`.

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

/// `csi.v1`: the Container Storage Interface, as far as a node speaks it.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod csi_v1 {
    include!("gen/csi.v1.rs");
}

/// `dra.v1`: how a DRA driver prepares resource claims.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod dra_v1 {
    include!("gen/dra.v1.rs");
}

/// `dra.v1beta1`: the same, without shares of devices.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod dra_v1beta1 {
    include!("gen/dra.v1beta1.rs");
}

/// `v1alpha1` of `dra-health`: the health of a DRA driver's devices.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod drahealth_v1alpha1 {
    include!("gen/drahealth.v1alpha1.rs");
}

/// `pluginregistration`: how a plugin introduces itself.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pluginregistration_v1 {
    include!("gen/pluginregistration.rs");
}

/// `v1beta1` of `deviceplugin`: plugins that offer devices of the node.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod deviceplugin_v1beta1 {
    include!("gen/deviceplugin.v1beta1.rs");
}

/// `grpc.health.v1`: what a gRPC probe asks.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod health_v1 {
    include!("gen/grpc.health.v1.rs");
}

/// `v1` of `podresources`: which of the node's resources pods have.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod podresources_v1 {
    include!("gen/podresources.v1.rs");
}

/// `v1alpha1` of `podresources`: the same, devices only.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod podresources_v1alpha1 {
    include!("gen/podresources.v1alpha1.rs");
}

/// `v1alpha1` of `pods`: the node's pods, told on the node.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pods_v1alpha1 {
    include!("gen/pods.v1alpha1.rs");
}

/// `windlass.v1`: the local control API.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod windlass_v1 {
    include!("gen/windlass.v1.rs");
}
