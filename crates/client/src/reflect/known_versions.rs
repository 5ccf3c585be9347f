//! Delivered versions of objects, so that no event is repeated or out of order.

use std::collections::{BTreeMap, VecDeque};

use super::plan::number;

/// Namespace and name.
pub(super) type Key = (String, String);

/// The objects of a set as the consumer knows them.
#[derive(Debug, Default)]
pub(super) struct KnownVersions {
    present: BTreeMap<Key, String>,
    /// Deleted objects, oldest first: an older event must not restore them.
    deleted: VecDeque<(Key, String)>,
}

/// Maximum number of remembered deletions. Events late by more deletions of one node's objects are
/// not expected; a relist clears them.
const MAX_DELETIONS: usize = 256;

impl KnownVersions {
    pub(super) fn replace(&mut self, objects: impl Iterator<Item = (Key, String)>) {
        self.present = objects.collect();
        self.deleted.clear();
    }

    /// Records the version of an object; false if it is not new.
    pub(super) fn applied(&mut self, key: &Key, version: &str) -> bool {
        if self.knows(key, version) {
            return false;
        }
        self.deleted.retain(|(deleted, _)| deleted != key);
        self.present.insert(key.clone(), version.to_owned());
        true
    }

    /// Records the deletion of an object; false if it is not new.
    pub(super) fn removed(&mut self, key: &Key, version: &str) -> bool {
        // a deletion may carry the version of the last change
        let late = match self.present.get(key) {
            Some(present) => older(version, present),
            None => self.knows(key, version),
        };
        if late {
            return false;
        }
        self.present.remove(key);
        self.deleted.retain(|(deleted, _)| deleted != key);
        if self.deleted.len() == MAX_DELETIONS {
            self.deleted.pop_front();
        }
        self.deleted.push_back((key.clone(), version.to_owned()));
        true
    }

    fn knows(&self, key: &Key, version: &str) -> bool {
        let known = self.present.get(key).or_else(|| {
            let found = self.deleted.iter().find(|(deleted, _)| deleted == key);
            found.map(|(_, version)| version)
        });
        known
            .is_some_and(|known| (known == version && !version.is_empty()) || older(version, known))
    }
}

/// Returns true if both are numbers and `version` is the smaller one.
fn older(version: &str, than: &str) -> bool {
    match (number(version), number(than)) {
        (Some(version), Some(than)) => version < than,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        ("ns".to_owned(), name.to_owned())
    }

    #[test]
    fn older_and_repeated_events_are_not_new() {
        let mut known = KnownVersions::default();
        known.replace([(key("a"), "5".to_owned())].into_iter());
        assert!(!known.applied(&key("a"), "5"));
        assert!(!known.applied(&key("a"), "4"));
        assert!(known.applied(&key("a"), "10"), "compared as numbers");
        assert!(known.applied(&key("b"), "9"), "each object by itself");
        assert!(!known.removed(&key("a"), "9"), "of a previous object");
        assert!(known.removed(&key("a"), "10"));
    }

    #[test]
    fn late_event_does_not_restore_a_deleted_object() {
        let mut known = KnownVersions::default();
        assert!(known.applied(&key("a"), "5"));
        assert!(known.removed(&key("a"), "7"));
        assert!(!known.applied(&key("a"), "6"));
        assert!(!known.removed(&key("a"), "7"), "a repeated deletion");
        assert!(known.applied(&key("a"), "8"), "a new object of that name");
    }

    #[test]
    fn non_numeric_versions_are_compared_for_equality() {
        let mut known = KnownVersions::default();
        assert!(known.applied(&key("a"), "x2"));
        assert!(!known.applied(&key("a"), "x2"));
        assert!(known.applied(&key("a"), "x1"));
    }

    #[test]
    fn remembered_deletions_are_bounded() {
        let mut known = KnownVersions::default();
        for n in 0..MAX_DELETIONS + 10 {
            assert!(known.removed(&key(&n.to_string()), "1"));
        }
        assert_eq!(known.deleted.len(), MAX_DELETIONS);
    }
}
