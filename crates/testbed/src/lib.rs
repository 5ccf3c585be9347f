//! Test environment on a real host: a private containerd with images, an agent process and a
//! control plane.
//!
//! Unlike `windlass-testing`, this crate does not link the code under test, so that `cargo xtask`
//! always builds.
//!
//! # Entry points
//!
//! * [`containerd::PrivateContainerd`] is a containerd with its own root, sockets, network and
//!   cgroups
//! * [`agent::Agent`] is an agent process on it, [`pod_watch::PodTable`] its reported pods
//! * [`control_plane`] runs etcd and kube-apiserver
//! * [`csi_driver::CsiDriver`] is a fake CSI driver, [`device_plugin::DevicePlugin`] a device plugin,
//!   [`cri_proxy`] injects faults into CRI calls, [`registry`] is an image registry, [`small_disk`] a
//!   limited file system, [`hung_disk`] one that does not answer
//! * [`oci`] and [`images`] build images without a container engine
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
//! `sudo cargo run -p windlass-testbed --example run_containerd` runs such a containerd until
//! Ctrl-C, for use with other examples.
//!
//! # Guarantees
//!
//! * All resources of an instance are in `/tmp/windlass-<name>` or have that name. They are removed
//!   on stop or drop; the next start of that name removes leftovers of a killed run.
//! * Instances of one name exclude each other, and other resources of the host are not touched.
//! * The start fails with the last error of containerd if it takes longer than 60 s.
//!
//! # Limits
//!
//! Requires root and Debian packages (containerd, runc, containernetworking-plugins,
//! busybox-static, a C compiler). Nothing is pulled from the internet, and no data survives a stop.

pub mod containerd;
pub mod control_plane;
pub mod cri_proxy;
pub mod csi_driver;
pub mod debian;
pub mod device_plugin;
pub mod dra_driver;
pub mod environment;
pub mod hung_disk;
pub mod images;
pub mod kustomize;
pub mod node_images;
pub mod oci;
pub mod platform;
pub mod registry;
pub mod small_disk;

pub mod agent;
pub mod pod_watch;
