//! Logs of pods, without files.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use windlass_local_storage::NodeDisk;
use windlass_stats::{DiskUsageTotal, PodFiles};
use windlass_types::{PodExt, PodUid, SharedPod};

/// Sizes of logs by pod and container; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    logs: BTreeMap<PodUid, BTreeMap<String, u64>>,
    hangs: bool,
}

impl FakeDisk {
    /// Sets the bytes of a container's logs.
    pub fn set_logs(&self, uid: &PodUid, container: &str, bytes: u64) {
        let mut state = self.lock();
        let logs = state.logs.entry(uid.clone()).or_default();
        logs.insert(container.to_owned(), bytes);
    }

    /// While it hangs, no call returns a result.
    pub fn hang(&self, hangs: bool) {
        self.lock().hangs = hangs;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl NodeDisk for FakeDisk {
    async fn pod_files(&self, pods: Vec<SharedPod>) -> Option<HashMap<PodUid, PodFiles>> {
        let state = self.lock();
        if state.hangs {
            return None;
        }
        let files = pods.into_iter().map(|pod| {
            let uid = pod.uid();
            let logs = state.logs.get(&uid).into_iter().flatten();
            let logs = logs.map(|(name, bytes)| {
                let total = DiskUsageTotal {
                    bytes: *bytes,
                    inodes: 1,
                };
                (name.clone(), total)
            });
            let files = PodFiles {
                logs: logs.collect(),
                ..PodFiles::default()
            };
            (uid, files)
        });
        Some(files.collect())
    }

    async fn is_on_node_fs(&self, _: &Path) -> Option<bool> {
        Some(true)
    }
}
