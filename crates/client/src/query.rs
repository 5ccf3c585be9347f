//! What a request is about: which object, which set, which change.

use serde_json::Value;

/// One object: namespace (empty for cluster-scoped types) and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectKey<'a> {
    /// Namespace; `None` for cluster-scoped types.
    pub namespace: Option<&'a str>,
    /// Name.
    pub name: &'a str,
}

impl<'a> ObjectKey<'a> {
    /// An object of a cluster-scoped type.
    pub fn cluster(name: &'a str) -> Self {
        Self {
            namespace: None,
            name,
        }
    }

    /// An object in a namespace.
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
    /// Namespace; `None` for all of them, and for cluster-scoped types.
    pub namespace: Option<String>,
    /// For example `spec.nodeName=n1`.
    pub fields: Option<String>,
    /// For example `a=b,!c`.
    pub labels: Option<String>,
}

/// How a list is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// `None` reads what is newest; `Some("0")` whatever the server's cache has.
    pub resource_version: Option<String>,
}

/// How a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Where to go on; with `initial_events` the version that the first set may not be older
    /// than, empty for the newest.
    pub resource_version: String,
    /// Begin with the whole set (a streaming list), closed by a bookmark.
    pub initial_events: bool,
}

/// A change to one object, in the form in which it is sent.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// `application/strategic-merge-patch+json`.
    StrategicMerge(Value),
    /// `application/merge-patch+json`.
    Merge(Value),
}

/// How an object is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delete {
    /// Grace period in seconds; `None` leaves it to the object.
    pub grace_seconds: Option<u32>,
    /// Only the object with this UID.
    pub uid: Option<String>,
}
