//! Image garbage collection: removes images that no container uses, by age and by disk usage.
//!
//! For agents and programs that keep the images of a container runtime within the bounds of its
//! disk. What is removed, and in which order, is a pure function; the actor reads and executes.
//!
//! # Entry points
//!
//! * [`plan`] has the decisions: [`ImageGcPolicy`], [`plan::detect`], [`plan::removal_order`],
//!   [`plan::SpaceDecision`]
//! * [`ImageGcManager`] is the actor; start it with `windlass_mailboxes::start_actor`
//! * [`ImageFileSystem`] is its port to the disk of the images, [`HostImageFileSystem`] that of
//!   this host
//!
//! # Example
//!
//! ```
//! use windlass_image_gc::ImageGcPolicy;
//! use windlass_image_gc::plan::SpaceDecision;
//! use windlass_stats::DiskSpace;
//!
//! let disk = DiskSpace { capacity: 1000, available: 100, ..DiskSpace::default() };
//! let decision = SpaceDecision::new(disk, &ImageGcPolicy::default());
//! assert_eq!(decision.to_string(), "free 100 bytes (90% used)");
//! ```
//!
//! `cargo run -p windlass-image-gc --example plan_a_collection` prints the plan of a full disk.
//!
//! # Guarantees
//!
//! * An image of a container in any state, of an image volume, of a sandbox or of a pod start in
//!   progress is not removed, nor is a pinned one.
//! * A removal that fails or hangs does not keep other images from being removed.
//! * The times of use survive an agent restart, if there is a state file.
//!
//! # Limits
//!
//! One pass runs at a time. Images are removed one after the other, so that no more than necessary
//! are removed.

pub mod plan;

mod actor;
mod file_system;
mod pass;

use windlass_mailboxes::ActorKind;

pub use actor::{ImageGcDeps, ImageGcManager};
pub use file_system::{HostImageFileSystem, ImageFileSystem};
pub use plan::ImageGcPolicy;

/// One request of the EvictionManager, plus slack.
pub const IMAGE_GC_MANAGER: ActorKind = ActorKind::new("ImageGcManager", 4);
