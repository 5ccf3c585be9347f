//! Volumes and directories of pods.

use windlass_testing::NodeSim;
use windlass_types::PodUid;
use windlass_types::mutation::Mutation;
use windlass_volumes::VolumeStep;

use crate::history::*;
use crate::invariant::Invariant;
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::HungMountBlocksAll,
        invariant: Invariant::PodsAreIndependent,
        run: hung_mount,
    },
    Scenario {
        mutation: Mutation::OrphanedVolumesStay,
        invariant: Invariant::NothingIsLeft,
        run: removed_without_agent,
    },
    Scenario {
        mutation: Mutation::VolumesUnmountedEarly,
        invariant: Invariant::VolumesWhileRunning,
        run: slow_stop,
    },
];

fn hung_mount() -> Outcome {
    on_a_node(async |history| {
        history
            .sim
            .volumes
            .hang(VolumeStep::Mount, "hung-uid/data", true);
        let with_volume = |name: &str| static_pod(name).empty_dir("data").build();
        history
            .sim
            .desire([with_volume("hung"), with_volume("next")])
            .await;
        let next: PodUid = "next-uid".into();
        let running = |sim: &NodeSim| runs(sim, &next);
        let what = "the other pod runs";
        history
            .within(Invariant::PodsAreIndependent, what, PROMPTLY, running)
            .await
    })
}

/// A pod ends and is deleted by force while the agent is down.
fn removed_without_agent() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web").empty_dir("data")).await?;
        history.sim.kill_agent().await;
        let app = history.sim.runtime.running(&uid, "app").expect("it runs");
        history.sim.runtime.lose_container(&app.id);
        history.sim.runtime.lose_sandbox(&app.sandbox);
        delete(history.sim, "web", Some(0));
        history.sim.start_agent().await;
        let empty = |sim: &NodeSim| left_of(sim, &uid).is_empty();
        let what = "its directory is removed";
        history
            .within(Invariant::NothingIsLeft, what, 3 * MINUTE, empty)
            .await
    })
}

fn slow_stop() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("web");
        let uid = history.run(pod("web").grace(10).empty_dir("data")).await?;
        delete(history.sim, "web", None);
        history.pass(5 * SECOND).await?;
        history.restart_agent(SECOND).await?;
        history.until_gone(&uid, "web", MINUTE).await
    })
}
