//! Pod sources and changes to the desired pods.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::pod::SharedPod;

crate::text_enum! {
    /// Source of desired pods, in the order of logs and tables.
    ///
    /// Its text is the value of `kubernetes.io/config.source`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum PodSource {
        /// `staticPodPath`: a manifest file or a directory of them.
        File = "file",
        /// `staticPodURL`.
        Http = "http",
        /// Pods of the API server with `spec.nodeName` of this node.
        Api = "api",
    }
}

impl FromStr for PodSource {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::from_text(text).ok_or(())
    }
}

crate::text_enum! {
    /// Operation on the pods of a [`PodUpdate`] (upstream `kubetypes.PodOperation`).
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PodOp {
        /// The complete set of one source.
        Set = "SET",
        /// New pods; an empty list announces an empty source.
        Add = "ADD",
        /// Changed spec, labels, annotations or deletionTimestamp.
        Update = "UPDATE",
        /// deletionTimestamp is set; handled as an update.
        Delete = "DELETE",
        /// The source no longer has the pods.
        Remove = "REMOVE",
        /// Only the status changed.
        Reconcile = "RECONCILE",
        /// Admitted pods from the checkpoint.
        Restore = "RESTORE",
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
