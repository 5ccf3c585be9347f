//! State file of the probe results of all pods.
//!
//! With it, an agent restart changes no Ready condition and repeats no startup probe.

use std::collections::BTreeMap;

use windlass_types::{ContainerProbeResult, PodProbeResults, PodUid, ProbeKind};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// Probe results of all pods.
pub type ProbeResultTables = BTreeMap<PodUid, PodProbeResults>;

/// Handle to the state file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct ProbeResultFile(TableFile<PodProbeResults>);

impl ProbeResultFile {
    /// Opens the file and returns it with the recorded results. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, ProbeResultTables), StoreError> {
        let (file, results) = TableFile::open(store, "probe_results")?;
        Ok((Self(file), results))
    }

    /// Records a result and writes it soon, if it changed.
    pub fn record(
        &self,
        kind: ProbeKind,
        uid: &PodUid,
        container: &str,
        result: ContainerProbeResult,
    ) {
        self.0.update(uid, |results| {
            let mut results = results.unwrap_or_default();
            let of_kind = results.for_kind_mut(kind);
            of_kind.insert(container.to_owned(), result);
            Some(results)
        });
    }

    /// Removes the results of one kind of a container, or of all containers of the pod.
    pub fn forget(&self, kind: ProbeKind, uid: &PodUid, container: Option<&str>) {
        self.0.update(uid, |results| {
            let mut results = results?;
            let of_kind = results.for_kind_mut(kind);
            match container {
                Some(container) => drop(of_kind.remove(container)),
                None => of_kind.clear(),
            }
            (!results.is_empty()).then_some(results)
        });
    }

    /// Waits until all recorded results are on the disk.
    ///
    /// # Errors
    /// The write failed.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
