//! Static pods: edits of manifests, and mirror pods.

use windlass_fake_api::On;
use windlass_testing::NodeSim;
use windlass_types::mutation::Mutation;

use crate::history::*;
use crate::invariant::Invariant;
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::StaticPodsOverlap,
        invariant: Invariant::OneInstance,
        run: edit,
    },
    Scenario {
        mutation: Mutation::StaticPodIgnoresOrphan,
        invariant: Invariant::OneInstance,
        run: edit_without_agent,
    },
    Scenario {
        mutation: Mutation::StaticPodNotRestarted,
        invariant: Invariant::DesiredPodRuns,
        run: removed_and_added,
    },
    Scenario {
        mutation: Mutation::MirrorAlwaysReplaced,
        invariant: Invariant::MirrorFollows,
        run: unchanged_manifest,
    },
    Scenario {
        mutation: Mutation::MirrorStaysTerminating,
        invariant: Invariant::MirrorFollows,
        run: deleted_mirror,
    },
];

fn edit() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("etcd");
        history.desire(vec![static_pod("etcd").build()]).await?;
        history
            .desire(vec![static_pod("etcd").uid("edited-uid").build()])
            .await
    })
}

fn edit_without_agent() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("etcd");
        history.desire(vec![static_pod("etcd").build()]).await?;
        history.sim.kill_agent().await;
        let edited = static_pod("etcd").uid("edited-uid").build();
        history.sim.desire([edited.clone()]).await;
        history.sim.start_agent().await;
        history.desire(vec![edited]).await
    })
}

/// A manifest is moved away and back before the pod has ended.
fn removed_and_added() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("etcd");
        let etcd = || static_pod("etcd").build();
        history.desire(vec![etcd()]).await?;
        history.sim.desire([]).await;
        history.pass(SECOND).await?;
        history.sim.desire([etcd()]).await;
        history.pass(10 * SECOND).await?;
        history.desire(vec![etcd()]).await
    })
}

fn mirror_uid(sim: &NodeSim) -> Option<String> {
    get(sim, "etcd").and_then(|pod| pod.metadata.uid)
}

async fn until_mirrored(history: &mut History<'_>) -> Outcome {
    let ready = |sim: &NodeSim| is_ready(sim, "etcd");
    let what = "the mirror pod is ready";
    history
        .within(Invariant::MirrorFollows, what, PROMPTLY, ready)
        .await
}

fn unchanged_manifest() -> Outcome {
    on_a_node(async |history| {
        let pods = On::path("/api/v1/namespaces/default/pods").method("POST");
        history.sim.api.faults().slow(pods, SECOND / 10);
        history.desire(vec![static_pod("etcd").build()]).await?;
        until_mirrored(history).await?;
        let before = mirror_uid(history.sim);
        history.pass(5 * MINUTE).await?;
        let same = mirror_uid(history.sim) == before;
        demand(
            same,
            Invariant::MirrorFollows,
            "the mirror pod was replaced",
        )
    })
}

fn deleted_mirror() -> Outcome {
    on_a_node(async |history| {
        history.desire(vec![static_pod("etcd").build()]).await?;
        until_mirrored(history).await?;
        let uid = "etcd-uid".into();
        history.must_stay(&uid, "app")?;
        let before = mirror_uid(history.sim);
        delete(history.sim, "etcd", Some(30));
        let replaced = |sim: &NodeSim| mirror_uid(sim) != before && is_ready(sim, "etcd");
        let what = "another mirror pod is ready";
        history
            .within(Invariant::MirrorFollows, what, PROMPTLY, replaced)
            .await
    })
}
