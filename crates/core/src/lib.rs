//! Every decision of the node agent, as pure functions of snapshots and a `now`.
//!
//! No async, no clock, no I/O, no actor library: a decision is a value with a one-line
//! `Display`, and a table of cases tests it by that line. In reading order: manifests become
//! pods, sources are merged, pods are compared with what runs, and a status comes out.

pub mod yaml;

pub mod defaults;
pub mod manifest;
pub mod static_pod;
pub mod validation;

pub mod merge;

pub mod access;
pub mod actions;
pub mod admission;
pub mod backoff;
pub mod container_gc;
pub mod deadline;
pub mod hash;
pub mod hook;
pub mod http_target;
pub mod pleg;
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
pub mod empty_dir;
pub mod env;
pub mod go_duration;
pub mod hosts;
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
