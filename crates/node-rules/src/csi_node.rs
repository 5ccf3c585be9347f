//! The CSINode object, and the fields of the Node object for CSI drivers (upstream
//! `nodeinfomanager`).
//!
//! The CSINode has an entry per registered driver and lists the in-tree plugins that are migrated
//! to CSI. The Node has the topology of the drivers as labels and their node IDs in an annotation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_types::corev1::Node;
use windlass_types::metav1::{ObjectMeta, OwnerReference};
use windlass_types::storagev1::{CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources};

/// Annotation of the Node: its ID by driver, as a JSON object.
const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// Annotation of the CSINode: migrated in-tree plugins.
const MIGRATED: &str = "storage.alpha.kubernetes.io/migrated-plugins";
/// Migrated plugins of 1.36, in the order of the annotation.
const MIGRATED_PLUGINS: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,\
    kubernetes.io/azure-file,kubernetes.io/cinder,kubernetes.io/gce-pd,\
    kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

/// A registered driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDriver {
    /// Name.
    pub name: String,
    /// ID of the node in the driver.
    pub node_id: String,
    /// Max number of volumes; `None` for no limit.
    pub max_volumes: Option<i64>,
    /// Topology segments of the node.
    pub topology: BTreeMap<String, String>,
}

/// Change to the CSINode object.
#[derive(Clone, Debug, PartialEq)]
pub enum CsiNodePlan {
    /// No change.
    Keep,
    /// Create this object.
    Create(Box<CSINode>),
    /// Replace it with this object.
    Update(Box<CSINode>),
    /// Delete and recreate it: it belongs to a deleted Node.
    Delete {
        /// UID of the object.
        uid: Option<String>,
    },
}

impl fmt::Display for CsiNodePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, object) = match self {
            Self::Keep => return f.write_str("keep"),
            Self::Delete { .. } => return f.write_str("delete"),
            Self::Create(object) => ("create", object),
            Self::Update(object) => ("update", object),
        };
        write!(f, "{verb} [")?;
        for (index, driver) in object.spec.drivers.iter().enumerate() {
            let between = if index == 0 { "" } else { " " };
            write!(f, "{between}{}={}", driver.name, driver.node_id)?;
            for key in driver.topology_keys.iter().flatten() {
                write!(f, "+{key}")?;
            }
            let allocatable = driver.allocatable.as_ref();
            if let Some(count) = allocatable.and_then(|it| it.count) {
                write!(f, "*{count}")?;
            }
        }
        f.write_str("]")
    }
}

/// Name and UID of the Node that owns the CSINode.
#[derive(Clone, Copy, Debug)]
pub struct NodeOwner<'a> {
    /// Name.
    pub name: &'a str,
    /// UID.
    pub uid: &'a str,
}

/// Plans the CSINode: with the annotation, with `installed`, if any, and without `removed`.
pub fn plan_csi_node(
    existing: Option<&CSINode>,
    owner: NodeOwner<'_>,
    installed: Option<&NodeDriver>,
    removed: &BTreeSet<String>,
) -> CsiNodePlan {
    let new;
    let (old, exists) = match existing {
        Some(existing) => (existing, true),
        None => {
            new = empty(owner);
            (&new, false)
        }
    };
    if exists && !owns(owner, old) {
        let uid = old.metadata.uid.clone();
        return CsiNodePlan::Delete { uid };
    }
    let mut object = old.clone();
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(MIGRATED.to_owned(), MIGRATED_PLUGINS.to_owned());
    object.spec.drivers.retain(|it| !removed.contains(&it.name));
    if let Some(driver) = installed {
        let entry = entry(driver);
        let drivers = &mut object.spec.drivers;
        if !drivers.iter().any(|it| same(it, &entry)) {
            drivers.retain(|it| it.name != entry.name);
            drivers.push(entry);
        }
    }
    match exists {
        false => CsiNodePlan::Create(Box::new(object)),
        true if object == *old => CsiNodePlan::Keep,
        true => CsiNodePlan::Update(Box::new(object)),
    }
}

