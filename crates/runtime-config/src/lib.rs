//! Sandbox and container configurations for CRI: mounts, DNS, hosts, cgroups, user namespaces.

pub mod cgroup_names;
pub mod config_error;
pub mod container_config;
pub mod dns;
pub mod hosts;
pub mod image_volumes;
pub mod pod_cgroup;
pub mod port;
pub mod runtime_gaps;
pub mod sandbox_config;
pub mod unsupported;
pub mod userns;
