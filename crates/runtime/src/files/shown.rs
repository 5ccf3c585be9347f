//! What the volumes of running pods show, so that a sync that changes nothing touches no file.
//!
//! *owns* one number for each pod · *bound* the pods of the node: an entry goes with its pod's
//! directory · *restart* nothing to restore: without an entry the files themselves are compared.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use windlass_core::projection::VolumePayloads;
use windlass_types::PodUid;

/// A pod's payloads in one number. Two contents of one pod share it once in 2^64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(u64);

impl Digest {
    pub(super) fn of(payloads: &VolumePayloads) -> Self {
        let mut hasher = DefaultHasher::new();
        payloads.len().hash(&mut hasher);
        for (volume, payload) in payloads {
            (volume, payload.in_memory, payload.files.len()).hash(&mut hasher);
            for (path, file) in &payload.files {
                (path, &file.data, file.mode, file.owner).hash(&mut hasher);
            }
        }
        Self(hasher.finish())
    }
}

/// What was written last for each pod.
#[derive(Debug, Default)]
pub(super) struct Shown(Mutex<BTreeMap<PodUid, Digest>>);

impl Shown {
    pub(super) fn is(&self, uid: &PodUid, digest: Digest) -> bool {
        self.lock().get(uid) == Some(&digest)
    }

    pub(super) fn set(&self, uid: PodUid, digest: Digest) {
        self.lock().insert(uid, digest);
    }

    pub(super) fn forget(&self, uid: &PodUid) {
        self.lock().remove(uid);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PodUid, Digest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
