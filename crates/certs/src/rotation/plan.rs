//! When a certificate is replaced, and with which credentials: pure.

use std::fmt;
use std::time::Duration;

use windlass_client::ClientIdentity;
use windlass_types::Timestamp;
use windlass_units::hash::fnv1a_64;

/// Pauses after failed attempts: 2 s, doubled up to 32 s, where upstream's series ends too.
const INITIAL_BACKOFF: Duration = Duration::from_secs(2);
const DOUBLINGS: u32 = 4;
/// How long the server must refuse a certificate before another is asked for: after so long
/// without valid credentials upstream exits, to begin anew.
const REJECTION_THRESHOLD: Duration = Duration::from_secs(5 * 60);
/// Doublings of that, if a new certificate is refused too: at most one request in 80 min.
const REJECTION_DOUBLINGS: u32 = 4;
/// A wait is cut into pieces of this length, so that a clock that was stepped, or a file that
/// somebody replaced, is noticed.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// Validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// From.
    pub not_before: Timestamp,
    /// To.
    pub not_after: Timestamp,
}

impl Validity {
    /// Of a client certificate, if there is one.
    pub fn from_identity(identity: &ClientIdentity) -> Option<Self> {
        Some(Self {
            not_before: identity.begins_at()?,
            not_after: identity.expires_at()?,
        })
    }

    /// When it is to be replaced: between 70 % and 90 % of its life, at a point that differs
    /// from node to node and is the same after a restart.
    pub(crate) fn rotate_at(&self, node: &str) -> Timestamp {
        let life = Duration::try_from(self.not_after.duration_since(self.not_before));
        let life = life.unwrap_or(Duration::ZERO);
        let share = 0.7 + 0.2 * jitter(&format!("{node}/{}", self.not_after.as_second()));
        self.not_before
            .saturating_add(life.mul_f64(share))
            .unwrap_or(self.not_after)
    }

    /// True from the first moment to the last.
    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

/// What a decision is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationState<'a> {
    /// Name of the node: spreads what all nodes would do at once.
    pub node: &'a str,
    /// Validity of the present certificate, if there is one.
    pub validity: Option<Validity>,
    /// The server has answered it with nothing but 401 and 403 for so long.
    pub rejected_for: Option<Duration>,
    /// Certificates obtained since the server last accepted one.
    pub replaced: u32,
    /// Rotation is on.
    pub rotate: bool,
    /// There are bootstrap credentials.
    pub bootstrap: bool,
}

/// What is to be done now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look again after this time.
    Wait(Duration),
    /// Ask for a certificate with the present one.
    Renew,
    /// Ask for a certificate with the bootstrap credentials: the present one is worth nothing.
    Bootstrap,
    /// There is no valid one and nothing to ask with: only a user can help.
    NoCredentials,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(time) => write!(f, "wait({}s)", time.as_secs()),
            Self::Renew => f.write_str("renew"),
            Self::Bootstrap => f.write_str("bootstrap"),
            Self::NoCredentials => f.write_str("no credentials"),
        }
    }
}

/// Decides.
pub(crate) fn step(state: &RotationState<'_>, now: Timestamp) -> Step {
    let current = state.validity.filter(|validity| validity.is_current(now));
    let Some(validity) = current else {
        return match state.bootstrap {
            true => Step::Bootstrap,
            false => Step::NoCredentials,
        };
    };
    let timeout = REJECTION_THRESHOLD * 2u32.pow(state.replaced.min(REJECTION_DOUBLINGS));
    let refused = state.rejected_for.is_some_and(|time| time >= timeout);
    if refused && state.bootstrap {
        // valid by its dates, but the cluster's authority is another one now
        return Step::Bootstrap;
    }
    let due = validity.rotate_at(state.node);
    if state.rotate && due <= now {
        return Step::Renew;
    }
    let next = if state.rotate {
        due
    } else {
        validity.not_after
    };
    let wait = Duration::try_from(next.duration_since(now)).unwrap_or(MAX_WAIT);
    Step::Wait(wait.clamp(Duration::from_secs(1), MAX_WAIT))
}

/// Which of several certificates is used: a current one before others, then the one that was
/// issued last, then the first in the list.
pub(crate) fn newest(candidates: &[Option<Validity>], now: Timestamp) -> Option<usize> {
    let mut best: Option<(usize, Validity)> = None;
    for (index, validity) in candidates.iter().enumerate() {
        let Some(validity) = validity else { continue };
        let rank = |v: &Validity| (v.is_current(now), v.not_before);
        if best.is_none_or(|(_, other)| rank(validity) > rank(&other)) {
            best = Some((index, *validity));
        }
    }
    best.map(|(index, _)| index)
}

/// The backoff after the given number of failures in a row, counted from 1: up to a tenth longer
/// than the series says, each node differently.
pub(crate) fn backoff(failures: u32, node: &str) -> Duration {
    let backoff = INITIAL_BACKOFF * 2u32.pow(failures.saturating_sub(1).min(DOUBLINGS));
    backoff.mul_f64(1.0 + 0.1 * jitter(&format!("{node}/{failures}")))
}

/// A number in [0, 1) that stays the same for the same text.
fn jitter(text: &str) -> f64 {
    (fnv1a_64(text.as_bytes()) % 1024) as f64 / 1024.0
}
