//! The status of pods as values: for node agents that report pods, and for tools that explain them.
//!
//! # Entry points
//!
//! * [`status::generate_status`] computes the status of a pod, [`status::blocker`] the cause that
//!   keeps it from its desired state
//! * [`status_sync::StatusSync`] is the state machine that brings the status of one pod to the API
//! * [`mirror`] plans the mirror pods of static pods
//! * [`event_correlator::EventCorrelator`] aggregates, counts and rate-limits events
//! * [`timeline::Timeline`] records the operations of a pod in bounded memory, and
//!   [`timeline::waterfall`] draws them
//!
//! # Example
//!
//! ```
//! use windlass_pod_status::status::{
//!     BlockerInput, Failures, StatusInput, blocker, generate_status, waiting_for,
//! };
//! use windlass_types::{ObservedPod, Pod, PodProbeResults, Reason, Timestamp};
//!
//! let pod: Pod = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "web", "namespace": "default", "uid": "1"},
//!     "spec": {"containers": [{"name": "web", "image": "nginx:none"}]},
//! }))?;
//! let failures: Failures =
//!     [("web".to_owned(), (Reason::ErrImagePull, "not found".to_owned()))].into();
//! let now = Timestamp::UNIX_EPOCH;
//! let status = generate_status(StatusInput {
//!     pod: &pod,
//!     observed: &ObservedPod::default(),
//!     failures: &failures,
//!     backing_off: &[],
//!     probe_results: &PodProbeResults::default(),
//!     previous: None,
//!     host_ips: &[],
//!     stop_signals: false,
//!     sizes: Default::default(),
//!     runtime_name: "containerd",
//!     terminal: false,
//!     phase_override: None,
//!     now,
//! });
//! assert_eq!(status.phase.as_deref(), Some("Pending"));
//!
//! let blocker = blocker(BlockerInput {
//!     pod: &pod,
//!     status: &status,
//!     failures: &failures,
//!     backing_off: &[],
//!     events: &[],
//!     next_sync: Some(now),
//!     previous: None,
//!     now,
//! });
//! let blocker = blocker.ok_or("no blocker")?;
//! assert_eq!(blocker.to_string(), "ErrImagePull container=web: not found");
//! assert_eq!(waiting_for(&blocker), "agent (automatic retry)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-pod-status --example generate_pod_status` prints status and blocker of
//! several observed pods.
//!
//! # Guarantees
//!
//! The same input gives the same output; there is no clock, no I/O and no async code. Phases,
//! conditions, reasons and messages are those of the Go kubelet. A terminal phase is never left,
//! and restart counts never decrease. Correlator and timelines have bounded memory.
//!
//! # Limits
//!
//! Nothing is sent: the caller sends the requests and events, and returns their results.

pub mod event_correlator;
pub mod mirror;
pub mod status;
pub mod status_sync;
pub mod timeline;
