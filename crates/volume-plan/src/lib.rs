//! Volume decisions: sources, PVCs, expansion, SELinux, and the volume reconciler.
//!
//! For a program that mounts the volumes of pods, or that simulates it. Pure: time, the state of
//! the API and the results of mounts are inputs, operations are outputs.
//!
//! # Entry points
//!
//! * [`volume_reconciler::VolumeReconciler`] turns [`volume_reconciler::Input`]s into
//!   [`volume_reconciler::Step`]s: stage, mount, expand, unmount, unstage, with back-off
//! * [`volume_source`] resolves each volume of a pod, with its PVC and PersistentVolume
//! * [`volume_usage`] decides which volumes exceed their limit
//! * [`empty_dir`] and [`selinux_mount`] are the sizes and mount labels
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass_types::{ClockReading, Timestamp};
//! use windlass_volume_plan::volume_reconciler::{Input, VolumeReconciler};
//!
//! let mut reconciler = VolumeReconciler::new();
//! let now = ClockReading { wall: Timestamp::UNIX_EPOCH, monotonic: Duration::ZERO };
//! let steps = reconciler.handle(Input::SourcesReady, now);
//! // the volumes of the previous agent run come first
//! assert_eq!(steps[0].to_string(), "reconstruct");
//! ```
//!
//! `cargo run -p windlass-volume-plan --example follow_a_volume` prints the steps of a pod with a
//! volume.
//!
//! # Guarantees
//!
//! At most one operation of a volume is in progress. A device is unstaged only after all pods have
//! unmounted it and all sources are ready. Property tests check both on random histories.
//!
//! # Limits
//!
//! Nothing is mounted here: `windlass-volumes` and `windlass-csi` execute the steps.

pub mod empty_dir;
pub mod selinux_mount;
pub mod volume_reconciler;
pub mod volume_source;
pub mod volume_usage;
