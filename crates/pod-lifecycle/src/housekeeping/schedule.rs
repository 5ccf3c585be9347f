//! The schedule and scope of housekeeping rounds.
//!
//! A round starts at a tick, unless one is in progress. Most rounds only compare pods. Once a
//! minute a round includes the disk and garbage collection. In between it includes the disk while
//! an orphaned pod remains, and garbage collection when their number changes. An idle node skips
//! most ticks.

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::PodUid;

use super::HousekeepingPlan;

/// Ticks between garbage collections: 1 min with a tick every 2 s.
const GARBAGE_TICKS: u32 = 30;
/// Ticks without an event until a node is idle: 30 s with a tick every 2 s.
const IDLE_THRESHOLD_TICKS: u32 = 15;
/// Ticks between rounds on an idle node.
const IDLE_TICKS: u32 = 5;

windlass_types::text_enum! {
    /// Scope of a round; each includes those before it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Scope {
        /// Compares desired pods, workers and the runtime.
        #[default]
        Pods = "pods",
        /// Also removes files of orphaned pods.
        Disk = "disk",
        /// Also collects garbage in the runtime.
        Garbage = "garbage",
    }
}

impl Scope {
    /// True if the round scans the disk.
    pub fn includes_disk(self) -> bool {
        self != Self::Pods
    }

    /// True if the round collects garbage.
    pub fn collects_garbage(self) -> bool {
        self == Self::Garbage
    }
}

/// A round that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HousekeepingRound {
    /// Scope of its plan.
    pub scope: Scope,
    /// Update the CPU weight of the Burstable cgroup: the pods changed, or the last update may have
    /// failed.
    pub update_classes: bool,
}

impl fmt::Display for HousekeepingRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shares = match self.update_classes {
            true => " share-cpu",
            false => "",
        };
        write!(f, "begin({}){shares}", self.scope)
    }
}

/// Actions of a planned round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// Orphaned pods.
    pub orphans_to_kill: BTreeSet<PodUid>,
    /// Workers of undesired pods.
    pub workers_to_kill: BTreeSet<PodUid>,
    /// Scope of the removals that follow; `None` ends the round.
    pub finish: Option<Scope>,
    /// The plan is not empty and not that of the round before: it is worth a line in the log.
    pub is_new: bool,
}

impl fmt::Display for CleanUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, list) in [
            ("orphans", &self.orphans_to_kill),
            ("undesired", &self.workers_to_kill),
        ] {
            if !list.is_empty() {
                let uids: Vec<_> = list.iter().map(PodUid::as_str).collect();
                write!(f, "{word}({}) ", uids.join(" "))?;
            }
        }
        match self.finish {
            Some(scope) => write!(f, "finish({scope})"),
            None => f.write_str("end"),
        }
    }
}

/// The schedule of housekeeping rounds.
#[derive(Debug, Default)]
pub struct HousekeepingSchedule {
    ticks: u32,
    /// Ticks since the last event.
    idle_ticks: u32,
    in_progress: bool,
    garbage_wanted: bool,
    /// Pods at the last update of the Burstable CPU weight.
    weighted: BTreeSet<PodUid>,
    /// The last plan: the collection of its dead pods has started, and the directories of its
    /// orphaned pods are removed next.
    last: HousekeepingPlan,
}

impl HousekeepingSchedule {
    /// Records a change by a source, the runtime, a volume or a probe.
    pub fn event(&mut self) {
        self.idle_ticks = 0;
    }

