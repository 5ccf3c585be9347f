//! Housekeeping (upstream `HandlePodCleanups`), planned from snapshots.
//!
//! Nothing is removed before all sources are ready, with one exception. The previous version of an
//! edited static pod is terminated as soon as the static sources are ready, because the edit may
//! repair the API server.

mod schedule;

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::{Phase, Pod, PodUid};

pub use schedule::{CleanUp, HousekeepingRound, HousekeepingSchedule, Scope};

/// Input of [`plan`]. Collect disk state first, then `in_runtime`, then `workers`, so that a pod
/// that starts meanwhile is not orphaned.
#[derive(Clone, Debug, Default)]
pub struct HousekeepingInput {
    /// Every configured source has delivered once.
    pub sources_ready: bool,
    /// Every configured source of static pods has delivered once.
    pub static_sources_ready: bool,
    /// Pods with the same full name as a desired static pod with another UID.
    pub predecessors: BTreeSet<PodUid>,
    /// Pods with a running container or a ready sandbox.
    pub running: BTreeSet<PodUid>,
    /// Pods with any container or sandbox.
    pub in_runtime: BTreeSet<PodUid>,
    /// Pods with a worker in any state.
    pub workers: BTreeSet<PodUid>,
    /// Desired pods.
    pub desired: BTreeSet<PodUid>,
    /// Pods with a terminated worker that are not desired, or for which [`can_remove_pod_content`]
    /// is true. Their volumes may not be released yet.
    pub finished: BTreeSet<PodUid>,
    /// Pods with a directory under `pods/`.
    pub directories: BTreeSet<PodUid>,
    /// Pods with a cgroup.
    pub cgroups: BTreeSet<PodUid>,
}

/// Actions of a housekeeping round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HousekeepingPlan {
    /// Orphaned pods: terminate with the minimum grace period.
    pub orphans_to_kill: BTreeSet<PodUid>,
    /// Workers of undesired pods: terminate.
    pub workers_to_kill: BTreeSet<PodUid>,
    /// Stopped orphaned or finished pods: collect their dead containers now.
    pub dead_to_collect: BTreeSet<PodUid>,
    /// Directories of pods that are not desired and have neither a worker nor containers.
    pub directories_to_remove: BTreeSet<PodUid>,
    /// Cgroups of such pods.
    pub cgroups_to_remove: BTreeSet<PodUid>,
}

impl fmt::Display for HousekeepingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("orphans", &self.orphans_to_kill),
            ("undesired", &self.workers_to_kill),
            ("dead", &self.dead_to_collect),
            ("directories", &self.directories_to_remove),
            ("cgroups", &self.cgroups_to_remove),
        ];
        let mut first = true;
        for (word, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            let uids: Vec<_> = list.iter().map(PodUid::as_str).collect();
            write!(
                f,
                "{}{word}({})",
                if first { "" } else { " " },
                uids.join(" ")
            )?;
            first = false;
        }
        if first {
            f.write_str("nothing")
        } else {
            Ok(())
        }
    }
}

/// Compares desired pods with workers, the runtime and the disk.
pub fn plan(input: &HousekeepingInput) -> HousekeepingPlan {
    let unknown = |uid: &&PodUid| !input.desired.contains(*uid) && !input.workers.contains(*uid);
    if !input.sources_ready {
        let running = input.running.iter().filter(|_| input.static_sources_ready);
        let replaced = running.filter(|uid| input.predecessors.contains(*uid));
        return HousekeepingPlan {
            orphans_to_kill: replaced.filter(unknown).cloned().collect(),
            ..HousekeepingPlan::default()
        };
    }
    let dead = input.in_runtime.difference(&input.running);
    let dead = dead.filter(|uid| unknown(uid) || input.finished.contains(*uid));
    let abandoned = |uids: &BTreeSet<PodUid>| {
        let unknown = uids.iter().filter(unknown);
        let gone = unknown.filter(|uid| !input.in_runtime.contains(*uid));
        gone.cloned().collect()
    };
    HousekeepingPlan {
        orphans_to_kill: input.running.iter().filter(unknown).cloned().collect(),
        workers_to_kill: input.workers.difference(&input.desired).cloned().collect(),
        dead_to_collect: dead.cloned().collect(),
        directories_to_remove: abandoned(&input.directories),
        cgroups_to_remove: abandoned(&input.cgroups),
    }
}

