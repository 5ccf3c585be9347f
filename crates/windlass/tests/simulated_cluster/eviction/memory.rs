//! Memory and processes run short.

use windlass_eviction::{MemoryFacts, MemoryRule, Stall, ThresholdState};
use windlass_testing::fake_runtime::{Fault, Operation};

use std::sync::Arc;

use super::*;
use crate::MINUTE;

const HARD: &[(&str, &str)] = &[("memory.available", "100Mi")];

fn memory(sim: &NodeSim, uid: &PodUid, mebibytes: u64) {
    sim.pressure
        .pod_uses(Signal::MemoryAvailable, uid, mebibytes * MIB);
}

#[test]
fn memory_hog_is_evicted_with_status_and_events_of_upstream() {
    on_a_node(101, settings(HARD, &[], &[]), async |sim| {
        stubborn(sim, "hog");
        let hog = run(sim, requesting("hog", 1024, 0)).await;
        let modest = run(sim, requesting("modest", 200, 0)).await;
        let vital = run(sim, requesting("vital", 0, 2_000_000_000)).await;
        for (uid, mebibytes) in [(&hog, 9000), (&modest, 100), (&vital, 50)] {
            memory(sim, uid, mebibytes);
        }
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "MemoryPressure"
        })
        .await;
        // one pass publishes the condition and begins the eviction
        sim.until("it terminates", SECOND, |sim| {
            sim.blocker("hog") == "Terminating"
        })
        .await;
        until_evicted(sim, "hog", 5 * SECOND).await;
        assert!(!runs(sim, &hog));
        assert_eq!(
            sim.pressure.held(),
            std::slice::from_ref(&hog),
            "it grew no further"
        );
        let status = get(sim, "hog").and_then(|pod| pod.status);
        let status = status.expect("a status");
        let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: \
                       66Mi. Container app was using 9000Mi, request is 1Gi, has larger consumption \
                       of memory. ";
        assert_eq!(status.message.as_deref(), Some(message));
        let conditions = status.conditions.unwrap_or_default();
        let disrupted = conditions.iter().find(|it| it.type_ == "DisruptionTarget");
        let disrupted = disrupted.expect("a condition");
        assert_eq!(disrupted.status, "True");
        assert_eq!(disrupted.reason.as_deref(), Some("TerminationByKubelet"));
        assert_eq!(disrupted.message.as_deref(), Some(message));

        sim.pass(MINUTE).await;
        let [event] = &events(sim, "Evicted")[..] else {
            panic!("one event")
        };
        assert_eq!(
            (event.count, event.message.as_deref()),
            (Some(1), Some(message))
        );
        let annotations = event.metadata.annotations.clone().unwrap_or_default();
        let annotations = Vec::from_iter(annotations);
        let expected = [
            ("offending_containers", "app"),
            ("offending_containers_usage", "9000Mi"),
            ("starved_resource", "memory"),
        ];
        assert_eq!(
            annotations,
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        let [met] = &events(sim, "EvictionThresholdMet")[..] else {
            panic!("one event")
        };
        assert_eq!(met.message.as_deref(), Some("Attempting to reclaim memory"));
        assert_eq!(met.involved_object.kind.as_deref(), Some("Node"));
        assert_eq!(evictions(sim, Signal::MemoryAvailable), 1.0);
        let ages = &sim.metrics.node.eviction_stats_age;
        let ages = ages.with_label_values(&["memory.available"]);
        assert_eq!(ages.get_sample_count(), 1);
        assert!(runs(sim, &modest) && runs(sim, &vital));
        assert_eq!(sim.runtime.starts(&hog, "app"), 1);
    });
}

#[test]
fn kernel_kills_a_hog_that_the_runtime_does_not() {
    on_a_node(113, settings(HARD, &[], &[]), async |sim| {
        let hog = run(sim, requesting("hog", 0, 0)).await;
        sim.runtime.inject(Fault::hang(Operation::StopContainer));
        memory(sim, &hog, 9200);
        sim.until("it terminates", 11 * SECOND, |sim| {
            sim.blocker("hog") == "Terminating"
        })
        .await;
        assert_eq!(
            sim.pressure.killed(),
            [],
            "the runtime has its grace period"
        );
        sim.pass(3 * SECOND).await;
        assert_eq!(sim.pressure.killed(), [hog]);
    });
}

