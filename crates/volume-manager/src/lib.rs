//! Which volumes pods want, which they have, and the steps in between.
//!
//! For whoever sets volumes of many pods up at once, with retries, shared devices and answers in words. What
//! is to be done is decided by `windlass_volume_plan::volume_plan`; each step is one call of
//! `windlass_volumes::VolumePlugins`.
//!
//! # The way in
//!
//! * [`VolumeManager`] is the actor; start it with `windlass_mailboxes::start_actor`
//! * [`VolumeManagerDeps`] are what it works with; `windlass_actors::VolumesHandle` is how it is asked
//! * [`VolumeUsages`] is what volumes hold: watched where a pod has a limit, measured where somebody asks
//! * [`InstrumentedVolumes`] is plugins with counters and timelines around them
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass_actors::{VolumeManagerMessage, VolumesHandle};
//! use windlass_mailboxes::{Mailbox, start_actor};
//! use windlass_volume_plan::volume_plan::Releaser;
//! use windlass_volume_plan::volume_source::plain_volumes;
//! use windlass_types::{PodExt, SharedPod};
//! use windlass_volume_manager::{VolumeManager, VolumeManagerDeps};
//!
//! /// Call it inside `windlass_mailboxes::run_actors`.
//! async fn use_volumes(
//!     deps: VolumeManagerDeps,
//!     mailbox: Mailbox<VolumeManagerMessage>,
//!     handle: VolumesHandle,
//!     pod: SharedPod,
//! ) -> Result<(), String> {
//!     start_actor(VolumeManager::new(deps, mailbox));
//!     let volumes = Arc::new(plain_volumes(&pod, &Default::default()));
//!     let ready = handle.set_up(&pod, &volumes, Duration::from_secs(10)).await;
//!     for (name, volume) in ready.map_err(|lacks| lacks.message)?.mounted.iter() {
//!         println!("{name}: {:?}", volume.content);
//!     }
//!     let released = handle.tear_down(&pod.uid(), Releaser::Worker).await;
//!     released.map_err(|lacks| lacks.message)
//! }
//! ```
//!
//! `cargo run -p windlass-volume-manager --example retry_a_mount` lets a mount fail and succeed.
//!
//! # What it promises
//!
//! * A volume has one step under way. Every asker is answered: with the volumes, or after its own patience
//!   with what it waits for. Who was answered so is woken by `VolumesChanged` when there is something new.
//! * Nothing is released that nobody asked to release, and no device is taken back that a pod uses or wants,
//!   or before every source of pods has spoken.
//! * What fails is tried again with pauses, without being asked. One volume that hangs holds up its own pod.
//! * Without a limit or somebody who asks nothing is measured and nobody wakes.
//!
//! # What it does not do
//!
//! It touches no disk: its plugins do, and have the deadlines. Nothing is kept for the next life: who uses
//! devices is looked up once, and volumes are set up again by whoever needs them, which changes nothing. It
//! attaches nothing; it waits for the Node to say that it is attached.

mod actor;
mod io;
mod measured;
mod usage;

use windlass_mailboxes::ActorKind;

pub use actor::{DriverRegistrations, VolumeManager, VolumeManagerDeps};
pub use measured::InstrumentedVolumes;
pub use usage::{PodVolumeStats, VolumeUsages, VolumeUsagesDeps};

/// At most one request for each of 250 pods, plus slack.
pub const VOLUME_MANAGER: ActorKind = ActorKind::new("VolumeManager", 256);
