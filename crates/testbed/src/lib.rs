//! A real machine to test on: a private containerd with images, an agent that runs on it, and a
//! control plane for it to join.
//!
//! Apart from `windlass-testing`, which links the code under test: this crate knows the agent only
//! as a program with a socket, so that `cargo xtask` builds whatever state that code is in.

pub mod containerd;
pub mod control_plane;
pub mod cri_proxy;
pub mod csi_driver;
pub mod debian;
pub mod images;
pub mod node_images;
pub mod oci;
pub mod registry;
pub mod small_disk;

pub mod agent;
pub mod pod_watch;
