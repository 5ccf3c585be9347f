//! Probes of a container, in the format of kubectl.

use windlass_types::corev1::{Container, Probe};
use windlass_types::intstr::IntOrString;

use super::page::Page;

/// Adds a line for each probe the container has.
pub(super) fn fields(page: &mut Page, container: &Container) {
    for (name, probe) in [
        ("Liveness", &container.liveness_probe),
        ("Readiness", &container.readiness_probe),
        ("Startup", &container.startup_probe),
    ] {
        if let Some(probe) = probe {
            page.field(2, name, &text(probe));
        }
    }
}

/// Formats a probe; unset fields show their default.
fn text(probe: &Probe) -> String {
    let seconds = |value: Option<i32>, default| value.unwrap_or(default);
    format!(
        "{} delay={}s timeout={}s period={}s #success={} #failure={}",
        handler(probe),
        seconds(probe.initial_delay_seconds, 0),
        seconds(probe.timeout_seconds, 1),
        seconds(probe.period_seconds, 10),
        seconds(probe.success_threshold, 1),
        seconds(probe.failure_threshold, 3),
    )
}

fn handler(probe: &Probe) -> String {
    let port = |port: &IntOrString| match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => name.clone(),
    };
    if let Some(exec) = &probe.exec {
        let words = exec.command.as_deref().unwrap_or_default();
        return format!("exec [{}]", words.join(" "));
    }
    if let Some(http) = &probe.http_get {
        let scheme = http.scheme.as_deref().unwrap_or("HTTP").to_lowercase();
        let host = http.host.as_deref().unwrap_or_default();
        let path = http.path.as_deref().unwrap_or_default();
        return format!("http-get {scheme}://{host}:{}{path}", port(&http.port));
    }
    if let Some(tcp) = &probe.tcp_socket {
        let host = tcp.host.as_deref().unwrap_or_default();
        return format!("tcp-socket {host}:{}", port(&tcp.port));
    }
    if let Some(grpc) = &probe.grpc {
        let service = grpc.service.as_deref().unwrap_or_default();
        return format!("grpc <pod>:{} {service}", grpc.port);
    }
    "unknown".to_owned()
}
