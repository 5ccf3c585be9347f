//! Housekeeping rounds, outside the loop: planning and execution.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;
use windlass_actors::{AllocationsHandle, PodWorkerState, PodWorkerStatus, TearDownRequester};
use windlass_cri::CriResult;
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::housekeeping::{HousekeepingInput, HousekeepingPlan, Scope, plan};
use windlass_runtime::{FilesError, KnownPods, PodRuntime};
use windlass_types::cri::ListFilter;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::view::EventType;
use windlass_types::{PodFullName, PodUid, Reason};

use crate::actor::SyncLoopDeps;

/// Timeout of the cleanup of one pod, so that a hung volume does not block the others.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent cleanups.
const MAX_CONCURRENT_CLEANUPS: usize = 8;

/// Duration of a housekeeping round after which a warning is logged.
const SLOW_THRESHOLD: Duration = Duration::from_secs(15);

/// Input of a housekeeping round.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    /// Desired pods.
    pub desired: BTreeSet<PodUid>,
    /// Desired static pods.
    pub static_pods: BTreeSet<PodUid>,
    /// Desired pods whose content may be removed after their workers have terminated them.
    pub ended: BTreeSet<PodUid>,
    /// All sources are ready.
    pub sources_ready: bool,
    /// All sources of static pods are ready.
    pub static_sources_ready: bool,
    /// Full names of the desired static pods.
    pub statics: BTreeSet<PodFullName>,
    /// Scope of the round.
    pub scope: Scope,
}

impl Snapshots {
    /// Returns the pods that are finished for their worker and their source: their dead containers
    /// are removable, even if their volumes are not released yet.
    fn finished(&self, workers: &BTreeMap<PodUid, PodWorkerStatus>) -> BTreeSet<PodUid> {
        let through = |uid: &&PodUid| {
            let status = workers.get(*uid);
            status.is_none_or(|status| status.state == PodWorkerState::TerminatedPod)
        };
        let removed = workers.keys().filter(|uid| !self.desired.contains(*uid));
        let finished = self.ended.iter().chain(removed).filter(through);
        finished.cloned().collect()
    }
}

/// Creates the plan. The loop sends updates to the workers, [`finish`] does the rest.
///
/// The disk is read first, then the runtime, then the workers: a pod that starts meanwhile has a
/// worker first, and is not an orphan.
pub(crate) async fn decide(snapshots: &Snapshots, deps: &SyncLoopDeps) -> HousekeepingPlan {
    if !snapshots.sources_ready && !snapshots.static_sources_ready {
        return HousekeepingPlan::default();
    }
    let (mut directories, mut cgroups) = (BTreeSet::new(), BTreeSet::new());
    if snapshots.scope.includes_disk() && snapshots.sources_ready {
        directories = or_empty("pod directories", deps.runtime.list_pod_dirs().await);
        cgroups = or_empty("pod cgroups", deps.runtime.list_cgroups().await);
        // a pod that cannot be inspected is not observed, but may run
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
        static_sources_ready: snapshots.static_sources_ready,
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

/// Returns the pods in the runtime; `None` if it is unreachable.
async fn pods_of_runtime(deps: &SyncLoopDeps) -> Option<BTreeSet<PodUid>> {
    let all = ListFilter::default();
    let lists = async {
        let containers = deps.cri.list_containers(&all).await?;
        let sandboxes = deps.cri.list_pod_sandboxes(&all).await?;
        let owners = containers.into_iter().map(|c| c.uid);
        CriResult::Ok(owners.chain(sandboxes.into_iter().map(|s| s.uid)).collect())
    };
    match tokio::time::timeout(CLEANUP_TIMEOUT, lists).await {
        Ok(Ok(pods)) => Some(pods),
        Ok(Err(error)) => {
            tracing::warn!(%error, "listing runtime pods failed, skipping disk cleanup");
            None
        }
        Err(_) => {
            tracing::warn!("listing runtime pods timed out, skipping disk cleanup");
            None
        }
    }
}

fn or_empty(what: &str, pods: Result<BTreeSet<PodUid>, FilesError>) -> BTreeSet<PodUid> {
    pods.unwrap_or_else(|error| {
        tracing::warn!(what, %error, "listing failed");
        BTreeSet::new()
    })
}

/// Updates `kubelet_working_pods` and `kubelet_active_pods`.
fn publish_working_pods(
    workers: &BTreeMap<PodUid, PodWorkerStatus>,
    snapshots: &Snapshots,
    metrics: &Metrics,
) {
    let mut counts = BTreeMap::new();
    let mut active = [("true", 0), ("", 0)];
    for (uid, status) in workers {
        let desired = snapshots.desired.contains(uid);
        let is_static = if desired {
            Some(snapshots.static_pods.contains(uid))
        } else {
            status.is_static
        };
        let config = match is_static {
            Some(_) if desired => "desired",
            Some(_) => "orphan",
            None => "runtime_only",
        };
        let labels = (status.state, config, label(is_static));
        *counts.entry(labels).or_insert(0) += 1;
        if desired && status.state != PodWorkerState::TerminatedPod {
            active[usize::from(is_static != Some(true))].1 += 1;
        }
    }
    for (label, count) in active {
        let gauge = metrics.sync_loop.active_pods.with_label_values(&[label]);
        gauge.set(f64::from(count));
    }
    // a combination without pods is 0, not absent
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
            let gauge = metrics.sync_loop.working_pods.with_label_values(&labels);
            gauge.set(f64::from(count.copied().unwrap_or(0)));
        }
    }
}

