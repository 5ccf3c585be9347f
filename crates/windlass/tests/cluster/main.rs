//! The agent as a cluster node on a real containerd, checked at the API server and the runtime.
//!
//! Each theme runs on the fake API server behind TLS and, if `KUBEBUILDER_ASSETS` is set, on a real
//! kube-apiserver with etcd. A theme has one containerd, one agent and one API server; its
//! scenarios use independent pods.
//!
//! At the end of a theme, the history of all pods is checked: phases only advance, and final states
//! do not change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod control_plane;
mod history;
mod objects;
mod offline;
mod runtime;
mod test_env;

#[path = "../daemonset/host.rs"]
mod host;
#[path = "../daemonset/machine.rs"]
mod machine;

mod attach;
mod bootstrap;
mod certificates;
mod claims;
mod controllers;
mod csi;
mod csi_node;
mod daemonset;
mod deletion;
mod ends;
mod full_disks;
mod in_tree;
mod kept;
mod kubectl;
mod limits;
mod mirrors;
mod node;
mod node_api;
mod outages;
mod pod_watch;
mod pods;
mod pressure;
mod proxy;
mod references;
mod resize;
mod restarts;
mod tokens;
mod usage;