/// True for a pod with a terminal phase that was evicted or deleted (upstream
/// `ShouldPodContentBeRemoved`).
pub fn can_remove_pod_content(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let evicted = status.and_then(|status| status.reason.as_deref()) == Some("Evicted");
    status.is_some_and(Phase::is_terminal_in)
        && (evicted || pod.metadata.deletion_timestamp.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &str) -> BTreeSet<PodUid> {
        words.split_whitespace().map(PodUid::from).collect()
    }

    /// Columns: running, in the runtime, workers, desired, directories (and cgroups).
    fn check(columns: [&str; 5], expected: &str) {
        let [running, in_runtime, workers, desired, directories] = columns.map(set);
        let mut input = HousekeepingInput {
            sources_ready: true,
            static_sources_ready: true,
            predecessors: BTreeSet::new(),
            running,
            in_runtime,
            workers,
            desired,
            finished: set("finished"),
            cgroups: directories.clone(),
            directories,
        };
        assert_eq!(plan(&input).to_string(), expected, "{input:?}");
        input.sources_ready = false;
        assert_eq!(
            plan(&input).to_string(),
            "nothing",
            "before the sources are ready"
        );
    }

    #[test]
    fn only_orphaned_pods_are_removed() {
        check(["a", "a", "a", "a", "a"], "nothing");
        check(["a", "a", "", "", "a"], "orphans(a)");
        check(["", "a", "", "", "a"], "dead(a)");
        check(["", "a", "a", "", "a"], "undesired(a)");
        check(["", "a", "a", "a", "a"], "nothing");
        check(["", "", "", "", "a b"], "directories(a b) cgroups(a b)");
        check(["a", "a", "a", "", "a"], "undesired(a)");
        check(["a", "a", "", "a", "a"], "nothing");
        check(
            ["a", "a b", "c", "c", "a b c d"],
            "orphans(a) dead(b) directories(d) cgroups(d)",
        );
    }

    #[test]
    fn finished_pod_keeps_its_directory_but_not_its_containers() {
        let f = "finished";
        check(["", f, f, f, f], "dead(finished)");
        check([f, f, f, f, f], "nothing");
        check(["", "", f, f, f], "nothing");
        // removed, and its volumes are not released yet
        check(["", f, f, "", f], "undesired(finished) dead(finished)");
    }

    #[test]
    fn content_of_terminal_evicted_or_deleted_pod_is_removed() {
        fn check(phase: &str, reason: &str, deleted: bool, expected: bool) {
            let text = format!(
                r#"{{"metadata": {{{}}}, "status": {{"phase": "{phase}", "reason": "{reason}"}}}}"#,
                if deleted {
                    r#""deletionTimestamp": "2026-01-01T00:00:00Z""#
                } else {
                    ""
                }
            );
            let pod: Pod = serde_json::from_str(&text).expect("a pod");
            assert_eq!(can_remove_pod_content(&pod), expected, "{text}");
        }
        check("Failed", "Evicted", false, true);
        check("Succeeded", "", true, true);
        check("Running", "", true, false);
        check("Failed", "DeadlineExceeded", false, false);
        check("Pending", "Evicted", false, false);
        assert!(!can_remove_pod_content(&Pod::default()));
    }

    #[test]
    fn replaced_static_pod_does_not_wait_for_api_source() {
        let mut input = HousekeepingInput {
            sources_ready: false,
            static_sources_ready: true,
            predecessors: set("old dead worked"),
            running: set("old worked orphan"),
            in_runtime: set("old dead worked orphan"),
            workers: set("worked new"),
            desired: set("new"),
            finished: BTreeSet::new(),
            directories: set("old dead orphan"),
            cgroups: set("old dead orphan"),
        };
        assert_eq!(plan(&input).to_string(), "orphans(old)");
        // another static source may still have it
        input.static_sources_ready = false;
        assert_eq!(plan(&input).to_string(), "nothing");
    }
}
