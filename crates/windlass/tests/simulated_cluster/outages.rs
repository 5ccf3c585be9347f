//! An API server that is unreachable, slow, silent or rejects the node.

use std::time::Duration;

use windlass_fake_api::On;
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::{ContainerState, PodExt, PodUid, names};

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

#[test]
fn static_pods_start_without_api_server_and_others_later() {
    simulate_cluster(1, async |sim| {
        latencies(sim);
        let down = sim.api.faults().outage();
        let api_uid = create(sim, pod("web"));
        sim.desire([static_pod("etcd").build()]).await;
        sim.start_agent().await;
        sim.until("the static pod runs", SECOND, |sim| {
            sim.phase("etcd") == "Running"
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.runtime.starts(&"etcd-uid".into(), "app"), 1);
        assert!(node(sim).is_none());
        sim.api.faults().lift(down);
        // the max back-off, and the request
        sim.until("the node is ready", 10 * SECOND, node_ready)
            .await;
        sim.until("its mirror is there and ready", 40 * SECOND, |sim| {
            ready(sim, "etcd")
        })
        .await;
        let mirror = get(sim, "etcd").expect("there");
        assert!(mirror.annotation(names::ANN_CONFIG_MIRROR).is_some());
        sim.until("the API server's pod is ready", 40 * SECOND, |sim| {
            ready(sim, "web")
        })
        .await;
        assert_eq!(sim.runtime.starts(&api_uid, "app"), 1);
        assert_eq!(sim.runtime.starts(&"etcd-uid".into(), "app"), 1);
        assert!(lease(sim).is_some());
    });
}

/// Five pods with changes during an outage, and five idle ones.
async fn ten_pods(sim: &mut NodeSim) -> Vec<(String, PodUid)> {
    sim.runtime
        .set_behavior("default/crash/app", Behavior::exits(5 * SECOND, 1));
    sim.runtime
        .set_behavior("default/job/app", Behavior::exits(2 * MINUTE, 0));
    let mut pods = Vec::new();
    for name in ["crash", "job", "q0", "q1", "q2"] {
        let policy = if name == "job" { "Never" } else { "Always" };
        pods.push((
            name.to_owned(),
            create(sim, pod(name).restart_policy(policy)),
        ));
    }
    sim.until("all run", 4 * SECOND, |sim| {
        pods.iter().all(|(name, _)| ready(sim, name))
    })
    .await;
    pods
}

/// Idle pods are unchanged; the others kept running.
fn assert_untouched(sim: &NodeSim, pods: &[(String, PodUid)]) {
    for (name, uid) in pods {
        let starts = sim.runtime.starts(uid, "app");
        match &**name {
            "crash" => assert!(starts >= 6, "the crash loop continued: {starts} starts"),
            _ => assert_eq!(starts, 1, "{name}"),
        }
        if name.starts_with('q') {
            assert!(runs(sim, uid), "{name} was stopped");
        }
    }
    assert_eq!(
        sim.runtime
            .containers(&pods[1].1)
            .iter()
            .map(|c| c.state)
            .collect::<Vec<_>>(),
        [ContainerState::Exited]
    );
    sim.runtime.assert_invariants();
}

#[test]
fn ten_minute_outage_costs_one_patch_per_pod() {
    on_a_ready_node(2, async |sim| {
        let pods = ten_pods(sim).await;
        // into the first long back-off of the crash loop
        sim.pass(MINUTE).await;
        let down = sim.api.faults().outage();
        sim.pass(10 * MINUTE).await;
        assert_untouched(sim, &pods);
        sim.api.clear_requests();
        sim.api.faults().lift(down);
        let back = sim.now();
        sim.until("lease and node recover", 12 * SECOND, |sim| {
            !renewals(sim).is_empty() && node_ready(sim)
        })
        .await;
        sim.until("every status is as it is", 30 * SECOND, |sim| {
            phase(sim, "job") == "Succeeded" && restarts(sim, "crash") >= 5
        })
        .await;
        let crash_left = sim.runtime.starts(&pods[0].1, "app");
        sim.pass(5 * SECOND).await;
        assert_eq!(
            sim.runtime.starts(&pods[0].1, "app"),
            crash_left,
            "nothing is expected to happen now"
        );
        assert_eq!(patches(sim, "job").len(), 1);
        assert_eq!(patches(sim, "crash").len(), 1);
        for quiet in ["q0", "q1", "q2"] {
            assert_eq!(patches(sim, quiet).len(), 0, "nothing is new of {quiet}");
            assert!(ready(sim, quiet));
        }
        assert!(sim.now().duration_since(back).as_secs() < 60);
        assert!(lists(sim) <= 1, "the watch resumes where it was");
    });
}

fn lists(sim: &NodeSim) -> usize {
    let requests = sim.api.requests().into_iter();
    requests
        .filter(|r| {
            r.method == "GET" && r.path == "/api/v1/pods" && !r.query.contains("watch=true")
        })
        .count()
}

#[test]
fn slow_api_server_still_runs_pods_and_renews_lease() {
    on_a_ready_node(3, async |sim| {
        sim.api.faults().slow(On::any(), 5 * SECOND);
        sim.api.faults().close_watches();
        let names: Vec<_> = (0..20).map(|i| format!("p{i}")).collect();
        for name in &names {
            create(sim, pod(name));
        }
        let run = |sim: &NodeSim| {
            names
                .iter()
                .filter(|name| sim.phase(name) == "Running")
                .count()
        };
        // the watch is reopened after a back-off and 5 s, then they start as usual
        sim.until("all run", 20 * SECOND, |sim| run(sim) == 20)
            .await;
        // two patches of 5 s each, 16 concurrently
        sim.until("all are reported", 30 * SECOND, |sim| {
            names.iter().all(|name| ready(sim, name))
        })
        .await;
        sim.pass(HOUR).await;
        assert_lease_never_expired(sim);
        assert!(node_ready(sim));
        let counts = patch_counts(sim);
        assert!(counts.values().all(|count| *count <= 2), "{counts:?}");
        delete(sim, "p0", None);
        sim.until("a deletion is finished", MINUTE, |sim| {
            get(sim, "p0").is_none()
        })
        .await;
    });
}

fn assert_lease_never_expired(sim: &NodeSim) {
    let renewals = renewals(sim);
    assert!(renewals.len() > 2, "{renewals:?}");
    let duration = lease(sim)
        .and_then(|lease| lease.spec?.lease_duration_seconds)
        .expect("a lease");
    for pair in renewals.windows(2) {
        let gap = pair[1].duration_since(pair[0]);
        assert!(gap.as_secs() < i64::from(duration), "{pair:?}");
    }
}

#[test]
fn black_hole_connection_loses_nothing() {
    on_a_ready_node(4, async |sim| {
        let pods = ten_pods(sim).await;
        let hole = sim.api.faults().hang(On::any());
        sim.api.faults().silence_watches();
        sim.pass(MINUTE).await;
        let late = create(sim, pod("late"));
        delete(sim, "q2", None);
        sim.pass(10 * MINUTE).await;
        sim.api.faults().lift(hole);
        sim.until("the node is updated", 25 * SECOND, |sim| {
            renewals(sim)
                .last()
                .is_some_and(|at| sim.now().duration_since(*at).as_secs() < 10)
                && node_ready(sim)
        })
        .await;
        sim.until("what was missed is made up for", 2 * MINUTE, |sim| {
            ready(sim, "late") && get(sim, "q2").is_none() && phase(sim, "job") == "Succeeded"
        })
        .await;
        assert_eq!(sim.runtime.starts(&late, "app"), 1);
        assert!(!runs(sim, &pods[4].1));
        assert_untouched(sim, &pods[..4]);
    });
}

fn refused_for_an_hour(seed: u64, code: u16) {
    on_a_ready_node(seed, async |sim| {
        let pods = ten_pods(sim).await;
        let refuses = sim.api.faults().error(On::any(), code);
        sim.api.faults().close_watches();
        sim.api.clear_requests();
        sim.pass(HOUR).await;
        let tries = sim.api.requests().len();
        // lease and status every 10 s with few attempts each, watches at most every 30 s
        assert!((100..6000).contains(&tries), "{tries} requests in an hour");
        assert_untouched(sim, &pods);
        let before = sim.runtime.all_containers();
        let quiet = |all: Vec<windlass_testing::fake_runtime::ContainerView>| {
            all.into_iter()
                .filter(|c| pods[1..].iter().any(|(_, uid)| *uid == c.uid))
                .collect::<Vec<_>>()
        };
        sim.api.faults().lift(refuses);
        let late = create(sim, pod("late"));
        sim.until("all is well again", MINUTE, |sim| {
            node_ready(sim) && ready(sim, "late") && phase(sim, "job") == "Succeeded"
        })
        .await;
        sim.until("the lease is renewed", 15 * SECOND, |sim| {
            !renewals(sim).is_empty()
        })
        .await;
        assert_eq!(sim.runtime.starts(&late, "app"), 1);
        assert_eq!(quiet(sim.runtime.all_containers()), quiet(before));
    });
}

#[test]
fn expired_certificate_affects_no_pod_and_recovers() {
    refused_for_an_hour(5, 401);
}

#[test]
fn missing_permissions_affect_no_pod_and_recover() {
    refused_for_an_hour(6, 403);
}

#[test]
fn retry_after_of_busy_api_server_is_respected() {
    on_a_ready_node(7, async |sim| {
        let busy =
            sim.api
                .faults()
                .error_retry_after(On::path("*/status").method("PATCH"), 429, 20);
        create(sim, pod("web"));
        sim.until("web runs", SECOND, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(Duration::from_secs(58)).await;
        let tries = sim.api.requests().into_iter();
        let tries: Vec<_> = tries
            .filter(|r| r.path.contains("/pods/web/status"))
            .collect();
        assert!(
            (2..=4).contains(&tries.len()),
            "{} tries in a minute",
            tries.len()
        );
        sim.api.faults().lift(busy);
        sim.until("it is reported", 25 * SECOND, |sim| ready(sim, "web"))
            .await;
    });
}
