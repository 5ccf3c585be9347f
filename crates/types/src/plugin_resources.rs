//! Resources that device plugins offer.

use std::collections::{BTreeMap, BTreeSet};

/// Resources of device plugins in the status of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginResources {
    /// Number of devices, by resource.
    pub capacity: BTreeMap<String, u64>,
    /// Number of healthy devices, by resource.
    pub allocatable: BTreeMap<String, u64>,
    /// Resources whose plugin ended and did not register again in time; they stay with 0 devices.
    pub removed: BTreeSet<String>,
}
