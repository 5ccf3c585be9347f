//! Node, Lease and steps of the wall clock.

use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::corev1::{Event, Node, Taint};

use crate::fixture::*;
use crate::{HOUR, MINUTE, SECOND};

#[test]
fn deleted_node_is_registered_again_without_pod_changes() {
    on_a_ready_node(1, async |sim| {
        let uid = create(sim, pod("web"));
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("both are ready", 2 * SECOND, |sim| {
            ready(sim, "web") && ready(sim, "etcd")
        })
        .await;
        let before = sim.runtime.all_containers();
        let labels = |sim: &NodeSim| node(sim).and_then(|node| node.metadata.labels);
        let own = labels(sim).expect("labels");
        assert_eq!(
            own.get("kubernetes.io/hostname").map(String::as_str),
            Some(NODE)
        );
        let old = node(sim).and_then(|node| node.metadata.uid);
        assert!(sim.api.delete::<Node>(None, NODE, None));
        sim.until("it is back and ready", 15 * SECOND, node_ready)
            .await;
        let new = node(sim).and_then(|node| node.metadata.uid);
        assert_ne!(new, old);
        assert_eq!(labels(sim), Some(own));
        // as the garbage collector deletes dependents
        delete(sim, "etcd", Some(0));
        sim.until("the mirror has its new owner", 5 * SECOND, |sim| {
            let owners = get(sim, "etcd").and_then(|pod| pod.metadata.owner_references);
            let owner = owners.into_iter().flatten().next();
            owner.map(|owner| owner.uid) == new && ready(sim, "etcd")
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(sim.runtime.all_containers(), before);
        assert!(ready(sim, "web") && runs(sim, &uid));
        let renewed = renewals(sim).last().copied().expect("a lease");
        assert!(sim.now().duration_since(renewed).as_secs() <= 15);
    });
}

#[test]
fn foreign_taint_is_kept_and_idle_node_patched_rarely() {
    on_a_ready_node(2, async |sim| {
        sim.pass(MINUTE).await;
        sim.api.modify::<Node>(None, NODE, |node| {
            let taint = Taint {
                key: "maintenance".to_owned(),
                effect: "NoSchedule".to_owned(),
                ..Taint::default()
            };
            node.spec.get_or_insert_default().taints = Some(vec![taint]);
        });
        sim.api.clear_requests();
        sim.pass(HOUR).await;
        let taints = node(sim)
            .and_then(|node| node.spec?.taints)
            .expect("taints");
        assert!(taints.iter().any(|taint| taint.key == "maintenance"));
        let requests = sim.api.requests().into_iter();
        let patches = requests
            .filter(|r| r.method == "PATCH" && r.path == "/api/v1/nodes/sim/status")
            .count();
        assert!((10..=13).contains(&patches), "{patches} in an hour");
    });
}

fn stepped(seed: u64, seconds: i64) {
    on_a_ready_node(seed, async |sim| {
        create(sim, pod("web"));
        create(sim, pod("ending").grace(600));
        sim.runtime.set_behavior(
            "default/ending/app",
            windlass_testing::fake_runtime::Behavior::stubborn(),
        );
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("all are ready", 2 * SECOND, |sim| {
            ready(sim, "web") && ready(sim, "ending") && ready(sim, "etcd")
        })
        .await;
        sim.pass(MINUTE).await;
        let before = sim.runtime.all_containers();
        delete(sim, "ending", None);
        sim.pass(10 * SECOND).await;
        sim.step_clock(seconds);
        sim.api.clear_requests();
        sim.pass(5 * MINUTE).await;
        assert_eq!(
            sim.runtime.all_containers(),
            before,
            "a container was touched"
        );
        assert!(get(sim, "ending").is_some(), "its grace is not over");
        assert!(ready(sim, "web") && ready(sim, "etcd") && node_ready(sim));
        let renewals = renewals(sim);
        assert!(
            (25..=32).contains(&renewals.len()),
            "every ten seconds: {renewals:?}"
        );
        let told = lease(sim)
            .and_then(|lease| lease.spec?.renew_time)
            .expect("renewed");
        let behind = sim.now().duration_since(told.0).as_secs();
        assert!((0..=11).contains(&behind), "{behind} s");
        let tries = sim.api.requests().len();
        assert!(tries < 200, "{tries} requests in five minutes");
        let late = create(sim, pod("late"));
        sim.until("pods still start", SECOND, |sim| ready(sim, "late"))
            .await;
        assert_eq!(sim.runtime.starts(&late, "app"), 1);
        sim.until("the grace ends", 6 * MINUTE, |sim| {
            get(sim, "ending").is_none()
        })
        .await;
    });
}

#[test]
fn clock_step_forward_restarts_and_ends_nothing() {
    stepped(3, 3600);
}

#[test]
fn clock_step_back_restarts_and_delays_nothing() {
    stepped(4, -3600);
}

#[test]
fn oversized_resolv_conf_is_node_event() {
    simulate_cluster(7, async |sim| {
        latencies(sim);
        let text = "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more \
                    than 29 domains!";
        sim.resolv_conf_warning = Some(text.to_owned());
        sim.start_agent().await;
        let told = |sim: &NodeSim| {
            let events = sim.api.list::<Event>().into_iter();
            let mut about = events.filter(|e| e.involved_object.kind.as_deref() == Some("Node"));
            about.any(|event| {
                event.type_.as_deref() == Some("Warning")
                    && event.reason.as_deref() == Some("CheckLimitsForResolvConf")
                    && event.message.as_deref() == Some(text)
            })
        };
        sim.until("it is told", 5 * SECOND, told).await;
    });
}
