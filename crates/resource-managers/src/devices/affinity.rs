//! Devices by their alignment with chosen NUMA nodes (upstream `filterByAffinity`).

use std::collections::{BTreeMap, BTreeSet};

use windlass_topology::NumaSet;

use super::PluginDevice;

/// Free devices in order of preference.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ByAffinity {
    /// On a chosen node.
    pub aligned: BTreeSet<String>,
    /// On other nodes.
    pub unaligned: BTreeSet<String>,
    /// Of no node; all devices if there is nothing to align.
    pub without_topology: BTreeSet<String>,
}

/// Groups the free devices. A device of several nodes is aligned if one of them is chosen.
pub(super) fn by_affinity(
    devices: &BTreeMap<String, PluginDevice>,
    free: &BTreeSet<String>,
    affinity: Option<NumaSet>,
) -> ByAffinity {
    let mut groups = ByAffinity::default();
    for id in free {
        let nodes = devices.get(id).map_or(NumaSet::default(), |it| it.nodes);
        let group = match affinity {
            Some(chosen) if !nodes.and(chosen).is_empty() => &mut groups.aligned,
            Some(_) if !nodes.is_empty() => &mut groups.unaligned,
            _ => &mut groups.without_topology,
        };
        group.insert(id.clone());
    }
    groups
}
