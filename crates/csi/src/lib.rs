//! CSI on a node: which drivers are registered, calls to them, and the mounts made through them.
//!
//! For whoever mounts volumes of CSI drivers without a kubelet, or wants to ask a driver something. A
//! driver is another's program behind a socket: it may hang, lie, or be restarted at any time.
//!
//! # The way in
//!
//! * [`CsiClient`] is the node service of one driver; [`CsiNode`] is what it can be asked
//! * [`CsiDrivers`] is who is registered, [`CsiRegistration`] how a driver gets there: hand it to
//!   `windlass_plugins::keep_plugins` for plugins of the type `CSIPlugin`
//! * [`CsiVolumes`] stages, publishes and takes back, with notes on the disk; [`VolumeHost`] is the
//!   machine that it works on, [`CsiObjects`] what it asks the API server
//! * [`keep_attach_limits`] asks drivers again how many volumes fit
//!
//! # Example
//!
//! ```
//! use windlass_csi::{CsiClient, CsiError, CsiNode};
//! use windlass_metrics::Metrics;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let socket = "/nowhere/csi.sock".as_ref();
//! let driver = CsiClient::new("disk.example.com", socket, Metrics::new()?);
//! // nothing is open between two calls, so nobody is asked before this
//! match driver.info().await {
//!     Err(CsiError::Uncertain { code, message }) => {
//!         assert_eq!(code, "Unavailable");
//!         assert!(message.contains("/nowhere/csi.sock"));
//!     }
//!     other => return Err(format!("{other:?}").into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-csi --example ask_driver -- <csi.sock>` asks a driver what it is and can do.
//!
//! # What it promises
//!
//! * A call ends within 120 s (upstream's `csiTimeout`), which the driver is told. An answer has 1 MiB
//!   at most, a message that goes into an event 4 KiB.
//! * An error says whether the call may have had its effect: [`CsiError::Uncertain`] or not.
//! * Whoever is killed between two steps is followed by one that finds the volume by its notes and
//!   repeats the call. What a driver has said to be done is not asked for again while it is mounted.
//! * A driver is usable as soon as it has said what it calls this node, also while the API server is
//!   away. Of two drivers with one name the first stays, unless the other speaks a higher version.
//! * No secret and no volume context is in a log or a `Debug`.
//!
//! # What it does not do
//!
//! It attaches nothing and provisions nothing: those are a cluster's controllers. It writes no CSINode
//! object, which is `windlass-node`'s. It mounts nothing itself but by the driver, and gives files to a
//! group only through its [`VolumeHost`]; `windlass-volumes` is one.

mod attach_limits;
mod client;
mod drivers;
mod mount;
mod port;
mod register;

pub use attach_limits::keep_attach_limits;
pub use client::CsiClient;
pub use drivers::{CsiDrivers, RegisteredDriver};
pub use mount::{
    CsiPaths, CsiVolumes, CsiVolumesDeps, FileLane, FileWork, MountError, VolumeHost,
    attachment_name, is_csi_device,
};
pub use port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, CsiObjects, FsGroupPolicy, NodeAbility, NodeInfo,
    ObjectError, PodToken, PublishRequest, StageRequest, TokenRequest, UsageEntry, UsageUnit,
    VolumeUsage,
};
pub use register::{Announcement, Announcements, CsiRegistration};
