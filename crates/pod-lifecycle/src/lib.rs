//! Pod lifecycle decisions as pure functions of snapshots, for node agents, simulators and tests.
//!
//! # Entry points
//!
//! * [`actions::compute_pod_actions`] compares a desired with an observed pod and returns the
//!   actions for the runtime
//! * [`pod_worker::PodWorker`] is the state machine of one pod: sync, terminating and terminated
//!   sync
//! * [`backoff::BackoffTable`] has the restart and pull back-offs of a pod
//! * [`stop`] has grace periods, [`termination_order`] and [`shutdown`] the order of terminations
//! * [`probe`] and [`probe_targets`] have probes, [`hook`] has lifecycle hooks, and [`http_target`]
//!   builds the HTTP requests of both
//! * [`pleg`] returns the events between two relists
//! * [`housekeeping`], [`container_gc`] and [`log_rotation`] plan the removal of objects and files
//! * [`deadline`], [`pod_start`] and [`cri_log`] evaluate active deadlines, start latency and log
//!   lines
//!
//! # Example
//!
//! ```
//! use windlass_pod_lifecycle::actions::{ActionsInput, compute_pod_actions};
//! use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable};
//! use windlass_types::{ObservedPod, Pod, PodProbeResults, Timestamp};
//!
//! let pod: Pod = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "web", "namespace": "default", "uid": "1"},
//!     "spec": {"containers": [{"name": "web", "image": "nginx"}]},
//! }))?;
//! let actions = compute_pod_actions(ActionsInput {
//!     pod: &pod,
//!     observed: &ObservedPod::default(),
//!     backoff: &BackoffTable::default(),
//!     probe_results: &PodProbeResults::default(),
//!     policy: BackoffPolicy::DEFAULT,
//!     now: Timestamp::UNIX_EPOCH,
//! });
//! assert_eq!(actions.to_string(), "sandbox#0 start(web#?)");
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! `cargo run -p windlass-pod-lifecycle --example next_actions` prints the actions for several
//! observed pods; a desired and an observed pod can be given as text.
//!
//! # Guarantees
//!
//! The same input gives the same output. There is no clock, no I/O and no async code; `now` is an
//! argument, and jitter derives from names. A decision is a value with a one-line `Display`. Text
//! from containers, such as log lines, redirects and responses, does not cause a panic.
//!
//! # Limits
//!
//! Nothing is executed or stored: the caller keeps tables and state machines and executes their
//! results. Admission is in `windlass-node-rules`, the status of a pod in `windlass-pod-status`.
//! Pods are not resized in place.

pub mod actions;
pub mod backoff;
pub mod container_gc;
pub mod cri_log;
pub mod deadline;
pub mod hook;
pub mod housekeeping;
pub mod http_target;
pub mod log_rotation;
pub mod pleg;
pub mod pod_start;
pub mod pod_worker;
pub mod probe;
pub mod probe_targets;
pub mod shutdown;
pub mod stop;
pub mod termination_order;
