//! What the periodic clean-up does (upstream `HandlePodCleanups`), decided from snapshots.
//!
//! Nothing is cleaned before every configured source has spoken once: a pod nobody mentions may
//! belong to a source that is still silent. One exception: a pod that runs under the name of a
//! static pod was that pod before it was edited. It goes as soon as the sources of static pods
//! have spoken, because the edit may be what brings the API server back.

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::PodUid;

/// What the decision looks at. Take `workers` after `runtime`: a pod that started in between
/// then has a worker and is no orphan.
#[derive(Clone, Debug, Default)]
pub struct HousekeepingInput {
    /// Every configured source has delivered once.
    pub sources_ready: bool,
    /// Every configured source of static pods has delivered once.
    pub statics_ready: bool,
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
    /// Pods with a directory under `pods/`.
    pub directories: BTreeSet<PodUid>,
}

/// What to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HousekeepingPlan {
    /// Pods that run although no one asks for them: kill with the shortest grace.
    pub orphans_to_kill: BTreeSet<PodUid>,
    /// Workers whose pod is no longer desired and that were not told: kill.
    pub workers_to_kill: BTreeSet<PodUid>,
    /// Directories of pods that are neither desired nor worked on nor in the runtime.
    pub directories_to_remove: BTreeSet<PodUid>,
}

impl fmt::Display for HousekeepingPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("orphans", &self.orphans_to_kill),
            ("undesired", &self.workers_to_kill),
            ("directories", &self.directories_to_remove),
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
        let running = input.running.iter().filter(|_| input.statics_ready);
        let replaced = running.filter(|uid| input.predecessors.contains(*uid));
        return HousekeepingPlan {
            orphans_to_kill: replaced.filter(unknown).cloned().collect(),
            ..HousekeepingPlan::default()
        };
    }
    HousekeepingPlan {
        orphans_to_kill: input.running.iter().filter(unknown).cloned().collect(),
        workers_to_kill: input.workers.difference(&input.desired).cloned().collect(),
        directories_to_remove: input
            .directories
            .iter()
            .filter(unknown)
            .filter(|uid| !input.in_runtime.contains(*uid))
            .cloned()
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &str) -> BTreeSet<PodUid> {
        words.split_whitespace().map(PodUid::from).collect()
    }

    /// Columns: running, in the runtime, workers, desired, directories.
    fn check(columns: [&str; 5], expected: &str) {
        let [running, in_runtime, workers, desired, directories] = columns.map(set);
        let mut input = HousekeepingInput {
            sources_ready: true,
            statics_ready: true,
            predecessors: BTreeSet::new(),
            running,
            in_runtime,
            workers,
            desired,
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
        check(["", "a", "", "", "a"], "nothing");
        check(["", "", "", "", "a b"], "directories(a b)");
        check(["a", "a", "a", "", "a"], "undesired(a)");
        check(["a", "a", "", "a", "a"], "nothing");
        check(
            ["a", "a b", "c", "c", "a b c d"],
            "orphans(a) directories(d)",
        );
    }

    #[test]
    fn what_a_static_pod_replaces_does_not_wait_for_the_api_server() {
        let mut input = HousekeepingInput {
            sources_ready: false,
            statics_ready: true,
            predecessors: set("old dead worked"),
            running: set("old worked stranger"),
            in_runtime: set("old dead worked stranger"),
            workers: set("worked new"),
            desired: set("new"),
            directories: set("old dead stranger"),
        };
        assert_eq!(plan(&input).to_string(), "orphans(old)");
        // another static source may still ask for it
        input.statics_ready = false;
        assert_eq!(plan(&input).to_string(), "nothing");
    }
}
