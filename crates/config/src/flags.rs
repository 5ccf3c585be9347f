//! Command-line flags of the kubelet, with the spelling rules of pflag.
//!
//! `--flag=value` and `--flag value` are equivalent, and underscores equal dashes. Switches accept
//! `=true` and `=false`. Repeated flags replace the value, or add to a list. Flags that mirror a
//! field come from the table in [`mirror`] and are the last configuration layer.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use windlass_eviction::MemoryRule;

use crate::duration::GoDuration;

pub mod mirror;
pub mod value;

pub use mirror::{ConfigFlags, FlagSetting, IgnoredFlags};

/// Flags of the node agent. Those that mirror a configuration field are in `config`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "windlass",
    about = "A Kubernetes node agent (kubelet). Runs pods from a directory, a URL or a cluster \
             on a container runtime.",
    disable_version_flag = true,
    args_override_self = true,
    max_term_width = 100
)]
pub struct KubeletFlags {
    /// KubeletConfiguration file (YAML or JSON).
    #[arg(
        id = "config-file",
        long = "config",
        value_name = "FILE",
        allow_hyphen_values = true,
        value_parser = value::path
    )]
    pub config_file: Option<PathBuf>,
    /// Directory of drop-in files (*.conf) that override --config.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = value::path)]
    pub config_dir: Option<PathBuf>,
    /// Credentials for the API server. Without it, the agent runs standalone.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = value::path)]
    pub kubeconfig: Option<PathBuf>,
    /// Credentials used once to obtain a client certificate.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = value::path)]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory for state files and pod data.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Directory for certificates.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/pki")]
    pub cert_dir: PathBuf,
    /// Name of the node. Defaults to the lower-case host name.
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Address of the node, or one address per IP family. 0.0.0.0 or :: selects a family.
    #[arg(long, value_name = "IP[,IP]")]
    pub node_ip: Option<String>,
    /// Cloud provider: `external` or empty.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub cloud_provider: String,
    /// Labels to add to the node (key=value,…).
    #[arg(long, value_name = "LABELS", value_parser = value::labels)]
    pub node_labels: Option<value::Labels>,
    /// File to lock while the agent runs.
    #[arg(long, value_name = "FILE", value_parser = value::path)]
    pub lock_file: Option<PathBuf>,
    /// Exit when another process opens the lock file. Not implemented.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub exit_on_lock_contention: bool,
    /// Cgroup of the container runtime.
    #[arg(long, value_name = "CGROUP")]
    pub runtime_cgroups: Option<String>,
    /// Configuration file of credential provider plugins, or a directory of such files.
    #[arg(long, value_name = "PATH", value_parser = value::path)]
    pub image_credential_provider_config: Option<PathBuf>,
    /// Directory of credential provider plugin binaries.
    #[arg(long, value_name = "DIR", value_parser = value::path)]
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// Minimum age of a dead container before garbage collection.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        allow_hyphen_values = true
    )]
    pub minimum_container_ttl_duration: GoDuration,
    /// Maximum number of dead instances to keep per container. Negative means no limit.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        allow_hyphen_values = true,
        value_parser = value::whole::<i32>
    )]
    pub maximum_dead_containers_per_container: i32,
    /// Maximum number of dead containers to keep on the node. Negative means no limit.
    #[arg(
        long,
        value_name = "N",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = value::whole::<i32>
    )]
    pub maximum_dead_containers: i32,
    /// Windlass only: maximum number of concurrent pod starts. 0 uses the default of 4.
    #[arg(long, value_name = "N", default_value = "0", value_parser = value::whole::<usize>)]
    pub start_concurrency: usize,
    /// Windlass only: require the create permission on nodes/proxy for exec, attach, run and
    /// port-forward, for every HTTP method. With false, get suffices for WebSockets, as in the Go
    /// kubelet.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub exec_needs_create: bool,
    /// Windlass only: when memory is short for eviction. With reclaimable-aware, active page cache
    /// counts as available unless processes wait for memory; with upstream it counts as used, as in
    /// the Go kubelet.
    #[arg(long, value_name = "RULE", default_value = "reclaimable-aware")]
    pub memory_eviction_rule: MemoryRule,
    /// Windlass only: keep an encrypted copy of the ConfigMaps, Secrets and tokens of this node's
    /// pods below --root-dir. After a reboot, admitted pods start from it if the API server is
    /// unreachable for 30 s. Without it, they wait for the API server, and none of this is on the
    /// disk.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub start_pods_offline: bool,
    /// Windlass only: stop and remove all pods on this node, including static pods, then exit.
    /// Skips preStop hooks; does not contact the API server.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub cleanup_and_exit: bool,
    /// Print the version and exit. =raw prints details.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "raw")]
    pub version: Option<String>,
    /// Flags that mirror a configuration field.
    #[command(flatten)]
    pub config: ConfigFlags,
    /// Flags without effect, for compatibility.
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

impl KubeletFlags {
    /// Parses a command line that starts with the program name.
    pub fn from_args<I>(args: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = OsString>,
    {
        let mut flags = Self::try_parse_from(normalize(args)).map_err(without_secrets)?;
        // wrapper scripts pass an empty path for none
        for path in [
            &mut flags.config_file,
            &mut flags.config_dir,
            &mut flags.kubeconfig,
            &mut flags.bootstrap_kubeconfig,
            &mut flags.lock_file,
            &mut flags.image_credential_provider_config,
            &mut flags.image_credential_provider_bin_dir,
        ] {
            path.take_if(|path| path.as_os_str().is_empty());
        }
        Ok(flags)
    }
}

/// Hides the value of the flag that may contain passwords.
fn without_secrets(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::String(flag)) = error.get(ContextKind::InvalidArg)
        && flag.starts_with("--manifest-url-header")
    {
        let hidden = ContextValue::String("<hidden>".to_owned());
        error.insert(ContextKind::InvalidValue, hidden);
    }
    error
}

impl Default for KubeletFlags {
    fn default() -> Self {
        Self::from_args([OsString::from("windlass")]).unwrap_or_else(|error| error.exit())
    }
}

/// Replaces underscores in flag names by dashes, up to `--`.
pub fn normalize<I>(args: I) -> Vec<OsString>
where
    I: IntoIterator<Item = OsString>,
{
    let mut only_values = false;
    args.into_iter()
        .map(|arg| {
            only_values |= arg == "--";
            match arg.to_str() {
                Some(text) if !only_values && text.starts_with("--") => {
                    let (name, value) = text.split_at(text.find('=').unwrap_or(text.len()));
                    format!("{}{value}", name.replace('_', "-")).into()
                }
                _ => arg,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
