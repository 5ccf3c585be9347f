//! Garbage collection of dead containers, sandboxes and log files (upstream `containerGC`).
//!
//! The newest dead instance of each container is kept while its pod exists, for its log and exit
//! code. Orphaned pods are only known once all sources are ready. Running containers are never
//! collected; housekeeping stops them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use windlass_types::cri::{ContainerSummary, SandboxSummary};
use windlass_types::{ContainerId, ContainerState, PodUid, SandboxId, Timestamp};

/// Limits for dead containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcPolicy {
    /// `maximum-dead-containers-per-container`.
    pub max_per_container: usize,
    /// `maximum-dead-containers`; `None` is unlimited.
    pub max_total: Option<usize>,
    /// `minimum-container-ttl-duration`: minimum age.
    pub min_age: Duration,
}

impl GcPolicy {
    /// The defaults of the Go kubelet.
    pub const DEFAULT: Self = Self {
        max_per_container: 1,
        max_total: None,
        min_age: Duration::ZERO,
    };
}

/// Input of [`plan`]. Collect `known` after the runtime lists, so that a new pod is not orphaned.
#[derive(Clone, Copy, Debug)]
pub struct GcInput<'a> {
    /// All containers.
    pub containers: &'a [ContainerSummary],
    /// All sandboxes.
    pub sandboxes: &'a [SandboxSummary],
    /// Pods that are desired or have a worker.
    pub known: &'a BTreeSet<PodUid>,
    /// Known pods whose content is removable: terminated, and removed or in a terminal phase.
    pub finished: &'a BTreeSet<PodUid>,
    /// Every configured source has delivered once.
    pub sources_ready: bool,
    /// Names of the directories under the pod logs directory.
    pub log_dirs: &'a [String],
    /// Names of the links under `/var/log/containers` whose target does not exist.
    pub dangling_links: &'a [String],
    /// Limits.
    pub policy: GcPolicy,
    /// The current time.
    pub now: Timestamp,
}

/// Objects to remove, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GcPlan {
    /// Containers, oldest first.
    pub containers: Vec<ContainerId>,
    /// Sandboxes, empty after the removal of the containers.
    pub sandboxes: Vec<SandboxId>,
    /// Names of pod log directories.
    pub log_dirs: Vec<String>,
    /// Names of links.
    pub links: Vec<String>,
}

impl GcPlan {
    /// True if nothing is to be removed.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for GcPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let containers: Vec<&str> = self.containers.iter().map(ContainerId::as_str).collect();
        let sandboxes: Vec<&str> = self.sandboxes.iter().map(SandboxId::as_str).collect();
        let words: Vec<String> = [
            ("containers", containers.join(" ")),
            ("sandboxes", sandboxes.join(" ")),
            ("log-dirs", self.log_dirs.join(" ")),
            ("links", self.links.join(" ")),
        ]
        .into_iter()
        .filter(|(_, list)| !list.is_empty())
        .map(|(word, list)| format!("{word}({list})"))
        .collect();
        if words.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(&words.join(" "))
    }
}

/// Plans the garbage collection of the node.
pub fn plan(input: GcInput<'_>) -> GcPlan {
    let mut removable = dead_containers(&input);
    removable.sort_by_key(|c| c.created_at);
    let containers: Vec<ContainerId> = removable.iter().map(|c| c.id.clone()).collect();
    let left: Vec<&ContainerSummary> = input
        .containers
        .iter()
        .filter(|c| !containers.contains(&c.id))
        .collect();
    GcPlan {
        sandboxes: dead_sandboxes(&input, &left),
        log_dirs: abandoned_log_dirs(&input, &left),
        links: dead_links(&input),
        containers,
    }
}

/// True if nothing of the pod must be kept.
fn is_removable(input: &GcInput<'_>, uid: &PodUid) -> bool {
    input.sources_ready && (!input.known.contains(uid) || input.finished.contains(uid))
}

