//! The periodic clean-up, off the loop: take the snapshots, let the plan be carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;
use windlass_actors::{Releaser, PodWorkerState, PodWorkerStatus};
use windlass_pod_lifecycle::housekeeping::{HousekeepingInput, HousekeepingPlan, Scope, plan};
use windlass_cri::CriResult;
use windlass_metrics::Metrics;
use windlass_runtime::{FilesError, KnownPods, PodRuntime};
use windlass_types::cri::ListFilter;
use windlass_types::{PodFullName, PodUid};

use crate::actor::SyncLoopDeps;

/// How long what one pod left is waited for, and how many pods' at a time: a volume that hangs
/// keeps neither what others left nor the next clean-up.
const PATIENCE: Duration = Duration::from_secs(10);
const PARALLEL: usize = 8;

/// A clean-up that takes longer than this is worth a warning.
const SLOW: Duration = Duration::from_secs(15);

/// What a clean-up looks at.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    /// Desired pods.
    pub desired: BTreeSet<PodUid>,
    /// Those of them that do not come from the API server.
    pub static_pods: BTreeSet<PodUid>,
    /// Those of them whose content may go once their workers are through.
    pub ended: BTreeSet<PodUid>,
    /// Every source has delivered.
    pub sources_ready: bool,
    /// Every source of static pods has delivered.
    pub statics_ready: bool,
    /// Names of the desired static pods.
    pub statics: BTreeSet<PodFullName>,
    /// How thorough this clean-up is.
    pub scope: Scope,
}

impl Snapshots {
    /// Pods that have ended, by their worker and by the API server.
    fn finished(&self, workers: &BTreeMap<PodUid, PodWorkerStatus>) -> BTreeSet<PodUid> {
        let through = |uid: &&PodUid| {
            let standing = workers.get(*uid);
            standing.is_none_or(|standing| standing.state == PodWorkerState::TerminatedPod)
        };
        self.ended.iter().filter(through).cloned().collect()
    }
}

/// Decides; the loop tells the workers, [`finish`] does the rest.
///
/// The disk is read first, then the runtime's side, then the workers: a pod that starts
/// meanwhile has a worker before it has anything else, and is no orphan.
pub(crate) async fn decide(snapshots: &Snapshots, deps: &SyncLoopDeps) -> HousekeepingPlan {
    if !snapshots.sources_ready && !snapshots.statics_ready {
        return HousekeepingPlan::default();
    }
    let (mut directories, mut cgroups) = (BTreeSet::new(), BTreeSet::new());
    if snapshots.scope.looks_at_disk() && snapshots.sources_ready {
        directories = listed("pod directories", deps.runtime.list_pod_dirs().await);
        cgroups = listed("pod cgroups", deps.runtime.list_cgroups().await);
        // a pod that cannot be read is not among the observed ones, and may run all the same
        let alive = pods_of_runtime(deps).await;
        for left in [&mut directories, &mut cgroups] {
            left.retain(|uid| alive.as_ref().is_some_and(|alive| !alive.contains(uid)));
        }
    }
    let observed = deps.cache.all();
    let Ok(workers) = deps.workers.statuses().await else {
        return HousekeepingPlan::default();
    };
    publish_working_pods(&workers, snapshots, &deps.metrics);
    let predecessors = observed.iter().filter(|pod| {
        let name = PodFullName {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
        };
        snapshots.statics.contains(&name) && !snapshots.desired.contains(&pod.uid)
    });
    plan(&HousekeepingInput {
        sources_ready: snapshots.sources_ready,
        statics_ready: snapshots.statics_ready,
        predecessors: predecessors.map(|pod| pod.uid.clone()).collect(),
        running: observed
            .iter()
            .filter(|pod| pod.is_alive())
            .map(|p| p.uid.clone())
            .collect(),
        in_runtime: observed.iter().map(|pod| pod.uid.clone()).collect(),
        finished: snapshots.finished(&workers),
        workers: workers.into_keys().collect(),
        desired: snapshots.desired.clone(),
        directories,
        cgroups,
    })
}

