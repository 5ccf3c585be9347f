//! Mirror pods of static pods.

use windlass_fake_api::On;
use windlass_testing::NodeSim;
use windlass_types::{Pod, PodExt, names};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

fn mirror_uid(sim: &NodeSim, name: &str) -> Option<String> {
    get(sim, name).and_then(|pod| pod.metadata.uid)
}

#[test]
fn mirror_pod_has_live_status_and_node_owner() {
    on_a_ready_node(1, async |sim| {
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("its mirror is ready", 2 * SECOND, |sim| ready(sim, "etcd"))
            .await;
        let mirror = get(sim, "etcd").expect("there");
        let hash = mirror.annotation(names::ANN_CONFIG_MIRROR);
        assert_eq!(hash, Some("etcd-uid"));
        let owners = mirror.metadata.owner_references.expect("an owner");
        assert_eq!(owners.len(), 1);
        let node_uid = node(sim).and_then(|node| node.metadata.uid);
        assert_eq!(Some(&owners[0].uid), node_uid.as_ref());
        assert_eq!((&*owners[0].kind, &*owners[0].name), ("Node", NODE));
        assert_eq!(
            patches(sim, "etcd").len().clamp(1, 2),
            patches(sim, "etcd").len()
        );
        let app = sim
            .runtime
            .running(&"etcd-uid".into(), "app")
            .expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        sim.until("a restart is reported", MINUTE, |sim| {
            restarts(sim, "etcd") == 1
        })
        .await;
    });
}

#[test]
fn deleted_mirror_pod_is_recreated_and_static_pod_runs() {
    on_a_ready_node(2, async |sim| {
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("its mirror is ready", 2 * SECOND, |sim| ready(sim, "etcd"))
            .await;
        for grace in [Some(0), Some(30), None] {
            let old = mirror_uid(sim, "etcd");
            delete(sim, "etcd", grace);
            sim.until("another mirror is ready", 5 * SECOND, |sim| {
                mirror_uid(sim, "etcd") != old && ready(sim, "etcd")
            })
            .await;
        }
        assert_eq!(sim.runtime.starts(&"etcd-uid".into(), "app"), 1);
    });
}

#[test]
fn mirror_pod_follows_manifest_edit_and_removal() {
    on_a_ready_node(3, async |sim| {
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("its mirror is ready", 2 * SECOND, |sim| ready(sim, "etcd"))
            .await;
        let old = mirror_uid(sim, "etcd");
        sim.desire([static_pod("etcd").uid("edited").build()]).await;
        sim.until("the mirror is that of the new one", 20 * SECOND, |sim| {
            let mirror = get(sim, "etcd");
            let hash =
                mirror.and_then(|pod| pod.annotation(names::ANN_CONFIG_MIRROR).map(str::to_owned));
            hash.as_deref() == Some("edited") && ready(sim, "etcd")
        })
        .await;
        assert_ne!(mirror_uid(sim, "etcd"), old);
        assert!(runs(sim, &"edited".into()) && !runs(sim, &"etcd-uid".into()));
        sim.desire([]).await;
        sim.until("the mirror is gone", 20 * SECOND, |sim| {
            get(sim, "etcd").is_none()
        })
        .await;
        assert!(!runs(sim, &"edited".into()));
    });
}

#[test]
fn orphaned_mirror_pods_are_deleted_when_sources_ready() {
    on_a_ready_node(4, async |sim| {
        sim.desire([static_pod("kept").build(), static_pod("gone").build()])
            .await;
        sim.until("both mirrors are ready", 2 * SECOND, |sim| {
            ready(sim, "kept") && ready(sim, "gone")
        })
        .await;
        let kept = mirror_uid(sim, "kept");
        sim.kill_agent().await;
        sim.silence_manifests(true);
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert!(get(sim, "gone").is_some() && get(sim, "kept").is_some());
        assert!(
            runs(sim, &"gone-uid".into()),
            "the manifests may still come"
        );
        sim.silence_manifests(false);
        sim.desire([static_pod("kept").build()]).await;
        sim.until("the orphan is gone", MINUTE, |sim| {
            get(sim, "gone").is_none() && !runs(sim, &"gone-uid".into())
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(mirror_uid(sim, "kept"), kept, "it was good as it was");
        assert!(ready(sim, "kept"));
        assert_eq!(sim.runtime.starts(&"kept-uid".into(), "app"), 1);
    });
}

#[test]
fn failed_mirror_pod_creation_delays_nothing() {
    on_a_ready_node(5, async |sim| {
        let refused = sim.api.faults().error(
            On::path("/api/v1/namespaces/default/pods").method("POST"),
            403,
        );
        sim.desire([static_pod("etcd").build()]).await;
        create(sim, pod("web"));
        sim.until("both run", SECOND, |sim| {
            sim.phase("etcd") == "Running" && ready(sim, "web")
        })
        .await;
        sim.pass(10 * MINUTE).await;
        assert!(get(sim, "etcd").is_none());
        let posts = sim.api.requests().into_iter();
        let posts = posts
            .filter(|r| r.method == "POST" && r.status == 403)
            .count();
        assert!((3..100).contains(&posts), "{posts} attempts in ten minutes");
        sim.api.faults().lift(refused);
        sim.until("its mirror is ready", 5 * MINUTE, |sim| ready(sim, "etcd"))
            .await;
        let static_uids = sim.api.list::<Pod>().len();
        assert_eq!(static_uids, 2);
    });
}
