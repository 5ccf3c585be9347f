//! The plan of a run: which fault is injected after which pause, from a seed.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9` of the agent, which is started again at once.
    Agent,
    /// `kill -9` of containerd, which is started again at once.
    Containerd,
    /// `kill -9` of one shim.
    Shim,
    /// `kill -9` of the process of one container.
    Container,
    /// SIGSTOP of containerd for some seconds.
    Stop,
    /// The disk of the agent's root directory is full for some seconds.
    Disk,
    /// A FUSE file system that answers nothing, below the volume of one pod, for some seconds.
    Fuse,
}

impl Fault {
    pub(crate) const ALL: [Self; 7] = [
        Self::Agent,
        Self::Containerd,
        Self::Shim,
        Self::Container,
        Self::Stop,
        Self::Disk,
        Self::Fuse,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Containerd => "containerd",
            Self::Shim => "shims",
            Self::Container => "containers",
            Self::Stop => "stop",
            Self::Disk => "disk",
            Self::Fuse => "fuse",
        }
    }

    /// Share of the faults: the agent is what is tested, and the others take seconds each.
    fn weight(self) -> u32 {
        match self {
            Self::Agent => 80,
            Self::Containerd | Self::Shim | Self::Container => 5,
            Self::Stop => 3,
            Self::Disk | Self::Fuse => 1,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|fault| fault.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("unknown fault {text:?}; known are {names}")
        })
    }
}

/// A step: a pause, an edit of the pods, then a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// Time before the fault; the edit is at its begin.
    pub(crate) pause: Duration,
    /// Number of the pod that is created, or deleted if it exists; `None` without an edit.
    pub(crate) edit: Option<usize>,
    /// Fault.
    pub(crate) fault: Fault,
    /// Duration of a fault that lasts.
    pub(crate) lasts: Duration,
    /// Selects what the fault hits.
    pub(crate) pick: usize,
    /// Whether everything comes back into service before the next step.
    pub(crate) rest: bool,
}

/// Steps from a seed; the same seed gives the same steps.
#[derive(Debug)]
pub(crate) struct Plan {
    random: SmallRng,
    faults: Vec<Fault>,
    max_pause: Duration,
    churn: usize,
    steps: usize,
}

/// Number of steps between two rests: crash loops and new pods make progress in them.
const STEPS_PER_REST: usize = 25;
/// Percent of the steps that create or delete a pod.
const EDITS: u32 = 60;

impl Plan {
    pub(crate) fn new(seed: u64, faults: Vec<Fault>, max_pause: Duration, churn: usize) -> Self {
        Self {
            random: SmallRng::seed_from_u64(seed),
            faults,
            max_pause,
            churn: churn.max(1),
            steps: 0,
        }
    }

    pub(crate) fn next(&mut self) -> Step {
        self.steps += 1;
        let total: u32 = self.faults.iter().map(|fault| fault.weight()).sum();
        let mut at = self.random.random_range(0..total.max(1));
        let mut faults = self.faults.iter();
        let fault = faults.find(|fault| {
            let hit = at < fault.weight();
            at = at.saturating_sub(fault.weight());
            hit
        });
        // half of the pauses are short, so that kills hit the start of the agent too
        let max = match self.random.random_bool(0.5) {
            true => self.max_pause / 5,
            false => self.max_pause,
        };
        let pause = max.mul_f64(self.random.random_range(0.0..1.0));
        let edits = self.random.random_ratio(EDITS, 100);
        let edited = self.random.random_range(0..self.churn);
        Step {
            pause,
            edit: edits.then_some(edited),
            fault: fault.copied().unwrap_or(Fault::Agent),
            lasts: Duration::from_millis(self.random.random_range(1000..5000)),
            pick: self.random.random_range(0..usize::MAX),
            rest: self.steps.is_multiple_of(STEPS_PER_REST),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(seed: u64, faults: &[Fault]) -> Vec<Step> {
        let mut plan = Plan::new(seed, faults.to_vec(), Duration::from_secs(2), 5);
        (0..2000).map(|_| plan.next()).collect()
    }

    #[test]
    fn seed_determines_the_steps() {
        let all = Fault::ALL;
        assert_eq!(steps(1, &all), steps(1, &all));
        assert_ne!(steps(1, &all), steps(2, &all));
    }

    #[test]
    fn every_selected_fault_occurs_and_no_other() {
        let seen = |faults: &[Fault]| {
            let mut seen: Vec<Fault> = steps(3, faults).iter().map(|step| step.fault).collect();
            seen.sort();
            seen.dedup();
            seen
        };
        assert_eq!(seen(&Fault::ALL), Fault::ALL);
        assert_eq!(seen(&[Fault::Shim]), [Fault::Shim]);
        assert_eq!(
            seen(&[Fault::Agent, Fault::Disk]),
            [Fault::Agent, Fault::Disk]
        );
    }

    #[test]
    fn pauses_edits_and_rests_are_in_range() {
        let steps = steps(4, &Fault::ALL);
        assert!(
            steps
                .iter()
                .all(|step| step.pause <= Duration::from_secs(2))
        );
        assert!(steps.iter().flat_map(|step| step.edit).all(|pod| pod < 5));
        assert_eq!(
            steps.iter().filter(|step| step.rest).count(),
            2000 / STEPS_PER_REST
        );
    }

    #[test]
    fn names_of_faults_are_parsed() {
        for fault in Fault::ALL {
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("disks".parse::<Fault>().is_err());
    }
}