#[test]
fn users_are_shown_signals_and_why_a_pod_was_evicted() {
    on_a_node(102, settings(HARD, &[], &[]), async |sim| {
        let hog = run(sim, requesting("hog", 0, 0)).await;
        let shown = |sim: &NodeSim| {
            let agent = sim.agent().expect("it runs");
            Arc::clone(&agent.eviction.borrow())
        };
        let signal = shown(sim).signals[0].clone();
        assert_eq!(signal.signal, Signal::MemoryAvailable);
        let threshold = &signal.thresholds[0];
        assert_eq!(threshold.state, ThresholdState::Ok);
        assert_eq!(threshold.distance, Some((9 * GIB - 100 * MIB) as i64));
        memory(sim, &hog, 9200);
        until_evicted(sim, "hog", 20 * SECOND).await;
        let status = shown(sim);
        let record = status.eviction(&hog).expect("a record");
        assert_eq!(
            record.explanation,
            "memory.available was 16Mi, 84Mi below the threshold of 100Mi; ranked because it uses \
             9200Mi of memory, without a request, at priority 0, first of 1 pods"
        );
    });
}

#[test]
fn condition_stays_for_the_transition_period() {
    on_a_node(103, settings(HARD, &[], &[]), async |sim| {
        let hog = run(sim, requesting("hog", 0, 0)).await;
        memory(sim, &hog, 9200);
        until_evicted(sim, "hog", 20 * SECOND).await;
        sim.pass(4 * MINUTE + 30 * SECOND).await;
        assert_eq!(pressures(sim), "MemoryPressure");
        sim.until("it ends", MINUTE, |sim| pressures(sim).is_empty())
            .await;
    });
}

#[test]
fn next_pod_is_evicted_after_the_first_has_ended() {
    on_a_node(104, settings(HARD, &[], &[]), async |sim| {
        stubborn(sim, "big");
        let big = run(sim, requesting("big", 0, 0)).await;
        let small = run(sim, requesting("small", 0, 0)).await;
        let rest = run(sim, requesting("rest", 0, 0)).await;
        sim.pressure
            .set(Signal::MemoryAvailable, 10 * GIB, 10 * GIB - 300 * MIB);
        for (uid, mebibytes) in [(&big, 2000), (&small, 1000), (&rest, 10)] {
            memory(sim, uid, mebibytes);
        }
        sim.until("the first terminates", 11 * SECOND, |sim| {
            sim.blocker("big") == "Terminating"
        })
        .await;
        while runs(sim, &big) {
            assert!(sim.blocker("small").is_empty(), "one at a time");
            sim.pass(Duration::from_millis(100)).await;
        }
        until_evicted(sim, "small", 5 * SECOND).await;
        sim.pass(MINUTE).await;
        assert!(runs(sim, &rest));
        assert_eq!(evictions(sim, Signal::MemoryAvailable), 2.0);
    });
}

#[test]
fn pod_that_does_not_die_delays_the_next_eviction_by_30_s() {
    on_a_node(105, settings(HARD, &[], &[]), async |sim| {
        let stuck = run(sim, requesting("stuck", 0, 0)).await;
        let other = run(sim, requesting("other", 0, 0)).await;
        for operation in [Operation::StopContainer, Operation::StopPodSandbox] {
            sim.runtime
                .inject(Fault::hang(operation).on("default/stuck"));
        }
        memory(sim, &stuck, 9000);
        memory(sim, &other, 500);
        sim.until("the first terminates", 11 * SECOND, |sim| {
            !sim.blocker("stuck").is_empty()
        })
        .await;
        sim.pass(30 * SECOND).await;
        assert!(runs(sim, &other));
        until_evicted(sim, "other", 10 * SECOND).await;
        // the first is not chosen again, and memory is still short
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &stuck));
        assert_eq!(evictions(sim, Signal::MemoryAvailable), 2.0);
        sim.runtime.clear_faults();
        sim.runtime.release(Operation::StopContainer);
        sim.runtime.release(Operation::StopPodSandbox);
        until_evicted(sim, "stuck", 2 * MINUTE).await;
        assert_eq!(events(sim, "Evicted").len(), 2);
    });
}

