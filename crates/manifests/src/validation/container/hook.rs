//! Validates lifecycle hooks and the stop signal.

use windlass_types::corev1::{Lifecycle, LifecycleHandler, PodSpec};

use super::super::field::Errors;
use super::probe::{command, exactly_one, http_get, port};

/// Stop signals on Linux.
const LINUX_SIGNALS: [&str; 65] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMAX-1",
    "SIGRTMAX-10",
    "SIGRTMAX-11",
    "SIGRTMAX-12",
    "SIGRTMAX-13",
    "SIGRTMAX-14",
    "SIGRTMAX-2",
    "SIGRTMAX-3",
    "SIGRTMAX-4",
    "SIGRTMAX-5",
    "SIGRTMAX-6",
    "SIGRTMAX-7",
    "SIGRTMAX-8",
    "SIGRTMAX-9",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

pub(super) fn check(lifecycle: &Lifecycle, spec: &PodSpec, path: &str, errors: &mut Errors) {
    let grace = spec.termination_grace_period_seconds.unwrap_or(30);
    for (field, hook) in [
        ("postStart", &lifecycle.post_start),
        ("preStop", &lifecycle.pre_stop),
    ] {
        if let Some(hook) = hook {
            handler(hook, grace, &format!("{path}.{field}"), errors);
        }
    }
    if let Some(signal) = &lifecycle.stop_signal {
        let field = format!("{path}.stopSignal");
        match spec.os.as_ref().map(|os| os.name.as_str()) {
            None => {
                let detail = "may not be set for containers with empty `spec.os.name`";
                errors.forbidden(&field, detail);
            }
            Some("windows") => errors.one_of(&field, Some(signal), &["SIGKILL", "SIGTERM"]),
            Some(_) => errors.one_of(&field, Some(signal), &LINUX_SIGNALS),
        }
    }
}

fn handler(hook: &LifecycleHandler, grace: i64, path: &str, errors: &mut Errors) {
    let count = [
        hook.exec.is_some(),
        hook.http_get.is_some(),
        hook.tcp_socket.is_some(),
        hook.sleep.is_some(),
    ];
    exactly_one(&count, path, errors);
    if let Some(exec) = &hook.exec {
        command(exec.command.as_deref(), path, errors);
    }
    if let Some(get) = &hook.http_get {
        http_get(get, path, errors);
    }
    if let Some(socket) = &hook.tcp_socket {
        port(&socket.port, &format!("{path}.tcpSocket.port"), errors);
    }
    if let Some(sleep) = &hook.sleep
        && (sleep.seconds < 0 || sleep.seconds > grace)
    {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(&format!("{path}.sleep"), sleep.seconds, &detail);
    }
}
