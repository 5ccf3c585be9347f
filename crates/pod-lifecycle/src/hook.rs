//! Lifecycle hooks and their errors (upstream `handlerRunner`).

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use windlass_types::corev1::{Container, LifecycleHandler};
use windlass_types::cri::ExecOutput;
use windlass_types::{Pod, PodExt};

use crate::http_target::{HttpTarget, Purpose};
use crate::probe::{CheckError, ExecFailure, HttpAnswer, http_error};

/// Maximum bytes of a command output in an error.
const MAX_OUTPUT_BYTES: usize = 4 << 10;

/// Maximum bytes of an error in the pod status.
const MAX_FAILURE_BYTES: usize = 16 << 10;

/// Action of a hook, with resolved names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HookAction {
    /// A command in the container, without expansion; exit code 0 is success.
    Exec(Vec<String>),
    /// An HTTP request; any response is success.
    Http(HttpTarget),
    /// A delay.
    Sleep(Duration),
}

impl HookAction {
    /// Creates the action of a hook. `pod_ip` is the default host.
    ///
    /// # Errors
    /// An unresolved name or an unsupported handler such as `tcpSocket`; wrap it with [`failure`].
    pub fn new(
        handler: &LifecycleHandler,
        container: &Container,
        pod_ip: Option<IpAddr>,
    ) -> Result<Self, String> {
        if let Some(exec) = &handler.exec {
            return Ok(Self::Exec(exec.command.clone().unwrap_or_default()));
        }
        if let Some(get) = &handler.http_get {
            let target = HttpTarget::new(get, container, pod_ip, Purpose::Hook)?;
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

/// Outcome of an HTTP hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpHookOutcome {
    /// The server responded.
    Succeeded,
    /// The server speaks plain HTTP: retry with [`HttpTarget::plain`], and record a
    /// `LifecycleHTTPFallback` event on success.
    RetryOverHttp(HttpTarget),
    /// Error of the request.
    Failed(String),
}

/// Evaluates the response to an HTTP hook; its body is ignored.
pub fn evaluate_http(
    target: &HttpTarget,
    answer: &Result<HttpAnswer, CheckError>,
) -> HttpHookOutcome {
    match answer {
        Ok(_) | Err(CheckError::Body(_)) => HttpHookOutcome::Succeeded,
        Err(CheckError::PlainHttp) => HttpHookOutcome::RetryOverHttp(target.plain()),
        Err(error) => HttpHookOutcome::Failed(http_error(&target.url(), error)),
    }
}

/// Returns the message of the `LifecycleHTTPFallback` event.
pub fn fallback_message(target: &HttpTarget) -> String {
    format!(
        "request to HTTPS lifecycle hook {} got HTTP response, retry with HTTP succeeded",
        target.authority()
    )
}

/// Evaluates the command of a hook.
///
/// # Errors
/// The cause of its failure; wrap it with [`failure`].
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

/// Error of a sleep that ended early.
pub const SLEEP_CUT_SHORT: &str = "container terminated before sleep hook finished";

/// Returns upstream's message for a failed hook. `output` is standard output, then standard error.
pub fn failure(
    handler: &LifecycleHandler,
    pod: &Pod,
    container: &Container,
    error: &str,
    output: &[u8],
) -> String {
    let mut text = whole_failure(handler, pod, container, error, output);
    text.truncate(text.floor_char_boundary(MAX_FAILURE_BYTES));
    text
}

fn shown(output: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(&output[..output.len().min(MAX_OUTPUT_BYTES)])
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