/// Pods of which the runtime lists anything; `None` if it does not answer.
async fn pods_of_runtime(deps: &SyncLoopDeps) -> Option<BTreeSet<PodUid>> {
    let all = ListFilter::default();
    let lists = async {
        let containers = deps.cri.list_containers(&all).await?;
        let sandboxes = deps.cri.list_pod_sandboxes(&all).await?;
        let owners = containers.into_iter().map(|c| c.uid);
        CriResult::Ok(owners.chain(sandboxes.into_iter().map(|s| s.uid)).collect())
    };
    match tokio::time::timeout(PATIENCE, lists).await {
        Ok(Ok(pods)) => Some(pods),
        Ok(Err(error)) => {
            tracing::warn!(%error, "the runtime is not listed: nothing is removed from the disk");
            None
        }
        Err(_) => {
            tracing::warn!("the runtime does not answer: nothing is removed from the disk");
            None
        }
    }
}

fn listed(what: &str, pods: Result<BTreeSet<PodUid>, FilesError>) -> BTreeSet<PodUid> {
    pods.unwrap_or_else(|error| {
        tracing::warn!(what, %error, "not listed");
        BTreeSet::new()
    })
}

/// Brings `kubelet_working_pods` and `kubelet_active_pods` up to date.
fn publish_working_pods(
    workers: &BTreeMap<PodUid, PodWorkerStatus>,
    snapshots: &Snapshots,
    metrics: &Metrics,
) {
    let mut counts = BTreeMap::new();
    let mut active = [("true", 0), ("", 0)];
    for (uid, standing) in workers {
        let desired = snapshots.desired.contains(uid);
        let is_static = if desired {
            Some(snapshots.static_pods.contains(uid))
        } else {
            standing.is_static
        };
        let config = match is_static {
            Some(_) if desired => "desired",
            Some(_) => "orphan",
            None => "runtime_only",
        };
        let labels = (standing.state, config, label(is_static));
        *counts.entry(labels).or_insert(0) += 1;
        if desired && standing.state != PodWorkerState::TerminatedPod {
            active[usize::from(is_static != Some(true))].1 += 1;
        }
    }
    for (label, count) in active {
        let gauge = metrics.active_pods.with_label_values(&[label]);
        gauge.set(f64::from(count));
    }
    // a combination that nobody has any more is 0, not absent
    let kinds = [
        ("desired", Some(true)),
        ("desired", Some(false)),
        ("orphan", Some(true)),
        ("orphan", Some(false)),
        ("runtime_only", None),
    ];
    for (phase, lifecycle) in [
        (PodWorkerState::SyncPod, "sync"),
        (PodWorkerState::TerminatingPod, "terminating"),
        (PodWorkerState::TerminatedPod, "terminated"),
    ] {
        for (config, is_static) in kinds {
            let count = counts.get(&(phase, config, label(is_static)));
            let labels = [lifecycle, config, label(is_static)];
            let gauge = metrics.working_pods.with_label_values(&labels);
            gauge.set(f64::from(count.copied().unwrap_or(0)));
        }
    }
}

/// Upstream's values of the label `static`.
fn label(is_static: Option<bool>) -> &'static str {
    match is_static {
        Some(true) => "true",
        Some(false) => "",
        None => "unknown",
    }
}

/// Removes what the plan leaves to be removed, and collects the runtime's garbage.
pub(crate) async fn finish(snapshots: &Snapshots, plan: &HousekeepingPlan, deps: &SyncLoopDeps) {
    let begin = Instant::now();
    // a pod that is still being stopped is known too
    let Ok(workers) = deps.workers.statuses().await else {
        return;
    };
    let finished = snapshots.finished(&workers);
    let known: BTreeSet<PodUid> = snapshots
        .desired
        .iter()
        .cloned()
        .chain(workers.into_keys())
        .collect();
    if snapshots.scope.looks_at_disk() {
        let gone = plan.directories_to_remove.difference(&known).cloned();
        let runtime = &deps.runtime;
        let volumes = &deps.volumes;
        let clean = |uid: PodUid, runtime: PodRuntime| {
            let volumes = volumes.clone();
            async move {
                let released = volumes.tear_down(&uid, Releaser::Housekeeping).await;
                released.map_err(|error| error.to_string())?;
                runtime.cleanup_pod(&uid).await.map_err(|e| e.to_string())
            }
            .boxed()
        };
        let (cleaned, failed) = remove("directory", gone, clean, runtime).await;
        let metrics = &deps.metrics;
        metrics.orphan_pods_cleaned.set(f64::from(cleaned));
        metrics.orphan_pods_not_cleaned.set(f64::from(failed));
        let gone = plan.cgroups_to_remove.difference(&known).cloned();
        let empty = |uid: PodUid, runtime: PodRuntime| {
            async move { runtime.remove_cgroup(&uid).await.map_err(|e| e.to_string()) }.boxed()
        };
        remove("cgroup", gone, empty, runtime).await;
    }
    if snapshots.scope.collects_garbage() {
        if let Some(file) = deps
            .backoff_file
            .as_ref()
            .filter(|_| snapshots.sources_ready)
        {
            file.retain(&known);
        }
        let pods = KnownPods {
            known,
            finished,
            sources_ready: snapshots.sources_ready,
        };
        let report = deps.runtime.collect_garbage(&pods).await;
        tracing::debug!(%report, "garbage collected");
    }
    let took = begin.elapsed();
    if took > SLOW {
        tracing::warn!(seconds = took.as_secs(), "housekeeping is slow");
    }
}

