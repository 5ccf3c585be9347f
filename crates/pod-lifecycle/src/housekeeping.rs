//! What the periodic clean-up does (upstream `HandlePodCleanups`), decided from snapshots.
//!
//! Nothing is cleaned before every configured source has spoken once: a pod nobody mentions may
//! belong to a source that is still silent. One exception: a pod that runs under the name of a
//! static pod was that pod before it was edited. It goes as soon as the sources of static pods
//! have spoken, because the edit may be what brings the API server back.

mod schedule;

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::{Pod, PodUid};

pub use schedule::{CleanUp, HousekeepingRound, HousekeepingSchedule, Scope};

/// What the decision looks at. Take what lies on the node first, then `in_runtime`, then
/// `workers`: a pod that started in between then has a worker and is no orphan.
#[derive(Clone, Debug, Default)]
pub struct HousekeepingInput {
    /// Every configured source has delivered once.
    pub sources_ready: bool,
    /// Every configured source of static pods has delivered once.
    pub static_sources_ready: bool,
    /// Pods that have namespace and name of a desired static pod with another UID.
    pub predecessors: BTreeSet<PodUid>,
    /// Pods of which the runtime has something alive.
    pub running: BTreeSet<PodUid>,
    /// Pods of which the runtime has anything.
    pub in_runtime: BTreeSet<PodUid>,
    /// Pods with a worker, in whatever phase.
    pub workers: BTreeSet<PodUid>,
    /// Desired pods.
    pub desired: BTreeSet<PodUid>,
    /// Desired pods whose worker is through and whose dead containers nobody reads, see
    /// [`can_remove_pod_content`].
    pub finished: BTreeSet<PodUid>,
    /// Pods with a directory under `pods/`.
    pub directories: BTreeSet<PodUid>,
    /// Pods with a cgroup.
    pub cgroups: BTreeSet<PodUid>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HousekeepingPlan {
    /// Pods that run although no one asks for them: kill with the shortest grace.
    pub orphans_to_kill: BTreeSet<PodUid>,
    /// Workers whose pod is no longer desired and that were not told: kill.
    pub workers_to_kill: BTreeSet<PodUid>,
    /// Pods that are stopped and of which the runtime still has something that nobody will ask
    /// for: collect it now, not with the next garbage.
    pub dead_to_collect: BTreeSet<PodUid>,
    /// Directories of pods that are neither desired nor worked on nor in the runtime.
    pub directories_to_remove: BTreeSet<PodUid>,
    /// The same of cgroups.
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

/// Compares what is desired with what is worked on, what runs and what lies on the disk.
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

/// True if nobody reads the pod's dead containers any more, once its worker is through (upstream
/// `ShouldPodContentBeRemoved`): it was evicted, or deleted, and the API server knows its end.
pub fn can_remove_pod_content(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    let evicted = status.and_then(|status| status.reason.as_deref()) == Some("Evicted");
    matches!(phase, Some("Failed" | "Succeeded"))
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
    fn only_what_nobody_wants_or_works_on_is_cleaned() {
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
    fn the_containers_of_a_finished_pod_go_at_once_and_its_directory_with_the_pod() {
        let f = "finished";
        check(["", f, f, f, f], "dead(finished)");
        check([f, f, f, f, f], "nothing");
        check(["", "", f, f, f], "nothing");
    }

    #[test]
    fn content_goes_when_the_server_knows_the_end_of_an_evicted_or_deleted_pod() {
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
    fn what_a_static_pod_replaces_does_not_wait_for_the_api_server() {
        let mut input = HousekeepingInput {
            sources_ready: false,
            static_sources_ready: true,
            predecessors: set("old dead worked"),
            running: set("old worked stranger"),
            in_runtime: set("old dead worked stranger"),
            workers: set("worked new"),
            desired: set("new"),
            finished: BTreeSet::new(),
            directories: set("old dead stranger"),
            cgroups: set("old dead stranger"),
        };
        assert_eq!(plan(&input).to_string(), "orphans(old)");
        // another static source may still ask for it
        input.static_sources_ready = false;
        assert_eq!(plan(&input).to_string(), "nothing");
    }
}
