//! The plan of a run: in which stage of the machine, and in which part of it, each power cut is, from a
//! seed.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// What the machine does when its power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// The kernel, systemd, containerd or the agent starts.
    Boot,
    /// The agent has started and starts the pods.
    Start,
    /// Nothing: all pods are as expected.
    Rest,
    /// A new pod starts.
    Create,
    /// A deleted pod terminates.
    Delete,
}

impl Stage {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Boot => "while the machine boots",
            Self::Start => "while the agent starts the pods",
            Self::Rest => "at rest",
            Self::Create => "while a new pod starts",
            Self::Delete => "while a deleted pod terminates",
        }
    }

    /// Whether the machine is cut before it has converged.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Boot | Self::Start)
    }
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cut {
    pub(crate) stage: Stage,
    /// Part of the stage that is over, from 0 to 1.
    pub(crate) part: f64,
}

/// Durations of the stages on this host: an emulated processor is slow, and slower on a busy host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durations {
    /// From power-on until the system runs scripts.
    pub(crate) boot: Duration,
    /// From then on until all pods are as expected.
    pub(crate) start: Duration,
}

impl Default for Durations {
    /// Of an idle host, until they are measured.
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(40),
            start: Duration::from_secs(40),
        }
    }
}

impl Durations {
    /// Time from the begin of the stage to the cut. A boot ends with the start of containerd and of
    /// the agent, after the first scripts; the start or the end of one pod takes half of that of all.
    pub(crate) fn delay(&self, cut: Cut) -> Duration {
        let stage = match cut.stage {
            Stage::Boot => self.boot + self.start / 4,
            Stage::Start => self.start,
            Stage::Rest => Duration::from_secs(10),
            Stage::Create | Stage::Delete => self.start / 2,
        };
        stage.mul_f64(cut.part.clamp(0.0, 1.0))
    }
}

/// Stages of ten cuts in succession, in an order from the seed.
const TEN: [Stage; 10] = [
    Stage::Boot,
    Stage::Boot,
    Stage::Boot,
    Stage::Start,
    Stage::Start,
    Stage::Rest,
    Stage::Create,
    Stage::Create,
    Stage::Create,
    Stage::Delete,
];

/// Returns the cuts of a run; the same seed gives the same cuts. Only a pod that an earlier cut
/// created is deleted.
pub(crate) fn cuts(seed: u64, count: usize) -> Vec<Cut> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut cuts = Vec::with_capacity(count);
    let mut created = 0_usize;
    while cuts.len() < count {
        let mut stages = TEN;
        stages.shuffle(&mut random);
        for mut stage in stages {
            if stage == Stage::Delete && created == 0 {
                stage = Stage::Create;
            }
            match stage {
                Stage::Create => created += 1,
                Stage::Delete => created -= 1,
                _ => {}
            }
            let part = random.random_range(0.0..1.0);
            cuts.push(Cut { stage, part });
        }
    }
    cuts.truncate(count);
    cuts
}

/// Number of cuts by stage.
pub(crate) fn by_stage(cuts: &[Cut]) -> BTreeMap<Stage, usize> {
    let mut counts = BTreeMap::new();
    for cut in cuts {
        *counts.entry(cut.stage).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_the_power_cuts() {
        assert_eq!(cuts(1, 30), cuts(1, 30));
        assert_ne!(cuts(1, 30), cuts(2, 30));
        assert_eq!(cuts(1, 30)[..7], cuts(1, 7));
    }

    #[test]
    fn ten_cuts_have_every_stage_but_a_deletion_too_early() {
        let mut with_deletion = 0;
        for seed in 0..100 {
            let counts = by_stage(&cuts(seed, 10));
            let of = |stage| counts.get(&stage).copied().unwrap_or_default();
            assert_eq!(of(Stage::Boot), 3, "{seed}");
            assert_eq!(of(Stage::Start), 2, "{seed}");
            assert_eq!(of(Stage::Rest), 1, "{seed}");
            assert_eq!(of(Stage::Create) + of(Stage::Delete), 4, "{seed}");
            with_deletion += of(Stage::Delete);
        }
        assert!(with_deletion > 50, "{with_deletion}");
    }

    #[test]
    fn only_created_pods_are_deleted_and_parts_are_in_range() {
        for seed in 0..100 {
            let mut created = 0_i32;
            for cut in cuts(seed, 50) {
                match cut.stage {
                    Stage::Create => created += 1,
                    Stage::Delete => created -= 1,
                    _ => {}
                }
                assert!(created >= 0, "{seed}");
                assert!((0.0..1.0).contains(&cut.part), "{cut:?}");
            }
        }
    }

    #[test]
    fn instant_of_a_cut_follows_the_speed_of_the_machine() {
        let durations = |boot, start| Durations {
            boot: Duration::from_secs(boot),
            start: Duration::from_secs(start),
        };
        let check = |durations: Durations, stage, part, expected: u64| {
            let delay = durations.delay(Cut { stage, part });
            assert_eq!(delay.as_secs(), expected, "{durations:?} {stage:?} {part}");
        };
        check(durations(40, 40), Stage::Boot, 0.5, 25);
        check(durations(400, 40), Stage::Boot, 0.5, 205);
        check(durations(40, 40), Stage::Start, 0.25, 10);
        check(durations(40, 400), Stage::Start, 0.25, 100);
        check(durations(40, 400), Stage::Create, 0.25, 50);
        check(durations(40, 400), Stage::Rest, 0.5, 5);
        check(Durations::default(), Stage::Delete, 0.0, 0);
    }
}
