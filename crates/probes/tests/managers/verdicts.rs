//! What answers come to.

use windlass_testing::fake_checks::Server;
use windlass_types::{ContainerState, ProbeKind};

use crate::world::{IP, SECOND, pod_with, tcp, world};

#[tokio::test(start_paused = true)]
async fn three_failures_in_a_row_fail_a_container_which_is_then_left_alone() {
    world(async |world| {
        let pod = pod_with(|c| c.liveness_probe = Some(tcp(80)));
        world.checks.set(IP, 80, Server::Refuses);
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(11 * SECOND).await;
        // two failures, one success: the count begins anew
        world.checks.set(IP, 80, Server::Answers(200));
        world.pass(10 * SECOND).await;
        world.checks.set(IP, 80, Server::Refuses);
        world.pass(25 * SECOND).await;
        assert_eq!(world.told(), [""; 0]);
        assert_eq!(world.verdict(&pod, ProbeKind::Liveness, "app", "c1"), None);
        world.pass(10 * SECOND).await;
        assert_eq!(world.told(), ["Liveness app failed"]);
        let verdict = world.verdict(&pod, ProbeKind::Liveness, "app", "c1");
        assert_eq!(verdict, Some(false));
        world.pass(60 * SECOND).await;
        assert_eq!(world.asked(80), [0, 10, 20, 30, 40, 50]);
        let refused = "app Unhealthy Liveness probe failed: \
                       dial tcp 10.0.0.7:80: connect: connection refused";
        assert_eq!(world.events(), [refused; 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn readiness_begins_as_no_and_follows_its_thresholds_both_ways() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.success_threshold = Some(2);
            probe.failure_threshold = Some(2);
            c.readiness_probe = Some(probe);
        });
        let ready =
            |world: &crate::world::World| world.verdict(&pod, ProbeKind::Readiness, "app", "c1");
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(5 * SECOND).await;
        assert_eq!(ready(world), Some(false));
        assert_eq!(world.told(), [""; 0], "nothing changed for anybody");
        world.pass(10 * SECOND).await;
        assert_eq!(ready(world), Some(true));
        assert_eq!(world.told(), ["Readiness app ok"]);
        world.checks.set(IP, 80, Server::Refuses);
        world.pass(10 * SECOND).await;
        assert_eq!(ready(world), Some(true));
        world.pass(10 * SECOND).await;
        assert_eq!(ready(world), Some(false));
        assert_eq!(world.told(), ["Readiness app failed"]);
        world.pass(60 * SECOND).await;
        assert_eq!(world.told(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_new_instance_begins_anew_with_everything() {
    world(async |world| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        let mut first = world.found("app", "c1");
        world.tell(&pod, std::slice::from_ref(&first));
        world.pass(SECOND).await;
        world.tell(&pod, std::slice::from_ref(&first));
        world.pass(SECOND).await;
        assert_eq!(world.told(), ["Startup app ok", "Readiness app ok"]);
        world.checks.set(IP, 1, Server::Refuses);
        world.pass(40 * SECOND).await;
        assert_eq!(world.told(), ["Liveness app failed"]);

        first.state = ContainerState::Exited;
        world.tell(&pod, std::slice::from_ref(&first));
        world.pass(SECOND).await;
        let ready = world.verdict(&pod, ProbeKind::Readiness, "app", "c1");
        assert_eq!(ready, Some(false), "what has ended is not ready");
        let asked = world.asked(2).len();
        world.pass(60 * SECOND).await;
        assert_eq!(world.asked(2).len(), asked);
        assert_eq!(world.told(), [""; 0]);

        world.checks.set(IP, 1, Server::Answers(200));
        world.checks.set(IP, 3, Server::Refuses);
        let second = world.found("app", "c2");
        world.tell(&pod, &[second.clone(), first.clone()]);
        world.pass(SECOND).await;
        for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
            assert_eq!(world.verdict(&pod, kind, "app", "c2"), None, "{kind}");
            assert_eq!(world.verdict(&pod, kind, "app", "c1"), None, "{kind}");
        }
        let ready = world.verdict(&pod, ProbeKind::Readiness, "app", "c2");
        assert_eq!(ready, Some(false));
        assert_eq!(
            world.asked(2).len(),
            asked,
            "its startup probe holds it back"
        );
        world.checks.set(IP, 3, Server::Answers(200));
        world.pass(10 * SECOND).await;
        world.tell(&pod, &[second, first]);
        world.pass(SECOND).await;
        assert_eq!(world.told(), ["Startup app ok", "Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_about_an_instance_that_is_gone_counts_for_nothing() {
    world(async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.timeout_seconds = Some(5);
            probe.failure_threshold = Some(1);
            c.liveness_probe = Some(probe);
        });
        world.checks.set(IP, 80, Server::Hangs);
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(3 * SECOND).await;
        world.checks.set(IP, 80, Server::Answers(200));
        world.tell(&pod, &[world.found("app", "c2")]);
        world.pass(60 * SECOND).await;
        assert_eq!(world.told(), [""; 0]);
        assert_eq!(world.events(), [""; 0]);
    })
    .await;
}
