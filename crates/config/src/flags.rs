//! The command line: the kubelet's flags with pflag's spelling rules.
//!
//! `--flag=value` and `--flag value` mean the same; a switch may carry `=true` or `=false`;
//! underscores in a flag's name count as dashes; the last of repeated flags wins, lists grow.
//! Flags that mirror a configuration field come from the table in [`mirror`] and form the
//! topmost configuration layer.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap::error::{ContextKind, ContextValue};

use crate::duration::GoDuration;

pub mod mirror;
pub mod value;

pub use mirror::{ConfigFlags, FlagSetting, IgnoredFlags};

/// Flags of the node agent. Those that mirror a configuration field are in `config`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "windlass",
    about = "A Kubernetes node agent (kubelet): runs the pods of a directory, a URL or a cluster \
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
    /// Directory of drop-in files (*.conf) laid over --config.
    #[arg(long, value_name = "DIR", allow_hyphen_values = true, value_parser = value::path)]
    pub config_dir: Option<PathBuf>,
    /// Credentials for the API server; without it the agent runs stand-alone.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = value::path)]
    pub kubeconfig: Option<PathBuf>,
    /// Credentials used once to obtain a client certificate.
    #[arg(long, value_name = "FILE", allow_hyphen_values = true, value_parser = value::path)]
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Directory of the agent's state.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub root_dir: PathBuf,
    /// Directory of the agent's certificates.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet/pki")]
    pub cert_dir: PathBuf,
    /// Name of the node; the lower-cased host name if absent.
    #[arg(long, value_name = "NAME")]
    pub hostname_override: Option<String>,
    /// Address of the node, or two of different families; 0.0.0.0 or :: prefer a family.
    #[arg(long, value_name = "IP[,IP]")]
    pub node_ip: Option<String>,
    /// `external` or empty.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "",
        hide_default_value = true
    )]
    pub cloud_provider: String,
    /// Labels of the node: key=value,…
    #[arg(long, value_name = "LABELS", value_parser = value::labels)]
    pub node_labels: Option<value::Labels>,
    /// File to hold a lock on while running.
    #[arg(long, value_name = "FILE", value_parser = value::path)]
    pub lock_file: Option<PathBuf>,
    /// Exit when another process opens the lock file: not in this version, it does nothing.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub exit_on_lock_contention: bool,
    /// Cgroup of the container runtime.
    #[arg(long, value_name = "CGROUP")]
    pub runtime_cgroups: Option<String>,
    /// Configuration of credential provider plugins, a file or a directory of them: they are asked
    /// when an image is pulled.
    #[arg(long, value_name = "PATH", value_parser = value::path)]
    pub image_credential_provider_config: Option<PathBuf>,
    /// Directory of the programs of credential provider plugins.
    #[arg(long, value_name = "DIR", value_parser = value::path)]
    pub image_credential_provider_bin_dir: Option<PathBuf>,
    /// Least age of a dead container before it is collected.
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        allow_hyphen_values = true
    )]
    pub minimum_container_ttl_duration: GoDuration,
    /// Dead instances kept for each container; negative is no limit.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        allow_hyphen_values = true,
        value_parser = value::whole::<i32>
    )]
    pub maximum_dead_containers_per_container: i32,
    /// Dead containers kept on the node; negative is no limit.
    #[arg(
        long,
        value_name = "N",
        default_value = "-1",
        allow_hyphen_values = true,
        value_parser = value::whole::<i32>
    )]
    pub maximum_dead_containers: i32,
    /// Windlass: pods that are started at a time; 0 chooses by the number of cores.
    #[arg(long, value_name = "N", default_value = "0", value_parser = value::whole::<usize>)]
    pub start_concurrency: usize,
    /// Windlass: exec, attach, run and port-forward need the right to create nodes/proxy, whatever
    /// the method. With false get is enough for a WebSocket, as for the Go kubelet.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub exec_needs_create: bool,
    /// Windlass only: stop and remove all pods on this node, including static pods, then exit.
    /// Skips preStop hooks; does not contact the API server.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", hide_default_value = true, value_parser = value::boolean, value_name = "BOOL", action = clap::ArgAction::Set)]
    pub cleanup_and_exit: bool,
    /// Print the version and exit; =raw prints all of it.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "raw")]
    pub version: Option<String>,
    /// Flags that mirror a configuration field.
    #[command(flatten)]
    pub config: ConfigFlags,
    /// Flags that are accepted and do nothing.
    #[command(flatten)]
    pub ignored: IgnoredFlags,
}

impl KubeletFlags {
    /// Reads a command line, the program's name first.
    pub fn from_args<I>(args: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = OsString>,
    {
        let mut flags = Self::try_parse_from(normalize(args)).map_err(without_secrets)?;
        // an empty path is how a wrapper script says that there is none
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

/// Takes out of an error the value of the one flag that carries passwords.
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
        // The empty command line is valid: every flag has a default or is optional.
        Self::from_args([OsString::from("windlass")]).unwrap_or_else(|error| error.exit())
    }
}

/// Underscores in flag names become dashes; values and everything after `--` stay.
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
