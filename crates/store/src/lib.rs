//! State files of the agent: small JSON files with atomic writes.
//!
//! A state file survives `kill -9` and a power cut; damaged content is treated as absent. A file is
//! an envelope `{"version":…,"checksum":…,"data":…}`. A write creates a temporary file, syncs and
//! renames it, and syncs the directory.
//!
//! # The way in
//!
//! * [`Store`] is a directory of state files: [`Store::save`], [`Store::load`], [`Store::remove`]
//! * [`BackoffFile`], [`AdmittedPods`] and [`ProbeResultFile`] have one value
//!   per pod and are written in the background
//! * [`PodResourceFiles`] are upstream's checkpoints of allocated and actuated resources
//! * [`ImageUseFile`] has the times of use of images, [`EvictionFile`] the last evictions
//! * [`SealedFile`] is an encrypted state file, [`SealedFileConfig`] names it, its node and its key
//! * [`TextFile`] is a state file in a format of upstream
//! * [`PullRecords`] are the records of image pulls, in the upstream files
//! * [`StateDisk`] is the port to the disk; a simulation has its own ([`Store::on_disk`])
//! * [`StoreError`] is the error type
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
//! assert_eq!(store.load::<Vec<u8>>("counts")?, None, "moved aside");
//! assert!(folder.path().join("counts.corrupt-1").exists());
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-store --example survive_damage` damages a state file.
//!
//! # What it promises
//!
//! * When [`Store::save`] returns, the content is on the disk.
//! * Torn, edited or foreign content is renamed to `<name>.corrupt-<n>` (at most eight copies),
//!   logged, and treated as absent. Only I/O errors are errors.
//! * Files and directory are accessible only to their owner. A file is at most 64 MiB.
//! * Recording never blocks: changes during a write coalesce into one more write. `flush` waits
//!   until all changes are on the disk.
//!
//! # What it does not do
//!
//! It is not a database: files are read and written whole, by one process and one writer. The
//! checksum of a plain file detects damage, not forgery. Calls of [`Store`] block on the disk.

mod admitted_pods;
mod backoff_file;
mod disk;
mod error;
mod eviction_file;
mod image_use_file;
mod pod_resource_file;
mod probe_result_file;
mod pull_records;
mod sealed_file;
mod store;
mod table_file;
mod text_file;

pub use admitted_pods::{AdmittedPod, AdmittedPods};
pub use backoff_file::{BackoffFile, BackoffTables};
pub use disk::{DiskWork, StateDisk};
pub use error::StoreError;
pub use eviction_file::EvictionFile;
pub use image_use_file::{ImageUse, ImageUseFile, ImageUses};
pub use pod_resource_file::{PodResourceFile, PodResourceFiles, PodResources};
pub use probe_result_file::{ProbeResultFile, ProbeResultTables};
pub use pull_records::{PullFiles, PullRecords};
pub use sealed_file::{MAX_CONTENT_BYTES, SealedFile, SealedFileConfig};
pub use store::Store;
pub use text_file::TextFile;

#[cfg(test)]
mod tests;
