//! PodStorage merges all sources into one stream of changes for the SyncLoop.
//!
//! `windlass_manifests::merge` decides; here are its actor and the list of current rejections.

mod actor;
mod rejections;

#[cfg(test)]
mod tests;

pub use actor::{PodStorage, PodStorageDeps};