/// Returns the upstream value of the label `static`.
fn label(is_static: Option<bool>) -> &'static str {
    match is_static {
        Some(true) => "true",
        Some(false) => "",
        None => "unknown",
    }
}

/// Removes what the plan lists, and collects the garbage of the runtime.
pub(crate) async fn finish(snapshots: &Snapshots, plan: &HousekeepingPlan, deps: &SyncLoopDeps) {
    let begin = Instant::now();
    // terminating pods are known, too
    let Ok(workers) = deps.workers.statuses().await else {
        return;
    };
    let known: BTreeSet<PodUid> = snapshots
        .desired
        .iter()
        .cloned()
        .chain(workers.into_keys())
        .collect();
    if snapshots.scope.includes_disk() {
        let gone = plan.directories_to_remove.difference(&known).cloned();
        let runtime = &deps.runtime;
        let volumes = &deps.volumes;
        let clean = |uid: PodUid, runtime: PodRuntime| {
            let volumes = volumes.clone();
            async move {
                let released = volumes
                    .tear_down(&uid, TearDownRequester::Housekeeping)
                    .await;
                released.map_err(|error| error.to_string())?;
                if mutated(Mutation::OrphanedVolumesStay) {
                    return Err("volume paths are still present on disk".to_owned());
                }
                runtime.cleanup_pod(&uid).await.map_err(|e| e.to_string())
            }
            .boxed()
        };
        let (cleaned, failed) = remove("directory", gone, clean, runtime).await;
        let metrics = &deps.metrics;
        metrics
            .sync_loop
            .orphan_pods_cleaned
            .set(f64::from(cleaned));
        metrics
            .sync_loop
            .orphan_pods_not_cleaned
            .set(f64::from(failed));
        let gone = plan.cgroups_to_remove.difference(&known).cloned();
        let empty = |uid: PodUid, runtime: PodRuntime| {
            async move { runtime.remove_cgroup(&uid).await.map_err(|e| e.to_string()) }.boxed()
        };
        remove("cgroup", gone, empty, runtime).await;
    }
    if snapshots.scope.collects_garbage() {
        if snapshots.sources_ready {
            if let Some(file) = &deps.backoff_file {
                file.retain(&known);
            }
            if let Some(files) = &deps.admission.resource_files {
                files.retain(&known);
            }
            release_resources(&known, &deps.admission.allocations);
        }
        // read again: a removed pod may have started again during the cleanup of directories
        let Ok(workers) = deps.workers.statuses().await else {
            return;
        };
        let finished = snapshots.finished(&workers);
        let pods = KnownPods {
            known,
            finished,
            sources_ready: snapshots.sources_ready,
        };
        let report = deps.runtime.collect_garbage(&pods).await;
        tracing::debug!(%report, "garbage collected");
        if let Some(error) = &report.list_error {
            let (kind, reason) = (EventType::Warning, Reason::ContainerGcFailed);
            let events = &deps.admission.events;
            events.record_node(kind, reason, error);
        }
    }
    let took = begin.elapsed();
    if took > SLOW_THRESHOLD {
        tracing::warn!(seconds = took.as_secs(), "slow housekeeping round");
    }
}

