//! How outcomes add up to a result.

use windlass_types::ProbeKind;

use super::{ProbeOutcome, ProbeSpec};

/// What the probe of one container instance has come to. A new instance has a new state: nothing
/// of the old one counts, where upstream keeps counting from one instance into the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    kind: ProbeKind,
    success_threshold: u32,
    failure_threshold: u32,
    result: Option<bool>,
    /// The last outcome that counted, and how often in a row it came.
    run: Option<(bool, u32)>,
    on_hold: bool,
}

impl ProbeState {
    /// Of an instance that has not been asked.
    pub fn new(kind: ProbeKind, spec: &ProbeSpec) -> Self {
        Self::restored(kind, spec, Self::initial(kind))
    }

    /// Of an instance on which there already is a result, from before the agent was started.
    pub fn restored(kind: ProbeKind, spec: &ProbeSpec, result: Option<bool>) -> Self {
        let mut state = Self {
            kind,
            success_threshold: spec.success_threshold,
            failure_threshold: spec.failure_threshold,
            result: None,
            run: None,
            on_hold: false,
        };
        state.decide(result);
        state
    }

    /// The result before the first question.
    pub fn initial(kind: ProbeKind) -> Option<bool> {
        match kind {
            ProbeKind::Liveness => Some(true),
            ProbeKind::Readiness => Some(false),
            ProbeKind::Startup => None,
        }
    }

    /// The result so far.
    pub fn result(&self) -> Option<bool> {
        self.result
    }

    /// True if this instance is not asked again: its liveness failed, or its startup is decided.
    pub fn is_on_hold(&self) -> bool {
        self.on_hold
    }

    /// Counts an outcome; the result if this changed it. An outcome that comes in while the
    /// probe is_on_hold, or an error, changes nothing.
    pub fn record(&mut self, outcome: &ProbeOutcome) -> Option<bool> {
        let ok = outcome.counts()?;
        if self.on_hold {
            return None;
        }
        let times = match self.run {
            Some((last, times)) if last == ok => times.saturating_add(1),
            _ => 1,
        };
        self.run = Some((ok, times));
        let threshold = match ok {
            true => self.success_threshold,
            false => self.failure_threshold,
        };
        if times < threshold {
            return None;
        }
        let changed = self.result != Some(ok);
        self.decide(Some(ok));
        changed.then_some(ok)
    }

    fn decide(&mut self, result: Option<bool>) {
        self.result = result;
        self.on_hold = match self.kind {
            ProbeKind::Liveness => result == Some(false),
            ProbeKind::Readiness => false,
            ProbeKind::Startup => result.is_some(),
        };
    }
}
