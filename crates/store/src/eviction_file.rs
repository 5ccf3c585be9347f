//! State file of the last evictions: their explanations survive an agent restart.

use windlass_eviction::EvictionRecord;

use crate::error::StoreError;
use crate::store::Store;

const NAME: &str = "evictions";

/// Handle to the state file.
#[derive(Clone, Debug)]
pub struct EvictionFile(Store);

impl EvictionFile {
    /// Opens the file and returns it with the recorded evictions. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, Vec<EvictionRecord>), StoreError> {
        let records = store.load(NAME)?.unwrap_or_default();
        Ok((Self(store), records))
    }

    /// Replaces the recorded evictions. Blocks on the disk.
    ///
    /// # Errors
    /// The write failed.
    pub fn save(&self, records: &[EvictionRecord]) -> Result<(), StoreError> {
        self.0.save(NAME, &records)
    }
}