    /// Starts a round; `None` during a round and for most ticks of an idle node.
    pub fn tick(
        &mut self,
        desired: impl FnOnce() -> BTreeSet<PodUid>,
    ) -> Option<HousekeepingRound> {
        self.ticks += 1;
        self.idle_ticks = self.idle_ticks.saturating_add(1);
        self.garbage_wanted |= self.ticks % GARBAGE_TICKS == 1;
        let is_idle = self.idle_ticks > IDLE_THRESHOLD_TICKS && self.scope() == Scope::Pods;
        if self.in_progress || (is_idle && !self.ticks.is_multiple_of(IDLE_TICKS)) {
            return None;
        }
        self.in_progress = true;
        let desired = desired();
        let update_classes = self.garbage_wanted || self.weighted != desired;
        self.weighted = desired;
        Some(HousekeepingRound {
            scope: self.scope(),
            update_classes,
        })
    }

    /// Returns the actions of a plan, without pods that became desired meanwhile.
    pub fn planned(&mut self, plan: &HousekeepingPlan, desired: &BTreeSet<PodUid>) -> CleanUp {
        let is_empty = *plan == HousekeepingPlan::default();
        if !is_empty {
            self.event();
        }
        let last = std::mem::replace(&mut self.last, plan.clone());
        // a failed collection is retried once a minute; logs of a removed pod are collected now
        self.garbage_wanted |= !plan.dead_to_collect.is_subset(&last.dead_to_collect)
            || !orphans(&last).is_subset(&orphans(plan));
        let finish = Some(self.scope_after(&last)).filter(|scope| scope.includes_disk());
        self.in_progress = finish.is_some();
        self.garbage_wanted &= finish.is_none();
        CleanUp {
            orphans_to_kill: &plan.orphans_to_kill - desired,
            workers_to_kill: &plan.workers_to_kill - desired,
            finish,
            is_new: !is_empty && *plan != last,
        }
    }

    /// Ends the round.
    pub fn finished(&mut self) {
        self.in_progress = false;
    }

    fn scope(&self) -> Scope {
        self.scope_after(&self.last)
    }

    /// Scope of a round after this plan.
    fn scope_after(&self, last: &HousekeepingPlan) -> Scope {
        match (self.garbage_wanted, orphans(last).is_empty()) {
            (true, _) => Scope::Garbage,
            (false, false) => Scope::Disk,
            (false, true) => Scope::Pods,
        }
    }
}

