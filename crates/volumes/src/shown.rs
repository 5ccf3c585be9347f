//! What the volumes of running pods show, so that a sync that changes nothing touches no file.
//!
//! *owns* one number for each volume · *bound* the volumes of the node's pods: an entry goes when
//! its volume is torn down · *restart* nothing to restore: without an entry the files themselves
//! are compared.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::projection::VolumePayload;
use windlass_types::PodUid;

/// A payload in one number. Two contents of one volume share it once in 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    pub(crate) fn of(payload: &VolumePayload) -> Self {
        let mut hasher = DefaultHasher::new();
        (payload.in_memory, payload.files.len()).hash(&mut hasher);
        for (path, file) in &payload.files {
            (path, &file.data, file.mode, file.owner).hash(&mut hasher);
        }
        Self(hasher.finish())
    }
}

/// What was written last for each volume, by pod and directory name.
#[derive(Debug, Default)]
pub(crate) struct Shown(Mutex<BTreeMap<PodUid, BTreeMap<String, Digest>>>);

impl Shown {
    pub(crate) fn is(&self, uid: &PodUid, volume: &str, digest: Digest) -> bool {
        let shown = self.lock();
        shown.get(uid).and_then(|of_pod| of_pod.get(volume)) == Some(&digest)
    }

    pub(crate) fn set(&self, uid: &PodUid, volume: &str, digest: Digest) {
        let mut shown = self.lock();
        let of_pod = shown.entry(uid.clone()).or_default();
        of_pod.insert(volume.to_owned(), digest);
    }

    pub(crate) fn forget(&self, uid: &PodUid, volume: &str) {
        let mut shown = self.lock();
        if let Some(of_pod) = shown.get_mut(uid) {
            of_pod.remove(volume);
            if of_pod.is_empty() {
                shown.remove(uid);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, BTreeMap<String, Digest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
