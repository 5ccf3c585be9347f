//! The command line of the agent, under its own name or as `kubelet`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use windlass::build::node::KUBERNETES_VERSION;
use windlass_config::KubeletFlags;
use windlass_config::load::report::{COMMAND_LINE, SettingStatus, report};

/// Result of parsing the command line.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Run the agent.
    Run(Box<KubeletFlags>),
    /// Print help or version and exit.
    Print(String),
}

/// The command line is invalid.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

/// Parses a command line, which starts with the program name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Invocation, UsageError> {
    let args: Vec<_> = args.into_iter().collect();
    let as_kubelet = args.first().is_some_and(|program| is_kubelet(program));
    let flags = match KubeletFlags::from_args(args.iter().cloned()) {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => {
            return Err(rejected_flags(&args, &error.render().to_string()));
        }
        Err(help) => return Ok(Invocation::Print(help.render().to_string())),
    };
    match flags.version.as_deref() {
        None | Some("false") => Ok(Invocation::Run(Box::new(flags))),
        Some("true") => Ok(Invocation::Print(version(as_kubelet))),
        Some("raw") => Ok(Invocation::Print(raw_version())),
        Some(other) => Err(UsageError(format!(
            "error: --version={other:?}: must be --version or --version=raw"
        ))),
    }
}

/// Reports every rejected flag; clap stops at the first.
fn rejected_flags(args: &[OsString], error: &str) -> UsageError {
    let settings = report(args.iter().skip(1).cloned());
    let rejected = settings
        .iter()
        .filter(|it| it.status == SettingStatus::Rejected && it.source == COMMAND_LINE);
    let lines: Vec<String> = rejected
        .map(|it| match it.name.as_str() {
            "" => format!("error: {}", it.message),
            name => format!("error: {name}: {}", it.message),
        })
        .collect();
    match lines.is_empty() {
        true => UsageError(error.trim_end().to_owned()),
        false => UsageError(lines.join("\n")),
    }
}

fn is_kubelet(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("kubelet"))
}

/// kubeadm parses the output of `kubelet --version`.
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
    fn version_output_depends_on_program_name() {
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
            "error: --version=\"2\": must be --version or --version=raw",
        );
        check(
            &["kubelet", "--root-dir=/x", "--version=false"],
            "run root=/x",
        );
        check(
            &["windlass", "--no-such"],
            "error: --no-such: unknown flag; remove it",
        );
        check(&["windlass"], "run root=/var/lib/kubelet");
    }

    #[test]
    fn rejected_flags_are_all_reported_with_fix() {
        let line = [
            "kubelet",
            "--network-plugin=cni",
            "--fail-swap-on",
            "false",
            "--max-pods=x",
            "--node-ipp=::1",
        ];
        let error = parse(line.map(Into::into)).expect_err("rejected");
        assert_eq!(
            error.to_string(),
            "error: --max-pods: invalid value 'x' for '--max-pods <N>': not a whole number\n\
             error: --network-plugin: unknown flag; remove it\n\
             error: --node-ipp: unknown flag; remove it or write --node-ip\n\
             error: false: not a flag; write --fail-swap-on=false"
        );
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
