//! When questions are put.

use std::time::Duration;

use windlass_cri::RuntimeService;
use windlass_testing::PodBuilder;
use windlass_testing::fake_checks::Server;
use windlass_testing::fake_runtime::{Fault, Operation};
use windlass_types::cri::{ContainerConfig, SandboxConfig};
use windlass_types::view::PodWorkerState;
use windlass_types::{ContainerState, ProbeKind};

use crate::world::{Found, IP, MINUTE, SECOND, exec, pod_with, tcp, world};

#[tokio::test(start_paused = true)]
async fn a_container_is_asked_at_once_and_then_every_period() {
    world(async |world| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(80)));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(35 * SECOND).await;
        assert_eq!(world.asked(80), [0, 10, 20, 30]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_initial_delay_counts_from_the_containers_start() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.initial_delay_seconds = Some(15);
            c.liveness_probe = Some(probe);
        });
        world.pass(100 * SECOND).await;
        let found = Found {
            started_at: world.ago(6),
            ..world.found("app", "c1")
        };
        world.tell(&pod, std::slice::from_ref(&found));
        // what the worker says meanwhile changes nothing
        world.pass(2 * SECOND).await;
        world.tell(&pod, &[found]);
        world.pass(20 * SECOND).await;
        assert_eq!(world.asked(80), [109, 119]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn liveness_and_readiness_begin_when_the_startup_probe_has_succeeded() {
    world(async |world| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            let mut startup = tcp(3);
            startup.period_seconds = Some(3);
            startup.failure_threshold = Some(30);
            c.startup_probe = Some(startup);
        });
        world.checks.set(IP, 3, Server::Refuses);
        let found = world.found("app", "c1");
        world.tell(&pod, std::slice::from_ref(&found));
        world.pass(10 * SECOND).await;
        assert_eq!(world.asked(3), [0, 3, 6, 9]);
        assert!(world.asked(1).is_empty() && world.asked(2).is_empty());
        world.checks.set(IP, 3, Server::Answers(200));
        world.pass(2 * SECOND).await;
        assert_eq!(world.told(), ["Startup app ok"]);
        // the worker looks again because of it
        world.tell(&pod, &[found]);
        world.pass(15 * SECOND).await;
        assert_eq!(world.asked(3), [0, 3, 6, 9, 12], "it is decided");
        assert_eq!(world.asked(1), [12, 22]);
        assert_eq!(world.asked(2), [12, 22]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_answer_makes_questions_fall_out_instead_of_piling_up() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.period_seconds = Some(1);
            probe.timeout_seconds = Some(4);
            probe.failure_threshold = Some(1000);
            c.liveness_probe = Some(probe);
        });
        world.checks.set(IP, 80, Server::Hangs);
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(Duration::from_millis(12_500)).await;
        assert_eq!(world.asked(80), [0, 4, 8, 12]);
        assert_eq!(world.checks.most_at_once(IP, 80), 1);
        // as soon as it answers it is asked every second again
        world.checks.set(IP, 80, Server::Answers(200));
        world.pass(Duration::from_millis(6_000)).await;
        assert_eq!(world.asked(80), [0, 4, 8, 12, 16, 17, 18]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn containers_that_hang_delay_no_other() {
    world(async |world| {
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
                world.checks.set(IP, i, Server::Hangs);
                world.checks.set(IP, 1000 + i, Server::Hangs);
            }
            world.tell(&pod.build(), &[world.found("app", &name(i))]);
        }
        world.pass(20 * SECOND).await;
        for i in 21..=200_u16 {
            let expected: Vec<u64> = (0..=20).step_by(2).collect();
            assert_eq!(world.asked(i), expected, "liveness of {i}");
            assert_eq!(world.asked(1000 + i), expected, "readiness of {i}");
        }
        assert!(world.asked(1001).len() > 5);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_command_that_the_runtime_forgets_is_given_up_and_no_second_one_joins_it() {
    world(async |world| {
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
        world.runtime.add_image("img");
        let sandbox = world.runtime.run_pod_sandbox(&sandbox_config, "").await;
        let sandbox = sandbox.expect("sandbox");
        let id = world
            .runtime
            .create_container(&sandbox, &config, &sandbox_config)
            .await
            .expect("container");
        world.runtime.start_container(&id).await.expect("started");
        world.runtime.inject(Fault::hang(Operation::ExecSync));
        world.runtime.set_request_timeout(MINUTE);
        let pod = pod_with(|c| {
            let mut probe = exec("check");
            probe.period_seconds = Some(1);
            probe.failure_threshold = Some(1);
            c.readiness_probe = Some(probe);
        });
        let uid = "web-uid".into();
        world.tell(&pod, &[world.found("app", id.as_str())]);
        world.pass(30 * SECOND).await;
        assert_eq!(world.runtime.execs(&uid, "app"), 1);
        let timed_out = "app Unhealthy Readiness probe failed: \
                         command timed out: \"check\" timed out after 1s";
        assert_eq!(world.events(), [timed_out]);
        // the runtime is back: the answer that nobody waits for counts for nothing
        world.runtime.release(Operation::ExecSync);
        world.pass(Duration::from_millis(2_500)).await;
        assert_eq!(world.runtime.execs(&uid, "app"), 4);
        assert_eq!(world.runtime.most_execs_at_once(&uid, "app"), 1);
        assert_eq!(world.told(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_is_not_ready_is_asked_at_once_when_something_happens_to_its_pod() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut readiness = tcp(1);
            readiness.period_seconds = Some(60);
            c.readiness_probe = Some(readiness);
            let mut liveness = tcp(2);
            liveness.period_seconds = Some(60);
            c.liveness_probe = Some(liveness);
        });
        world.checks.set(IP, 1, Server::Refuses);
        let found = [world.found("app", "c1")];
        world.tell(&pod, &found);
        world.pass(10 * SECOND).await;
        world.checks.set(IP, 1, Server::Slow(SECOND / 2, 200));
        // two words while one question is under way are one question
        world.tell(&pod, &found);
        world.pass(Duration::from_millis(100)).await;
        world.tell(&pod, &found);
        world.pass(10 * SECOND).await;
        assert_eq!(world.asked(1), [0, 10]);
        // it is ready now, and the period began anew with that question
        world.tell(&pod, &found);
        world.pass(55 * SECOND).await;
        assert_eq!(world.asked(1), [0, 10, 70]);
        assert_eq!(world.asked(2), [0, 60]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn while_a_pod_stops_only_its_readiness_is_asked() {
    world(async |world| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        let mut found = [world.found("app", "c1")];
        world.tell(&pod, &found);
        world.pass(SECOND).await;
        world.tell(&pod, &found);
        world.pass(5 * SECOND).await;
        world.told();
        world.tell_in(PodWorkerState::TerminatingPod, &pod, &found);
        world.checks.set(IP, 1, Server::Refuses);
        world.pass(60 * SECOND).await;
        assert_eq!(world.asked(1).len(), 1);
        assert_eq!(world.asked(2).len(), 7);
        assert_eq!(world.asked(3).len(), 1);
        // its readiness is still what the endpoints follow
        world.checks.set(IP, 2, Server::Refuses);
        world.pass(30 * SECOND).await;
        assert_eq!(world.told(), ["Readiness app failed"]);
        found[0].state = ContainerState::Exited;
        world.tell_in(PodWorkerState::TerminatingPod, &pod, &found);
        world.tell_in(PodWorkerState::TerminatedPod, &pod, &found);
        let asked = world.asked(2).len();
        world.pass(60 * SECOND).await;
        assert_eq!(world.asked(2).len(), asked);
        let started = world.verdict(&pod, ProbeKind::Startup, "app", "c1");
        assert_eq!(started, Some(true), "the status still shows it");
        world.forget(&pod);
        world.pass(SECOND).await;
        assert!(world.results.all().is_empty());
    })
    .await;
}
