//! The last verdicts of all probes, so that a new agent neither takes Ready from a container that
//! has it nor asks one again that is through its start.

use std::collections::BTreeMap;

use windlass_types::{ContainerProbeResult, PodUid, PodProbeResults, ProbeKind};

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::TableFile;

/// The verdicts on all pods.
pub type ProbeResultTables = BTreeMap<PodUid, PodProbeResults>;

/// Handle to the file. Clones share it; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct ProbeResultFile(TableFile<PodProbeResults>);

impl ProbeResultFile {
    /// Reads the file and returns it together with what was recorded before. Blocks on the disk.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn open(store: Store) -> Result<(Self, ProbeResultTables), StoreError> {
        let (file, verdicts) = TableFile::open(store, "probe_results")?;
        Ok((Self(file), verdicts))
    }

    /// Records a verdict and writes it soon. The same again costs nothing.
    pub fn record(
        &self,
        kind: ProbeKind,
        uid: &PodUid,
        container: &str,
        verdict: ContainerProbeResult,
    ) {
        self.0.update(uid, |verdicts| {
            let mut verdicts = verdicts.unwrap_or_default();
            let of_kind = verdicts.for_kind_mut(kind);
            of_kind.insert(container.to_owned(), verdict);
            Some(verdicts)
        });
    }

    /// Forgets what one kind of probe found of a container, or of all containers of the pod.
    pub fn forget(&self, kind: ProbeKind, uid: &PodUid, container: Option<&str>) {
        self.0.update(uid, |verdicts| {
            let mut verdicts = verdicts?;
            let of_kind = verdicts.for_kind_mut(kind);
            match container {
                Some(container) => drop(of_kind.remove(container)),
                None => of_kind.clear(),
            }
            (!verdicts.is_empty()).then_some(verdicts)
        });
    }

    /// Waits until everything recorded so far is on the disk.
    ///
    /// # Errors
    /// The disk refuses.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}