fn empty(owner: NodeOwner<'_>) -> CSINode {
    CSINode {
        metadata: ObjectMeta {
            name: Some(owner.name.to_owned()),
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Node".to_owned(),
                name: owner.name.to_owned(),
                uid: owner.uid.to_owned(),
                ..OwnerReference::default()
            }]),
            ..ObjectMeta::default()
        },
        spec: CSINodeSpec::default(),
    }
}

fn owns(owner: NodeOwner<'_>, object: &CSINode) -> bool {
    let owners = object.metadata.owner_references.iter().flatten();
    let mut nodes = owners.filter(|it| it.kind == "Node");
    nodes.any(|it| it.name == owner.name && it.uid == owner.uid)
}

fn entry(driver: &NodeDriver) -> CSINodeDriver {
    let count = driver.max_volumes.filter(|max| *max > 0);
    CSINodeDriver {
        name: driver.name.clone(),
        node_id: driver.node_id.clone(),
        topology_keys: Some(driver.topology.keys().cloned().collect::<Vec<_>>())
            .filter(|keys| !keys.is_empty()),
        allocatable: count.map(|max| VolumeNodeResources {
            count: Some(i32::try_from(max).unwrap_or(i32::MAX)),
        }),
    }
}

/// Returns whether two entries are equal, in any order of keys.
fn same(a: &CSINodeDriver, b: &CSINodeDriver) -> bool {
    let keys = |it: &CSINodeDriver| -> BTreeSet<_> {
        it.topology_keys.iter().flatten().cloned().collect()
    };
    let count = |it: &CSINodeDriver| it.allocatable.as_ref().and_then(|it| it.count);
    a.name == b.name && a.node_id == b.node_id && keys(a) == keys(b) && count(a) == count(b)
}

/// Returns the Node with the topology and node ID of a driver.
///
/// # Errors
/// Another value of a topology label, or an invalid annotation; as upstream.
pub fn node_with_driver(node: &Node, driver: &NodeDriver) -> Result<Node, String> {
    let mut node = node.clone();
    let mut ids = node_ids(&node)?;
    ids.insert(driver.name.clone(), driver.node_id.clone());
    set_node_ids(&mut node, &ids);
    let labels = node.metadata.labels.get_or_insert_default();
    for (key, value) in &driver.topology {
        match labels.get(key) {
            Some(present) if present != value => {
                return Err(format!(
                    "detected topology value collision: driver reported \"{key}\":\"{value}\" but \
                     existing label is \"{key}\":\"{present}\""
                ));
            }
            _ => labels.insert(key.clone(), value.clone()),
        };
    }
    Ok(node)
}

/// Returns the Node without the node IDs of removed drivers; as upstream, their labels stay.
///
/// # Errors
/// Invalid annotation.
pub fn node_without_drivers(node: &Node, removed: &BTreeSet<String>) -> Result<Node, String> {
    let mut node = node.clone();
    let mut ids = node_ids(&node)?;
    ids.retain(|name, _| !removed.contains(name));
    set_node_ids(&mut node, &ids);
    Ok(node)
}

fn node_ids(node: &Node) -> Result<BTreeMap<String, String>, String> {
    let annotations = node.metadata.annotations.as_ref();
    match annotations.and_then(|all| all.get(NODE_ID)) {
        None => Ok(BTreeMap::new()),
        Some(text) if text.is_empty() => Ok(BTreeMap::new()),
        Some(text) => serde_json::from_str(text).map_err(|error| {
            format!(
                "failed to parse node's \"{NODE_ID}\" annotation value (\"{text}\") err={error}"
            )
        }),
    }
}

fn set_node_ids(node: &mut Node, ids: &BTreeMap<String, String>) {
    let annotations = node.metadata.annotations.get_or_insert_default();
    match ids.is_empty() {
        true => annotations.remove(NODE_ID),
        // a map of strings always serializes
        false => annotations.insert(
            NODE_ID.to_owned(),
            serde_json::to_string(ids).unwrap_or_default(),
        ),
    };
}

#[cfg(test)]
mod tests;
