//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;

/// Socket of the agent with the default `--root-dir`.
const DEFAULT_SOCKET: &str = "/var/lib/kubelet/windlass.sock";
/// Environment variable with the socket path.
const SOCKET_VARIABLE: &str = "WINDLASS_SOCKET";

/// Inspect the Windlass agent and its pods on this node.
#[derive(Debug, Parser)]
#[command(
    name = "windlassctl",
    version = concat!("v", env!("CARGO_PKG_VERSION")),
    after_help = "Examples:\n  windlassctl get pods -A -o wide\n  windlassctl explain pod web\n  \
                  windlassctl logs web -f --tail 20\n\n\
                  The node name suffix of a static pod can be omitted.\n\
                  Only root and the user of the windlass process can use the socket."
)]
pub(crate) struct Arguments {
    /// The agent's socket, windlass.sock below --root-dir [default: $WINDLASS_SOCKET, else
    /// /var/lib/kubelet/windlass.sock].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Command {
    /// Whether the command prints one response, not a stream.
    pub(crate) fn is_unary(&self) -> bool {
        match self {
            Self::Get(get) => !get.watch,
            Self::Logs(_) | Self::Top(_) => false,
            _ => true,
        }
    }
}

impl Arguments {
    /// Returns the socket to use.
    pub(crate) fn socket(&self) -> PathBuf {
        choose_socket(self.socket.clone(), std::env::var_os(SOCKET_VARIABLE))
    }
}

fn choose_socket(flag: Option<PathBuf>, variable: Option<OsString>) -> PathBuf {
    let variable = variable.filter(|path| !path.is_empty()).map(PathBuf::from);
    flag.or(variable)
        .unwrap_or_else(|| PathBuf::from(DEFAULT_SOCKET))
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List pods, or watch them for changes; list devices or exclusive CPUs.
    #[command(
        after_help = "Examples:\n  windlassctl get pods -A\n  windlassctl get pods -o wide -w\n  \
                            windlassctl get pod web -o yaml\n  \
                            windlassctl get devices"
    )]
    Get(GetArgs),
    /// Show details of a pod.
    #[command(after_help = "Example: windlassctl describe pod web -n default")]
    Describe(PodArgs),
    /// Explain why a pod is not in its desired state.
    #[command(after_help = "Example: windlassctl explain pod web -n default")]
    Explain(ExplainArgs),
    /// Show the timeline of a pod: every operation and its duration.
    ///
    /// Includes the last 32 removed pods. Legend: `====` succeeded, `!!!!` failed, `~~~~`
    /// cancelled, `===>` in progress, `|` instantaneous.
    #[command(after_help = "Example: windlassctl timeline pod web -n default")]
    Timeline(ExplainArgs),
    /// Display CPU and memory usage of the node and its pods.
    ///
    /// On a terminal, refreshes every 2 s.
    #[command(after_help = "Example: windlassctl top --containers -n kube-system")]
    Top(TopArgs),
    /// Print the metrics of the agent in the Prometheus text format.
    #[command(after_help = "Example: windlassctl metrics | grep kubelet_running_pods")]
    Metrics {
        /// Print the probe metrics instead.
        #[arg(long)]
        probes: bool,
    },
    /// Print the log of a container.
    #[command(after_help = "Example: windlassctl logs web -c app -f --tail 20")]
    Logs(LogsArgs),
    /// Check an existing kubelet configuration: report each field, feature gate and flag as
    /// supported, partial, ignored or rejected.
    ///
    /// `default` marks unsupported settings that have their default value. Reads only the named
    /// files and flags; does not contact the agent or inspect the host. Exits with code 1 if a
    /// setting is rejected.
    #[command(after_help = "With all flags of the running kubelet, in bash:\n  \
                            mapfile -d '' -t ARGS < /proc/$(pidof kubelet)/cmdline\n  \
                            windlassctl check -- \"${ARGS[@]:1}\"\n\n\
                            With the files of kubeadm (on RPM systems /etc/sysconfig/kubelet):\n  \
                            . /var/lib/kubelet/kubeadm-flags.env; . /etc/default/kubelet\n  \
                            windlassctl check --config /var/lib/kubelet/config.yaml -- \
                            $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS")]
    Check(CheckArgs),
    /// Print the shell completion script.
    #[command(after_help = "Example: windlassctl completion bash > \
                            /usr/share/bash-completion/completions/windlassctl")]
    Completion {
        /// Shell to generate the completion script for.
        shell: Shell,
    },
    /// Show the node, its cluster, the API server connection and operations that hang.
    Status(StatusArgs),
    /// Print the version.
    Version,
}

