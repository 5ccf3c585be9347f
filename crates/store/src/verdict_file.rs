//! The last verdicts of all probes, so that a new agent neither takes Ready from a container that
//! has it nor asks one again that is through its start.

use std::collections::BTreeMap;

use windlass_types::{PodUid, PodVerdicts};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// The verdicts on all pods.
pub type VerdictTables = BTreeMap<PodUid, PodVerdicts>;

/// Handle to the file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct VerdictFile(TableFile<PodVerdicts>);

impl VerdictFile {
    /// Reads the file and returns it together with what was recorded before. Blocks on the disk.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(store: Store) -> Result<(Self, VerdictTables), StoreError> {
        let (file, verdicts) = TableFile::open(store, "probe_verdicts")?;
        Ok((Self(file), verdicts))
    }

    /// Records a pod's verdicts and writes them soon. The same again cost nothing, and none are
    /// forgotten.
    pub fn record(&self, uid: &PodUid, verdicts: &PodVerdicts) {
        if verdicts.is_empty() {
            self.0.forget(uid);
        } else {
            self.0.record(uid, verdicts);
        }
    }

    /// Waits until everything recorded so far is on the disk, for an orderly shutdown.
    ///
    /// # Errors
    /// The disk refuses.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
