//! Order of init containers and sidecars, also in a new sandbox.

use windlass_testing::fake_runtime::{Behavior, Exec, Operation};
use windlass_testing::simulate;

use crate::fixture::{every_second, gaps, order, pod, prepare, sidecar, starts};
use crate::{IMAGE, MINUTE, SECOND};

#[test]
fn sidecars_start_in_order_and_stop_last_in_reverse() {
    simulate(1, async |sim| {
        prepare(sim);
        sim.runtime.set_behavior("i", Behavior::exits(SECOND, 0));
        let web = pod("web")
            .init_container_with("s1", IMAGE, sidecar)
            .init_container("i", IMAGE)
            .init_container_with("s2", IMAGE, sidecar)
            .container("a", IMAGE)
            .container("b", IMAGE)
            .build();
        sim.desire([web]).await;
        sim.until("web runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        let started = order(sim, Operation::StartContainer, "web");
        assert_eq!(started, ["s1#0", "i#0", "s2#0", "a#0", "b#0"]);
        sim.desire([]).await;
        sim.until("web is gone", 20 * SECOND, |sim| sim.view("web").is_none())
            .await;
        let stopped = order(sim, Operation::StopContainer, "web");
        assert_eq!(stopped, ["a#0", "b#0", "s2#0", "s1#0"]);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn startup_probe_of_sidecar_delays_next_container() {
    simulate(2, async |sim| {
        prepare(sim);
        sim.runtime.set_exec("default/web/s check", Exec::exits(1));
        let web = pod("web")
            .init_container_with("s", IMAGE, |c| {
                sidecar(c);
                c.startup_probe = Some(every_second(1000));
            })
            .container("a", IMAGE)
            .build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.until("the sidecar runs", 5 * SECOND, |sim| {
            sim.runtime.running(&uid, "s").is_some()
        })
        .await;
        sim.pass(MINUTE).await;
        assert_eq!(starts(sim, &uid, ["s", "a"]), [1, 0]);
        assert_eq!(sim.phase("web"), "Pending");
        sim.runtime.set_exec("default/web/s check", Exec::exits(0));
        sim.until("web runs", 3 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        assert_eq!(starts(sim, &uid, ["s", "a"]), [1, 1]);
    });
}

#[test]
fn sidecar_startup_failure_restarts_with_back_off() {
    simulate(3, async |sim| {
        prepare(sim);
        sim.runtime.set_exec("default/web/s check", Exec::exits(1));
        let web = pod("web")
            .restart_policy("Never")
            .init_container_with("s", IMAGE, |c| {
                sidecar(c);
                c.startup_probe = Some(every_second(3));
            })
            .container("a", IMAGE)
            .build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.until("restarts", 10 * MINUTE, |sim| {
            sim.runtime.starts(&uid, "s") >= 6
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "a"), 0);
        assert_eq!(sim.phase("web"), "Pending");
        let gaps = gaps(sim, "web", "s");
        assert!(gaps[4] > 30, "the back-off grows: {gaps:?}");
        sim.runtime.assert_invariants();
    });
}

#[test]
fn init_containers_follow_restart_policy() {
    // policy, exit codes of i and a; phase, starts of i and a
    type Case = (
        &'static str,
        &'static [i32],
        &'static [i32],
        &'static str,
        [u32; 2],
    );
    let cases: [Case; 7] = [
        ("Always", &[1, 0], &[], "Running", [2, 1]),
        ("OnFailure", &[1, 1, 0], &[0], "Succeeded", [3, 1]),
        ("OnFailure", &[0], &[3, 0], "Succeeded", [1, 2]),
        ("Never", &[0], &[0], "Succeeded", [1, 1]),
        ("Never", &[0], &[3], "Failed", [1, 1]),
        ("Never", &[1], &[0], "Failed", [1, 0]),
        ("Never", &[0], &[], "Running", [1, 1]),
    ];
    for (policy, init, app, phase, expected) in cases {
        simulate(4, async |sim| {
            prepare(sim);
            let script = |codes: &[i32]| match codes {
                [] => vec![Behavior::default()],
                codes => codes.iter().map(|c| Behavior::exits(SECOND, *c)).collect(),
            };
            sim.runtime.script("i", script(init));
            sim.runtime.script("a", script(app));
            let web = pod("web")
                .restart_policy(policy)
                .init_container("i", IMAGE)
                .container("a", IMAGE)
                .build();
            sim.desire([web]).await;
            let what = format!("{policy} {init:?} {app:?}: {phase}");
            sim.until(&what, 2 * MINUTE, |sim| sim.phase("web") == phase)
                .await;
            sim.pass(MINUTE).await;
            assert_eq!(sim.phase("web"), phase, "{what}");
            let uid = "web-uid".into();
            assert_eq!(starts(sim, &uid, ["i", "a"]), expected, "{what}");
        });
    }
}

#[test]
fn dead_sandbox_is_replaced_per_restart_policy() {
    for (policy, phase, expected) in [
        ("Always", "Running", [2, 2, 2]),
        ("OnFailure", "Running", [2, 2, 2]),
        ("Never", "Failed", [1, 1, 1]),
    ] {
        simulate(5, async |sim| {
            prepare(sim);
            sim.runtime.set_behavior("i", Behavior::exits(SECOND, 0));
            let web = pod("web")
                .restart_policy(policy)
                .init_container_with("s", IMAGE, sidecar)
                .init_container("i", IMAGE)
                .container("a", IMAGE)
                .build();
            sim.desire([web]).await;
            sim.until("web runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
                .await;
            let (sandbox, ..) = sim.runtime.sandboxes().remove(0);
            sim.runtime.kill_sandbox(&sandbox);
            sim.pass(MINUTE).await;
            assert_eq!(sim.phase("web"), phase, "{policy}");
            let uid = "web-uid".into();
            assert_eq!(starts(sim, &uid, ["s", "i", "a"]), expected, "{policy}");
            sim.runtime.assert_no_duplicate_live_instances();
        });
    }
}
