//! What is in `deploy/`: that its manifests say what they mean, and that the DaemonSet's pod runs
//! under Windlass itself and leaves nothing behind.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // every function here is part of a test

mod kustomize;
mod manifests;

mod end_to_end;
mod host;
mod machine;
mod units;
