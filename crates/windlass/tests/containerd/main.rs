//! The agent binary on a real containerd.
//!
//! Each test is one theme with a private containerd and one agent, because starting them is slow.
//! The agent is driven by manifests and signals, and checked by CRI, disk, socket and log.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod manifest;
mod test_env;

mod bad_input;
mod cgroups;
mod containers;
mod control;
mod devices;
mod disk_faults;
mod edits;
mod hooks;
mod hung_call;
mod image_gc;
mod image_volumes;
mod ip_families;
mod isolation;
mod log_hangs;
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
