//! The agent as a node of a cluster, on a real containerd: what issue 3 promises, seen from the
//! API server and from the runtime.
//!
//! Each theme runs twice: on the fake API server behind TLS, always, and on a real kube-apiserver
//! with etcd where `KUBEBUILDER_ASSETS` names a folder that has them. A fake agrees with whoever
//! wrote it; the real one does not. A theme has one containerd, one agent and one API server, and
//! its scenarios are pods that know nothing of each other.
//!
//! Whatever else a theme looks at, every version of every pod that the API server ever had is
//! judged when it ends: phases go forward only, what was final stays as it was.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod control_plane;
mod history;
mod objects;
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
mod proxy;
mod references;
mod restarts;
mod tokens;
mod usage;
