//! Pod sources and changes to the desired pods.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pod::SharedPod;

/// Source of desired pods, in the order of logs and tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PodSource {
    /// `staticPodPath`: a manifest file or a directory of them.
    File,
    /// `staticPodURL`.
    Http,
    /// Pods of the API server with `spec.nodeName` of this node.
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

/// Operation on the pods of a [`PodUpdate`] (upstream `kubetypes.PodOperation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PodOp {
    /// The complete set of one source.
    Set,
    /// New pods; an empty list announces an empty source.
    Add,
    /// Changed spec, labels, annotations or deletionTimestamp.
    Update,
    /// deletionTimestamp is set; handled as an update.
    Delete,
    /// The source no longer has the pods.
    Remove,
    /// Only the status changed.
    Reconcile,
    /// Admitted pods from the checkpoint.
    Restore,
}

impl PodOp {
    /// Name of the upstream operation.
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
    /// The operation.
    pub op: PodOp,
    /// The source.
    pub source: PodSource,
    /// The pods; for `Remove` their last known objects.
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
