//! What a lifecycle hook does, and what its failure is called.
//!
//! Mirrors upstream's `handlerRunner`, with its words.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use windlass_types::corev1::{Container, LifecycleHandler};
use windlass_types::cri::ExecOutput;
use windlass_types::{Pod, PodExt};

use crate::http_target::{HttpTarget, Purpose};
use crate::probe::{CheckError, ExecFailure, HttpAnswer, http_error};

/// How much of each thing that a command wrote is repeated, in bytes.
const MAX_OUTPUT: usize = 4 << 10;

/// Longest text of a failure, in bytes: it goes into the pod's status, which has an end.
const MAX_FAILURE: usize = 16 << 10;

/// What a hook does, names resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// Runs a command in the container, as it is written; 0 is success.
    Exec(Vec<String>),
    /// Asks over HTTP; any answer is success.
    Http(HttpTarget),
    /// Waits.
    Sleep(Duration),
}

impl HookAction {
    /// What a hook asks for. `pod_ip` is the address that is asked where the hook names none.
    ///
    /// # Errors
    /// In upstream's words, to be wrapped by [`failure`]: what it refers to is not there, or it
    /// is no hook. `tcpSocket` is none: the API takes it and nobody ever ran it.
    pub fn of(
        handler: &LifecycleHandler,
        container: &Container,
        pod_ip: Option<IpAddr>,
    ) -> Result<Self, String> {
        if let Some(exec) = &handler.exec {
            return Ok(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &handler.http_get {
            let target = HttpTarget::of(get, container, pod_ip, Purpose::Hook)?;
            return Ok(Self::Http(target));
        }
        if let Some(sleep) = &handler.sleep {
            let seconds = u64::try_from(sleep.seconds).unwrap_or(0);
            return Ok(Self::Sleep(Duration::from_secs(seconds)));
        }
        let what = match handler.tcp_socket {
            Some(_) => "tcpSocket",
            None => "no action",
        };
        Err(format!("invalid handler: {what}"))
    }
}

impl fmt::Display for HookAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exec(command) => write!(f, "exec {command:?}"),
            Self::Http(target) => write!(f, "get {}", target.url()),
            Self::Sleep(duration) => write!(f, "sleep {}s", duration.as_secs()),
        }
    }
}

/// What became of a hook's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpHookOutcome {
    /// The server answered, whatever it said.
    Succeeded,
    /// The server speaks plain HTTP: the same request goes there ([`HttpTarget::plain`]). If that
    /// is done, upstream tells it in a `LifecycleHTTPFallback` event.
    RetryOverHttp(HttpTarget),
    /// It failed, for this reason.
    Failed(String),
}

/// Judges the answer to a hook's request. Only its head matters.
pub fn evaluate_http(target: &HttpTarget, answer: &Result<HttpAnswer, CheckError>) -> HttpHookOutcome {
    match answer {
        Ok(_) | Err(CheckError::Body(_)) => HttpHookOutcome::Succeeded,
        Err(CheckError::PlainHttp) => HttpHookOutcome::RetryOverHttp(target.plain()),
        Err(error) => HttpHookOutcome::Failed(http_error(&target.url(), error)),
    }
}

/// The text of the `LifecycleHTTPFallback` event.
pub fn fallback_message(target: &HttpTarget) -> String {
    format!(
        "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
        target.authority()
    )
}

/// Judges what a hook's command came to.
///
/// # Errors
/// Why it failed, to be wrapped by [`failure`] with its output.
pub fn evaluate_exec(
    command: &[String],
    answer: &Result<ExecOutput, ExecFailure>,
) -> Result<(), String> {
    match answer {
        Ok(output) if output.exit_code == 0 => Ok(()),
        Ok(output) => Err(format!(
            "command '{}' exited with {}: {}",
            command.join(" "),
            output.exit_code,
            shown(&output.stderr)
        )),
        Err(ExecFailure::TimedOut) => Err("command timed out".to_owned()),
        Err(ExecFailure::Failed(text)) => Err(text.clone()),
    }
}

/// Why a sleep ended early.
pub const SLEEP_CUT_SHORT: &str = "container terminated before sleep hook finished";

/// What upstream says of a failed hook: which, whose, why. `output` is what a command wrote,
/// standard output first.
pub fn failure(
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    error: &str,
    output: &[u8],
) -> String {
    let mut text = whole_failure(handler, pod, container, error, output);
    text.truncate(text.floor_char_boundary(MAX_FAILURE));
    text
}

fn shown(output: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT)])
}

fn whole_failure(
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    error: &str,
    output: &[u8],
) -> String {
    let of = format!(
        "for Container {:?} in Pod \"{}_{}({})\" failed - error: {error}",
        container.name,
        pod.name(),
        pod.namespace(),
        pod.uid()
    );
    if let Some(exec) = &handler.exec {
        let command = exec.command.as_deref().unwrap_or_default().join(" ");
        let output = shown(output);
        return format!("Exec lifecycle hook ([{command}]) {of}, message: {output:?}");
    }
    if let Some(get) = &handler.http_get {
        let path = get.path.as_deref().unwrap_or_default();
        return format!("HTTP lifecycle hook ({path}) {of}");
    }
    if let Some(sleep) = &handler.sleep {
        return format!("Sleep lifecycle hook ({}) {of}", sleep.seconds);
    }
    format!("Cannot run handler: {error}")
}

#[cfg(test)]
mod tests;
