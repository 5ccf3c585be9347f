//! Shrinks a plan that violates an invariant: fewer steps, then less time.
//!
//! Chunks of steps are removed as in delta debugging: first halves, then smaller ones, until no
//! single step can be removed. Then durations of steps and the time between steps are halved. A
//! smaller plan is kept if the same invariant fails.

use std::time::Duration;

use crate::plan::{Plan, TimedStep};
use crate::run::{RunOptions, run};

/// Time that a shrunk plan continues after its last step, if the violation is later than that.
const MIN_GAP: Duration = Duration::from_millis(10);

/// Result of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest plan found.
    pub plan: Plan,
    /// Number of runs.
    pub runs: u32,
}

/// Returns the smallest plan found whose run violates the invariant; `max_runs` limits the runs.
pub fn shrink(plan: &Plan, invariant: &str, options: &RunOptions, max_runs: u32) -> Shrunk {
    let mut shrinker = Shrinker {
        best: plan.clone(),
        invariant,
        options,
        runs: 0,
        max_runs,
    };
    shrinker.cut_end();
    shrinker.drop_steps();
    shrinker.halve_steps();
    shrinker.halve_gaps();
    shrinker.drop_steps();
    shrinker.cut_end();
    Shrunk {
        plan: shrinker.best,
        runs: shrinker.runs,
    }
}

struct Shrinker<'a> {
    best: Plan,
    invariant: &'a str,
    options: &'a RunOptions,
    runs: u32,
    max_runs: u32,
}

impl Shrinker<'_> {
    /// Runs a candidate, and keeps it if it fails alike. Returns when it failed.
    fn attempt(&mut self, candidate: Plan) -> Option<Duration> {
        if self.runs >= self.max_runs {
            return None;
        }
        self.runs += 1;
        let violation = run(&candidate, self.options).violation?;
        if violation.invariant != self.invariant {
            return None;
        }
        self.best = candidate;
        Some(violation.at)
    }

    /// Ends the plan at the violation.
    fn cut_end(&mut self) {
        let Some(at) = self.attempt(self.best.clone()) else {
            return;
        };
        let mut candidate = self.best.clone();
        candidate.steps.retain(|timed| timed.at <= at);
        candidate.length = candidate.length.min(at + Duration::from_secs(1));
        self.attempt(candidate);
    }

    fn drop_steps(&mut self) {
        let mut size = self.best.steps.len().div_ceil(2);
        while size > 0 {
            let mut start = 0;
            while start < self.best.steps.len() {
                let mut candidate = self.best.clone();
                let end = (start + size).min(candidate.steps.len());
                candidate.steps.drain(start..end);
                if self.attempt(candidate).is_none() {
                    start = end;
                }
            }
            size /= 2;
        }
    }

    fn halve_steps(&mut self) {
        for index in 0..self.best.steps.len() {
            while let Some(halved) = self.best.steps[index].step.halved() {
                let mut candidate = self.best.clone();
                candidate.steps[index].step = halved;
                if self.attempt(candidate).is_none() {
                    break;
                }
            }
        }
    }

    /// Halves the time before each step, which moves all later ones.
    fn halve_gaps(&mut self) {
        for index in 0..self.best.steps.len() {
            loop {
                let steps = &self.best.steps;
                let before = index.checked_sub(1).map_or(Duration::ZERO, |i| steps[i].at);
                let cut = (steps[index].at - before) / 2;
                if cut < MIN_GAP {
                    break;
                }
                let cut = Duration::from_millis(u64::try_from(cut.as_millis()).unwrap_or(0));
                let mut candidate = self.best.clone();
                candidate.length -= cut;
                let later = candidate.steps.iter_mut().skip(index);
                later.for_each(|TimedStep { at, .. }| *at -= cut);
                if self.attempt(candidate).is_none() {
                    break;
                }
            }
        }
    }
}
