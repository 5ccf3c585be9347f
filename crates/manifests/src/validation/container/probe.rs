//! Validates probes, and the actions that they share with lifecycle hooks.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_types::corev1::{Container, HTTPGetAction, Probe};

use super::super::field::Errors;
use super::super::names;
use super::port_number;

pub(super) fn all(container: &Container, path: &str, errors: &mut Errors) {
    for (field, probe, readiness) in [
        ("livenessProbe", &container.liveness_probe, false),
        ("readinessProbe", &container.readiness_probe, true),
        ("startupProbe", &container.startup_probe, false),
    ] {
        if let Some(probe) = probe {
            check(probe, &format!("{path}.{field}"), readiness, errors);
        }
    }
}

fn check(probe: &Probe, path: &str, readiness: bool, errors: &mut Errors) {
    let count = [
        probe.exec.is_some(),
        probe.http_get.is_some(),
        probe.tcp_socket.is_some(),
        probe.grpc.is_some(),
    ];
    exactly_one(&count, path, errors);
    if let Some(exec) = &probe.exec {
        command(exec.command.as_deref(), path, errors);
    }
    if let Some(get) = &probe.http_get {
        http_get(get, path, errors);
    }
    if let Some(socket) = &probe.tcp_socket {
        port(&socket.port, &format!("{path}.tcpSocket.port"), errors);
    }
    if let Some(grpc) = &probe.grpc {
        port_number(&format!("{path}.grpc.port"), grpc.port, errors);
    }
    for (field, number) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        if let Some(number) = number.filter(|n| *n < 0) {
            let detail = "must be greater than or equal to 0";
            errors.invalid(&format!("{path}.{field}"), number, detail);
        }
    }
    let successes = probe.success_threshold.unwrap_or(1);
    if !readiness && successes > 1 {
        errors.invalid(&format!("{path}.successThreshold"), successes, "must be 1");
    }
    if let Some(seconds) = probe.termination_grace_period_seconds {
        let field = format!("{path}.terminationGracePeriodSeconds");
        if readiness {
            errors.invalid(&field, seconds, "must not be set for readinessProbes");
        } else if seconds <= 0 {
            errors.invalid(&field, seconds, "must be greater than 0");
        }
    }
}

pub(super) fn exactly_one(present: &[bool], path: &str, errors: &mut Errors) {
    match present.iter().filter(|p| **p).count() {
        0 => errors.required(path, "must specify a handler type"),
        1 => {}
        _ => errors.forbidden(path, "may not specify more than 1 handler type"),
    }
}

pub(super) fn command(command: Option<&[String]>, path: &str, errors: &mut Errors) {
    if command.unwrap_or_default().is_empty() {
        errors.required(&format!("{path}.exec.command"), "");
    }
}

pub(super) fn http_get(get: &HTTPGetAction, path: &str, errors: &mut Errors) {
    port(&get.port, &format!("{path}.httpGet.port"), errors);
    errors.one_of(
        &format!("{path}.httpGet.scheme"),
        get.scheme.as_deref(),
        &["HTTP", "HTTPS"],
    );
    for (index, header) in get.http_headers.iter().flatten().enumerate() {
        let token = |c: char| c.is_ascii_alphanumeric() || "-!#$%&'*+.^_`|~".contains(c);
        if header.name.is_empty() || !header.name.chars().all(token) {
            let field = format!("{path}.httpGet.httpHeaders[{index}].name");
            errors.invalid(&field, &header.name, "must be an HTTP header name");
        }
    }
}

pub(super) fn port(port: &IntOrString, field: &str, errors: &mut Errors) {
    match port {
        IntOrString::Int(number) => port_number(field, *number, errors),
        IntOrString::String(name) => errors.name(field, name, names::port),
    }
}
