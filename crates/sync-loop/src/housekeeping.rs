//! The periodic clean-up, off the loop: take the snapshots, let the plan be carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;
use windlass_actors::WorkerPhase;
use windlass_core::housekeeping::{HousekeepingInput, HousekeepingPlan, plan};
use windlass_metrics::Metrics;
use windlass_runtime::PodRuntime;
use windlass_types::PodUid;

use crate::actor::SyncLoopDeps;

/// A clean-up that takes longer than this is worth a warning.
const SLOW: Duration = Duration::from_secs(15);

/// What a clean-up looks at.
#[derive(Clone, Debug)]
pub struct Snapshots {
    /// Desired pods.
    pub desired: BTreeSet<PodUid>,
    /// Every source has delivered.
    pub sources_ready: bool,
    /// Garbage of the runtime is collected this time.
    pub collect_garbage: bool,
}

/// Decides; the loop tells the workers, [`finish`] does the rest.
///
/// The runtime's side is read first: a pod that starts meanwhile then has a worker and is no
/// orphan.
pub async fn decide(snapshots: &Snapshots, deps: &SyncLoopDeps) -> HousekeepingPlan {
    if !snapshots.sources_ready {
        return HousekeepingPlan::default();
    }
    let observed = deps.cache.all();
    let Ok(phases) = deps.workers.phases().await else {
        return HousekeepingPlan::default();
    };
    publish_working_pods(&phases, &snapshots.desired, &deps.metrics);
    let directories = if snapshots.collect_garbage {
        deps.runtime.list_pod_dirs().await.unwrap_or_else(|error| {
            tracing::warn!(%error, "listing pod directories failed");
            BTreeSet::new()
        })
    } else {
        BTreeSet::new()
    };
    plan(&HousekeepingInput {
        sources_ready: true,
        running: observed
            .iter()
            .filter(|pod| pod.is_alive())
            .map(|p| p.uid.clone())
            .collect(),
        in_runtime: observed.iter().map(|pod| pod.uid.clone()).collect(),
        workers: phases.into_keys().collect(),
        desired: snapshots.desired.clone(),
        directories,
    })
}

/// `kubelet_working_pods`: workers by phase and by whether their pod is still desired.
fn publish_working_pods(
    phases: &BTreeMap<PodUid, WorkerPhase>,
    desired: &BTreeSet<PodUid>,
    metrics: &Metrics,
) {
    let lifecycles = [
        (WorkerPhase::Syncing, "sync"),
        (WorkerPhase::Terminating, "terminating"),
        (WorkerPhase::Terminated, "terminated"),
    ];
    for (phase, lifecycle) in lifecycles {
        for (is_desired, config) in [(true, "desired"), (false, "orphan")] {
            let counts = |(uid, of): &(&PodUid, &WorkerPhase)| {
                **of == phase && desired.contains(*uid) == is_desired
            };
            let count = phases.iter().filter(counts).count();
            // every pod is static as long as there is no API server
            let labels = [lifecycle, config, "true"];
            metrics
                .working_pods
                .with_label_values(&labels)
                .set(count as f64);
        }
    }
}

/// Removes what the plan leaves to be removed, and collects the runtime's garbage.
pub async fn finish(
    snapshots: &Snapshots,
    plan: &HousekeepingPlan,
    known: &BTreeSet<PodUid>,
    runtime: &PodRuntime,
) {
    let begin = Instant::now();
    for uid in &plan.directories_to_remove {
        match runtime.cleanup_pod(uid).await {
            Ok(()) => tracing::info!(pod = %uid, "orphaned pod directory removed"),
            Err(error) => tracing::warn!(pod = %uid, %error, "orphaned pod directory not removed"),
        }
    }
    if snapshots.collect_garbage {
        let report = runtime
            .collect_garbage(known, snapshots.sources_ready)
            .await;
        tracing::debug!(%report, "garbage collected");
    }
    let took = begin.elapsed();
    if took > SLOW {
        tracing::warn!(seconds = took.as_secs(), "housekeeping is slow");
    }
}
