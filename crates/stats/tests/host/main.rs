//! `HostStats` on this machine.

#![allow(clippy::expect_used, reason = "a helper of a test fails it")]

mod fixture;
mod on_containerd;
mod real_cgroups;
mod version2;
