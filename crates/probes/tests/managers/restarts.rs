//! What a new agent makes of what an old one knew.

use std::collections::BTreeMap;

use windlass_store::{Store, ProbeResultFile};
use windlass_testing::PodBuilder;
use windlass_testing::fake_checks::Server;
use windlass_types::corev1::{ContainerStatus, PodStatus};
use windlass_types::{ContainerId, ContainerProbeResult, PodUid, PodProbeResults, ProbeKind};

use crate::world::{Found, IP, SECOND, pod_with, run, tcp, with_verdicts, world};

fn known(verdicts: &[(ProbeKind, &str, bool)]) -> BTreeMap<PodUid, PodProbeResults> {
    let mut pod = PodProbeResults::default();
    for (kind, id, ok) in verdicts {
        let id = ContainerId::from(*id);
        let verdict = ContainerProbeResult { id, success: *ok };
        pod.for_kind_mut(*kind).insert("app".to_owned(), verdict);
    }
    [(PodUid::from("web-uid"), pod)].into()
}

#[tokio::test(start_paused = true)]
async fn a_verdict_is_believed_until_the_thresholds_say_otherwise() {
    let restored = known(&[
        (ProbeKind::Readiness, "c1", true),
        (ProbeKind::Startup, "c1", true),
    ]);
    with_verdicts(restored, async |world| {
        let pod = pod_with(|c| {
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        world.checks.set(IP, 2, Server::Refuses);
        let found = Found {
            started_at: world.ago(100),
            ..world.found("app", "c1")
        };
        let ready =
            |world: &crate::world::World| world.verdict(&pod, ProbeKind::Readiness, "app", "c1");
        world.tell(&pod, &[found]);
        world.pass(20 * SECOND).await;
        assert_eq!(world.asked(2).len(), 2, "spread over the first period");
        assert_eq!(ready(world), Some(true));
        assert_eq!(world.told(), [""; 0]);
        world.pass(10 * SECOND).await;
        assert_eq!(world.told(), ["Readiness app failed"]);
        assert_eq!(ready(world), Some(false));
        assert_eq!(
            world.asked(3),
            [0; 0],
            "it has started and is not asked again"
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_verdict_on_another_instance_is_dropped() {
    let restored = known(&[
        (ProbeKind::Readiness, "c0", true),
        (ProbeKind::Startup, "c0", true),
        (ProbeKind::Liveness, "c0", false),
    ]);
    with_verdicts(restored, async |world| {
        let pod = pod_with(|c| {
            c.liveness_probe = Some(tcp(1));
            c.readiness_probe = Some(tcp(2));
            c.startup_probe = Some(tcp(3));
        });
        world.checks.set(IP, 3, Server::Refuses);
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(SECOND).await;
        let all = world.results.of(&PodUid::from("web-uid"));
        assert!(all.liveness.is_empty() && all.startup.is_empty(), "{all:?}");
        let ready = world.verdict(&pod, ProbeKind::Readiness, "app", "c1");
        assert_eq!(ready, Some(false));
        assert_eq!(world.asked(3), [0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_container_that_failed_under_the_old_agent_is_left_alone_until_it_is_restarted() {
    let restored = known(&[(ProbeKind::Liveness, "c1", false)]);
    with_verdicts(restored, async |world| {
        let pod = pod_with(|c| c.liveness_probe = Some(tcp(1)));
        let found = Found {
            started_at: world.ago(100),
            ..world.found("app", "c1")
        };
        world.tell(&pod, &[found]);
        world.pass(60 * SECOND).await;
        assert_eq!(world.asked(1), [0; 0]);
        let verdict = world.verdict(&pod, ProbeKind::Liveness, "app", "c1");
        assert_eq!(verdict, Some(false));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_said_of_an_old_container_before_it_answered() {
    world(async |world| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        let found = Found {
            started_at: world.ago(11),
            ..world.found("app", "c1")
        };
        world.tell(&pod, &[found]);
        tokio::task::yield_now().await;
        assert!(world.results.all().is_empty());
        world.pass(10 * SECOND).await;
        assert_eq!(world.told(), ["Readiness app ok"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_knows_as_started_is_taken_over() {
    world(async |world| {
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
        let found = [Found {
            started_at: world.ago(1000),
            ..world.found("app", "c1")
        }];
        world.tell(&pod, &found);
        world.pass(SECOND).await;
        assert_eq!(world.told(), ["Startup app ok"]);
        world.tell(&pod, &found);
        world.pass(15 * SECOND).await;
        assert_eq!(world.asked(3), [0; 0]);
        assert!(!world.asked(2).is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn first_questions_after_a_start_are_spread_and_those_to_new_containers_are_not() {
    world(async |world| {
        for i in 1..=100_u16 {
            let pod = PodBuilder::new(&format!("p{i}"));
            let pod = pod.container_with("app", "img", |c| {
                c.liveness_probe = Some(tcp(i32::from(i)));
            });
            let found = Found {
                started_at: world.ago(60),
                ..world.found("app", "c")
            };
            world.tell(&pod.build(), &[found]);
        }
        let new = pod_with(|c| c.liveness_probe = Some(tcp(500)));
        world.tell(&new, &[world.found("app", "c")]);
        world.pass(10 * SECOND).await;
        let mut by_second = [0; 10];
        for i in 1..=100_u16 {
            let first = world.asked(i)[0];
            by_second[usize::try_from(first).expect("small")] += 1;
        }
        assert!(
            by_second.iter().all(|n| (2..30).contains(n)),
            "{by_second:?}"
        );
        assert_eq!(world.asked(500), [0, 10]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn verdicts_on_pods_that_nobody_tells_of_are_forgotten() {
    let restored = known(&[(ProbeKind::Readiness, "c1", true)]);
    with_verdicts(restored, async |world| {
        world.pass(500 * SECOND).await;
        assert_eq!(world.results.all().len(), 1);
        world.pass(101 * SECOND).await;
        assert!(world.results.all().is_empty());
    })
    .await;
}

#[tokio::test]
async fn verdicts_are_on_the_disk_until_the_pod_is_released() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = || Store::open(dir.path().join("state")).expect("store");
    let (file, _) = ProbeResultFile::open(store()).expect("file");
    run(BTreeMap::new(), Some(file.clone()), async |world| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(SECOND / 10).await;
        file.flush().await.expect("flush");
        let (_, read) = ProbeResultFile::open(store()).expect("file");
        assert_eq!(read, known(&[(ProbeKind::Readiness, "c1", true)]));
        world.forget(&pod);
        world.pass(SECOND / 10).await;
        file.flush().await.expect("flush");
        let (_, read) = ProbeResultFile::open(store()).expect("file");
        assert!(read.is_empty(), "{read:?}");
    })
    .await;
}

#[tokio::test]
async fn a_verdict_is_on_the_disk_when_the_first_hears_of_it() {
    let dir = tempfile::tempdir().expect("temp dir");
    let store = Store::open(dir.path().join("state")).expect("store");
    let (file, _) = ProbeResultFile::open(store.clone()).expect("file");
    run(BTreeMap::new(), Some(file), async |world| {
        let pod = pod_with(|c| {
            let mut probe = tcp(2);
            probe.period_seconds = Some(1);
            probe.failure_threshold = Some(1);
            c.readiness_probe = Some(probe);
        });
        world.tell(&pod, &[world.found("app", "c1")]);
        for ok in [true, false, true] {
            let server = if ok {
                Server::Answers(200)
            } else {
                Server::Refuses
            };
            world.checks.set(IP, 2, server);
            let found = |world: &crate::world::World| {
                world.verdict(&pod, ProbeKind::Readiness, "app", "c1")
            };
            while found(world) != Some(ok) {
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
async fn a_disk_that_refuses_makes_nobody_wait() {
    let dir = tempfile::tempdir().expect("temp dir");
    let state = dir.path().join("state");
    let store = Store::open(&state).expect("store");
    let (file, _) = ProbeResultFile::open(store).expect("file");
    // a folder in the file's place refuses the rename, also to root
    std::fs::create_dir_all(state.join("probe_results/x")).expect("obstacle");
    run(BTreeMap::new(), Some(file), async |world| {
        let pod = pod_with(|c| c.readiness_probe = Some(tcp(2)));
        world.tell(&pod, &[world.found("app", "c1")]);
        world.pass(SECOND / 2).await;
        assert_eq!(world.told(), ["Readiness app ok"]);
    })
    .await;
}
