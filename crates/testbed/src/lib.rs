//! A real machine to test on: a private containerd with images, an agent that runs on it, and a
//! control plane for it to join.
//!
//! For tests of anything that speaks CRI, CSI or to an API server, on the real thing and next to whatever
//! else runs on the machine. Apart from `windlass-testing`, which links the code under test: this crate
//! knows the agent only as a program with a socket, so that `cargo xtask` builds whatever state that code
//! is in.
//!
//! # The way in
//!
//! * [`containerd::PrivateContainerd`] is a containerd with its own root, sockets, network and cgroups
//! * [`agent::Agent`] is a node agent's process on it, [`pod_watch::PodTable`] the pods it reports
//! * [`control_plane`] runs etcd and kube-apiserver from a folder with their programs
//! * [`csi_driver::CsiDriver`] is a CSI driver on real sockets, [`cri_proxy`] makes single calls of a
//!   runtime go wrong, [`registry`] and [`small_disk`] are what their names say
//! * [`oci`] and [`images`] make images out of files of this machine, without a container engine
//!
//! # Example
//!
//! ```no_run
//! use windlass_testbed::containerd::PrivateContainerd;
//!
//! # async fn run() -> anyhow::Result<()> {
//! let containerd = PrivateContainerd::start("mine", |step| println!("{step}")).await?;
//! println!("{}", containerd.ctr(&["version"]).await?);
//! containerd.stop().await
//! # }
//! ```
//!
//! `sudo cargo run -p windlass-testbed --example run_containerd` leaves such a containerd running until
//! Ctrl-C; other examples take its socket.
//!
//! # What it promises
//!
//! * Everything of an instance lives in `/tmp/windlass-<name>` or carries that name. It is gone when it is
//!   stopped or dropped; what a killed run left is removed when the next one of that name starts.
//! * Two of one name are never there at once, and nothing of anybody else is touched.
//! * containerd answers within 60 s, or its last error is told.
//!
//! # What it does not do
//!
//! It needs root and Debian's packages (containerd, runc, containernetworking-plugins, busybox-static, a C
//! compiler) and says which is missing. It pulls nothing from the internet. It is no runtime for anything
//! but tests: images are built on this machine, and nothing survives a stop.

pub mod containerd;
pub mod control_plane;
pub mod cri_proxy;
pub mod csi_driver;
pub mod debian;
pub mod environment;
pub mod images;
pub mod kustomize;
pub mod node_images;
pub mod oci;
pub mod platform;
pub mod registry;
pub mod small_disk;

pub mod agent;
pub mod pod_watch;
