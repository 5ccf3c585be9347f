//! Invariants with history: each is a name, one sentence and a check of every observation.
//!
//! An invariant keeps what it has to remember. It sees each observation in order, with the
//! [`View`] after it, and returns an error at the first one that violates it. To add one, write a
//! type in a module of `invariants` and add it to [`all`].

mod containers;
mod node;
mod pods;
mod restarts;
mod statuses;
mod timing;

use std::fmt;
use std::time::Duration;

use crate::observation::Observation;
use crate::step::seconds;
use crate::view::View;

/// A rule that holds after each observation.
pub trait Invariant: fmt::Debug {
    /// Short name, in words with hyphens.
    fn name(&self) -> &'static str;

    /// What must hold, in one sentence.
    fn sentence(&self) -> &'static str;

    /// Checks one observation; `view` is the state after it.
    ///
    /// # Errors
    /// What violates the invariant.
    fn check(&mut self, observation: &Observation, view: &View) -> Result<(), String>;
}

/// The first violation of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Name of the invariant.
    pub invariant: String,
    /// Its sentence.
    pub sentence: String,
    /// Time since the start of the run.
    pub at: Duration,
    /// What violated it.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = seconds(self.at);
        let (name, sentence, text) = (&self.invariant, &self.sentence, &self.text);
        write!(f, "{name} at {at} s: {text}\n  {sentence}")
    }
}

/// Returns all invariants, without history.
pub fn all() -> Vec<Box<dyn Invariant>> {
    let mut all = containers::all();
    all.extend(node::all());
    all.extend(pods::all());
    all.extend(restarts::all());
    all.extend(statuses::all());
    all.extend(timing::all());
    all
}
