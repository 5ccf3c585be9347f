//! Probe results after thresholds.

use windlass_testing::fake_checks::Server;
use windlass_types::{ContainerState, ProbeKind};

use crate::env::{IP, SECOND, pod_with, tcp, with_env};

#[tokio::test(start_paused = true)]
async fn liveness_failure_needs_threshold_then_goes_on_hold() {
    with_env(async |env| {
        let pod = pod_with(|c| c.liveness_probe = Some(tcp(80)));
        env.checks.set(IP, 80, Server::Refuses);
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(11 * SECOND).await;
        // a success resets the failure count
        env.checks.set(IP, 80, Server::Answers(200));
        env.pass(10 * SECOND).await;
        env.checks.set(IP, 80, Server::Refuses);
        env.pass(25 * SECOND).await;
        assert_eq!(env.published(), [""; 0]);
        assert_eq!(env.result(&pod, ProbeKind::Liveness, "app", "c1"), None);
        env.pass(10 * SECOND).await;
        assert_eq!(env.published(), ["Liveness app failed"]);
        let result = env.result(&pod, ProbeKind::Liveness, "app", "c1");
        assert_eq!(result, Some(false));
        env.pass(60 * SECOND).await;
        assert_eq!(env.attempts(80), [0, 10, 20, 30, 40, 50]);
        let refused = "app Unhealthy Liveness probe failed: \
                       dial tcp 10.0.0.7:80: connect: connection refused";
        assert_eq!(env.events(), [refused; 5]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn readiness_starts_false_and_follows_thresholds() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.success_threshold = Some(2);
            probe.failure_threshold = Some(2);
            c.readiness_probe = Some(probe);
        });
        let ready = |env: &crate::env::TestEnv| env.result(&pod, ProbeKind::Readiness, "app", "c1");
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(5 * SECOND).await;
        assert_eq!(ready(env), Some(false));
        assert_eq!(env.published(), [""; 0], "nothing changed");
        env.pass(10 * SECOND).await;
        assert_eq!(ready(env), Some(true));
        assert_eq!(env.published(), ["Readiness app ok"]);
        env.checks.set(IP, 80, Server::Refuses);
        env.pass(10 * SECOND).await;
        assert_eq!(ready(env), Some(true));
        env.pass(10 * SECOND).await;
        assert_eq!(ready(env), Some(false));
        assert_eq!(env.published(), ["Readiness app failed"]);
        env.pass(60 * SECOND).await;
        assert_eq!(env.published(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn new_instance_resets_all_probes() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        let mut first = env.container("app", "c1");
        env.report(&pod, std::slice::from_ref(&first));
        env.pass(SECOND).await;
        env.report(&pod, std::slice::from_ref(&first));
        env.pass(SECOND).await;
        assert_eq!(env.published(), ["Startup app ok", "Readiness app ok"]);
        env.checks.set(IP, 1, Server::Refuses);
        env.pass(40 * SECOND).await;
        assert_eq!(env.published(), ["Liveness app failed"]);

        first.state = ContainerState::Exited;
        env.report(&pod, std::slice::from_ref(&first));
        env.pass(SECOND).await;
        let ready = env.result(&pod, ProbeKind::Readiness, "app", "c1");
        assert_eq!(ready, Some(false), "what has ended is not ready");
        let asked = env.attempts(2).len();
        env.pass(60 * SECOND).await;
        assert_eq!(env.attempts(2).len(), asked);
        assert_eq!(env.published(), [""; 0]);

        env.checks.set(IP, 1, Server::Answers(200));
        env.checks.set(IP, 3, Server::Refuses);
        let second = env.container("app", "c2");
        env.report(&pod, &[second.clone(), first.clone()]);
        env.pass(SECOND).await;
        for kind in [ProbeKind::Liveness, ProbeKind::Startup] {
            assert_eq!(env.result(&pod, kind, "app", "c2"), None, "{kind}");
            assert_eq!(env.result(&pod, kind, "app", "c1"), None, "{kind}");
        }
        let ready = env.result(&pod, ProbeKind::Readiness, "app", "c2");
        assert_eq!(ready, Some(false));
        assert_eq!(
            env.attempts(2).len(),
            asked,
            "its startup probe holds it back"
        );
        env.checks.set(IP, 3, Server::Answers(200));
        env.pass(10 * SECOND).await;
        env.report(&pod, &[second, first]);
        env.pass(SECOND).await;
        assert_eq!(env.published(), ["Startup app ok", "Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn late_outcome_of_old_instance_is_ignored() {
    with_env(async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(80);
            probe.timeout_seconds = Some(5);
            probe.failure_threshold = Some(1);
            c.liveness_probe = Some(probe);
        });
        env.checks.set(IP, 80, Server::Hangs);
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(3 * SECOND).await;
        env.checks.set(IP, 80, Server::Answers(200));
        env.report(&pod, &[env.container("app", "c2")]);
        env.pass(60 * SECOND).await;
        assert_eq!(env.published(), [""; 0]);
        assert_eq!(env.events(), [""; 0]);
    })
    .await;
}
