//! Disks run short.

use windlass_eviction::NodeReclaim;

use super::*;
use crate::MINUTE;

const HARD: &[(&str, &str)] = &[("nodefs.available", "10%"), ("memory.available", "100Mi")];

fn disk(sim: &NodeSim, uid: &PodUid, gibibytes: u64) {
    sim.pressure
        .pod_uses(Signal::NodeFsAvailable, uid, gibibytes * GIB);
}

#[test]
fn unused_images_are_removed_before_a_pod_is_evicted() {
    on_a_node(121, settings(HARD, &[], &[]), async |sim| {
        let writer = run(sim, requesting("writer", 0, 0)).await;
        sim.pressure
            .set(Signal::NodeFsAvailable, 100 * GIB, 80 * GIB);
        sim.pressure
            .set_reclaimable(NodeReclaim::UnusedImages, 20 * GIB);
        disk(sim, &writer, 12);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "DiskPressure"
        })
        .await;
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &writer));
        assert_eq!(
            sim.pressure.reclaims(),
            ["dead containers", "unused images"]
        );
        let [met] = &events(sim, "EvictionThresholdMet")[..] else {
            panic!("one event")
        };
        let message = "Attempting to reclaim ephemeral-storage";
        assert_eq!(met.message.as_deref(), Some(message));
        sim.pass(5 * MINUTE).await;
        assert_eq!(pressures(sim), "");
    });
}

#[test]
fn largest_writer_is_evicted_if_reclaim_is_not_enough() {
    for fails in [false, true] {
        on_a_node(122, settings(HARD, &[], &[]), async |sim| {
            let writer = run(sim, requesting("writer", 0, 0)).await;
            let modest = run(sim, requesting("modest", 0, 0)).await;
            sim.pressure
                .set(Signal::NodeFsAvailable, 100 * GIB, 50 * GIB);
            let step = NodeReclaim::DeadContainers;
            sim.pressure.set_reclaimable(step, GIB);
            sim.pressure.fail_reclaims(fails);
            disk(sim, &modest, 5);
            disk(sim, &writer, 40);
            until_evicted(sim, "writer", 15 * SECOND).await;
            sim.pass(2 * MINUTE).await;
            assert!(runs(sim, &modest), "fails: {fails}");
            assert_eq!(evictions(sim, Signal::NodeFsAvailable), 1.0);
            let status = get(sim, "writer").and_then(|pod| pod.status);
            let message = status.and_then(|status| status.message).unwrap_or_default();
            // upstream's arithmetic of 10% in single precision
            let expected = "The node was low on resource: ephemeral-storage. Threshold quantity: \
                            10737418400, available: ";
            assert!(message.starts_with(expected), "{message}");
        });
    }
}

#[test]
fn hung_reclaim_delays_the_eviction_by_its_timeout() {
    on_a_node(123, settings(HARD, &[], &[]), async |sim| {
        let writer = run(sim, requesting("writer", 0, 0)).await;
        sim.pressure.set_reclaim_time(60 * MINUTE);
        disk(sim, &writer, 85);
        sim.pass(MINUTE).await;
        assert_eq!(pressures(sim), "DiskPressure");
        // a minute for dead containers and one for images
        until_evicted(sim, "writer", 80 * SECOND).await;
    });
}

#[test]
fn hung_disk_evicts_nothing_and_delays_no_other_signal() {
    on_a_node(124, settings(HARD, &[], &[]), async |sim| {
        let writer = run(sim, requesting("writer", 0, 0)).await;
        let other = run(sim, requesting("other", 0, 0)).await;
        // below the threshold once, and then no reading
        disk(sim, &writer, 85);
        until_evicted(sim, "writer", 15 * SECOND).await;
        sim.pressure.hang(Signal::NodeFsAvailable, true);
        disk(sim, &other, 85);
        sim.pass(2 * MINUTE).await;
        assert!(runs(sim, &other), "no reading says that the disk is short");
        sim.pressure
            .pod_uses(Signal::MemoryAvailable, &other, 9200 * MIB);
        until_evicted(sim, "other", 15 * SECOND).await;
        assert_eq!(evictions(sim, Signal::NodeFsAvailable), 1.0);
    });
}

#[test]
fn old_reading_below_the_threshold_evicts_nothing_more() {
    on_a_node(125, settings(HARD, &[], &[]), async |sim| {
        let first = run(sim, requesting("first", 0, 0)).await;
        let second = run(sim, requesting("second", 0, 0)).await;
        sim.pressure
            .set(Signal::NodeFsAvailable, 100 * GIB, 90 * GIB);
        disk(sim, &second, 1);
        disk(sim, &first, 5);
        sim.until("the first terminates", 11 * SECOND, |sim| {
            sim.blocker("first") == "Terminating" || is_evicted(sim, "first")
        })
        .await;
        // the disk hangs: its last reading is below the threshold
        sim.pressure.hang(Signal::NodeFsAvailable, true);
        sim.pass(5 * MINUTE).await;
        assert!(is_evicted(sim, "first") && runs(sim, &second));
        assert_eq!(pressures(sim), "DiskPressure");
    });
}

#[test]
fn filling_disk_is_found_in_time() {
    on_a_node(126, settings(HARD, &[], &[]), async |sim| {
        let writer = run(sim, requesting("writer", 0, 0)).await;
        // 1 GiB a second, from 80 GiB that are free
        for written in 0..90 {
            disk(sim, &writer, written);
            sim.pass(SECOND).await;
            if sim.blocker("writer") == "Terminating" || is_evicted(sim, "writer") {
                assert!((80..=83).contains(&written), "{written}");
                return;
            }
        }
        panic!("the disk is full");
    });
}

#[test]
fn disk_pressure_rejects_all_but_critical_pods() {
    on_a_node(127, settings(HARD, &[], &[]), async |sim| {
        sim.pressure
            .set(Signal::NodeFsAvailable, 100 * GIB, 95 * GIB);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "DiskPressure"
        })
        .await;
        create(sim, requesting("burstable", 10, 0));
        sim.until("it is rejected", 2 * SECOND, |sim| {
            is_evicted(sim, "burstable")
        })
        .await;
        run(sim, requesting("vital", 0, 2_000_000_000)).await;
    });
}

#[test]
fn disk_that_cannot_be_freed_is_reclaimed_every_10_s() {
    on_a_node(128, settings(HARD, &[], &[]), async |sim| {
        let vital = run(sim, requesting("vital", 0, 2_000_000_000)).await;
        disk(sim, &vital, 85);
        sim.until("the condition", 11 * SECOND, |sim| {
            pressures(sim) == "DiskPressure"
        })
        .await;
        let before = sim.pressure.reclaims().len();
        sim.pass(10 * MINUTE).await;
        let reclaims = sim.pressure.reclaims().len() - before;
        // of both kinds
        assert!((110..=122).contains(&reclaims), "{reclaims}");
        assert!(runs(sim, &vital));
    });
}
