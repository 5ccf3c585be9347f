//! Stops of pods: order and grace periods.

use serde_json::json;
use windlass_testing::NodeSim;
use windlass_testing::fake_runtime::{Behavior, Exec};
use windlass_types::mutation::Mutation;

use crate::history::*;
use crate::invariant::Invariant;
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::SidecarsStopFirst,
        invariant: Invariant::ContainersInOrder,
        run: deleted_with_sidecar,
    },
    Scenario {
        mutation: Mutation::GraceAfterHook,
        invariant: Invariant::GracePeriodHolds,
        run: hung_hook,
    },
    Scenario {
        mutation: Mutation::ShorterGraceIgnored,
        invariant: Invariant::GracePeriodHolds,
        run: second_deletion,
    },
];

fn deleted_with_sidecar() -> Outcome {
    on_a_node(async |history| {
        let slow = Behavior {
            stops_after: 3 * SECOND,
            ..Behavior::default()
        };
        history.sim.runtime.set_behavior("default/web/app", slow);
        let web = pod("web")
            .grace(30)
            .init_container_with("proxy", "busybox:1", |container| {
                container.restart_policy = Some("Always".to_owned());
            });
        let uid = history.run(web).await?;
        delete(history.sim, "web", None);
        for _ in 0..100 {
            history.pass(SECOND / 10).await?;
            let proxy = history.sim.runtime.running(&uid, "proxy");
            let in_order = proxy.is_some() || !runs(history.sim, &uid);
            demand(
                in_order,
                Invariant::ContainersInOrder,
                "proxy stopped before app",
            )?;
        }
        history.until_gone(&uid, "web", MINUTE).await
    })
}

/// A preStop hook hangs, and its container ignores SIGTERM.
fn hung_hook() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("web");
        history.sim.runtime.set_exec("app", Exec::hangs());
        let web = pod("web").grace(20).with(|pod| {
            let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
            let hook = json!({ "preStop": { "exec": { "command": ["drain"] } } });
            container.lifecycle = serde_json::from_value(hook).expect("a hook");
        });
        let uid = history.run(web).await?;
        delete(history.sim, "web", None);
        // the stop timeout is at least two seconds
        let limit = 24 * SECOND;
        let ended = |sim: &NodeSim| !runs(sim, &uid);
        history
            .within(Invariant::GracePeriodHolds, "app has ended", limit, ended)
            .await
    })
}

/// A user deletes a terminating pod again, with a shorter grace period.
fn second_deletion() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("web");
        let uid = history.run(pod("web").grace(600)).await?;
        delete(history.sim, "web", None);
        history.pass(5 * SECOND).await?;
        demand(
            runs(history.sim, &uid),
            Invariant::GracePeriodHolds,
            "killed at once",
        )?;
        delete(history.sim, "web", Some(2));
        let ended = |sim: &NodeSim| !runs(sim, &uid);
        history
            .within(
                Invariant::GracePeriodHolds,
                "app has ended",
                6 * SECOND,
                ended,
            )
            .await
    })
}
