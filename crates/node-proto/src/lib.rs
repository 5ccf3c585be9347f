//! gRPC types of the APIs that the agent serves to programs on its node, generated from the texts in
//! `proto/` by `cargo run -p windlass-codegen`.
//!
//! The generated code is checked in, so builds do not need `protoc`. Messages use `prost`, clients
//! and servers `tonic`.
//!
//! # The way in
//!
//! * [`podresources_v1`] and [`podresources_v1alpha1`] devices, CPUs and memory of pods
//! * [`pods_v1alpha1`] the pods of the node
//! * [`windlass_v1`] the control API, used by `windlassctl`
//!
//! # Example
//!
//! ```
//! use prost::Message;
//! use windlass_node_proto::podresources_v1::{ContainerDevices, ContainerResources};
//!
//! let container = ContainerResources {
//!     name: "train".to_owned(),
//!     devices: vec![ContainerDevices {
//!         resource_name: "example.com/gpu".to_owned(),
//!         device_ids: vec!["gpu-0".to_owned()],
//!         ..ContainerDevices::default()
//!     }],
//!     ..ContainerResources::default()
//! };
//! let bytes = container.encode_to_vec();
//! assert_eq!(ContainerResources::decode(bytes.as_slice())?, container);
//! # Ok::<(), prost::DecodeError>(())
//! ```
//!
//! `cargo run -p windlass-node-proto --example decode_pod_resources` prints the devices and CPUs of pods.
//!
//! # What it promises
//!
//! Maps are ordered, so that equal messages have equal bytes. Server traits answer `Unimplemented`
//! for every call that an implementation leaves out.
//!
//! # What it does not do
//!
//! No connection, no timeout, no limit of a message's size. `windlass-pod-resources` and
//! `windlass-control` serve these APIs.

/// `v1` of `podresources`: resources of the node that pods use.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod podresources_v1 {
    include!("gen/podresources.v1.rs");
}

/// `v1alpha1` of `podresources`: devices only.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod podresources_v1alpha1 {
    include!("gen/podresources.v1alpha1.rs");
}

/// `v1alpha1` of `pods`: the pods of the node.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pods_v1alpha1 {
    include!("gen/pods.v1alpha1.rs");
}

/// `windlass.v1`: the local control API.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod windlass_v1 {
    include!("gen/windlass.v1.rs");
}
