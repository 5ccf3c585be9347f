//! The VolumeManager: reconciles the actual volumes of pods with the desired ones.
//!
//! For programs that set up volumes of many pods, with retries, shared devices and detailed errors.
//! `windlass_volume_plan::volume_reconciler` decides the steps; each step is one call of
//! `windlass_volumes::VolumePlugins`.
//!
//! # Entry points
//!
//! * [`VolumeManager`] is the actor; start it with `windlass_mailboxes::start_actor`
//! * [`VolumeManagerDeps`] are its dependencies; callers use `windlass_actors::VolumesHandle`
//! * [`VolumeUsages`] is the usage of volumes, measured on request
//! * [`InstrumentedVolumes`] adds metrics and timeline records to plugins
//!
//! # Example
//!
//! ```no_run
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use windlass_actors::{VolumeManagerMessage, VolumesHandle};
//! use windlass_mailboxes::{Mailbox, start_actor};
//! use windlass_volume_plan::volume_reconciler::TearDownRequester;
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
//!     for (name, volume) in ready.map_err(|error| error.message)?.mounted.iter() {
//!         println!("{name}: {:?}", volume.content);
//!     }
//!     let released = handle.tear_down(&pod.uid(), TearDownRequester::Worker).await;
//!     released.map_err(|error| error.message)
//! }
//! ```
//!
//! `cargo run -p windlass-volume-manager --example retry_a_mount` shows a mount that fails, then
//! succeeds.
//!
//! # Guarantees
//!
//! * At most one step is in progress per volume. Every caller gets a reply: its volumes, or after its
//!   timeout the cause of the delay. `VolumesChanged` then wakes it when the state changes.
//! * Volumes are torn down only on request. No device is unstaged while a pod uses or desires it, or
//!   before all sources are ready.
//! * Failed steps are retried with back-off. A hung volume affects only its own pod.
//! * Without requests there are no measurements and no wake-ups.
//!
//! # Limits
//!
//! It does not access the disk: its plugins do, with deadlines. It has no state file: users of devices
//! are reconstructed once, and volumes are set up again on request, which changes nothing. It does not
//! attach volumes; it waits until the Node status reports them as attached.

mod actor;
mod instrumented;
mod io;
mod usage;

use windlass_mailboxes::ActorKind;

pub use actor::{DriverRegistrations, VolumeManager, VolumeManagerDeps};
pub use instrumented::InstrumentedVolumes;
pub use usage::{PodVolumeStats, VolumeUsages, VolumeUsagesDeps};

/// At most one request for each of 250 pods, plus slack.
pub const VOLUME_MANAGER: ActorKind = ActorKind::new("VolumeManager", 256);
