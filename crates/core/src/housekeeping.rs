//! What the periodic clean-up does (upstream `HandlePodCleanups`), decided from snapshots.
//!
//! Nothing is cleaned before every configured source has spoken once: a pod nobody mentions may
//! belong to a source that is still silent.

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::PodUid;

/// What the decision looks at. Take `workers` after `runtime`: a pod that started in between
/// then has a worker and is no orphan.
#[derive(Clone, Debug, Default)]
pub struct HousekeepingInput {
    /// Every configured source has delivered once.
    pub sources_ready: bool,
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
    if !input.sources_ready {
        return HousekeepingPlan::default();
    }
    let unknown = |uid: &&PodUid| !input.desired.contains(*uid) && !input.workers.contains(*uid);
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
}
