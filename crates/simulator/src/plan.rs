//! A plan: all steps of a run with their times, as text.
//!
//! The first line has the seed, the mode and the length; each other line is the time in seconds and
//! a [`Step`]. A run depends on the plan only, so its text replays it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::step::{Step, parse_seconds, seconds};
use crate::words::words;

words! {
    /// What a run checks.
    Mode {
        /// Any fault at any time; the invariants hold at each observation.
        Safety = "safety",
        /// Faults end, and the node converges within a time.
        Liveness = "liveness",
    }
}

/// A step at its time since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedStep {
    /// Time since the start.
    pub at: Duration,
    /// The step.
    pub step: Step,
}

/// The steps of a run, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the fakes, and of the generated plan.
    pub seed: u64,
    /// Mode.
    pub mode: Mode,
    /// Length of the run.
    pub length: Duration,
    /// Steps by time.
    pub steps: Vec<TimedStep>,
}

/// Mark of the first line, with the version of the format.
const MARK: &str = "windlass-sim 1";

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = seconds(self.length);
        writeln!(f, "{MARK} {} {} {length}", self.seed, self.mode)?;
        for timed in &self.steps {
            writeln!(f, "{} {}", seconds(timed.at), timed.step)?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    /// Lines that begin with `#` are ignored.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().enumerate();
        let first = lines.next().map(|(_, line)| line).unwrap_or_default();
        let rest = first.strip_prefix(MARK);
        let rest = rest.ok_or_else(|| format!("line 1: no {MARK:?}"))?;
        let words: Vec<&str> = rest.split_whitespace().collect();
        let [seed, mode, length] = words[..] else {
            return Err("line 1: expected seed, mode and length".to_owned());
        };
        let mut plan = Self {
            seed: seed.parse().map_err(|_| "line 1: not a seed".to_owned())?,
            mode: mode.parse()?,
            length: parse_seconds(length)?,
            steps: Vec::new(),
        };
        for (index, line) in lines {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let place = |error: String| format!("line {}: {error}", index + 1);
            let (at, step) = line.split_once(' ').unwrap_or((line, ""));
            let at = parse_seconds(at).map_err(place)?;
            let step = step.parse().map_err(place)?;
            if plan.steps.last().is_some_and(|last| last.at > at) {
                return Err(place(
                    "the time is before that of the previous line".to_owned(),
                ));
            }
            plan.steps.push(TimedStep { at, step });
        }
        Ok(plan)
    }
}
