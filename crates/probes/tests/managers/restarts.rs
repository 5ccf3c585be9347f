//! Restored results after an agent restart.

use std::collections::BTreeMap;

use windlass_store::{ProbeResultFile, Store};
use windlass_testing::PodBuilder;
use windlass_testing::fake_checks::Server;
use windlass_types::corev1::{ContainerStatus, PodStatus};
use windlass_types::{ContainerId, ContainerProbeResult, PodProbeResults, PodUid, ProbeKind};

use crate::env::{FakeContainer, IP, SECOND, pod_with, run, tcp, with_env, with_results};

fn known(results: &[(ProbeKind, &str, bool)]) -> BTreeMap<PodUid, PodProbeResults> {
    let mut pod = PodProbeResults::default();
    for (kind, id, ok) in results {
        let id = ContainerId::from(*id);
        let result = ContainerProbeResult { id, success: *ok };
        pod.for_kind_mut(*kind).insert("app".to_owned(), result);
    }
    [(PodUid::from("web-uid"), pod)].into()
}

#[tokio::test(start_paused = true)]
async fn restored_result_holds_until_threshold() {
    let restored = known(&[
        (ProbeKind::Readiness, "c1", true),
        (ProbeKind::Startup, "c1", true),
    ]);
    with_results(restored, async |env| {
        let pod = pod_with(|c| {
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        env.checks.set(IP, 2, Server::Refuses);
        let found = FakeContainer {
            started_at: env.ago(100),
            ..env.container("app", "c1")
        };
        let ready = |env: &crate::env::TestEnv| env.result(&pod, ProbeKind::Readiness, "app", "c1");
        env.report(&pod, &[found]);
        env.pass(20 * SECOND).await;
        assert_eq!(env.attempts(2).len(), 2, "spread over the first period");
        assert_eq!(ready(env), Some(true));
        assert_eq!(env.published(), [""; 0]);
        env.pass(10 * SECOND).await;
        assert_eq!(env.published(), ["Readiness app failed"]);
        assert_eq!(ready(env), Some(false));
        assert_eq!(env.attempts(3), [0; 0], "no attempt after startup success");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restored_result_of_other_instance_is_dropped() {
    let restored = known(&[
        (ProbeKind::Readiness, "c0", true),
        (ProbeKind::Startup, "c0", true),
        (ProbeKind::Liveness, "c0", false),
    ]);
    with_results(restored, async |env| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        env.checks.set(IP, 3, Server::Refuses);
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND).await;
        let all = env.results.get(&PodUid::from("web-uid"));
        assert!(all.liveness.is_empty() && all.startup.is_empty(), "{all:?}");
        let ready = env.result(&pod, ProbeKind::Readiness, "app", "c1");
        assert_eq!(ready, Some(false));
        assert_eq!(env.attempts(3), [0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn restored_liveness_failure_stays_on_hold_until_restart() {
    let restored = known(&[(ProbeKind::Liveness, "c1", false)]);
    with_results(restored, async |env| {
        let pod = pod_with(|c| c.liveness_probe = Some(tcp(1)));
        let found = FakeContainer {
            started_at: env.ago(100),
            ..env.container("app", "c1")
        };
        env.report(&pod, &[found]);
        env.pass(60 * SECOND).await;
        assert_eq!(env.attempts(1), [0; 0]);
        let result = env.result(&pod, ProbeKind::Liveness, "app", "c1");
        assert_eq!(result, Some(false));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn old_container_has_no_result_before_first_attempt() {
    with_env(async |env| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        let found = FakeContainer {
            started_at: env.ago(11),
            ..env.container("app", "c1")
        };
        env.report(&pod, &[found]);
        tokio::task::yield_now().await;
        assert!(env.results.all().is_empty());
        env.pass(10 * SECOND).await;
        assert_eq!(env.published(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn started_in_api_status_restores_startup_success() {
    with_env(async |env| {
        let mut pod = pod_with(|c| {
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        pod.status = Some(PodStatus {
            container_statuses: Some(vec![ContainerStatus {
                name: "app".to_owned(),
                container_id: Some("containerd://c1".to_owned()),
                started: Some(true),
                ..ContainerStatus::default()
            }]),
            ..PodStatus::default()
        });
        let found = [FakeContainer {
            started_at: env.ago(1000),
            ..env.container("app", "c1")
        }];
        env.report(&pod, &found);
        env.pass(SECOND).await;
        assert_eq!(env.published(), ["Startup app ok"]);
        env.report(&pod, &found);
        env.pass(15 * SECOND).await;
        assert_eq!(env.attempts(3), [0; 0]);
        assert!(!env.attempts(2).is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn first_attempts_have_jitter_only_at_agent_start() {
    with_env(async |env| {
        for i in 1..=100_u16 {
            let pod = PodBuilder::new(&format!("p{i}"));
            let pod = pod.container_with("app", "img", |c| {
                c.liveness_probe = Some(tcp(i32::from(i)));
            });
            let found = FakeContainer {
                started_at: env.ago(60),
                ..env.container("app", "c")
            };
            env.report(&pod.build(), &[found]);
        }
        let new = pod_with(|c| c.liveness_probe = Some(tcp(500)));
        env.report(&new, &[env.container("app", "c")]);
        env.pass(10 * SECOND).await;
        let mut by_second = [0; 10];
        for i in 1..=100_u16 {
            let first = env.attempts(i)[0];
            by_second[usize::try_from(first).expect("small")] += 1;
        }
        assert!(
            by_second.iter().all(|n| (2..30).contains(n)),
            "{by_second:?}"
        );
        assert_eq!(env.attempts(500), [0, 10]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn unclaimed_restored_results_are_removed() {
    let restored = known(&[(ProbeKind::Readiness, "c1", true)]);
    with_results(restored, async |env| {
        env.pass(500 * SECOND).await;
        assert_eq!(env.results.all().len(), 1);
        env.pass(101 * SECOND).await;
        assert!(env.results.all().is_empty());
    })
    .await;
}

#[tokio::test]
async fn results_are_persisted_until_pod_release() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = || Store::open(dir.path().join("state")).expect("store");
    let (file, _) = ProbeResultFile::open(store()).expect("file");
    run(BTreeMap::new(), Some(file.clone()), async |env| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND / 10).await;
        file.flush().await.expect("flush");
        let (_, read) = ProbeResultFile::open(store()).expect("file");
        assert_eq!(read, known(&[(ProbeKind::Readiness, "c1", true)]));
        env.forget(&pod);
        env.pass(SECOND / 10).await;
        file.flush().await.expect("flush");
        let (_, read) = ProbeResultFile::open(store()).expect("file");
        assert!(read.is_empty(), "{read:?}");
    })
    .await;
}

#[tokio::test]
async fn probe_result_is_persisted_before_notification() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = Store::open(dir.path().join("state")).expect("store");
    let (file, _) = ProbeResultFile::open(store.clone()).expect("file");
    run(BTreeMap::new(), Some(file), async |env| {
        let pod = pod_with(|c| {
            let mut probe = tcp(2);
            probe.period_seconds = Some(1);
            probe.failure_threshold = Some(1);
            c.readiness_probe = Some(probe);
        });
        env.report(&pod, &[env.container("app", "c1")]);
        for ok in [true, false, true] {
            let server = if ok {
                Server::Answers(200)
            } else {
                Server::Refuses
            };
            env.checks.set(IP, 2, server);
            let found =
                |env: &crate::env::TestEnv| env.result(&pod, ProbeKind::Readiness, "app", "c1");
            while found(env) != Some(ok) {
                tokio::time::sleep(SECOND / 1000).await;
            }
            let (_, read) = ProbeResultFile::open(store.clone()).expect("file");
            let expected = known(&[(ProbeKind::Readiness, "c1", ok)]);
            assert_eq!(read, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn failing_disk_does_not_delay_results() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = dir.path().join("state");
    let store = Store::open(&state).expect("store");
    let (file, _) = ProbeResultFile::open(store).expect("file");
    // a directory in place of the file makes the rename fail, also for root
    std::fs::create_dir_all(state.join("probe_results/x")).expect("obstacle");
    run(BTreeMap::new(), Some(file), async |env| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        env.report(&pod, &[env.container("app", "c1")]);
        env.pass(SECOND / 2).await;
        assert_eq!(env.published(), ["Readiness app ok"]);
    })
    .await;
}
