//! Quantities, durations and hashes as Kubernetes writes and computes them.

pub mod duration;
pub mod hash;
pub mod quantity;
