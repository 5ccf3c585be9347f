//! Durable state of the agent: small JSON files, each written as a whole or not at all.
//!
//! A file is an envelope `{"version":…,"checksum":…,"data":…}`. A write goes to a temporary
//! file, is synced, renamed over the old one, and the folder is synced: after `kill -9` or a
//! power cut either the old or the new content is there. Content that is torn, foreign or of a
//! later version is renamed to `<name>.corrupt-<n>`, reported, and treated as absent, so that
//! the agent starts from the runtime and its sources instead of not at all.
//!
//! Calls of [`Store`] block on the disk; [`BackoffFile`], [`AdmittedPods`] and [`VerdictFile`] write off the
//! hot path of their owners.

mod admitted_pods;
mod backoff_file;
mod error;
mod store;
mod table_file;
mod verdict_file;

pub use admitted_pods::AdmittedPods;
pub use backoff_file::{BackoffFile, BackoffTables};
pub use error::StoreError;
pub use store::{FORMAT_VERSION, Store};
pub use verdict_file::{VerdictFile, VerdictTables};

#[cfg(test)]
mod tests;
