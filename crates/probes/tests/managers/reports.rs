//! Events and metrics of probes.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_testing::fake_checks::Server;
use windlass_types::ProbeKind;
use windlass_types::corev1::{GRPCAction, HTTPGetAction, Probe};

use crate::env::{IP, SECOND, exec, pod_with, tcp, with_env};

#[tokio::test(start_paused = true)]
async fn probe_error_is_retried_twice_and_changes_nothing() {
    with_env(async |env| {
        // the runtime does not have the container
        let pod = pod_with(|c| c.readiness_probe = Some(exec("check")));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND).await;
        let calls = env.runtime.calls();
        assert_eq!(calls.len(), 3, "{calls:?}");
        let events = env.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let words = "app Unhealthy Readiness probe errored and resulted in unknown state: ";
        assert!(events[0].starts_with(words), "{events:?}");
        assert_eq!(env.published(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn missing_named_port_is_probe_error() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(0);
            let socket = probe.tcp_socket.as_mut().expect("a socket");
            socket.port = IntOrString::String("http".to_owned());
            c.liveness_probe = Some(probe);
        });
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(25 * SECOND).await;
        let events = env.events();
        assert_eq!(events.len(), 3, "{events:?}");
        let words = "app Unhealthy Liveness probe errored and resulted in unknown state: ";
        assert!(
            events.iter().all(|event| event.starts_with(words)),
            "{events:?}"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn probe_warning_is_success_with_event() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.readiness_probe = Some(Probe {
                http_get: Some(HTTPGetAction {
                    port: IntOrString::Int(80),
                    ..HTTPGetAction::default()
                }),
                ..Probe::default()
            });
        });
        env.checks.set(IP, 80, Server::Answers(302));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND).await;
        let events = env.events();
        let words = "app ProbeWarning Readiness probe warning: ";
        assert!(
            events.len() == 1 && events[0].starts_with(words),
            "{events:?}"
        );
        assert_eq!(env.published(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn grpc_probe_checks_health_of_service() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.startup_probe = Some(Probe {
                grpc: Some(GRPCAction {
                    port: 50051,
                    service: Some("db".to_owned()),
                }),
                failure_threshold: Some(1),
                ..Probe::default()
            });
        });
        env.checks.set(IP, 50051, Server::Answers(503));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(30 * SECOND).await;
        assert_eq!(env.published(), ["Startup app failed"]);
        assert_eq!(
            env.result(&pod, ProbeKind::Startup, "app", "c1"),
            Some(false)
        );
        assert_eq!(env.attempts(50051), [0], "it waits for its end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn probe_metrics_match_upstream_until_pod_removal() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
        });
        env.checks.set(IP, 2, Server::Refuses);
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(25 * SECOND).await;
        // the next instance continues the series
        env.report(&pod, &[env.container("app", "c2")]);
        env.pass(5 * SECOND).await;
        let text = env.metrics.probes.render().expect("text");
        let series = |kind: &str, result: &str, count: u32| {
            format!(
                "prober_probe_total{{container=\"app\",namespace=\"default\",pod=\"web\",\
                 pod_uid=\"web-uid\",probe_type=\"{kind}\",result=\"{result}\"}} {count}\n"
            )
        };
        for line in [
            series("Liveness", "successful", 4),
            series("Readiness", "failed", 4),
        ] {
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(
            text.contains("prober_probe_duration_seconds_count"),
            "{text}"
        );
        env.forget(&pod);
        env.pass(SECOND).await;
        assert_eq!(env.metrics.probes.render().expect("text"), "");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn probe_is_listed_as_hung_while_its_attempts_time_out() {
    with_env(async |env| {
        env.checks.set(IP, 80, Server::Hangs);
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(80)));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND / 2).await;
        assert_eq!(env.hung.list(), [], "within its timeout");
        env.pass(SECOND).await;
        let hung = env.hung.list();
        let lines: Vec<String> = hung.iter().map(ToString::to_string).collect();
        let words = "Readiness probe of container app hung since 2026-01-01T00:00:00Z";
        assert_eq!(lines, [words]);
        assert_eq!(
            hung[0].operation.pod,
            pod.metadata.uid.as_deref().map(Into::into)
        );
        env.pass(30 * SECOND).await;
        assert_eq!(env.hung.list(), hung, "since the first attempt");
        // a failure is an answer
        env.checks.set(IP, 80, Server::Refuses);
        env.pass(10 * SECOND).await;
        assert_eq!(env.hung.list(), []);
    })
    .await;
}
