//! Every decision of the node agent, as pure functions of snapshots and a `now`.
//!
//! For whoever wants the node's judgement without the node: a linter of manifests, an admission
//! check in a pipeline, a simulator, an agent of another kind. No async, no clock, no I/O, no actor
//! library: what is known goes in as values, a decision comes out as a value whose `Display` is one
//! line, and a table of cases tests it by that line.
//!
//! # The way in
//!
//! * [`static_pod::load`] turns the bytes of a manifest into pods: parsed, defaulted, checked, with
//!   the UID and the name that a static pod has on a node
//! * [`merge::PodStorage`] takes what sources say and answers with what changed
//! * [`admission::admit`] says whether a node takes a pod, in the words of the Go kubelet
//! * [`actions::compute_pod_actions`] compares a pod with what runs and says what is to be done
//! * [`resources::qos_class`], [`backoff::BackoffTable`], [`probe::judge_http`], … are the parts; a
//!   module is a subject, and its page says what it mirrors and where it differs
//!
//! # Example
//!
//! ```
//! use windlass_core::actions::{ActionsInput, compute_pod_actions};
//! use windlass_core::backoff::{BackoffPolicy, BackoffTable};
//! use windlass_core::manifest::Origin;
//! use windlass_core::static_pod;
//! use windlass_types::{ObservedPod, PodVerdicts, Timestamp};
//!
//! let manifest = b"
//! apiVersion: v1
//! kind: Pod
//! metadata: {name: web}
//! spec: {containers: [{name: web, image: nginx}]}
//! ";
//! let origin = Origin::File("/etc/kubernetes/manifests/web.yaml".to_owned());
//! let loaded = static_pod::load(manifest, &origin, "node1")?;
//! let actions = compute_pod_actions(ActionsInput {
//!     pod: &loaded.pods[0],
//!     observed: &ObservedPod::default(),
//!     backoff: &BackoffTable::default(),
//!     verdicts: &PodVerdicts::default(),
//!     policy: BackoffPolicy::DEFAULT,
//!     now: Timestamp::UNIX_EPOCH,
//! });
//! assert_eq!(actions.to_string(), "sandbox#0 start(web#?)");
//! # Ok::<(), windlass_core::manifest::ManifestError>(())
//! ```
//!
//! `cargo run -p windlass-core --example judge_manifest -- pod.yaml` does the same with a file, and
//! tells the QoS class and what would not be acted upon.
//!
//! # What it promises
//!
//! The same input gives the same output, whatever the machine and the time. Nothing that comes from
//! outside can make it panic; parsers of text from outside are fuzzed. Input is bounded where its
//! reader is ([`manifest::MAX_MANIFEST_BYTES`], [`probe::MAX_OUTPUT`]). An error names the field,
//! its place in the file and what to change.
//!
//! # What it does not do
//!
//! It carries nothing out and remembers nothing: tables such as [`backoff::BackoffTable`] belong to
//! the caller, who keeps them and hands them back. What is accepted but not acted upon in this
//! version is listed by [`unsupported::unsupported_fields`].

pub mod yaml;

pub mod defaults;
pub mod manifest;
pub mod static_pod;
mod validation;

pub mod merge;

pub mod access;
pub mod actions;
pub mod admission;
pub mod backoff;
pub mod cache_lag;
pub mod container_gc;
pub mod deadline;
pub mod hash;
pub mod hook;
pub mod http_target;
pub mod pleg;
pub mod pod_start;
pub mod probe;
pub mod probe_targets;
pub mod status;
pub mod stop;
pub mod termination_order;

pub mod mirror;
pub mod status_sync;

pub mod cgroup_names;
pub mod config_error;
pub mod container_config;
pub mod credentials;
pub mod csi_node;
pub mod dns;
pub mod duration;
pub mod empty_dir;
pub mod env;
pub mod go_duration;
pub mod hosts;
pub mod image_access;
pub mod image_name;
pub mod image_volumes;
pub mod node_conditions;
pub mod node_facts;
pub mod node_object;
pub mod object_reads;
pub mod paths;
pub mod plugin_registration;
pub mod pod_certificate;
pub mod pod_cgroup;
pub mod pod_references;
pub mod projection;
pub mod quantity;
pub mod resources;
pub mod runtime_gaps;
pub mod sandbox_config;
pub mod service_env;
pub mod unsupported;
pub mod userns;
pub mod volume_plan;
pub mod volume_source;
pub mod volume_usage;

pub mod timeline;

pub mod cri_log;
pub mod log_rotation;

pub mod event_series;
pub mod selinux_mount;
pub mod shutdown;

pub mod housekeeping;
pub mod pod_worker;
