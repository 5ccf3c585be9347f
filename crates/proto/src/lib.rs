//! gRPC types generated from the texts in `proto/` by `cargo run -p windlass-codegen`.
//!
//! Generated code stays in these modules: `windlass-cri` turns it into `windlass-types` for
//! everybody else. Maps are ordered and byte fields are `Bytes`. Server traits answer
//! `Unimplemented` for every call that an implementation leaves out.

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

/// `pluginregistration`: how a plugin introduces itself.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pluginregistration_v1 {
    include!("gen/pluginregistration.rs");
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
