//! What users and metrics hear of it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_testing::fake_checks::Server;
use windlass_types::ProbeKind;
use windlass_types::corev1::{GRPCAction, HTTPGetAction, Probe};

use crate::world::{IP, SECOND, exec, pod_with, tcp, world};

#[tokio::test(start_paused = true)]
async fn an_error_is_tried_three_times_told_once_and_changes_nothing() {
    world(async |world| {
        // the runtime knows no such container
        let pod = pod_with(|c| c.readiness_probe = Some(exec("check")));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(SECOND).await;
        let calls = world.runtime.calls();
        assert_eq!(calls.len(), 3, "{calls:?}");
        let events = world.events();
        assert_eq!(events.len(), 1, "{events:?}");
        let words = "app Unhealthy Readiness probe errored and resulted in unknown state: ";
        assert!(events[0].starts_with(words), "{events:?}");
        assert_eq!(world.told(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_not_there_is_an_error_each_time() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(0);
            let socket = probe.tcp_socket.as_mut().expect("a socket");
            socket.port = IntOrString::String("http".to_owned());
            c.liveness_probe = Some(probe);
        });
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(25 * SECOND).await;
        let events = world.events();
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
async fn a_warning_is_a_success_that_is_told() {
    world(async |world| {
        let pod = pod_with(|c| {
            c.readiness_probe = Some(Probe {
                http_get: Some(HTTPGetAction {
                    port: IntOrString::Int(80),
                    ..HTTPGetAction::default()
                }),
                ..Probe::default()
            });
        });
        world.checks.set(IP, 80, Server::Answers(302));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(SECOND).await;
        let events = world.events();
        let words = "app ProbeWarning Readiness probe warning: ";
        assert!(
            events.len() == 1 && events[0].starts_with(words),
            "{events:?}"
        );
        assert_eq!(world.told(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn grpc_services_are_asked_for_their_health() {
    world(async |world| {
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
        world.checks.set(IP, 50051, Server::Answers(503));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(30 * SECOND).await;
        assert_eq!(world.told(), ["Startup app failed"]);
        assert_eq!(
            world.verdict(&pod, ProbeKind::Startup, "app", "c1"),
            Some(false)
        );
        assert_eq!(world.asked(50051), [0], "it waits for its end");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn questions_are_counted_as_upstream_counts_them_until_the_pod_is_gone() {
    world(async |world| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
        });
        world.checks.set(IP, 2, Server::Refuses);
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(25 * SECOND).await;
        // the series goes on with the next instance
        world.tell(&pod, &[world.found("app", "c2")]);
        world.pass(5 * SECOND).await;
        let text = world.metrics.probes.render().expect("text");
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
        world.forget(&pod);
        world.pass(SECOND).await;
        assert_eq!(world.metrics.probes.render().expect("text"), "");
    })
    .await;
}
