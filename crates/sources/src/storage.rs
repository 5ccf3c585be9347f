//! PodStorage: what all sources say becomes one stream of changes for the SyncLoop.
//!
//! The decisions are `windlass_manifests::merge`; here are its actor and the list of everything that
//! is refused at present.

mod actor;
mod rejections;

#[cfg(test)]
mod tests;

pub use actor::{PodStorage, PodStorageDeps};
