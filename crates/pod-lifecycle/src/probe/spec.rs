//! A pod's probe with defaults applied and names resolved.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use windlass_types::corev1::{Container, Probe};
use windlass_types::{Pod, PodExt, ProbeKind};

use super::{ProbeHandler, ProbeSpec};
use crate::http_target::{HttpTarget, Purpose, container_port, host_or};
use windlass_pod_inputs::env::expand;

/// Defaults of the v1 API; 0 means "not set".
const PERIOD: u32 = 10;
const TIMEOUT: u32 = 1;
const SUCCESSES: u32 = 1;
const FAILURES: u32 = 3;

/// Returns the probe of this kind of a container. `pod_ip` is the default host.
///
/// # Errors
/// An unresolved name, with upstream's message. It may resolve later, so the caller retries.
pub(crate) fn probe_spec(
    kind: ProbeKind,
    pod: &Pod,
    container: &Container,
    pod_ip: Option<IpAddr>,
) -> Option<Result<ProbeSpec, String>> {
    let probe = probe_of(kind, container)?;
    Some(
        handler(probe, pod, container, pod_ip).map(|handler| ProbeSpec {
            handler,
            initial_delay: seconds(number(probe.initial_delay_seconds, 0)),
            period: seconds(number(probe.period_seconds, PERIOD)),
            timeout: seconds(number(probe.timeout_seconds, TIMEOUT)),
            success_threshold: number(probe.success_threshold, SUCCESSES),
            failure_threshold: number(probe.failure_threshold, FAILURES),
        }),
    )
}

/// Returns the probe grace period, if the probe has one. It may be longer than the pod's.
pub(crate) fn probe_grace_period(container: &Container, kind: ProbeKind) -> Option<Duration> {
    if kind == ProbeKind::Readiness {
        return None;
    }
    let grace = probe_of(kind, container)?.termination_grace_period_seconds?;
    u64::try_from(grace).ok().map(Duration::from_secs)
}

pub(crate) fn probe_of(kind: ProbeKind, container: &Container) -> Option<&Probe> {
    match kind {
        ProbeKind::Liveness => container.liveness_probe.as_ref(),
        ProbeKind::Readiness => container.readiness_probe.as_ref(),
        ProbeKind::Startup => container.startup_probe.as_ref(),
    }
}

fn handler(
    probe: &Probe,
    pod: &Pod,
    container: &Container,
    pod_ip: Option<IpAddr>,
) -> Result<ProbeHandler, String> {
    if let Some(exec) = &probe.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        return Ok(ProbeHandler::Exec(static_command(command, container)));
    }
    if let Some(get) = &probe.http_get {
        let target = HttpTarget::new(get, container, pod_ip, Purpose::Probe)?;
        return Ok(ProbeHandler::Http(target));
    }
    if let Some(socket) = &probe.tcp_socket {
        return Ok(ProbeHandler::Tcp {
            port: container_port(&socket.port, container)?,
            host: host_or(socket.host.as_deref(), pod_ip)?,
        });
    }
    if let Some(grpc) = &probe.grpc {
        let port = u16::try_from(grpc.port).ok().filter(|port| *port > 0);
        return Ok(ProbeHandler::Grpc {
            port: port.ok_or_else(|| format!("invalid port number: {}", grpc.port))?,
            host: host_or(None, pod_ip)?,
            service: grpc.service.clone().unwrap_or_default(),
        });
    }
    Err(format!(
        "missing probe handler for {}_{}({}):{}",
        pod.name(),
        pod.namespace(),
        pod.uid(),
        container.name
    ))
}

/// Expands `$(VAR)` from literal values of the container; other variables expand to nothing
/// (upstream `ExpandContainerCommandOnlyStatic`).
fn static_command(command: &[String], container: &Container) -> Vec<String> {
    let vars = container.env.iter().flatten();
    let env: BTreeMap<&str, &str> = vars
        .map(|var| (&*var.name, var.value.as_deref().unwrap_or_default()))
        .collect();
    let words = command.iter();
    words
        .map(|word| expand(word, |name| env.get(name).copied()))
        .collect()
}

fn number(value: Option<i32>, default: u32) -> u32 {
    let value = value.and_then(|value| u32::try_from(value).ok());
    value.filter(|value| *value > 0).unwrap_or(default)
}

fn seconds(seconds: u32) -> Duration {
    Duration::from_secs(u64::from(seconds))
}
