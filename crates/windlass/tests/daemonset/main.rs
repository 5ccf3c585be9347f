//! The manifests of `deploy/`, and the DaemonSet's pod under Windlass itself.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod kustomize;
mod manifests;

mod end_to_end;
mod host;
mod machine;
mod units;
