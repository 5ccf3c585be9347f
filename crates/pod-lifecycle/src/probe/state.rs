//! Thresholds: from outcomes to a probe result.

use windlass_types::ProbeKind;

use super::{ProbeOutcome, ProbeSpec};

/// State of a probe of one container instance. Unlike upstream, counts do not carry over to the
/// next instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeState {
    kind: ProbeKind,
    success_threshold: u32,
    failure_threshold: u32,
    result: Option<bool>,
    /// Last counted outcome, and its consecutive count.
    run: Option<(bool, u32)>,
    on_hold: bool,
}

impl ProbeState {
    /// Creates the state of an instance without an attempt.
    pub fn new(kind: ProbeKind, spec: &ProbeSpec) -> Self {
        Self::restored(kind, spec, Self::initial(kind))
    }

    /// Creates the state of an instance with the result of the previous agent run.
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

    /// Returns the initial result.
    pub fn initial(kind: ProbeKind) -> Option<bool> {
        match kind {
            ProbeKind::Liveness => Some(true),
            ProbeKind::Readiness => Some(false),
            ProbeKind::Startup => None,
        }
    }

    /// Returns the current result.
    pub fn result(&self) -> Option<bool> {
        self.result
    }

    /// True if the probe is not repeated: liveness failed, or startup has a result.
    pub fn is_on_hold(&self) -> bool {
        self.on_hold
    }

    /// Counts an outcome and returns the result if it changed. Ignores errors, and outcomes while
    /// the probe is on hold.
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
