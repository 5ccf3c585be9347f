//! Images that pod starts in progress need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

/// Images that must not be removed, because a pod start in progress pulls or has found them. Clones
/// share them.
#[derive(Clone, Debug, Default)]
pub struct ImageHolds(Arc<Mutex<BTreeMap<String, usize>>>);

impl ImageHolds {
    /// Holds an image by its ID or name until the hold is dropped.
    #[must_use]
    pub fn hold(&self, reference: &str) -> ImageHold {
        *self.0.lock().entry(reference.to_owned()).or_default() += 1;
        ImageHold {
            holds: self.clone(),
            reference: reference.to_owned(),
        }
    }

    /// Returns the references of all held images.
    pub fn held(&self) -> BTreeSet<String> {
        self.0.lock().keys().cloned().collect()
    }

    /// Returns true if an image is held by this reference.
    pub fn is_held(&self, reference: &str) -> bool {
        self.0.lock().contains_key(reference)
    }
}

/// Holds an image until dropped.
#[derive(Debug)]
pub struct ImageHold {
    holds: ImageHolds,
    reference: String,
}

impl Drop for ImageHold {
    fn drop(&mut self) {
        let mut all = self.holds.0.lock();
        if let Some(count) = all.get_mut(&self.reference) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.reference);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_is_held_until_last_hold_is_dropped() {
        let holds = ImageHolds::default();
        let (first, second) = (holds.hold("web:1"), holds.clone().hold("web:1"));
        drop(first);
        assert!(holds.is_held("web:1") && !holds.is_held("web:2"));
        drop(second);
        assert!(holds.held().is_empty());
    }
}