/// Orphaned pods of a plan.
fn orphans(plan: &HousekeepingPlan) -> BTreeSet<PodUid> {
    &plan.orphans_to_kill | &plan.dead_to_collect
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &str) -> BTreeSet<PodUid> {
        words.split_whitespace().map(PodUid::from).collect()
    }

    /// A step of a test, with the desired pods.
    enum Step<'a> {
        Tick(&'a str),
        /// Ticks with empty plans.
        Quiet(u32, &'a str),
        /// Orphans, undesired and dead pods of the plan, and the desired pods.
        Planned([&'a str; 3], &'a str),
        Finished,
        Event,
    }
    use Step::{Event, Finished, Planned, Quiet, Tick};

    const NOTHING: Step<'_> = Planned(["", "", ""], "");

    fn check(script: &[(Step<'_>, &str)]) {
        let mut rounds = HousekeepingSchedule::default();
        for (index, (step, expected)) in script.iter().enumerate() {
            let line = match step {
                Tick(desired) => {
                    let round = rounds.tick(|| set(desired));
                    round.map_or("-".to_owned(), |round| round.to_string())
                }
                Quiet(ticks, desired) => {
                    for _ in 0..*ticks {
                        rounds.tick(|| set(desired));
                        rounds.planned(&HousekeepingPlan::default(), &set(desired));
                        rounds.finished();
                    }
                    String::new()
                }
                Planned([orphans, undesired, dead], desired) => {
                    let plan = HousekeepingPlan {
                        orphans_to_kill: set(orphans),
                        workers_to_kill: set(undesired),
                        dead_to_collect: set(dead),
                        ..HousekeepingPlan::default()
                    };
                    rounds.planned(&plan, &set(desired)).to_string()
                }
                Finished => {
                    rounds.finished();
                    String::new()
                }
                Event => {
                    rounds.event();
                    String::new()
                }
            };
            assert_eq!(line, *expected, "step {index}");
        }
    }

    #[test]
    fn garbage_is_collected_first_and_then_once_a_minute() {
        check(&[
            (Tick(""), "begin(garbage) share-cpu"),
            (NOTHING, "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(pods)"),
            (NOTHING, "end"),
            (Quiet(28, ""), ""),
            (Tick(""), "begin(garbage) share-cpu"),
        ]);
    }

    #[test]
    fn round_starts_after_the_last_one_with_its_missed_scope() {
        check(&[
            (Quiet(29, ""), ""),
            (Tick(""), "begin(pods)"),
            (Tick(""), "-"),
            (NOTHING, "finish(garbage)"),
            (Tick(""), "-"),
            (Finished, ""),
            (Event, ""),
            (Tick(""), "begin(pods)"),
        ]);
        check(&[
            (Quiet(29, ""), ""),
            (Tick(""), "begin(pods)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
            (Tick(""), "-"),
            (Finished, ""),
            (Tick(""), "begin(garbage) share-cpu"),
        ]);
    }

    #[test]
    fn idle_node_has_a_round_with_every_fifth_tick_until_an_event() {
        check(&[
            (Quiet(14, ""), ""),
            (Tick(""), "begin(pods)"),
            (NOTHING, "end"),
            (Tick(""), "-"),
            (Tick(""), "-"),
            (Tick(""), "-"),
            (Tick(""), "-"),
            (Tick(""), "begin(pods)"),
            (NOTHING, "end"),
            (Tick(""), "-"),
            (Event, ""),
            (Tick(""), "begin(pods)"),
            (NOTHING, "end"),
            (Tick(""), "begin(pods)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
        ]);
    }

    #[test]
    fn burstable_weight_is_updated_when_pods_change() {
        check(&[
            (Quiet(1, "a"), ""),
            (Tick("a"), "begin(pods)"),
            (NOTHING, "end"),
            (Tick("a b"), "begin(pods) share-cpu"),
            (NOTHING, "end"),
            (Tick("a b"), "begin(pods)"),
            (NOTHING, "end"),
            (Tick("b"), "begin(pods) share-cpu"),
        ]);
    }

    #[test]
    fn dead_pod_is_collected_at_once_and_its_logs_after_removal() {
        check(&[
            (Quiet(1, ""), ""),
            (Tick(""), "begin(pods)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
            // the collection failed
            (Planned(["", "", "a"], ""), "finish(disk)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
            (Planned(["", "", "a b"], ""), "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
            (Planned(["", "", "b"], ""), "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
            (NOTHING, "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(pods)"),
        ]);
    }

    #[test]
    fn plan_is_logged_when_it_changes() {
        let mut rounds = HousekeepingSchedule::default();
        let plan = |dead: &str| HousekeepingPlan {
            dead_to_collect: set(dead),
            ..HousekeepingPlan::default()
        };
        for (dead, is_new) in [
            ("", false),
            ("a", true),
            // a sandbox that cannot be stopped is planned again and again
            ("a", false),
            ("a b", true),
            ("", false),
            ("a b", true),
        ] {
            let actions = rounds.planned(&plan(dead), &set(""));
            assert_eq!(actions.is_new, is_new, "dead pods {dead:?}");
        }
    }

    #[test]
    fn orphan_is_killed_then_its_files_are_removed() {
        check(&[
            (Quiet(1, ""), ""),
            (Tick(""), "begin(pods)"),
            (Planned(["a", "w", ""], ""), "orphans(a) undesired(w) end"),
            (Tick(""), "begin(disk)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
        ]);
    }

    #[test]
    fn pods_desired_since_the_plan_are_kept() {
        check(&[
            (Quiet(1, ""), ""),
            (Tick(""), "begin(pods)"),
            (
                Planned(["a b", "v w", ""], "a w x"),
                "orphans(b) undesired(v) end",
            ),
        ]);
    }
}
