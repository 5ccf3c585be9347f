//! Decisions on the node: pod admission, node conditions, the Node and CSINode objects.

pub mod admission;
pub mod csi_node;
pub mod node_conditions;
pub mod node_object;
pub mod plugin_registration;
