//! This node's pods from the API server (list and watch by `spec.nodeName`).
//!
//! Starts once the node object was read, as upstream does: a pod is admitted against it. The
//! watch itself, with its relists and back-off, is `windlass_client::reflect`; here its events
//! become snapshots for PodStorage, and every pod, mirror pods included, is shown to the
//! StatusManager. Mirror pods go no further: what runs is their static pod.

mod actor;
mod health;
pub(crate) mod state;

#[cfg(test)]
mod tests;

pub use actor::{ApiSource, ApiSourceConfig};
