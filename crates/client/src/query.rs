//! Request parameters: object, set, patch.

use serde_json::Value;

/// Namespace and name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKey<'a> {
    /// Namespace; `None` for cluster-scoped types.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
}

impl<'a> ObjectKey<'a> {
    /// The key of a cluster-scoped object.
    pub fn cluster(name: &'a str) -> Self {
        Self {
            namespace: None,
            name,
        }
    }

    /// The key of a namespaced object.
    pub fn namespaced(namespace: &'a str, name: &'a str) -> Self {
        Self {
            namespace: Some(namespace),
            name,
        }
    }
}

/// A set of objects of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Selector {
    /// Namespace; `None` for all, and for cluster-scoped types.
    pub namespace: Option<String>,
    /// For example `spec.nodeName=n1`.
    pub fields: Option<String>,
    /// For example `a=b,!c`.
    pub labels: Option<String>,
}

/// Options of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// `None` for the newest state; `Some("0")` for the server's cache.
    pub resource_version: Option<String>,
}

/// Options of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The start version. With `initial_events` the minimum version of the first set, empty for
    /// the newest.
    pub resource_version: String,
    /// Start with the whole set (a streaming list), ended by a bookmark.
    pub initial_events: bool,
}

/// A patch of one object, by content type.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/strategic-merge-patch+json`.
    StrategicMerge(Value),
    /// `application/merge-patch+json`.
    Merge(Value),
}

/// Options of a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Grace period in seconds; `None` for the object's default.
    pub grace_seconds: Option<u32>,
    /// Only the object with this UID.
    pub uid: Option<String>,
}