#[test]
fn critical_and_static_pods_are_never_evicted() {
    on_a_node(106, settings(HARD, &[], &[]), async |sim| {
        let vital = run(sim, requesting("vital", 0, 2_000_000_000)).await;
        sim.desire([static_pod("static").build()]).await;
        let fixed: PodUid = "static-uid".into();
        sim.until("it runs", 10 * SECOND, |sim| runs(sim, &fixed))
            .await;
        memory(sim, &vital, 5000);
        memory(sim, &fixed, 4200);
        sim.pass(5 * MINUTE).await;
        assert_eq!(pressures(sim), "MemoryPressure");
        assert!(runs(sim, &vital) && runs(sim, &fixed));
        assert_eq!(evictions(sim, Signal::MemoryAvailable), 0.0);
    });
}

#[test]
fn soft_threshold_evicts_after_its_grace_period() {
    let settings = EvictionSettings {
        max_pod_grace_period: 10 * SECOND,
        ..settings(HARD, &[("memory.available", "1Gi")], &[])
    };
    on_a_node(107, settings, async |sim| {
        stubborn(sim, "hog");
        let hog = run(sim, requesting("hog", 0, 0)).await;
        memory(sim, &hog, 8500);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "MemoryPressure"
        })
        .await;
        // resolved in time
        sim.pass(20 * SECOND).await;
        memory(sim, &hog, 100);
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &hog));
        memory(sim, &hog, 8500);
        sim.pass(29 * SECOND).await;
        assert!(sim.blocker("hog").is_empty());
        sim.until("it terminates", 12 * SECOND, |sim| {
            sim.blocker("hog") == "Terminating"
        })
        .await;
        // of its 20 s, the maximum of a soft eviction
        sim.pass(8 * SECOND).await;
        assert!(runs(sim, &hog));
        until_evicted(sim, "hog", 4 * SECOND).await;
    });
}

#[test]
fn minimum_reclaim_evicts_more_pods() {
    let reclaim: &[_] = &[("memory.available", "1Gi")];
    on_a_node(108, settings(HARD, &[], reclaim), async |sim| {
        let first = run(sim, requesting("first", 0, 0)).await;
        let second = run(sim, requesting("second", 0, 0)).await;
        let third = run(sim, requesting("third", 0, 0)).await;
        sim.pressure
            .set(Signal::MemoryAvailable, 10 * GIB, 10 * GIB - 1600 * MIB);
        for (uid, mebibytes) in [(&first, 700), (&second, 600), (&third, 250)] {
            memory(sim, uid, mebibytes);
        }
        until_evicted(sim, "first", 15 * SECOND).await;
        // 750 MiB are available: no longer below the threshold, but less than 1124 MiB
        until_evicted(sim, "second", 5 * SECOND).await;
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &third));
    });
}

#[test]
fn pods_are_admitted_by_pressure() {
    on_a_node(109, settings(HARD, &[], &[]), async |sim| {
        sim.pressure
            .set(Signal::MemoryAvailable, 10 * GIB, 10 * GIB - MIB);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "MemoryPressure"
        })
        .await;
        create(sim, requesting("best-effort", 0, 0));
        sim.until("it is rejected", 2 * SECOND, |sim| {
            phase(sim, "best-effort") == "Failed"
        })
        .await;
        let status = get(sim, "best-effort").and_then(|pod| pod.status);
        let status = status.expect("a status");
        assert_eq!(status.reason.as_deref(), Some("Evicted"));
        assert_eq!(
            status.message.as_deref(),
            Some("Pod was rejected: The node had condition: [MemoryPressure]. ")
        );
        run(sim, requesting("vital", 0, 2_000_000_000)).await;
        sim.pressure.set(Signal::MemoryAvailable, 10 * GIB, GIB);
        sim.pass(6 * MINUTE).await;
        assert_eq!(pressures(sim), "");
        run(sim, requesting("later", 0, 0)).await;
    });
}

