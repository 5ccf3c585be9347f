//! Applies observations to the view, the invariants, the log and the coverage, in order.

use std::collections::VecDeque;
use std::time::Duration;

use windlass_testing::fake_runtime::RuntimeChangeKind;
use windlass_units::hash::fnv1a_64;

use crate::coverage::Coverage;
use crate::invariant::{self, Invariant, Violation};
use crate::observation::{Event, Observation, reason};
use crate::view::View;

/// Lines of the log that are kept if the whole log is not: enough to see what led to a violation.
const TAIL: usize = 400;

/// State of a run as far as it was observed.
#[derive(Debug)]
pub(crate) struct Checker {
    pub(crate) view: View,
    invariants: Vec<Box<dyn Invariant>>,
    pub(crate) coverage: Coverage,
    pub(crate) violation: Option<Violation>,
    pub(crate) log: Log,
}

/// The log of a run: all of its lines or the last ones, and a digest of all.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) lines: VecDeque<String>,
    pub(crate) digest: u64,
    keep_all: bool,
}

impl Log {
    fn add(&mut self, line: String) {
        // the digest of the digest so far and the line
        let mut bytes = self.digest.to_le_bytes().to_vec();
        bytes.extend_from_slice(line.as_bytes());
        self.digest = fnv1a_64(&bytes);
        if !self.keep_all && self.lines.len() == TAIL {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Adds what is only of interest in a whole log, and not part of the digest.
    fn add_frequent(&mut self, observation: &Observation) {
        if self.keep_all {
            self.lines.push_back(observation.to_string());
        }
    }
}

impl Checker {
    pub(crate) fn new(keep_all: bool) -> Self {
        Self {
            view: View::default(),
            invariants: invariant::all(),
            coverage: Coverage::default(),
            violation: None,
            log: Log {
                lines: VecDeque::new(),
                digest: 0,
                keep_all,
            },
        }
    }

    /// Records an observation; after the first violation only the log.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        self.view.apply(observation);
        self.cover(&observation.event);
        match observation.event {
            Event::Tick | Event::Lease => {}
            Event::Probe { .. } => self.log.add_frequent(observation),
            _ => self.log.add(observation.to_string()),
        }
        if self.violation.is_some() {
            return;
        }
        let found = self.invariants.iter_mut().find_map(|invariant| {
            let text = invariant.check(observation, &self.view).err()?;
            Some(Violation {
                invariant: invariant.name().to_owned(),
                sentence: invariant.sentence().to_owned(),
                at: observation.at,
                text,
            })
        });
        if let Some(violation) = found {
            self.violate(violation);
        }
    }

    /// Records a violation that no invariant of [`invariant::all`] found.
    pub(crate) fn fail(&mut self, name: &str, sentence: &str, at: Duration, text: String) {
        if self.violation.is_none() {
            self.violate(Violation {
                invariant: name.to_owned(),
                sentence: sentence.to_owned(),
                at,
                text,
            });
        }
    }

    fn violate(&mut self, violation: Violation) {
        self.log.add(format!("VIOLATION {violation}"));
        self.violation = Some(violation);
    }

    fn cover(&mut self, event: &Event) {
        match event {
            Event::Step(step) => self.coverage.count(&step.kind()),
            Event::AgentStarted => self.coverage.count("agent started"),
            Event::AgentKilled => self.coverage.count("agent killed"),
            Event::Runtime(change) => match change.kind {
                RuntimeChangeKind::Started => self.coverage.count("container started"),
                RuntimeChangeKind::Ended(_) => self.coverage.count("container ended"),
                RuntimeChangeKind::StopRequested(_) => self.coverage.count("stop requested"),
                _ => {}
            },
            Event::Pod { pod, is_deleted } => {
                if *is_deleted {
                    self.coverage.count("pod removed");
                }
                match reason(pod) {
                    "" => {}
                    reason => self.coverage.count(&format!("pod with reason {reason}")),
                }
            }
            Event::Request { status, .. } => {
                self.coverage.count(&format!("pod request {status}"));
            }
            Event::Probe { .. } => self.coverage.count("probe"),
            _ => {}
        }
    }
}