fn dead_containers<'a>(input: &GcInput<'a>) -> Vec<&'a ContainerSummary> {
    let mut by_name: BTreeMap<(&PodUid, &str), Vec<&ContainerSummary>> = BTreeMap::new();
    for container in input.containers {
        // without a pod UID it belongs to another client of the runtime
        if !container.uid.as_str().is_empty() {
            let key = (&container.uid, container.name.as_str());
            by_name.entry(key).or_default().push(container);
        }
    }
    let mut removable = Vec::new();
    let mut kept: Vec<Vec<&ContainerSummary>> = Vec::new();
    for ((uid, _), mut instances) in by_name {
        instances.sort_by_key(|c| std::cmp::Reverse((c.attempt, c.created_at)));
        let newest = instances.first().map(|c| c.id.clone());
        let mut dead = Vec::new();
        for instance in instances {
            let stopped = match instance.state {
                ContainerState::Exited => true,
                // the newest may be about to start
                ContainerState::Created => {
                    is_removable(input, uid) || newest.as_ref() != Some(&instance.id)
                }
                ContainerState::Running | ContainerState::Unknown => false,
            };
            if !stopped || is_young(input, instance) {
                continue;
            }
            if is_removable(input, uid) || instance.state == ContainerState::Created {
                removable.push(instance);
            } else {
                dead.push(instance);
            }
        }
        let keep = input.policy.max_per_container.min(dead.len());
        removable.extend(dead.split_off(keep));
        if !dead.is_empty() {
            kept.push(dead);
        }
    }
    removable.extend(beyond_total(input.policy.max_total, kept));
    removable
}

/// Returns the excess over `max_total`: over an even share of each container, then the oldest.
fn beyond_total(
    max_total: Option<usize>,
    mut kept: Vec<Vec<&ContainerSummary>>,
) -> Vec<&ContainerSummary> {
    let total = |kept: &[Vec<&ContainerSummary>]| kept.iter().map(Vec::len).sum::<usize>();
    let Some(max) = max_total.filter(|max| total(&kept) > *max) else {
        return Vec::new();
    };
    let share = (max / kept.len().max(1)).max(1);
    let mut removable = Vec::new();
    for list in &mut kept {
        removable.extend(list.split_off(share.min(list.len())));
    }
    let mut rest: Vec<&ContainerSummary> = kept.into_iter().flatten().collect();
    rest.sort_by_key(|c| std::cmp::Reverse(c.created_at));
    removable.extend(rest.split_off(max.min(rest.len())));
    removable
}

fn is_young(input: &GcInput<'_>, container: &ContainerSummary) -> bool {
    let age = input.now.duration_since(container.created_at);
    Duration::try_from(age).unwrap_or_default() < input.policy.min_age
}

/// Returns the stopped, empty sandboxes, except the newest of each live pod.
fn dead_sandboxes(input: &GcInput<'_>, left: &[&ContainerSummary]) -> Vec<SandboxId> {
    let is_newest = |sandbox: &SandboxSummary| {
        let siblings = input.sandboxes.iter().filter(|s| s.uid == sandbox.uid);
        siblings
            .map(|s| (s.attempt, s.created_at))
            .all(|other| other <= (sandbox.attempt, sandbox.created_at))
    };
    let is_empty = |sandbox: &SandboxSummary| left.iter().all(|c| c.sandbox_id != sandbox.id);
    let mut removable: Vec<&SandboxSummary> = input
        .sandboxes
        .iter()
        .filter(|s| !s.uid.as_str().is_empty() && !s.ready && is_empty(s))
        .filter(|s| is_removable(input, &s.uid) || !is_newest(s))
        .collect();
    removable.sort_by_key(|s| s.created_at);
    removable.into_iter().map(|s| s.id.clone()).collect()
}

/// Returns the log directories of pods unknown to the agent and the runtime.
fn abandoned_log_dirs(input: &GcInput<'_>, left: &[&ContainerSummary]) -> Vec<String> {
    if !input.sources_ready {
        return Vec::new();
    }
    let is_abandoned = |name: &String| {
        let Some(uid) = log_dir_uid(name) else {
            return false;
        };
        !input.known.contains(&uid) && left.iter().all(|c| c.uid != uid)
    };
    let names = input.log_dirs.iter();
    names.filter(|name| is_abandoned(name)).cloned().collect()
}

/// Returns the UID in `namespace_name_uid`, the name of a pod's log directory.
pub fn log_dir_uid(name: &str) -> Option<PodUid> {
    let (rest, uid) = name.rsplit_once('_')?;
    (!uid.is_empty() && rest.contains('_')).then(|| PodUid::from(uid))
}

/// Returns the dangling links, except those of running containers, whose logs may be in rotation.
fn dead_links(input: &GcInput<'_>) -> Vec<String> {
    let is_dead = |name: &&String| {
        let Some(id) = link_container_id(name) else {
            return false;
        };
        let container = input.containers.iter().find(|c| c.id.as_str() == id);
        container.is_none_or(|c| c.state == ContainerState::Exited)
    };
    let names = input.dangling_links.iter();
    names.filter(is_dead).cloned().collect()
}

/// Returns the container ID in `pod_namespace_container-<id>.log`.
fn link_container_id(name: &str) -> Option<&str> {
    let (_, id) = name.strip_suffix(".log")?.rsplit_once('-')?;
    (!id.is_empty()).then_some(id)
}