#[test]
fn first_failing_admission_handler_gives_the_reason() {
    on_a_node(120, settings(HARD, &[], &[]), async |sim| {
        let reason = |sim: &NodeSim, name: &str| get(sim, name).and_then(|pod| pod.status?.reason);
        let unfit = |name: &str, sysctl: bool| {
            requesting(name, 0, 0).with(|pod| {
                let spec = pod.spec.get_or_insert_default();
                spec.node_selector = Some([("zone".to_owned(), "none".to_owned())].into());
                let sysctls = json!({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]});
                if sysctl {
                    spec.security_context = serde_json::from_value(sysctls).ok();
                }
            })
        };
        create(sim, unfit("selector", false));
        create(sim, unfit("sysctl", true));
        sim.until("they are rejected", 2 * SECOND, |sim| {
            phase(sim, "selector") == "Failed" && phase(sim, "sysctl") == "Failed"
        })
        .await;
        assert_eq!(reason(sim, "selector").as_deref(), Some("NodeAffinity"));
        assert_eq!(reason(sim, "sysctl").as_deref(), Some("SysctlForbidden"));
        sim.pressure
            .set(Signal::MemoryAvailable, 10 * GIB, 10 * GIB - MIB);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "MemoryPressure"
        })
        .await;
        create(sim, unfit("late", true));
        sim.until("it is rejected", 2 * SECOND, |sim| {
            reason(sim, "late").as_deref() == Some("Evicted")
        })
        .await;
    });
}

/// Names of the evicted pods, in order.
fn evicted(sim: &NodeSim) -> Vec<String> {
    let agent = sim.agent().expect("it runs");
    let status = agent.eviction.borrow();
    let names = status.evictions.iter().map(|record| record.name.clone());
    names.collect()
}

#[test]
fn pods_are_evicted_by_request_priority_and_usage() {
    on_a_node(121, settings(HARD, &[], &[]), async |sim| {
        let pods = [
            ("within", 3000, 0, 2900),
            ("small", 0, 0, 1000),
            ("important", 0, 100, 3000),
            ("large", 500, 0, 2000),
        ];
        for (name, request, priority, usage) in pods {
            let uid = run(sim, requesting(name, request, priority)).await;
            memory(sim, &uid, usage);
        }
        sim.pressure
            .set(Signal::MemoryAvailable, 10 * GIB, 10 * GIB - MIB);
        sim.until("all are evicted", MINUTE, |sim| evicted(sim).len() == 4)
            .await;
        assert_eq!(evicted(sim), ["large", "small", "important", "within"]);
    });
}

#[test]
fn memory_comes_before_processes() {
    let hard: &[_] = &[("pid.available", "10%"), ("memory.available", "100Mi")];
    on_a_node(122, settings(hard, &[], &[]), async |sim| {
        let forker = run(sim, requesting("forker", 0, 0)).await;
        let hog = run(sim, requesting("hog", 0, 0)).await;
        memory(sim, &hog, 9200);
        sim.pressure.pod_uses(Signal::PidAvailable, &forker, 32_000);
        sim.until("both are evicted", MINUTE, |sim| evicted(sim).len() == 2)
            .await;
        assert_eq!(evicted(sim), ["hog", "forker"]);
        assert_eq!(evictions(sim, Signal::PidAvailable), 1.0);
    });
}

#[test]
fn page_cache_evicts_only_with_the_rule_of_upstream() {
    let check = |rule: MemoryRule, facts: MemoryFacts, evicts: bool| {
        let settings = EvictionSettings {
            memory_rule: rule,
            ..settings(HARD, &[], &[])
        };
        on_a_node(110, settings, async |sim| {
            let reader = run(sim, requesting("reader", 0, 0)).await;
            sim.pressure.set_memory_facts(facts);
            memory(sim, &reader, 9200);
            sim.pass(2 * MINUTE).await;
            assert_eq!(is_evicted(sim, "reader"), evicts, "{rule} {facts:?}");
            let expected = if evicts { "MemoryPressure" } else { "" };
            assert_eq!(pressures(sim), expected, "{rule} {facts:?}");
        });
    };
    let cache = MemoryFacts {
        active_file: 8 * GIB,
        mem_available: Some(7 * GIB),
        stall: Some(Stall::default()),
    };
    check(MemoryRule::ReclaimableAware, cache, false);
    check(MemoryRule::Upstream, cache, true);
    let hog = MemoryFacts {
        active_file: 10 * MIB,
        mem_available: Some(30 * MIB),
        stall: None,
    };
    check(MemoryRule::ReclaimableAware, hog, true);
    let thrashing = Stall {
        some_avg10: 80.0,
        full_avg10: 60.0,
    };
    let stalled = MemoryFacts {
        stall: Some(thrashing),
        ..cache
    };
    check(MemoryRule::ReclaimableAware, stalled, true);
}

