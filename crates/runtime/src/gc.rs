//! Garbage collection of dead containers, empty sandboxes and logs of unknown pods.
//!
//! `windlass_pod_lifecycle::container_gc` decides what is removable. Running containers are never
//! removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use windlass_cri::CriResult;
use windlass_pod_inputs::paths;
use windlass_pod_lifecycle::container_gc::{GcInput, GcPlan, GcPolicy, log_dir_uid, plan};
use windlass_types::cri::{ContainerSummary, ListFilter, SandboxSummary};
use windlass_types::{ContainerId, ObservedPod, PodUid, SandboxId};

use crate::PodRuntime;
use crate::kill::{ignore_missing, orphan};
use crate::termination::termination_log_path;

/// Limits the load of a collection on the runtime.
const MAX_CONCURRENT_REMOVALS: usize = 4;
/// A removal that takes longer is left to the next collection: a hung sandbox must not block
/// others.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Result of one collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// Containers removed.
    pub containers: usize,
    /// Sandboxes removed.
    pub sandboxes: usize,
    /// Log directories removed.
    pub log_dirs: usize,
    /// Dangling links removed.
    pub links: usize,
    /// Failures; the next collection retries.
    pub failures: Vec<String>,
    /// Why nothing could be listed, as upstream reports it.
    pub list_error: Option<String>,
}

impl fmt::Display for GcReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "containers={} sandboxes={} log-dirs={} links={} failures={}",
            self.containers,
            self.sandboxes,
            self.log_dirs,
            self.links,
            self.failures.len()
        )
    }
}

/// Pods that a collection keeps.
#[derive(Clone, Debug, Default)]
pub struct KnownPods {
    /// Pods that are desired or have a worker; those that begin a sync in the meantime are added.
    pub known: BTreeSet<PodUid>,
    /// Known pods that are terminated and not desired, or in a terminal phase: all their dead
    /// containers are removable. Those that begin a sync in the meantime are excluded.
    pub finished: BTreeSet<PodUid>,
    /// All pod sources are ready; before that no pod counts as unknown or finished.
    pub sources_ready: bool,
}

/// A container to remove and the path of its log.
struct RemovableContainer {
    id: ContainerId,
    uid: PodUid,
    name: String,
    attempt: u32,
    /// Link and log; `None` if the pod's name is unknown: then its log directory is removed later.
    files: Option<(std::path::PathBuf, std::path::PathBuf)>,
}

impl PodRuntime {
    /// Removes the dead containers of a pod beyond those that are kept.
    pub async fn remove_older_dead_containers(&self, observed: &ObservedPod) -> GcReport {
        let pod = orphan(&observed.uid, &observed.namespace, &observed.name);
        let containers: Vec<ContainerSummary> = observed
            .containers
            .iter()
            .map(|c| ContainerSummary {
                id: c.id.clone(),
                sandbox_id: c.sandbox_id.clone(),
                uid: observed.uid.clone(),
                name: c.name.clone(),
                attempt: c.restart_count,
                state: c.state,
                created_at: c.created_at,
                image_id: String::new(),
            })
            .collect();
        let pods = BTreeSet::from([observed.uid.clone()]);
        let none = BTreeSet::new();
        let plan = plan(GcInput {
            containers: &containers,
            sandboxes: &[],
            known: &pods,
            finished: &none,
            sources_ready: true,
            log_dirs: &[],
            dangling_links: &[],
            policy: self.deps().options.gc,
            now: self.deps().clock.now(),
        });
        let removable = plan.containers.iter().filter_map(|id| {
            let container = observed.containers.iter().find(|c| c.id == *id)?;
            let link = paths::log_symlink(&pod, &container.name, id);
            let log = Path::new(&container.log_path).to_owned();
            Some(RemovableContainer {
                id: id.clone(),
                uid: observed.uid.clone(),
                name: container.name.clone(),
                attempt: container.restart_count,
                files: (!container.log_path.is_empty()).then_some((link, log)),
            })
        });
        let mut report = GcReport::default();
        self.remove_containers(removable.collect(), &mut report)
            .await;
        report
    }

    /// Removes all dead containers of a terminated pod that was removed, then its sandboxes and
    /// logs: a pod with the same UID must not find them. What else than a container cannot be
    /// removed is left to [`PodRuntime::collect_garbage`].
    ///
    /// # Errors
    /// The lists failed, or a dead container is left.
    pub async fn remove_remains(&self, uid: &PodUid) -> Result<GcReport, GcReport> {
        let deps = self.deps();
        let mut report = GcReport::default();
        let Some((containers, sandboxes)) = self.list(&ListFilter::of_pod(uid), &mut report).await
        else {
            return Err(report);
        };
        // a hung disk must not block the removal of containers
        let log_dirs = tokio::time::timeout(REMOVAL_TIMEOUT, deps.files.list_log_dirs()).await;
        let log_dirs = match log_dirs {
            Ok(listed) => listed.map_err(|error| error.to_string()),
            Err(_) => Err("listing the log directories timed out".to_owned()),
        };
        let mut log_dirs = or_note(log_dirs, &mut report);
        log_dirs.retain(|name| log_dir_uid(name).as_ref() == Some(uid));
        let none = BTreeSet::new();
        let removable = plan(GcInput {
            containers: &containers,
            sandboxes: &sandboxes,
            known: &none,
            finished: &none,
            sources_ready: true,
            log_dirs: &log_dirs,
            dangling_links: &[],
            policy: GcPolicy::DEFAULT,
            now: deps.clock.now(),
        });
        let removed = self.removable_containers(&removable, &containers, &sandboxes);
        self.remove_containers(removed, &mut report).await;
        if report.containers < removable.containers.len() {
            return Err(report);
        }
        self.remove_sandboxes(&removable.sandboxes, &mut report)
            .await;
        self.remove_log_dirs(&removable.log_dirs, &mut report).await;
        Ok(report)
    }

