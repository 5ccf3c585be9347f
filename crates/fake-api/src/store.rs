//! The objects, their versions and the log of changes that watches read.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::object::{meta, metadata};

/// The key of an object of any type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) group: String,
    pub(crate) resource: String,
    /// Empty for types that have no namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    /// `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }

    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.group == group && self.resource == resource
    }
}

/// A change: the object before and after.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    /// The current object; after a deletion its last state with the version of the deletion.
    pub(crate) after: Arc<Value>,
    pub(crate) deleted: bool,
}

/// All objects of one type, or those of one of its namespaces.
pub(crate) type Objects = BTreeMap<Key, Arc<Value>>;

/// Maximum number of changes for watches; older ones are compacted. More than a test makes while a
/// watch reconnects, and a few megabytes at most.
const WINDOW: usize = 4096;

/// An in-memory store with one version counter, as etcd.
#[derive(Debug)]
pub(crate) struct Store {
    objects: Objects,
    version: u64,
    /// Changes up to this version are compacted.
    compacted: u64,
    log: VecDeque<Change>,
    issued: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            version: 1,
            compacted: 0,
            log: VecDeque::new(),
            issued: 0,
        }
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// The object at an older version, as far as the log goes back.
    pub(crate) fn get_at(&self, key: &Key, version: u64) -> Option<Arc<Value>> {
        let start = self.log.partition_point(|change| change.version <= version);
        let next = self.log.range(start..).find(|change| change.key == *key);
        match next {
            Some(change) => change.before.clone(),
            None => self.get(key),
        }
    }

    /// Objects of a type, by namespace and name.
    pub(crate) fn list(&self, group: &str, resource: &str) -> Vec<(Key, Arc<Value>)> {
        of_type(&self.objects, group, resource)
    }

    /// The objects at an older version, as far as the log goes back.
    pub(crate) fn list_at(
        &self,
        group: &str,
        resource: &str,
        version: u64,
    ) -> Vec<(Key, Arc<Value>)> {
        let mut objects: Objects = self.list(group, resource).into_iter().collect();
        for change in self.log.iter().rev().take_while(|c| c.version > version) {
            if change.key.is(group, resource) {
                match &change.before {
                    Some(before) => objects.insert(change.key.clone(), before.clone()),
                    None => objects.remove(&change.key),
                };
            }
        }
        objects.into_iter().collect()
    }

    /// Stores an object with the next version and returns it.
    pub(crate) fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.stamp(&mut object);
        let after = Arc::new(object);
        let before = self.objects.insert(key.clone(), after.clone());
        self.record(key, before, after.clone(), false);
        after
    }

    /// Removes an object; `last` is its state in the deletion event.
    pub(crate) fn remove(&mut self, key: &Key, mut last: Value) -> Option<Arc<Value>> {
        let before = self.objects.remove(key)?;
        self.stamp(&mut last);
        let after = Arc::new(last);
        self.record(key.clone(), Some(before), after.clone(), true);
        Some(after)
    }

    /// Returns the changes after a version, or `None` if some are compacted.
    pub(crate) fn since(&self, version: u64) -> Option<impl Iterator<Item = &Change>> {
        if version < self.compacted {
            return None;
        }
        let start = self.log.partition_point(|change| change.version <= version);
        Some(self.log.range(start..))
    }

    /// Returns the oldest version for a watch.
    pub(crate) fn oldest(&self) -> u64 {
        self.compacted
    }

    /// Compacts all changes.
    pub(crate) fn compact(&mut self) {
        self.log.clear();
        self.compacted = self.version;
    }

    /// Returns a unique number, for UIDs and generated names.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    fn stamp(&mut self, object: &mut Value) {
        self.version += 1;
        metadata(object).insert(
            "resourceVersion".to_owned(),
            json!(self.version.to_string()),
        );
    }

    fn record(&mut self, key: Key, before: Option<Arc<Value>>, after: Arc<Value>, deleted: bool) {
        if self.log.len() == WINDOW
            && let Some(oldest) = self.log.pop_front()
        {
            self.compacted = oldest.version;
        }
        self.log.push_back(Change {
            version: self.version,
            key,
            before,
            after,
            deleted,
        });
    }
}

fn of_type(objects: &Objects, group: &str, resource: &str) -> Vec<(Key, Arc<Value>)> {
    let first = Key {
        group: group.to_owned(),
        resource: resource.to_owned(),
        namespace: String::new(),
        name: String::new(),
    };
    objects
        .range(first..)
        .take_while(|(key, _)| key.is(group, resource))
        .map(|(key, object)| (key.clone(), object.clone()))
        .collect()
}

/// The version of an object.
pub(crate) fn version_of(object: &Value) -> &str {
    meta(object, "resourceVersion").unwrap_or_default()
}
