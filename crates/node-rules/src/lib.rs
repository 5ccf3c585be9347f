//! Decisions of a node: pod admission, node conditions, and the Node and CSINode objects.
//!
//! For programs that decide as a kubelet does whether a pod fits a node, or that report a node: a
//! node agent, a capacity check, a simulator.
//!
//! # Entry points
//!
//! * [`admission::admit`] admits or rejects a pod; [`admission::NodeLoad`] sums the requests of the
//!   other pods; [`preemption::plan_preemption`] chooses the pods that a critical pod preempts
//! * [`resize::decide_resize`] allocates the changed sizes of a pod, or says why not
//! * [`node_conditions::node_conditions`] returns the conditions of the node and their events
//! * [`hung_pods::HungPodNames`] decides when a node names its pods with hung operations
//! * [`node_object::initial_node`], [`node_object::reconciled_node`] and
//!   [`node_object::updated_node`] return the Node object; [`node_object::plan_node_status`]
//!   decides whether to send a patch
//! * [`csi_node::plan_csi_node`] plans the CSINode object; [`plugin_registration`] compares plugin
//!   sockets and versions
//!
//! # Example
//!
//! ```
//! use windlass_node_rules::admission::{
//!     AdmissionInput, AdmissionPolicy, NodeLoad, Pressure, SysctlAllowList, admit,
//! };
//! use windlass_node_rules::resize::ResizePolicy;
//! use windlass_types::Pod;
//! use windlass_types::corev1::Node;
//!
//! let node: Node = serde_json::from_str(
//!     r#"{"metadata": {}, "status": {"allocatable": {"cpu": "2", "pods": "110"}}}"#,
//! )?;
//! let pod: Pod = serde_json::from_str(
//!     r#"{"spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "3"}}}]}}"#,
//! )?;
//! let policy = AdmissionPolicy {
//!     sysctls: SysctlAllowList::new((6, 1), &[])?,
//!     app_armor: false,
//!     pod_level_resources: true,
//!     declared_features: None,
//!     resize: ResizePolicy::default(),
//! };
//! let rejection = admit(AdmissionInput {
//!     pod: &pod,
//!     node: &node,
//!     load: &NodeLoad::default(),
//!     policy: &policy,
//!     strict_groups: None,
//!     pressure: Pressure::default(),
//!     shutting_down: false,
//! })
//! .unwrap_err();
//! assert_eq!(rejection.reason, "OutOfcpu");
//! assert!(rejection.message.ends_with("requested: 3000, used: 0, capacity: 2000"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `cargo run -p windlass-node-rules --example fill_a_node` admits pods until the node is full.
//!
//! # Guarantees
//!
//! Functions are pure: callers pass the facts, the objects and the time. Reasons, messages,
//! conditions and patches match those of the Go kubelet. A rejected pod does not change the load.
//! The cost of admission does not depend on the number of admitted pods.
//!
//! # Limits
//!
//! Eviction and the resource managers are not implemented. The conditions do not measure anything:
//! callers pass the pressure of the node.

pub mod admission;
pub mod preemption;
pub mod resize;

pub mod hung_pods;
pub mod node_conditions;
pub mod node_object;

pub mod csi_node;
pub mod plugin_registration;