    /// Collects dead containers, sandboxes and logs.
    pub async fn collect_garbage(&self, pods: &KnownPods) -> GcReport {
        let mut report = GcReport::default();
        let deps = self.deps();
        let _collecting = self.0.collecting.lock().await;
        self.active().begin_collection();
        let everything = ListFilter::default();
        let Some((containers, sandboxes)) = self.list(&everything, &mut report).await else {
            return report;
        };
        let log_dirs = deps.files.list_log_dirs().await;
        let mut known = pods.known.clone();
        let active = self.active().since_collection();
        // a removed pod may be desired again since the caller's list
        let finished = &pods.finished - &active;
        known.extend(active);
        let input = GcInput {
            containers: &containers,
            sandboxes: &sandboxes,
            known: &known,
            finished: &finished,
            sources_ready: pods.sources_ready,
            log_dirs: &or_note(log_dirs, &mut report),
            dangling_links: &[],
            policy: deps.options.gc,
            now: deps.clock.now(),
        };
        let removable = plan(input);
        if !removable.is_empty() {
            tracing::debug!(plan = %removable, "garbage");
        }
        let removed = self.removable_containers(&removable, &containers, &sandboxes);
        self.remove_containers(removed, &mut report).await;
        self.remove_sandboxes(&removable.sandboxes, &mut report)
            .await;
        self.remove_log_dirs(&removable.log_dirs, &mut report).await;
        // last: the removals above leave dangling links
        let links = or_note(deps.files.list_dangling_links().await, &mut report);
        let left: Vec<ContainerSummary> = containers
            .iter()
            .filter(|c| !removable.containers.contains(&c.id))
            .cloned()
            .collect();
        let dangling = plan(GcInput {
            containers: &left,
            dangling_links: &links,
            ..input
        });
        self.remove_links(&dangling.links, &mut report).await;
        self.image_records().prune().await;
        for failure in &report.failures {
            tracing::warn!(failure, "garbage collection failed");
        }
        report
    }

    /// Lists containers and sandboxes; both are needed to detect dead containers. `None` after an
    /// error, which is in the report.
    async fn list(
        &self,
        filter: &ListFilter,
        report: &mut GcReport,
    ) -> Option<(Vec<ContainerSummary>, Vec<SandboxSummary>)> {
        let runtime = &self.deps().runtime;
        let containers = runtime.list_containers(filter);
        let lists = futures::future::try_join(containers, runtime.list_pod_sandboxes(filter));
        let lists = lists.await.inspect_err(|error| {
            report.failures.push(error.to_string());
            report.list_error = Some(error.go_text());
        });
        lists.ok()
    }

    fn removable_containers(
        &self,
        plan: &GcPlan,
        containers: &[ContainerSummary],
        sandboxes: &[SandboxSummary],
    ) -> Vec<RemovableContainer> {
        let names: BTreeMap<&SandboxId, &SandboxSummary> =
            sandboxes.iter().map(|s| (&s.id, s)).collect();
        let found = |id: &ContainerId| containers.iter().find(|c| c.id == *id);
        let removable = plan.containers.iter().filter_map(|id| {
            let container = found(id)?;
            let files = names.get(&container.sandbox_id).map(|sandbox| {
                let pod = orphan(&sandbox.uid, &sandbox.namespace, &sandbox.name);
                let node_paths = &self.deps().node.paths;
                (
                    paths::log_symlink(&pod, &container.name, id),
                    node_paths.container_log(&pod, &container.name, container.attempt),
                )
            });
            Some(RemovableContainer {
                id: id.clone(),
                uid: container.uid.clone(),
                name: container.name.clone(),
                attempt: container.attempt,
                files,
            })
        });
        removable.collect()
    }

    async fn remove_containers(&self, removable: Vec<RemovableContainer>, report: &mut GcReport) {
        let removals = removable.into_iter().map(|container| async move {
            let deps = self.deps();
            let removed = deps.runtime.remove_container(&container.id).await;
            ignore_removed(&container.id, removed)
                .map_err(|error| format!("container {}: {error}", container.id))?;
            // after the container: a container without its log would be incomplete
            if let Some((link, log)) = &container.files {
                let removed = deps.files.remove_container_log(&container.uid, link, log);
                if let Err(error) = removed.await {
                    tracing::warn!(log = %log.display(), %error, "log not removed");
                }
            }
            self.remove_termination_logs(&container.uid, &container.name, container.attempt)
                .await;
            Ok::<(), String>(())
        });
        report.containers = note(removals.collect(), &mut report.failures).await;
    }

