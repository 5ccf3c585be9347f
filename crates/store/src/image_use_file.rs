//! State file of when images were detected and used.
//!
//! With it, an agent restart changes neither the order in which images are removed nor their age.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_types::Timestamp;

use crate::error::StoreError;
use crate::store::Store;

const NAME: &str = "image_uses";

/// When an image was detected and used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageUse {
    /// First seen on the node.
    pub first_detected: Timestamp,
    /// Last seen in use; `None` if never.
    pub last_used: Option<Timestamp>,
}

/// Times of all images, by ID.
pub type ImageUses = BTreeMap<String, ImageUse>;

/// Handle to the state file.
#[derive(Clone, Debug)]
pub struct ImageUseFile(Store);

impl ImageUseFile {
    /// Opens the file and returns it with the recorded times. Blocks on the disk.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn open(store: Store) -> Result<(Self, ImageUses), StoreError> {
        let uses = store.load(NAME)?.unwrap_or_default();
        Ok((Self(store), uses))
    }

    /// Replaces the recorded times. Blocks on the disk.
    ///
    /// # Errors
    /// The write failed.
    pub fn save(&self, uses: &ImageUses) -> Result<(), StoreError> {
        self.0.save(NAME, uses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_uses_survive_restarts_and_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = || Store::open(folder.path()).expect("a store");
        let (file, uses) = ImageUseFile::open(store()).expect("opened");
        assert!(uses.is_empty());
        let used = ImageUse {
            first_detected: Timestamp::UNIX_EPOCH,
            last_used: Some(Timestamp::UNIX_EPOCH),
        };
        let uses = ImageUses::from([("sha256:aa".to_owned(), used)]);
        file.save(&uses).expect("saved");
        assert_eq!(ImageUseFile::open(store()).expect("opened").1, uses);

        std::fs::write(folder.path().join(NAME), "torn").expect("written");
        let (file, uses) = ImageUseFile::open(store()).expect("opened");
        assert!(uses.is_empty() && folder.path().join("image_uses.corrupt-1").exists());
        file.save(&uses).expect("saved");
    }
}
