//! Outcomes of probe attempts, with upstream's messages.

use std::time::Duration;

use windlass_types::cri::ExecOutput;

use super::{CheckError, ExecFailure, GrpcHealth, HttpAnswer, MAX_OUTPUT_BYTES, ProbeOutcome};
use crate::http_target::{HttpTarget, join_host_port};
use windlass_units::duration::go_duration;

/// Evaluates an HTTP response (upstream `DoHTTPProbe`). A truncated body is an error, no response
/// is a failure.
pub fn evaluate_http(target: &HttpTarget, answer: &Result<HttpAnswer, CheckError>) -> ProbeOutcome {
    let answer = match answer {
        Ok(answer) => answer,
        Err(CheckError::Body(text) | CheckError::Node(text)) => {
            return ProbeOutcome::Error(text.clone());
        }
        Err(CheckError::Redirected(text)) => return ProbeOutcome::Failure(text.clone()),
        Err(error) => {
            return ProbeOutcome::Failure(http_error(&target.url(), error));
        }
    };
    match answer.status {
        200..=299 => ProbeOutcome::Success,
        300..=399 => ProbeOutcome::Warning(format!(
            "Probe terminated redirects, Response body: {}",
            text(&answer.body)
        )),
        status => ProbeOutcome::Failure(format!("HTTP probe failed with statuscode: {status}")),
    }
}

/// Returns the error text of Go's HTTP client.
pub fn http_error(url: &str, error: &CheckError) -> String {
    match error {
        CheckError::TimedOut(_) | CheckError::ConnectTimedOut(_) => format!(
            "Get {url:?}: context deadline exceeded \
             (Client.Timeout exceeded while awaiting headers)"
        ),
        CheckError::PlainHttp => {
            format!("Get {url:?}: http: server gave HTTP response to HTTPS client")
        }
        CheckError::Redirected(text) => text.clone(),
        CheckError::Body(text) | CheckError::Node(text) | CheckError::Failed(text) => {
            format!("Get {url:?}: {text}")
        }
    }
}

/// Evaluates a TCP connection (upstream `DoTCPProbe`).
pub fn evaluate_tcp(host: &str, port: u16, answer: &Result<(), CheckError>) -> ProbeOutcome {
    match answer {
        Ok(()) => ProbeOutcome::Success,
        Err(CheckError::TimedOut(_) | CheckError::ConnectTimedOut(_)) => ProbeOutcome::Failure(
            format!("dial tcp {}: i/o timeout", join_host_port(host, port)),
        ),
        Err(CheckError::Node(text)) => ProbeOutcome::Error(text.clone()),
        Err(error) => ProbeOutcome::Failure(error.to_string()),
    }
}

/// Evaluates a gRPC health check (upstream `grpcProber.Probe`); only SERVING is success.
pub fn evaluate_grpc(
    host: &str,
    port: u16,
    answer: &Result<GrpcHealth, CheckError>,
) -> ProbeOutcome {
    let address = join_host_port(host, port);
    let text = match answer {
        Ok(GrpcHealth::Serving) => return ProbeOutcome::Success,
        Err(CheckError::Node(text)) => return ProbeOutcome::Error(text.clone()),
        Ok(GrpcHealth::NotServing(status)) => {
            format!("service unhealthy (responded with {status:?})")
        }
        Ok(GrpcHealth::Unimplemented(message)) => format!(
            "error: this server does not implement the grpc health protocol \
             (grpc.health.v1.Health): {message}"
        ),
        Ok(GrpcHealth::Refused(error)) => format!("error: health rpc probe failed: {error}"),
        Err(CheckError::TimedOut(timeout)) => format!(
            "timeout: health rpc did not complete within {}",
            go_duration(*timeout)
        ),
        Err(CheckError::ConnectTimedOut(timeout)) => format!(
            "timeout: failed to connect service {address:?} within {}: context deadline exceeded",
            go_duration(*timeout)
        ),
        Err(error) => format!("error: failed to connect service at {address:?}: {error}"),
    };
    ProbeOutcome::Failure(text)
}

/// Evaluates a command (upstream `execProber.Probe`); its output is standard output, then standard
/// error.
pub fn evaluate_exec(
    command: &[String],
    timeout: Duration,
    answer: &Result<ExecOutput, ExecFailure>,
) -> ProbeOutcome {
    match answer {
        Ok(output) if output.exit_code == 0 => ProbeOutcome::Success,
        Ok(output) => {
            let mut bytes = output.stdout.clone();
            bytes.truncate(MAX_OUTPUT_BYTES);
            let room = MAX_OUTPUT_BYTES - bytes.len();
            bytes.extend(output.stderr.iter().take(room));
            ProbeOutcome::Failure(text(&bytes))
        }
        Err(ExecFailure::TimedOut) => ProbeOutcome::Failure(format!(
            "command timed out: {:?} timed out after {}",
            command.join(" "),
            go_duration(timeout)
        )),
        Err(ExecFailure::Failed(text)) => ProbeOutcome::Error(text.clone()),
    }
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.len().min(MAX_OUTPUT_BYTES);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
