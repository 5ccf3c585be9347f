//! Times of probe attempts.

use std::time::Duration;

use windlass_cri::RuntimeService;
use windlass_testing::PodBuilder;
use windlass_testing::fake_checks::Server;
use windlass_testing::fake_runtime::{Fault, Operation};
use windlass_types::cri::{ContainerConfig, SandboxConfig};
use windlass_types::view::PodWorkerState;
use windlass_types::{ContainerState, ProbeKind};

use crate::env::{FakeContainer, IP, MINUTE, SECOND, exec, pod_with, tcp, with_env};

#[tokio::test(start_paused = true)]
async fn first_attempt_is_immediate_then_periodic() {
    with_env(async |env| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(80)));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(35 * SECOND).await;
        assert_eq!(env.attempts(80), [0, 10, 20, 30]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn initial_delay_counts_from_container_start() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.initial_delay_seconds = Some(15);
            c.liveness_probe = Some(probe);
        });
        env.pass(100 * SECOND).await;
        let found = FakeContainer {
            started_at: env.ago(6),
            ..env.container("app", "c1")
        };
        env.report(&pod, std::slice::from_ref(&found));
        // reports of the worker meanwhile change nothing
        env.pass(2 * SECOND).await;
        env.report(&pod, &[found]);
        env.pass(20 * SECOND).await;
        assert_eq!(env.attempts(80), [109, 119]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn liveness_and_readiness_start_after_startup_success() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            let mut startup = tcp(3);
            startup.period_seconds = Some(3);
            startup.failure_threshold = Some(30);
            c.startup_probe = Some(startup);
        });
        env.checks.set(IP, 3, Server::Refuses);
        let found = env.container("app", "c1");
        env.report(&pod, std::slice::from_ref(&found));
        env.pass(10 * SECOND).await;
        assert_eq!(env.attempts(3), [0, 3, 6, 9]);
        assert!(env.attempts(1).is_empty() && env.attempts(2).is_empty());
        env.checks.set(IP, 3, Server::Answers(200));
        env.pass(2 * SECOND).await;
        assert_eq!(env.published(), ["Startup app ok"]);
        // the worker resyncs because of it
        env.report(&pod, &[found]);
        env.pass(15 * SECOND).await;
        assert_eq!(env.attempts(3), [0, 3, 6, 9, 12], "startup succeeded");
        assert_eq!(env.attempts(1), [12, 22]);
        assert_eq!(env.attempts(2), [12, 22]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn slow_attempt_skips_periods() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.period_seconds = Some(1);
            probe.timeout_seconds = Some(4);
            probe.failure_threshold = Some(1000);
            c.liveness_probe = Some(probe);
        });
        env.checks.set(IP, 80, Server::Hangs);
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(Duration::from_millis(12_500)).await;
        assert_eq!(env.attempts(80), [0, 4, 8, 12]);
        assert_eq!(env.checks.max_in_flight(IP, 80), 1);
        // after the first response it is probed every second again
        env.checks.set(IP, 80, Server::Answers(200));
        env.pass(Duration::from_millis(6_000)).await;
        assert_eq!(env.attempts(80), [0, 4, 8, 12, 16, 17, 18]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_containers_do_not_delay_others() {
    with_env(async |env| {
        let name = |i: u16| format!("c{i}");
        let probe = |i: u16| {
            let mut probe = tcp(i32::from(i));
            probe.period_seconds = Some(2);
            probe.timeout_seconds = Some(2);
            probe
        };
        for i in 1..=200_u16 {
            let pod = PodBuilder::new(&format!("p{i}"));
            let pod = pod.container_with("app", "img", |c| {
                c.liveness_probe = Some(probe(i));
                c.readiness_probe = Some(probe(1000 + i));
            });
            if i <= 20 {
                env.checks.set(IP, i, Server::Hangs);
                env.checks.set(IP, 1000 + i, Server::Hangs);
            }
            env.report(&pod.build(), &[env.container("app", &name(i))]);
        }
        env.pass(20 * SECOND).await;
        for i in 21..=200_u16 {
            let expected: Vec<u64> = (0..=20).step_by(2).collect();
            assert_eq!(env.attempts(i), expected, "liveness of {i}");
            assert_eq!(env.attempts(1000 + i), expected, "readiness of {i}");
        }
        assert!(env.attempts(1001).len() > 5);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_command_is_abandoned_without_second_one() {
    with_env(async |env| {
        let sandbox_config = SandboxConfig {
            name: "web".into(),
            namespace: "default".into(),
            uid: "web-uid".into(),
            ..SandboxConfig::default()
        };
        let config = ContainerConfig {
            name: "app".into(),
            image: "img".into(),
            ..ContainerConfig::default()
        };
        env.runtime.add_image("img");
        let sandbox = env.runtime.run_pod_sandbox(&sandbox_config, "").await;
        let sandbox = sandbox.expect("sandbox");
        let id = env
            .runtime
            .create_container(&sandbox, &config, &sandbox_config)
            .await
            .expect("container");
        env.runtime.start_container(&id).await.expect("started");
        env.runtime.inject(Fault::hang(Operation::ExecSync));
        env.runtime.set_request_timeout(MINUTE);
        let pod = pod_with(|c| {
            let mut probe = exec("check");
            probe.period_seconds = Some(1);
            probe.failure_threshold = Some(1);
            c.readiness_probe = Some(probe);
        });
        let uid = "web-uid".into();
        env.report(&pod, &[env.container("app", id.as_str())]);
        env.pass(30 * SECOND).await;
        assert_eq!(env.runtime.execs(&uid, "app"), 1);
        let timed_out = "app Unhealthy Readiness probe failed: \
                         command timed out: \"check\" timed out after 1s";
        assert_eq!(env.events(), [timed_out]);
        // the runtime responds again: the abandoned attempt does not count
        env.runtime.release(Operation::ExecSync);
        env.pass(Duration::from_millis(2_500)).await;
        assert_eq!(env.runtime.execs(&uid, "app"), 4);
        assert_eq!(env.runtime.max_execs_in_flight(&uid, "app"), 1);
        assert_eq!(env.published(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unready_container_is_probed_on_pod_change() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut readiness = tcp(1);
            readiness.period_seconds = Some(60);
            c.readiness_probe = Some(readiness);
            let mut liveness = tcp(2);
            liveness.period_seconds = Some(60);
            c.liveness_probe = Some(liveness);
        });
        env.checks.set(IP, 1, Server::Refuses);
        let found = [env.container("app", "c1")];
        env.report(&pod, &found);
        env.pass(10 * SECOND).await;
        env.checks.set(IP, 1, Server::Slow(SECOND / 2, 200));
        // reports during an attempt start no second one
        env.report(&pod, &found);
        env.pass(Duration::from_millis(100)).await;
        env.report(&pod, &found);
        env.pass(10 * SECOND).await;
        assert_eq!(env.attempts(1), [0, 10]);
        // ready now; the period starts with that attempt
        env.report(&pod, &found);
        env.pass(55 * SECOND).await;
        assert_eq!(env.attempts(1), [0, 10, 70]);
        assert_eq!(env.attempts(2), [0, 60]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn terminating_pod_has_only_readiness_probes() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        let mut found = [env.container("app", "c1")];
        env.report(&pod, &found);
        env.pass(SECOND).await;
        env.report(&pod, &found);
        env.pass(5 * SECOND).await;
        env.published();
        env.report_in_state(PodWorkerState::TerminatingPod, &pod, &found);
        env.checks.set(IP, 1, Server::Refuses);
        env.pass(60 * SECOND).await;
        assert_eq!(env.attempts(1).len(), 1);
        assert_eq!(env.attempts(2).len(), 7);
        assert_eq!(env.attempts(3).len(), 1);
        // its readiness is still what the endpoints follow
        env.checks.set(IP, 2, Server::Refuses);
        env.pass(30 * SECOND).await;
        assert_eq!(env.published(), ["Readiness app failed"]);
        found[0].state = ContainerState::Exited;
        env.report_in_state(PodWorkerState::TerminatingPod, &pod, &found);
        env.report_in_state(PodWorkerState::TerminatedPod, &pod, &found);
        let asked = env.attempts(2).len();
        env.pass(60 * SECOND).await;
        assert_eq!(env.attempts(2).len(), asked);
        let started = env.result(&pod, ProbeKind::Startup, "app", "c1");
        assert_eq!(started, Some(true), "the status still shows it");
        env.forget(&pod);
        env.pass(SECOND).await;
        assert!(env.results.all().is_empty());
    })
    .await;
}
