//! When the node is cleaned up and how thoroughly: what one clean-up leaves to the next.
//!
//! A round begins at a tick, unless the last one goes on. Most rounds only compare pods. Once a
//! minute the disk is looked at and the runtime's garbage is collected; in between, the disk is
//! looked at while something of an unknown pod is left, and the garbage is collected when there is
//! more of it or when one of them has gone. On an idle node, most ticks are skipped: a round costs
//! time for each pod, and nothing has changed.

use std::collections::BTreeSet;
use std::fmt;

use windlass_types::PodUid;

use super::HousekeepingPlan;

/// Every this many ticks the garbage is collected: once a minute if they are two seconds apart.
const GARBAGE_EVERY: u32 = 30;
/// A node without an event for this many ticks is idle: 30 s if they are two seconds apart.
const IDLE_AFTER: u32 = 15;
/// On an idle node, a round begins with every fifth tick.
const IDLE_EVERY: u32 = 5;

/// How thorough a round is; each includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// What runs and is worked on is compared with what is desired.
    #[default]
    Pods,
    /// The disk is looked at for what unknown pods left.
    Disk,
    /// The runtime's garbage is collected.
    Garbage,
}

impl Scope {
    /// The disk is looked at for what unknown pods left.
    pub fn includes_disk(self) -> bool {
        self != Self::Pods
    }

    /// The runtime's garbage is collected.
    pub fn collects_garbage(self) -> bool {
        self == Self::Garbage
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pods => "pods",
            Self::Disk => "disk",
            Self::Garbage => "garbage",
        })
    }
}

/// A round that begins: plan it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HousekeepingRound {
    /// What the plan is to look at.
    pub scope: Scope,
    /// All Burstable pods together weigh what they request: tell, because the pods have changed,
    /// or because a minute ago it may not have been written.
    pub update_burstable_shares: bool,
}

impl fmt::Display for HousekeepingRound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let update_burstable_shares = if self.update_burstable_shares { " share-cpu" } else { "" };
        write!(f, "begin({}){update_burstable_shares}", self.scope)
    }
}

/// What a planned round does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// Pods that run although no one asks for them.
    pub orphans_to_kill: BTreeSet<PodUid>,
    /// Workers whose pod is no longer desired.
    pub workers_to_kill: BTreeSet<PodUid>,
    /// What is to be removed then; `None` ends the round.
    pub finish: Option<Scope>,
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

/// One round after the other.
#[derive(Debug, Default)]
pub struct HousekeepingSchedule {
    ticks: u32,
    /// Ticks since the last event.
    idle_ticks: u32,
    under_way: bool,
    garbage_wanted: bool,
    /// The pods that the CPU weight of all Burstable pods was told for.
    weighed: BTreeSet<PodUid>,
    /// Dead pods of the last plan: their collection was begun.
    dead: BTreeSet<PodUid>,
    /// Pods of the last plan that nobody knows but the runtime: their directories go next.
    strangers: BTreeSet<PodUid>,
}

impl HousekeepingSchedule {
    /// A source, the runtime, a volume or a probe has reported a change.
    pub fn event(&mut self) {
        self.idle_ticks = 0;
    }

    /// It is time for a round. `None` while the last round is in progress, and for most ticks of an
    /// idle node.
    pub fn tick(&mut self, desired: impl FnOnce() -> BTreeSet<PodUid>) -> Option<HousekeepingRound> {
        self.ticks += 1;
        self.idle_ticks = self.idle_ticks.saturating_add(1);
        self.garbage_wanted |= self.ticks % GARBAGE_EVERY == 1;
        let is_idle = self.idle_ticks > IDLE_AFTER && self.scope() == Scope::Pods;
        if self.under_way || (is_idle && !self.ticks.is_multiple_of(IDLE_EVERY)) {
            return None;
        }
        self.under_way = true;
        let desired = desired();
        let update_burstable_shares = self.garbage_wanted || self.weighed != desired;
        self.weighed = desired;
        Some(HousekeepingRound {
            scope: self.scope(),
            update_burstable_shares,
        })
    }

    /// The plan was made while time went on: what is desired now is left alone.
    pub fn planned(&mut self, plan: &HousekeepingPlan, desired: &BTreeSet<PodUid>) -> CleanUp {
        if *plan != HousekeepingPlan::default() {
            self.event();
        }
        let strangers = &plan.orphans_to_kill | &plan.dead_to_collect;
        // what cannot be collected is tried again with the garbage of each minute, not at once;
        // the logs of one that has gone go now
        self.garbage_wanted |=
            !plan.dead_to_collect.is_subset(&self.dead) || !self.strangers.is_subset(&strangers);
        let finish = Some(self.scope()).filter(|scope| scope.includes_disk());
        self.dead.clone_from(&plan.dead_to_collect);
        self.strangers = strangers;
        self.under_way = finish.is_some();
        self.garbage_wanted &= finish.is_none();
        CleanUp {
            orphans_to_kill: &plan.orphans_to_kill - desired,
            workers_to_kill: &plan.workers_to_kill - desired,
            finish,
        }
    }

    /// What was to be removed is removed, or could not be.
    pub fn finished(&mut self) {
        self.under_way = false;
    }

    fn scope(&self) -> Scope {
        match (self.garbage_wanted, self.strangers.is_empty()) {
            (true, _) => Scope::Garbage,
            (false, false) => Scope::Disk,
            (false, true) => Scope::Pods,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(words: &str) -> BTreeSet<PodUid> {
        words.split_whitespace().map(PodUid::from).collect()
    }

    /// One thing that happens, with the desired pods if they count.
    enum Step<'a> {
        Tick(&'a str),
        /// Ticks whose rounds find nothing to do.
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
    fn the_garbage_is_collected_at_first_and_then_once_a_minute() {
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
    fn a_round_begins_when_the_last_one_is_over_and_a_minute_that_passed_meanwhile_counts() {
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
    fn the_weight_of_burstable_pods_is_told_when_the_pods_change() {
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
    fn what_is_dead_is_collected_at_once_then_looked_after_until_it_is_gone_and_its_logs_with_it() {
        check(&[
            (Quiet(1, ""), ""),
            (Tick(""), "begin(pods)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
            (Finished, ""),
            (Tick(""), "begin(disk)"),
            // it could not be collected
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
    fn an_orphan_is_killed_and_the_disk_is_looked_at_when_it_has_ended() {
        check(&[
            (Quiet(1, ""), ""),
            (Tick(""), "begin(pods)"),
            (Planned(["a", "w", ""], ""), "orphans(a) undesired(w) end"),
            (Tick(""), "begin(disk)"),
            (Planned(["", "", "a"], ""), "finish(garbage)"),
        ]);
    }

    #[test]
    fn what_became_desired_while_the_plan_was_made_is_left_alone() {
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
