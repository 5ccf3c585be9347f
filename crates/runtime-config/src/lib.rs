//! Sandbox and container configurations for CRI: mounts, DNS, hosts, cgroups, user namespaces.
//!
//! For a program that runs pods on a container runtime, or that checks their configuration. Pure:
//! the node, the resolver file and the resolved inputs of a pod are values.
//!
//! # Entry points
//!
//! * [`sandbox_config`] and [`container_config`] create the configurations of a pod
//! * [`dns::pod_dns`] is the `resolv.conf` of a pod, [`hosts`] its host name and `/etc/hosts`
//! * [`pod_cgroup`], [`node_cgroups`] and [`cgroup_names`] are the cgroups of pods, QoS classes and
//!   the node's daemons
//! * [`resize`] is the change of the sizes of a running pod
//! * [`userns::UserNamespaces`] allocates the IDs of pods with a user namespace
//! * [`port`] declares what resolves the references of a pod
//! * [`unsupported::unsupported_fields`] lists the fields of a pod without an effect
//!
//! # Example
//!
//! ```
//! use windlass_pod_inputs::node_facts::NodeFacts;
//! use windlass_runtime_config::dns::pod_dns;
//! use windlass_types::Pod;
//!
//! let mut pod = Pod::default();
//! pod.spec.get_or_insert_default().dns_policy = Some("Default".to_owned());
//! let node = NodeFacts::default();
//! let dns = pod_dns(&pod, &node, Some("nameserver 10.0.0.53\nsearch example.com\n"))?;
//! assert_eq!(dns.config.servers, ["10.0.0.53"]);
//! # Ok::<(), windlass_runtime_config::dns::ResolvConfError>(())
//! ```
//!
//! `cargo run -p windlass-runtime-config --example print_resolv_conf` shows it for two DNS
//! policies.
//!
//! # Guarantees
//!
//! A pod never gets less isolation than its spec requires: it is rejected instead. Paths and names
//! are those of the Go kubelet, so that either agent finds the files of the other.
//!
//! # Limits
//!
//! No call to a runtime and no file access: see `windlass-runtime`.

pub mod cgroup_names;
pub mod config_error;
pub mod container_config;
pub mod dns;
pub mod hosts;
pub mod image_volumes;
pub mod node_cgroups;
pub mod pod_cgroup;
pub mod port;
pub mod resize;
pub mod runtime_gaps;
pub mod sandbox_config;
pub mod unsupported;
pub mod userns;
