//! The command line of the agent, under its own name or as `kubelet`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use windlass::build::node::KUBERNETES_VERSION;
use windlass_config::KubeletFlags;

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Run the agent.
    Run(Box<KubeletFlags>),
    /// Print this and end well: help or version.
    Print(String),
}

/// The command line cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

/// Reads a command line, the program's name first.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let args: Vec<_> = args.into_iter().collect();
    let as_kubelet = args.first().is_some_and(|program| is_kubelet(program));
    let flags = match KubeletFlags::from_args(args) {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => {
            return Err(UsageError(error.render().to_string().trim_end().to_owned()));
        }
        Err(help) => return Ok(Invocation::Print(help.render().to_string())),
    };
    match flags.version.as_deref() {
        None | Some("false") => Ok(Invocation::Run(Box::new(flags))),
        Some("true") => Ok(Invocation::Print(version(as_kubelet))),
        Some("raw") => Ok(Invocation::Print(raw_version())),
        Some(other) => Err(UsageError(format!(
            "error: --version={other:?}: write --version or --version=raw"
        ))),
    }
}

fn is_kubelet(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("kubelet"))
}

/// kubeadm runs `kubelet --version` and wants exactly upstream's line.
fn version(as_kubelet: bool) -> String {
    if as_kubelet {
        format!("Kubernetes {KUBERNETES_VERSION}\n")
    } else {
        format!(
            "Windlass v{} (Kubernetes {KUBERNETES_VERSION})\n",
            env!("CARGO_PKG_VERSION")
        )
    }
}

fn raw_version() -> String {
    format!(
        "windlass {}\nkubernetes {KUBERNETES_VERSION}\ncri v1\nplatform {}/{}\nbuild {}\n",
        env!("CARGO_PKG_VERSION"),
        std::env::consts::OS,
        std::env::consts::ARCH,
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        },
    )
}

#[cfg(test)]
mod tests {
    use super::{Invocation, parse};

    fn check(args: &[&str], expected: &str) {
        let line = match parse(args.iter().map(Into::into)) {
            Ok(Invocation::Run(flags)) => format!("run root={}", flags.root_dir.display()),
            Ok(Invocation::Print(text)) => format!("print {}", text.lines().next().unwrap_or("")),
            Err(error) => error.to_string().lines().next().unwrap_or("").to_owned(),
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn the_agent_answers_under_both_of_its_names() {
        let ours = concat!(
            "print Windlass v",
            env!("CARGO_PKG_VERSION"),
            " (Kubernetes v1.36.2)"
        );
        check(&["/usr/bin/windlass", "--version"], ours);
        check(
            &["/usr/bin/kubelet", "--version"],
            "print Kubernetes v1.36.2",
        );
        check(
            &["windlass", "--version=raw"],
            concat!("print windlass ", env!("CARGO_PKG_VERSION")),
        );
        check(
            &["windlass", "--version=2"],
            "error: --version=\"2\": write --version or --version=raw",
        );
        check(
            &["kubelet", "--root-dir=/x", "--version=false"],
            "run root=/x",
        );
        check(
            &["windlass", "--nope"],
            "error: unexpected argument '--nope' found",
        );
        check(&["windlass"], "run root=/var/lib/kubelet");
    }

    #[test]
    fn help_lists_the_flags() {
        let Ok(Invocation::Print(text)) = parse(["kubelet", "--help"].map(Into::into)) else {
            panic!("no help");
        };
        assert!(text.contains("Usage: kubelet [OPTIONS]"), "{text}");
        assert!(text.contains("--pod-manifest-path"), "{text}");
        assert!(!text.contains("--log-cadvisor-usage"), "{text}");
    }
}
