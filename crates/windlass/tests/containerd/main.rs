//! The agent as a program on a real containerd: what issue 2 promises, seen from outside.
//!
//! Each test is one theme with one private containerd and one agent, because starting them costs
//! more than what a theme does with them. Nothing here reaches into the agent: it is driven by
//! manifests and signals, and judged by CRI, the disk, its socket and its log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod manifest;
mod test_env;

mod bad_input;
mod cgroups;
mod containers;
mod control;
mod disk_faults;
mod edits;
mod hooks;
mod hung_call;
mod image_volumes;
mod ip_families;
mod isolation;
mod log_rotation;
mod mount_hangs;
mod outages;
mod pod_resources;
mod probes;
mod propagation;
mod recursive_read_only;
mod removal;
mod restarts;
mod runtime_features;
mod specification;
mod status;
mod storm;
mod subpath;
mod traces;
mod user_namespaces;
mod volumes;
