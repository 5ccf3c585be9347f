//! The plan of a run: at which instant of the machine's life each power cut is, from a seed.

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

    /// Max time from the begin of the stage to the cut, on an emulated processor.
    fn max_delay(self) -> Duration {
        Duration::from_secs(match self {
            Self::Boot => 60,
            Self::Start => 40,
            Self::Rest => 10,
            Self::Create => 15,
            Self::Delete => 8,
        })
    }

    /// Whether the machine is cut before it has converged.
    pub(crate) fn is_early(self) -> bool {
        matches!(self, Self::Boot | Self::Start)
    }
}

/// One power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) stage: Stage,
    /// Time from the begin of the stage.
    pub(crate) delay: Duration,
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
            let delay = stage.max_delay().mul_f64(random.random_range(0.0..1.0));
            cuts.push(Cut { stage, delay });
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
    fn only_created_pods_are_deleted_and_delays_are_in_range() {
        for seed in 0..100 {
            let mut created = 0_i32;
            for cut in cuts(seed, 50) {
                match cut.stage {
                    Stage::Create => created += 1,
                    Stage::Delete => created -= 1,
                    _ => {}
                }
                assert!(created >= 0, "{seed}");
                assert!(cut.delay <= cut.stage.max_delay(), "{cut:?}");
            }
        }
    }
}
