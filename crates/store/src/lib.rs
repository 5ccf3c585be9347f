//! Durable state of the agent: small JSON files, each written as a whole or not at all.
//!
//! For whoever has a little state that must survive `kill -9` and a power cut, and would rather
//! start without it than not at all when it is damaged. A file is an envelope
//! `{"version":…,"checksum":…,"data":…}`. A write goes to a temporary file, is synced, renamed over
//! the old one, and the folder is synced: afterwards either the old or the new content is there.
//!
//! # The way in
//!
//! * [`Store`] is a folder of such files: [`Store::save`], [`Store::load`], [`Store::remove`]
//! * [`BackoffFile`], [`AdmittedPods`] and [`ProbeResultFile`] are the agent's three tables with a
//!   value for each pod; they write off the hot path of their owners
//! * [`PullRecords`] are the records of image pulls, in the files of upstream's kubelet
//! * [`StoreError`] is what the disk can refuse
//!
//! # Example
//!
//! ```
//! use windlass_store::Store;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let store = Store::open(folder.path())?;
//! store.save("counts", &vec![1, 2, 3])?;
//! assert_eq!(store.load::<Vec<u8>>("counts")?, Some(vec![1, 2, 3]));
//!
//! std::fs::write(folder.path().join("counts"), "torn")?;
//! assert_eq!(store.load::<Vec<u8>>("counts")?, None, "set aside, not guessed at");
//! assert!(folder.path().join("counts.corrupt-1").exists());
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-store --example survive_damage` does that to a table that is written
//! behind its owner's back.
//!
//! # What it promises
//!
//! * When [`Store::save`] returns, the content is on the disk.
//! * Content that is torn, edited, foreign or of a later version is renamed to `<name>.corrupt-<n>`
//!   (eight are kept), logged, and treated as absent. Only a disk that refuses is an error.
//! * Files and folder are readable by their owner alone. A file is at most 64 MiB.
//! * The tables never block who records: changes during a write coalesce into one more write.
//!   `flush` waits until all of it is on the disk.
//!
//! # What it does not do
//!
//! It is no database: a file is read and written whole, there is one process and one writer at a
//! time. The checksum guards against damage, not against forgery. Calls of [`Store`] block on the
//! disk; call them where that is allowed.

mod admitted_pods;
mod backoff_file;
mod error;
mod pull_records;
mod store;
mod table_file;
mod probe_result_file;

pub use admitted_pods::AdmittedPods;
pub use backoff_file::{BackoffFile, BackoffTables};
pub use error::StoreError;
pub use pull_records::{PullFiles, PullRecords};
pub use store::Store;
pub use probe_result_file::{ProbeResultFile, ProbeResultTables};

#[cfg(test)]
mod tests;