/// Releases the resources of pods that ended without this agent run.
fn release_resources(known: &BTreeSet<PodUid>, allocations: &AllocationsHandle) {
    let scope = Arc::clone(&allocations.scope.borrow());
    for uid in scope.owners.difference(known) {
        tracing::info!(pod = %uid, "resources of a pod that is not known released");
        allocations.release(uid.clone());
    }
}

/// Cleans up orphaned pods; returns the numbers of removals and failures.
async fn remove(
    what: &'static str,
    orphans: impl Iterator<Item = PodUid>,
    removal: impl Fn(PodUid, PodRuntime) -> BoxFuture<'static, Result<(), String>>,
    runtime: &PodRuntime,
) -> (u32, u32) {
    let removals = orphans.map(|uid| {
        let removal = removal(uid.clone(), runtime.clone());
        async move {
            let removed = tokio::time::timeout(CLEANUP_TIMEOUT, removal);
            let late = |_| Err(format!("timed out after {} s", CLEANUP_TIMEOUT.as_secs()));
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
    let mut removals = futures::stream::iter(removals).buffer_unordered(MAX_CONCURRENT_CLEANUPS);
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
    fn terminated_pod_is_finished_once_removed_or_ended() {
        let uids = |uids: &str| uids.split_whitespace().map(PodUid::from).collect();
        let check = |desired, ended, state, expected: bool| {
            let snapshots = Snapshots {
                desired: uids(desired),
                static_pods: BTreeSet::new(),
                ended: uids(ended),
                sources_ready: true,
                static_sources_ready: true,
                statics: BTreeSet::new(),
                scope: Scope::Pods,
            };
            let is_static = Some(true);
            let workers = [(PodUid::from("pod"), PodWorkerStatus { state, is_static })];
            let finished = snapshots.finished(&workers.into());
            assert_eq!(!finished.is_empty(), expected, "{snapshots:?} {state:?}");
        };
        let (terminating, terminated) = (
            PodWorkerState::TerminatingPod,
            PodWorkerState::TerminatedPod,
        );
        check("pod", "", terminated, false);
        check("pod", "pod", terminated, true);
        check("pod", "pod", terminating, false);
        check("", "", terminated, true);
        check("", "", terminating, false);
        check("", "", PodWorkerState::SyncPod, false);
    }

    #[test]
    fn working_pods_are_counted_by_source_and_state() {
        let status = |state, is_static| PodWorkerStatus { state, is_static };
        let (sync, ending, ended) = (
            PodWorkerState::SyncPod,
            PodWorkerState::TerminatingPod,
            PodWorkerState::TerminatedPod,
        );
        let workers = [
            // was orphaned, and is desired again
            ("static", status(sync, None)),
            ("api", status(sync, Some(false))),
            ("rejected", status(ended, Some(false))),
            ("removed", status(ending, Some(false))),
            ("manifest-gone", status(ending, Some(true))),
            ("orphan", status(ending, None)),
        ];
        let uids = |uids: &[&str]| uids.iter().map(|uid| PodUid::from(*uid)).collect();
        let mut snapshots = Snapshots {
            desired: uids(&["static", "api", "rejected", "not-begun"]),
            static_pods: uids(&["static"]),
            ended: BTreeSet::new(),
            sources_ready: true,
            static_sources_ready: true,
            statics: BTreeSet::new(),
            scope: Scope::Pods,
        };
        let metrics = Metrics::new().expect("families");
        let workers = workers.map(|(uid, status)| (PodUid::from(uid), status));
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
