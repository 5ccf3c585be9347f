//! What a pod source says, and what the merger tells the SyncLoop.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pod::SharedPod;

/// Where desired pods come from. The order is the order of the sources in logs and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSource {
    /// `staticPodPath`: a manifest file or a directory of them.
    File,
    /// `staticPodURL`.
    Http,
    /// The API server's pods with `spec.nodeName` of this node.
    Api,
}

impl PodSource {
    /// The value written to `kubernetes.io/config.source`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

impl fmt::Display for PodSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PodSource {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "file" => Ok(Self::File),
            "http" => Ok(Self::Http),
            "api" => Ok(Self::Api),
            _ => Err(()),
        }
    }
}

/// What is to be done with the pods of a [`PodUpdate`] (upstream `kubetypes.PodOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodOp {
    /// The complete set of one source.
    Set,
    /// Pods seen for the first time; an empty list announces a source with nothing in it.
    Add,
    /// The spec, labels, annotations or deletion mark of known pods changed.
    Update,
    /// A graceful deletion was asked for (`deletionTimestamp`); handled as an update.
    Delete,
    /// The pods are gone from their source.
    Remove,
    /// Only the status of known pods changed at the source.
    Reconcile,
    /// Pods from a checkpoint: an addition that was already admitted.
    Restore,
}

impl PodOp {
    /// Upstream's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Add => "ADD",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Remove => "REMOVE",
            Self::Reconcile => "RECONCILE",
            Self::Restore => "RESTORE",
        }
    }
}

impl fmt::Display for PodOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A change to the set of desired pods, all from one source and of one kind.
#[derive(Clone, Debug, PartialEq)]
pub struct PodUpdate {
    /// What to do.
    pub op: PodOp,
    /// Who says so.
    pub source: PodSource,
    /// The pods concerned. For `Remove` they are the last known objects.
    pub pods: Vec<SharedPod>,
}

impl fmt::Display for PodUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::pod::PodExt;
        write!(f, "{} {} [", self.op, self.source)?;
        for (i, pod) in self.pods.iter().enumerate() {
            write!(f, "{}{}", if i == 0 { "" } else { " " }, pod.full_name())?;
        }
        f.write_str("]")
    }
}
