//! This node's pods from the API server (list and watch by `spec.nodeName`).
//!
//! As upstream, it starts after the Node object was read, which admission requires. The watch with
//! its lists and back-off is `windlass_client::reflect`. Its events become snapshots for PodStorage
//! and updates for the StatusManager. Only the StatusManager receives mirror pods.

mod actor;
mod health;
pub(crate) mod state;

#[cfg(test)]
mod tests;

pub use actor::{ApiSource, ApiSourceConfig};
