//! Which containers of a pod run when, on a virtual clock: init containers, sidecars, debuggers,
//! restart rules, deadlines, and pods that are removed in whatever state they are.

#![allow(missing_docs, clippy::expect_used)] // all are tests

mod fixture;

mod deadlines;
mod debuggers;
mod init_containers;
mod leftovers;
mod restart_rules;

use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const IMAGE: &str = "busybox:1";
