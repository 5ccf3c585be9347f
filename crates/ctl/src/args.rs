//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use jiff::SignedDuration;

/// Where the agent listens unless its `--root-dir` is another.
const DEFAULT_SOCKET: &str = "/var/lib/kubelet/windlass.sock";
/// Names the socket for all commands of a shell.
const SOCKET_VARIABLE: &str = "WINDLASS_SOCKET";

/// Shows what the Windlass node agent on this machine runs, and why.
#[derive(Debug, Parser)]
#[command(
    name = "windlassctl",
    version = concat!("v", env!("CARGO_PKG_VERSION")),
    after_help = "Examples:\n  windlassctl get pods -A -o wide\n  windlassctl explain pod web\n  \
                  windlassctl logs web -f --tail 20\n\n\
                  A static pod may be named as in its manifest, without the node's name at its end.\n\
                  The socket is open to root and to the user that windlass runs as."
)]
pub(crate) struct Arguments {
    /// The agent's socket, <root-dir>/windlass.sock [default: $WINDLASS_SOCKET, else
    /// /var/lib/kubelet/windlass.sock].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Command {
    /// Answered at once by an agent that is well: neither a stream nor a picture that is drawn again
    /// and again.
    pub(crate) fn is_one_answer(&self) -> bool {
        match self {
            Self::Get(get) => !get.watch,
            Self::Logs(_) | Self::Top(_) => false,
            _ => true,
        }
    }
}

impl Arguments {
    /// The socket to use.
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
    /// List pods, or follow how they change.
    #[command(
        after_help = "Examples:\n  windlassctl get pods -A\n  windlassctl get pods -o wide -w\n  \
                            windlassctl get pod web -o yaml"
    )]
    Get(GetArgs),
    /// Show everything about one pod.
    #[command(after_help = "Example: windlassctl describe pod web -n default")]
    Describe(PodArgs),
    /// Say the one thing that keeps a pod from what was asked, who goes on, and what led to it.
    #[command(after_help = "Example: windlassctl explain pod web -n default")]
    Explain(ExplainArgs),
    /// Show what touched a pod and how long it took, as a waterfall.
    ///
    /// Also of the last 32 pods that are gone. `====` went well, `!!!!` failed, `~~~~` was given up,
    /// `===>` is under way, `|` took no time.
    #[command(after_help = "Example: windlassctl timeline pod web -n default")]
    Timeline(ExplainArgs),
    /// Show what node and pods use; on a terminal again and again.
    #[command(after_help = "Example: windlassctl top --containers -n kube-system")]
    Top(TopArgs),
    /// Print the agent's metrics in the text format of Prometheus.
    #[command(after_help = "Example: windlassctl metrics | grep kubelet_running_pods")]
    Metrics {
        /// Print the metrics of the probes instead.
        #[arg(long)]
        probes: bool,
    },
    /// Print a container's log.
    #[command(after_help = "Example: windlassctl logs web -c app -f --tail 20")]
    Logs(LogsArgs),
    /// Say what becomes of each field and flag of an existing kubelet: supported, ignored or refused.
    ///
    /// `partial` is acted upon but for what is said; `default` would be ignored, or in part, and is
    /// set to what it is anyway. Nothing is asked of the agent or of this machine: files and flags are
    /// read as windlass would read them. The exit code is 1 if it refuses one.
    #[command(after_help = "With all flags of the kubelet that runs, in bash:\n  \
                            mapfile -d '' -t ARGS < /proc/$(pidof kubelet)/cmdline\n  \
                            windlassctl check -- \"${ARGS[@]:1}\"\n\n\
                            With the files of kubeadm (/etc/sysconfig/kubelet where packages are RPMs):\n  \
                            . /var/lib/kubelet/kubeadm-flags.env; . /etc/default/kubelet\n  \
                            windlassctl check --config /var/lib/kubelet/config.yaml -- \
                            $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS")]
    Check(CheckArgs),
    /// Print a script that completes commands and flags.
    #[command(after_help = "Example: windlassctl completion bash > \
                            /usr/share/bash-completion/completions/windlassctl")]
    Completion {
        /// Of which shell.
        shell: Shell,
    },
    /// Say which node this is, of which cluster, and whether its API server answers.
    Status,
    /// Print the version.
    Version,
}

/// The kind of object; there is one.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// A pod.
    #[value(name = "pod", aliases = ["pods", "po"])]
    Pod,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// More columns: addresses, phases of the start, blocker.
    Wide,
    /// The Kubernetes objects as JSON.
    Json,
    /// The Kubernetes objects as YAML.
    Yaml,
    /// Only the names.
    Name,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// What to list: pods.
    #[arg(hide_possible_values = true)]
    kind: Kind,
    /// Name of one pod.
    pub(crate) name: Option<String>,
    /// Namespace of the pods.
    #[arg(short, long, default_value = "default")]
    pub(crate) namespace: String,
    /// Pods of all namespaces.
    #[arg(short = 'A', long)]
    pub(crate) all_namespaces: bool,
    /// How to print.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<Output>,
    /// Go on and print what changes; on a terminal as one table that stays in place.
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PodArgs {
    /// What it is: pod.
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
    /// How to print.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainOutput {
    /// One JSON object.
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only pods of this namespace.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,
    /// Containers, too.
    #[arg(short, long)]
    pub(crate) containers: bool,
    /// Once, also on a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// How to print.
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
    /// What is supported, too.
    #[arg(long)]
    pub(crate) all: bool,
    /// How to print.
    #[arg(short, long, value_enum)]
    pub(crate) output: Option<ExplainOutput>,
    /// The kubelet's flags.
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
    /// Container; may be left out if the pod has one.
    #[arg(short, long, default_value = "", hide_default_value = true)]
    pub(crate) container: String,
    /// Go on as lines come.
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only the last lines.
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u32>,
    /// Only lines not older than this: 30s, 5m, 2h30m.
    #[arg(long, value_name = "DURATION")]
    pub(crate) since: Option<SignedDuration>,
    /// Put the time of writing before each line.
    #[arg(long)]
    pub(crate) timestamps: bool,
    /// The instance before the present one.
    #[arg(short, long)]
    pub(crate) previous: bool,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::{Arguments, choose_socket};

    #[test]
    fn commands_are_spelled_as_kubectl_has_them() {
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
    fn the_socket_is_the_flag_then_the_variable_then_the_default() {
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
