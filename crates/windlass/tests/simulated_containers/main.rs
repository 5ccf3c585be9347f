//! Which containers of a pod run, on a virtual clock: init containers, sidecars, ephemeral
//! containers, restart rules, deadlines, removal in any state
//! and a kill of the agent at any instant.

#![allow(missing_docs, clippy::expect_used)] // all are tests

mod fixture;

mod configuration;
mod deadlines;
mod debuggers;
mod init_containers;
mod kills;
mod leftovers;
mod restart_rules;

use std::time::Duration;

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const IMAGE: &str = "busybox:1";
