//! Node, Lease and steps of the wall clock.

use serde_json::json;
use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::corev1::{Event, Node, PodOS, PodSecurityContext, Taint};

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
        sim.until("it is reported", 5 * SECOND, told).await;
    });
}

/// Waits until a pod is rejected and returns `status.reason`.
async fn rejected(sim: &NodeSim, name: &str) -> String {
    sim.until("it is rejected", 5 * SECOND, |sim| {
        phase(sim, name) == "Failed"
    })
    .await;
    let status = get(sim, name).and_then(|pod| pod.status);
    status.and_then(|s| s.reason).unwrap_or_default()
}

#[test]
fn no_execute_taint_rejects_only_pods_of_api_server() {
    on_a_ready_node(8, async |sim| {
        sim.api.modify::<Node>(None, NODE, |node| {
            let taint = Taint {
                key: "maintenance".to_owned(),
                effect: "NoExecute".to_owned(),
                ..Taint::default()
            };
            node.spec.get_or_insert_default().taints = Some(vec![taint]);
        });
        // the agent reads the node every ten seconds
        sim.pass(15 * SECOND).await;
        create(sim, pod("web"));
        assert_eq!(rejected(sim, "web").await, "TaintToleration");
        let tolerant = pod("tolerant").with(|pod| {
            let all = json!([{ "operator": "Exists", "effect": "NoExecute" }]);
            let spec = pod.spec.as_mut().expect("spec");
            spec.tolerations = serde_json::from_value(all).expect("tolerations");
        });
        create(sim, tolerant);
        sim.desire([static_pod("etcd").build()]).await;
        sim.until("the others run", 5 * SECOND, |sim| {
            ready(sim, "tolerant") && ready(sim, "etcd")
        })
        .await;
    });
}

#[test]
fn unsupported_os_or_strict_groups_reject_pod() {
    simulate_cluster(9, async |sim| {
        latencies(sim);
        sim.runtime.set_features(Vec::new(), Some(false));
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        let windows = pod("windows").with(|pod| {
            let name = "windows".to_owned();
            pod.spec.as_mut().expect("spec").os = Some(PodOS { name });
        });
        create(sim, windows);
        assert_eq!(rejected(sim, "windows").await, "PodOSNotSupported");
        let strict = pod("strict").with(|pod| {
            let security = PodSecurityContext {
                supplemental_groups_policy: Some("Strict".to_owned()),
                ..PodSecurityContext::default()
            };
            pod.spec.as_mut().expect("spec").security_context = Some(security);
        });
        create(sim, strict);
        let reason = rejected(sim, "strict").await;
        assert_eq!(reason, "SupplementalGroupsPolicyNotSupported");
    });
}

/// Number of events of the node with this reason.
fn node_events(sim: &NodeSim, reason: &str) -> i32 {
    let events = sim.api.list::<Event>().into_iter();
    let of_node = events.filter(|e| e.involved_object.kind.as_deref() == Some("Node"));
    of_node
        .filter(|e| e.reason.as_deref() == Some(reason))
        .map(|e| e.count.unwrap_or(1))
        .sum()
}

#[test]
fn reboot_is_node_event_and_resets_extended_resources() {
    on_a_ready_node(10, async |sim| {
        const DONGLE: &str = "example.com/dongle";
        let dongles = |sim: &NodeSim| {
            let status = serde_json::to_value(node(sim).and_then(|node| node.status));
            let status = status.expect("a status");
            ["capacity", "allocatable"].map(|list| status[list][DONGLE].clone())
        };
        assert_eq!(node_events(sim, "Rebooted"), 0);
        // as the previous agent run left the node
        sim.api.modify::<Node>(None, NODE, |node| {
            let status = node.status.get_or_insert_default();
            for list in [&mut status.capacity, &mut status.allocatable] {
                let three = serde_json::from_value(json!("3")).expect("a quantity");
                list.get_or_insert_default()
                    .insert(DONGLE.to_owned(), three);
            }
            status.node_info.get_or_insert_default().boot_id = "earlier".to_owned();
        });
        sim.until("the reboot is reported", 15 * SECOND, |sim| {
            node_events(sim, "Rebooted") == 1
        })
        .await;
        sim.until("the resources are reset", 5 * SECOND, |sim| {
            dongles(sim) == ["0", "0"]
        })
        .await;
    });
}

#[test]
fn node_condition_and_cordon_changes_are_node_events() {
    on_a_ready_node(11, async |sim| {
        let counts = |sim: &NodeSim| {
            let reasons = [
                "Starting",
                "NodeReady",
                "NodeNotReady",
                "NodeNotSchedulable",
                "NodeSchedulable",
            ];
            reasons.map(|reason| node_events(sim, reason))
        };
        sim.pass(5 * SECOND).await;
        let [starting, ready_before, not_ready, ..] = counts(sim);
        assert_eq!((starting, not_ready), (1, 0));
        sim.runtime.set_network_error(Some("no CNI configuration"));
        sim.until("the node is not ready", MINUTE, |sim| {
            !node_ready(sim) && node_events(sim, "NodeNotReady") == 1
        })
        .await;
        sim.runtime.set_network_error(None);
        sim.until("the node is ready again", MINUTE, |sim| {
            node_ready(sim) && node_events(sim, "NodeReady") == ready_before + 1
        })
        .await;
        for (cordoned, reason) in [(true, "NodeNotSchedulable"), (false, "NodeSchedulable")] {
            sim.api.modify::<Node>(None, NODE, |node| {
                node.spec.get_or_insert_default().unschedulable = Some(cordoned);
            });
            sim.until(reason, 15 * SECOND, |sim| node_events(sim, reason) == 1)
                .await;
        }
        assert_eq!(counts(sim), [1, ready_before + 1, 1, 1, 1]);
    });
}

#[test]
fn system_oom_is_node_event_and_others_are_not() {
    simulate_cluster(8, async |sim| {
        latencies(sim);
        let kill = |cgroups: &str, pid: u32| {
            format!(
                "oom-kill:constraint=C,nodemask=(null),cpuset=/,mems_allowed=0,{cgroups},\
                 task=dd,pid={pid},uid=0"
            )
        };
        // before the agent starts
        sim.log_of_kernel(&kill("global_oom,task_memcg=/a", 1))
            .await;
        sim.start_agent().await;
        sim.log_of_kernel(&kill("oom_memcg=/a,task_memcg=/a/b", 2))
            .await;
        sim.log_of_kernel(&kill("global_oom,task_memcg=/a", 3))
            .await;
        let messages = |sim: &NodeSim| {
            let events = sim.api.list::<Event>().into_iter();
            let ooms = events.filter(|it| it.reason.as_deref() == Some("SystemOOM"));
            let shown = ooms.map(|it| {
                let object = it.involved_object;
                let parts = [object.kind, object.name, it.type_, it.message];
                parts.map(Option::unwrap_or_default).join(" ")
            });
            shown.collect::<Vec<_>>()
        };
        sim.until("it is reported", 5 * SECOND, |sim| {
            !messages(sim).is_empty()
        })
        .await;
        sim.pass(MINUTE).await;
        let expected = "Node sim Warning System OOM encountered, victim process: dd, pid: 3";
        assert_eq!(messages(sim), [expected]);
    });
}
