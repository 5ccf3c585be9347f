//! Inputs of a pod: its references, environment, volume payloads, resources and paths.
//!
//! For programs that compute what a kubelet passes to containers: a node agent, a debugger of pod
//! specs, a simulator.
//!
//! # Entry points
//!
//! * [`pod_references::pod_references`] returns the ConfigMaps, Secrets, PVCs, tokens and other
//!   objects that a pod refers to; [`object_polling`] decides when they are read again
//! * [`env::environment`] returns the environment of a container, with `$(VAR)` expanded;
//!   [`service_env::service_env`] returns service variables
//! * [`projection::project_volumes`] returns the files of configMap, secret, downwardAPI and
//!   projected volumes
//! * [`resources::qos_class`], [`resources::container_resources`] return the QoS class and kernel
//!   settings; [`paths::NodePaths`] returns the paths of a pod on the node
//!
//! # Example
//!
//! ```
//! use windlass_pod_inputs::pod_references::pod_references;
//! use windlass_pod_inputs::resources::{QosClass, pod_request, qos_class};
//! use windlass_types::Pod;
//!
//! let pod: Pod = serde_json::from_str(
//!     r#"{"spec": {
//!         "containers": [{
//!             "name": "web",
//!             "envFrom": [{"configMapRef": {"name": "settings", "optional": true}}],
//!             "resources": {"requests": {"cpu": "250m"}}
//!         }],
//!         "volumes": [{"name": "tls", "secret": {"secretName": "web-tls"}}]
//!     }}"#,
//! )?;
//! let references = pod_references(&pod);
//! assert_eq!(
//!     references.to_string(),
//!     "configMap settings (env optional); secret web-tls (volume)"
//! );
//! assert_eq!(qos_class(&pod), QosClass::Burstable);
//! assert_eq!(pod_request(&pod, "cpu").map(|cpu| cpu.milli_value()), Some(250));
//! # Ok::<(), serde_json::Error>(())
//! ```
//!
//! `cargo run -p windlass-pod-inputs --example list_references` does the same with more fields.
//!
//! # Guarantees
//!
//! Functions are pure: callers pass the node facts and the objects. `Debug` never prints the
//! content of objects. Environments, files and payload paths are limited in size and cannot leave
//! their volume. Error texts match those of the Go kubelet.
//!
//! # Limits
//!
//! No access to the API server or to files: `windlass-objects` resolves references, and
//! `windlass-volumes` writes payloads. DRA claims and in-place resize are not implemented.

pub mod pod_references;

pub mod cache_lag;
pub mod object_polling;

pub mod env;
pub mod projection;
pub mod service_env;

pub mod node_facts;
pub mod paths;
pub mod resources;
