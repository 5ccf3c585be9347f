//! Decisions on running pods: container actions, back-off, worker states, stops, probes, housekeeping.

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
