//! Disk usage of pods, and the eviction of pods over their limits of local storage.
//!
//! For the eviction manager, which ranks pods by their disk usage, and for the limits of emptyDirs,
//! containers and pods. `windlass_eviction::local_storage` has the rules.
//!
//! # Entry points
//!
//! * [`LocalStorage`] checks the limits and measures pods on request
//! * [`LocalStorageDeps`] are its dependencies: the runtime for writable layers, [`NodeDisk`] for
//!   logs, [`LocalVolumes`] for emptyDirs
//! * [`HostDisk`] is the [`NodeDisk`] of this host
//!
//! # Example
//!
//! ```
//! use windlass_eviction::DiskUsage;
//! use windlass_eviction::local_storage::{LocalStorageLimits, PodDiskUsage};
//! use windlass_types::Pod;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pod: Pod = serde_json::from_str(
//!     r#"{"spec": {"containers": [], "volumes": [
//!         {"name": "data", "emptyDir": {"sizeLimit": "1Mi"}}]}}"#,
//! )?;
//! let limits = LocalStorageLimits::from_pod(&pod).ok_or("no limits")?;
//! let mut usage = PodDiskUsage::default();
//! usage.volumes.insert("data".to_owned(), DiskUsage { bytes: 2 << 20, inodes: 3 });
//! let exceeded = limits.exceeded(&usage, true).ok_or("within limits")?;
//! assert_eq!(exceeded.kind.signal(), "emptydirfs.limit");
//! # Ok(())
//! # }
//! ```
//!
//! `cargo run -p windlass-local-storage --example measure_logs` measures the logs of a pod.
//!
//! # Guarantees
//!
//! * Only pods with a limit are measured without a request, every 10 s. Without them there are no
//!   wake-ups.
//! * A measurement returns within 3 s. A hung runtime, log disk or volume makes its own part
//!   absent and delays no other.
//! * A pod is evicted once, with upstream's reason, message and grace period.
//!
//! # Limits
//!
//! It stops no container and patches no status: the SyncLoop and the pod worker do. Files of
//! volumes are counted in `windlass-volumes`.

mod host_disk;
mod measure;

mod task;

pub use host_disk::HostDisk;
pub use measure::{LocalVolumes, NodeDisk};
pub use task::{LocalStorage, LocalStorageDeps};