/// Removes what pods left that nobody knows; how much of it could go and how much could not.
async fn remove(
    what: &'static str,
    orphans: impl Iterator<Item = PodUid>,
    removal: impl Fn(PodUid, PodRuntime) -> BoxFuture<'static, Result<(), String>>,
    runtime: &PodRuntime,
) -> (u32, u32) {
    let removals = orphans.map(|uid| {
        let removal = removal(uid.clone(), runtime.clone());
        async move {
            let removed = tokio::time::timeout(PATIENCE, removal);
            let late = |_| Err(format!("not done within {} s", PATIENCE.as_secs()));
            match removed.await.unwrap_or_else(late) {
                Ok(()) => {
                    tracing::info!(pod = %uid, what, "orphan removed");
                    true
                }
                Err(error) => {
                    tracing::warn!(pod = %uid, what, error, "orphan not removed");
                    false
                }
            }
        }
    });
    // collected first: the iterator borrows what a spawned task must not hold
    let removals: Vec<_> = removals.collect();
    let mut removals = futures::stream::iter(removals).buffer_unordered(PARALLEL);
    let (mut gone, mut left) = (0, 0);
    while let Some(removed) = removals.next().await {
        match removed {
            true => gone += 1,
            false => left += 1,
        }
    }
    (gone, left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_counted_by_where_they_come_from_even_when_they_are_on_their_way_out() {
        let standing = |state, is_static| PodWorkerStatus { state, is_static };
        let (sync, ending, ended) = (
            PodWorkerState::SyncPod,
            PodWorkerState::TerminatingPod,
            PodWorkerState::TerminatedPod,
        );
        let workers = [
            // has not published itself yet
            ("static", standing(sync, None)),
            ("api", standing(sync, Some(false))),
            ("rejected", standing(ended, Some(false))),
            ("removed", standing(ending, Some(false))),
            ("manifest-gone", standing(ending, Some(true))),
            ("nobody's", standing(ending, None)),
        ];
        let uids = |uids: &[&str]| uids.iter().map(|uid| PodUid::from(*uid)).collect();
        let mut snapshots = Snapshots {
            desired: uids(&["static", "api", "rejected", "not-begun"]),
            static_pods: uids(&["static"]),
            ended: BTreeSet::new(),
            sources_ready: true,
            statics_ready: true,
            statics: BTreeSet::new(),
            scope: Scope::Pods,
        };
        let metrics = Metrics::new().expect("families");
        let workers = workers.map(|(uid, standing)| (PodUid::from(uid), standing));
        publish_working_pods(&workers.into(), &snapshots, &metrics);
        let counted = || {
            let text = metrics.render().expect("text");
            let lines = text.lines().filter(|line| line.starts_with("kubelet_"));
            let lines = lines.filter(|line| !line.ends_with(" 0"));
            let lines = lines.filter(|line| line.contains('{'));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let expected = [
            r#"kubelet_active_pods{static=""} 1"#,
            r#"kubelet_active_pods{static="true"} 1"#,
            r#"kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1"#,
            r#"kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1"#,
            r#"kubelet_working_pods{config="desired",lifecycle="terminated",static=""} 1"#,
            r#"kubelet_working_pods{config="orphan",lifecycle="terminating",static=""} 1"#,
            r#"kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1"#,
            r#"kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1"#,
        ];
        assert_eq!(counted(), expected);
        snapshots.desired.clear();
        publish_working_pods(&BTreeMap::new(), &snapshots, &metrics);
        assert!(counted().is_empty(), "{:?}", counted());
    }
}