/// Kind of object.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// A pod.
    #[value(name = "pod", aliases = ["pods", "po"])]
    Pod,
}

/// Kind of object of `get`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum GetKind {
    /// Pods.
    #[value(name = "pods", aliases = ["pod", "po"])]
    Pods,
    /// Devices of device plugins, and which containers have them.
    #[value(name = "devices", alias = "device")]
    Devices,
    /// Exclusive CPUs, and which containers have them.
    #[value(name = "cpus", alias = "cpu")]
    Cpus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Additional columns: addresses, start phases, blocker.
    Wide,
    /// Kubernetes objects as JSON.
    Json,
    /// Kubernetes objects as YAML.
    Yaml,
    /// Names only.
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Resource type: pods, devices or cpus.
    #[arg(hide_possible_values = true)]
    pub(crate) kind: GetKind,
    /// Name of the pod.
    pub(crate) name: Option<String>,
    /// Namespace of the pods.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// List pods of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Output>,
    /// After listing, watch for changes. On a terminal, refresh the table in place.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PodArgs {
    /// Resource type: pod.
    #[arg(hide_possible_values = true)]
    kind: Kind,
    /// Name of the pod.
    pub(crate) name: String,
    /// Namespace of the pod.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) pod: PodArgs,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainOutput {
    /// One JSON object.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only pods of this namespace.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Include containers.
    #[arg(short, long)]
    pub(crate) containers: bool,
    /// Print once, even on a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// KubeletConfiguration file.
    #[arg(long, value_name = "FILE", required_unless_present_any = ["config_dir", "flags"])]
    pub(crate) config: Option<PathBuf>,
    /// Directory of drop-in files (*.conf).
    #[arg(long, value_name = "DIR")]
    pub(crate) config_dir: Option<PathBuf>,
    /// Include supported settings.
    #[arg(long)]
    pub(crate) all: bool,
    /// Output format.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
    /// Flags of the kubelet.
    #[arg(last = true, value_name = "FLAGS")]
    pub(crate) flags: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// Name of the pod.
    pub(crate) pod: String,
    /// Namespace of the pod.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Name of the container. Optional if the pod has only one.
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(crate) container: String,
    /// Stream new lines.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of lines from the end of the log.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Maximum age of the lines: 30s, 5m, 2h30m.
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<SignedDuration>,
    /// Include a timestamp on each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// Print the log of the previous container instance.
    #[arg(short, long)]
    pub(crate) previous: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, choose_socket};

    #[test]
    fn kubectl_spellings_are_accepted() {
        for line in [
            "get pods",
            "get po web -n other -o wide",
            "get pod -A --watch",
            "describe pod web",
            "explain pod web -o json",
            "timeline pod web -n other --output json",
            "top",
            "top -n other --containers --once -o json",
            "logs web -c app -f --tail 10 --since 5m --timestamps",
            "logs web -p --since 2h30m --socket /x",
            "check --config c.yaml --config-dir d --all -o json -- --max-pods=5 -v 2",
            "completion zsh",
            "metrics --probes",
            "status",
            "status -o json",
            "version",
        ] {
            let words = std::iter::once("windlassctl").chain(line.split(' '));
            assert!(Arguments::try_parse_from(words).is_ok(), "{line}");
        }
        assert!(Arguments::try_parse_from(["windlassctl", "get", "nodes"]).is_err());
        // there is nothing to check
        assert!(Arguments::try_parse_from(["windlassctl", "check"]).is_err());
    }

    #[test]
    fn socket_is_flag_else_variable_else_default() {
        let check = |flag: Option<&str>, variable: Option<&str>, expected: &str| {
            let socket = choose_socket(flag.map(Into::into), variable.map(Into::into));
            assert_eq!(socket.to_str(), Some(expected));
        };
        check(Some("/a"), Some("/b"), "/a");
        check(None, Some("/b"), "/b");
        check(None, Some(""), "/var/lib/kubelet/windlass.sock");
        check(None, None, "/var/lib/kubelet/windlass.sock");
    }
}
