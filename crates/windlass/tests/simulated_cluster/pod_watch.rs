//! An API server that lists but cannot watch, and how the node reports it.

use windlass_control::NodeSource;
use windlass_fake_api::On;
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::corev1::{ConfigMap, Event};
use windlass_types::view::PodWatch;

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

fn pod_watch(sim: &NodeSim) -> Option<PodWatch> {
    let cluster = sim.agent()?.node.summary().cluster?;
    cluster.pod_watch
}

fn works(sim: &NodeSim) -> bool {
    pod_watch(sim).is_some_and(|it| it.error.is_none())
}

/// Events of the node with this reason, repetitions counted.
fn node_events(sim: &NodeSim, reason: &str) -> i32 {
    let events = sim.api.list::<Event>().into_iter();
    let of_node = events.filter(|event| event.involved_object.kind.as_deref() == Some("Node"));
    let same = of_node.filter(|event| event.reason.as_deref() == Some(reason));
    same.map(|event| event.count.unwrap_or(1)).sum()
}

fn failing_seconds(sim: &NodeSim) -> f64 {
    sim.agent().expect("running").publish_metrics();
    sim.metrics.sources.pod_watch_failing.get()
}

#[test]
fn etcd_without_watch_progress_runs_pods() {
    simulate_cluster(1, async |sim| {
        latencies(sim);
        sim.api.faults().no_watch_progress(true);
        sim.api.create(&ConfigMap {
            metadata: windlass_types::metav1::ObjectMeta {
                name: Some("conf".to_owned()),
                namespace: Some("default".to_owned()),
                ..Default::default()
            },
            ..ConfigMap::default()
        });
        create(sim, pod("early"));
        sim.start_agent().await;
        sim.until("the pod of before is ready", 3 * SECOND, |sim| {
            node_ready(sim) && ready(sim, "early")
        })
        .await;
        create(sim, pod("late"));
        sim.until("a new pod is ready", SECOND, |sim| ready(sim, "late"))
            .await;
        assert!(works(sim), "{:?}", pod_watch(sim));
        delete(sim, "late", Some(1));
        sim.until("it is gone", 5 * SECOND, |sim| get(sim, "late").is_none())
            .await;
        sim.api.clear_requests();
        sim.pass(HOUR).await;
        let all = sim.api.requests().into_iter();
        let pods = all.filter(|request| request.path == "/api/v1/pods");
        assert!(pods.count() < 20, "a watch lasts five minutes");
        assert_eq!(node_events(sim, "FailedPodWatch"), 0);
    });
}

#[test]
fn api_server_without_watches_still_delivers_pods() {
    on_a_ready_node(2, async |sim| {
        sim.api.faults().fail_watches(true);
        sim.api.faults().close_watches();
        sim.pass(10 * MINUTE).await;
        for name in ["p0", "p1", "p2"] {
            create(sim, pod(name));
            sim.until("a list finds the pod", MINUTE, |sim| ready(sim, name))
                .await;
        }
        assert!(node_ready(sim));
        assert!(!works(sim), "{:?}", pod_watch(sim));
        assert!(node_events(sim, "FailedPodWatch") >= 2);
        sim.api.faults().fail_watches(false);
        sim.until("the watch works again", MINUTE, works).await;
        create(sim, pod("late"));
        sim.until("a new pod is ready", SECOND, |sim| ready(sim, "late"))
            .await;
    });
}

#[test]
fn failing_pod_watch_is_reported_until_it_recovers() {
    on_a_ready_node(3, async |sim| {
        sim.until("the pods are watched", SECOND, works).await;
        assert_eq!(failing_seconds(sim), 0.0);
        let fault = sim.api.faults().error(On::path("/api/v1/pods"), 500);
        sim.api.faults().close_watches();
        sim.until("the failure is shown", 40 * SECOND, |sim| !works(sim))
            .await;
        let error = pod_watch(sim).and_then(|it| it.error).expect("failing");
        assert!(
            error.contains("/api/v1/pods: a fault was injected"),
            "{error}"
        );
        sim.pass(10 * MINUTE).await;
        assert!(failing_seconds(sim) > 590.0);
        // the first is not an event, the next are after 1, 3 and 7 minutes
        assert_eq!(node_events(sim, "FailedPodWatch"), 3);
        assert!(node_ready(sim), "the heartbeat does not fail");
        sim.api.faults().lift(fault);
        sim.until(
            "the watch works, without any change of a pod",
            MINUTE,
            works,
        )
        .await;
        assert_eq!(failing_seconds(sim), 0.0);
        sim.until("the node has an event of it", SECOND, |sim| {
            node_events(sim, "PodWatchRestored") == 1
        })
        .await;
    });
}