    /// Removes the termination log of a removed container instance, which would accumulate
    /// otherwise. After a failure it is removed with the pod's directory.
    pub(crate) async fn remove_termination_logs(&self, uid: &PodUid, name: &str, attempt: u32) {
        let deps = self.deps();
        if paths::check_component("container name", name).is_err() {
            return;
        }
        let path = termination_log_path(&deps.node.paths, uid, name, attempt);
        if let Err(error) = deps.files.remove_termination_log(uid, &path).await {
            tracing::warn!(file = %path.display(), %error, "termination log not removed");
        }
    }

    async fn remove_sandboxes(&self, sandboxes: &[SandboxId], report: &mut GcReport) {
        let removals = sandboxes.iter().map(|id| async move {
            let runtime = &self.deps().runtime;
            let failed = |error| format!("sandbox {id}: {error}");
            // a sandbox keeps its IP address until it is stopped
            ignore_missing(runtime.stop_pod_sandbox(id).await).map_err(failed)?;
            ignore_missing(runtime.remove_pod_sandbox(id).await).map_err(failed)
        });
        report.sandboxes = note(removals.collect(), &mut report.failures).await;
    }

    async fn remove_log_dirs(&self, names: &[String], report: &mut GcReport) {
        let files = &self.deps().files;
        let dirs = names.iter().map(|name| async move {
            let removed = files.remove_log_dir(name).await;
            removed.map_err(|error| format!("log directory {name}: {error}"))
        });
        report.log_dirs = note(dirs.collect(), &mut report.failures).await;
    }

    async fn remove_links(&self, names: &[String], report: &mut GcReport) {
        let files = &self.deps().files;
        let links = names.iter().map(|name| async move {
            let removed = files.remove_link(name).await;
            removed.map_err(|error| format!("log link {name}: {error}"))
        });
        report.links = note(links.collect(), &mut report.failures).await;
    }
}

/// Ignores that a container is gone, or that another call is removing it: a pod's worker, an exit
/// and housekeeping may remove the same one.
fn ignore_removed(id: &ContainerId, removed: CriResult<()>) -> CriResult<()> {
    match removed {
        Err(error) if error.is_removal_in_progress() => {
            tracing::debug!(container = %id, %error, "removal of container already in progress");
            Ok(())
        }
        removed => ignore_missing(removed),
    }
}

/// Runs removals with limited concurrency, counts the successful ones and records the failures.
async fn note<F: Future<Output = Result<(), String>>>(
    removals: Vec<F>,
    failures: &mut Vec<String>,
) -> usize {
    let removals = removals.into_iter().map(|removal| async {
        tokio::time::timeout(REMOVAL_TIMEOUT, removal)
            .await
            .unwrap_or_else(|_| Err("removal timed out".to_owned()))
    });
    let results: Vec<_> = futures::stream::iter(removals)
        .buffer_unordered(MAX_CONCURRENT_REMOVALS)
        .collect()
        .await;
    let all = results.len();
    let before = failures.len();
    failures.extend(results.into_iter().filter_map(Result::err));
    all - (failures.len() - before)
}

fn or_note<T: Default, E: fmt::Display>(result: Result<T, E>, report: &mut GcReport) -> T {
    result.unwrap_or_else(|error| {
        report.failures.push(error.to_string());
        T::default()
    })
}

/// Pods in a sync, so that a pod that is newer than the caller's list of known pods does not count
/// as unknown.
#[derive(Debug, Default)]
pub(crate) struct ActivePods(Mutex<Active>);

#[derive(Debug, Default)]
struct Active {
    syncing: BTreeMap<PodUid, usize>,
    since_collection: BTreeSet<PodUid>,
}

impl ActivePods {
    pub(crate) fn enter(&self, uid: PodUid) -> ActiveSync<'_> {
        let mut active = self.0.lock();
        *active.syncing.entry(uid.clone()).or_default() += 1;
        active.since_collection.insert(uid.clone());
        ActiveSync { pods: self, uid }
    }

    fn begin_collection(&self) {
        let mut active = self.0.lock();
        active.since_collection = active.syncing.keys().cloned().collect();
    }

    fn since_collection(&self) -> BTreeSet<PodUid> {
        self.0.lock().since_collection.clone()
    }
}

/// A sync in progress; ends when dropped, also by cancellation.
#[derive(Debug)]
pub(crate) struct ActiveSync<'a> {
    pods: &'a ActivePods,
    uid: PodUid,
}

impl Drop for ActiveSync<'_> {
    fn drop(&mut self) {
        let mut active = self.pods.0.lock();
        if let Some(count) = active.syncing.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                active.syncing.remove(&self.uid);
            }
        }
    }
}
