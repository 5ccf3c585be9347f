//! gRPC types of node plugins, generated from the texts in `proto/` by
//! `cargo run -p windlass-codegen`.
//!
//! The generated code is checked in, so builds do not need `protoc`. Messages use `prost`, clients
//! and servers `tonic`.
//!
//! # The way in
//!
//! * [`pluginregistration_v1`] registration of plugins by their sockets
//! * [`csi_v1`] CSI drivers
//! * [`deviceplugin_v1beta1`] device plugins
//! * [`dra_v1`], [`dra_v1beta1`] and [`drahealth_v1alpha1`] DRA drivers
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//! use windlass_plugin_proto::csi_v1::NodeStageVolumeRequest;
//!
//! let request = NodeStageVolumeRequest {
//!     volume_id: "disk-1".to_owned(),
//!     secrets: BTreeMap::from([("key".to_owned(), "hunter2".to_owned())]),
//!     ..NodeStageVolumeRequest::default()
//! };
//! let text = format!("{request:?}");
//! assert!(text.contains("disk-1") && !text.contains("hunter2"), "{text}");
//! ```
//!
//! `cargo run -p windlass-plugin-proto --example decode_plugin_info` prints what a plugin answers at its registration.
//!
//! # What it promises
//!
//! Maps are ordered, so that equal messages have equal bytes. Byte fields are `Bytes`, which are
//! shared and not copied. `Debug` of messages that carry secrets leaves these out. Server traits
//! answer `Unimplemented` for every call that an implementation leaves out.
//!
//! # What it does not do
//!
//! No connection, no timeout, no limit of a message's size. `windlass-plugins`, `windlass-csi`,
//! `windlass-device-plugins` and `windlass-dra` have these.

mod secret;

/// `csi.v1`: the node and identity services of the Container Storage Interface.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod csi_v1 {
    include!("gen/csi.v1.rs");
}

/// `dra.v1`: preparation of resource claims by a DRA driver.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod dra_v1 {
    include!("gen/dra.v1.rs");
}

/// `dra.v1beta1`: without shares of devices.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod dra_v1beta1 {
    include!("gen/dra.v1beta1.rs");
}

/// `v1alpha1` of `dra-health`: the health of a DRA driver's devices.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod drahealth_v1alpha1 {
    include!("gen/drahealth.v1alpha1.rs");
}

/// `pluginregistration`: registration of a plugin.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod pluginregistration_v1 {
    include!("gen/pluginregistration.rs");
}

/// `v1beta1` of `deviceplugin`: plugins that offer devices of the node.
#[allow(missing_docs, missing_debug_implementations, clippy::all)]
pub mod deviceplugin_v1beta1 {
    include!("gen/deviceplugin.v1beta1.rs");
}
