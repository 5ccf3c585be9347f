//! CSI on a node: registered drivers, calls to them, and the mounts made through them.
//!
//! For programs that mount CSI volumes without a kubelet, or call a driver directly. A driver is a
//! foreign program behind a socket: it may hang, return wrong results or restart at any time.
//!
//! # Entry points
//!
//! * [`CsiClient`] is the client of one driver's node service; [`CsiNode`] is its port
//! * [`CsiDrivers`] holds the registered drivers; [`CsiRegistration`] registers them: pass it to
//!   `windlass_plugins::run_plugin_registry` for plugins of the type `CSIPlugin`
//! * [`CsiVolumes`] stages, publishes, unpublishes and unstages volumes, with volume data files on
//!   the disk; [`VolumeHost`] is its port to the host, [`CsiObjects`] its port to the API server
//! * [`run_attach_limit_refresh`] refreshes the attach limits of drivers
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
//! // no connection is opened before this call
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
//! `cargo run -p windlass-csi --example ask_driver -- <csi.sock>` prints a driver's node info and
//! capabilities.
//!
//! # Guarantees
//!
//! * A call ends within 120 s (upstream's `csiTimeout`), which is also its gRPC deadline. A response
//!   has at most 1 MiB, a message in an event 4 KiB.
//! * An error states whether the call may have had an effect: [`CsiError::Uncertain`] or not.
//! * After a kill between two steps, the next agent run finds the volume by its volume data file and
//!   repeats the call. A completed call is not repeated while the volume is mounted.
//! * A driver is usable as soon as NodeGetInfo succeeds, also while the API server is unreachable. Of
//!   two drivers with one name the first stays, unless the other has a higher version.
//! * No secret and no volume context appears in a log or a `Debug` output.
//!
//! # Limits
//!
//! It does not attach or provision volumes: controllers of the cluster do. `windlass-node` writes the
//! CSINode object. Mounts are made by the driver, and ownership changes by the [`VolumeHost`], which
//! `windlass-volumes` implements.

mod attach_limits;
mod client;
mod drivers;
mod mount;
mod port;
mod register;

pub use attach_limits::run_attach_limit_refresh;
pub use client::CsiClient;
pub use drivers::{CsiDrivers, RegisteredDriver};
pub use mount::{
    CsiPaths, CsiVolumes, CsiVolumesDeps, FileWork, IoQueueKind, MountError, VolumeHost,
    attachment_name, is_csi_device,
};
pub use port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, CsiObjects, FsGroupPolicy, NodeCapability,
    NodeInfo, ObjectError, PodToken, PublishRequest, StageRequest, TokenRequest, UsageEntry,
    UsageUnit, VolumeUsage,
};
pub use register::{Announcement, Announcements, CsiRegistration};