#[test]
fn kernel_notification_is_faster_than_the_timer() {
    let time_to_terminate = |notifies: bool| {
        let mut taken = Duration::ZERO;
        on_a_node(111, settings(HARD, &[], &[]), async |sim| {
            sim.kill_agent().await;
            sim.pressure.set(Signal::MemoryAvailable, 100 * GIB, GIB);
            if notifies {
                sim.pressure.enable_notifications();
            }
            sim.start_agent().await;
            stubborn(sim, "hog");
            let hog = run(sim, requesting("hog", 0, 0)).await;
            sim.pass(MINUTE).await;
            // the timer has just fired
            let reads = sim.pressure.reads();
            sim.until("a pass", 11 * SECOND, |sim| sim.pressure.reads() > reads)
                .await;
            memory(sim, &hog, (99 << 10) - 10);
            let began = sim.now();
            if notifies {
                let armed = sim.pressure.armed().node.expect("a threshold");
                assert_eq!(armed, 100 * GIB - 100 * MIB);
                sim.pressure.notify();
            }
            sim.until("it terminates", 11 * SECOND, |sim| {
                sim.blocker("hog") == "Terminating"
            })
            .await;
            taken = Duration::try_from(sim.now().duration_since(began)).expect("later");
        });
        taken
    };
    let (notified, timer) = (time_to_terminate(true), time_to_terminate(false));
    assert!(notified < Duration::from_millis(500), "{notified:?}");
    assert!(timer > 9 * SECOND, "{timer:?}");
}

#[test]
fn fork_bomb_is_evicted_for_processes() {
    let hard: &[_] = &[("pid.available", "10%")];
    on_a_node(112, settings(hard, &[], &[]), async |sim| {
        let bomb = run(sim, requesting("bomb", 0, 0)).await;
        let quiet = run(sim, requesting("quiet", 0, 0)).await;
        sim.pressure.pod_uses(Signal::PidAvailable, &bomb, 31_000);
        sim.pressure.pod_uses(Signal::PidAvailable, &quiet, 3);
        until_evicted(sim, "bomb", 15 * SECOND).await;
        assert_eq!(pressures(sim), "PIDPressure");
        let status = get(sim, "bomb").and_then(|pod| pod.status);
        let message = status.and_then(|status| status.message);
        assert_eq!(
            message.as_deref(),
            Some("The node was low on resource: pids. Threshold quantity: 3276, available: 1465. ")
        );
        assert!(runs(sim, &quiet));
    });
}

#[test]
fn pod_that_allocates_1_gb_a_second_is_found_in_time() {
    on_a_node(121, settings(HARD, &[], &[]), async |sim| {
        stubborn(sim, "hog");
        let hog = run(sim, requesting("hog", 1024, 0)).await;
        let mut used = 0;
        while sim.blocker("hog") != "Terminating" {
            used += 10;
            assert!(used < 9 << 10, "the memory is used up");
            memory(sim, &hog, used);
            sim.pass(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn idle_node_is_read_every_10_s_and_never_without_thresholds() {
    on_a_node(113, settings(HARD, &[], &[]), async |sim| {
        sim.pressure.set(Signal::MemoryAvailable, 100 * GIB, GIB);
        sim.pass(MINUTE).await;
        let reads = sim.pressure.reads();
        sim.pass(60 * MINUTE).await;
        assert_eq!(sim.pressure.reads() - reads, 360);
    });
    on_a_node(114, EvictionSettings::default(), async |sim| {
        sim.pressure.set(Signal::MemoryAvailable, GIB, GIB);
        sim.pass(60 * MINUTE).await;
        assert_eq!((sim.pressure.reads(), pressures(sim)), (0, String::new()));
    });
}
