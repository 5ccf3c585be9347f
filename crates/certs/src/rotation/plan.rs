//! Pure decisions: when a certificate is rotated, and with which credentials.

use std::fmt;
use std::time::Duration;

use windlass_client::ClientIdentity;
use windlass_types::Timestamp;
use windlass_units::hash::fnv1a_64;

/// Back-off after failed attempts: 2 s, doubled up to 32 s as upstream.
const INITIAL_BACKOFF: Duration = Duration::from_secs(2);
const DOUBLINGS: u32 = 4;
/// How long the API server must reject a certificate before another CSR: upstream exits after this
/// time without valid credentials.
const REJECTION_THRESHOLD: Duration = Duration::from_secs(5 * 60);
/// Doublings of the threshold if new certificates are rejected too: at most one CSR in 80 min.
const REJECTION_DOUBLINGS: u32 = 4;
/// Maximum wait, so that clock changes and replaced files are noticed.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// Validity of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Start.
    pub not_before: Timestamp,
    /// End.
    pub not_after: Timestamp,
}

impl Validity {
    /// The validity of a client certificate; `None` without one.
    pub(crate) fn from_identity(identity: &ClientIdentity) -> Option<Self> {
        Some(Self {
            not_before: identity.begins_at()?,
            not_after: identity.expires_at()?,
        })
    }

    /// Returns the renewal time: between 70 % and 90 % of the validity, different per node and
    /// stable across restarts.
    pub(crate) fn rotate_at(&self, node: &str) -> Timestamp {
        let lifetime = Duration::try_from(self.not_after.duration_since(self.not_before));
        let lifetime = lifetime.unwrap_or(Duration::ZERO);
        let share = 0.7 + 0.2 * jitter(&format!("{node}/{}", self.not_after.as_second()));
        self.not_before
            .saturating_add(lifetime.mul_f64(share))
            .unwrap_or(self.not_after)
    }

    pub(crate) fn is_current(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }
}

/// The input of a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RotationState<'a> {
    /// Name of the node, for jitter.
    pub node: &'a str,
    /// Validity of the current certificate.
    pub validity: Option<Validity>,
    /// How long the API server has responded only with 401 and 403.
    pub rejected_for: Option<Duration>,
    /// Certificates obtained since the server last accepted one.
    pub replaced: u32,
    /// Rotation is enabled.
    pub rotate: bool,
    /// There are bootstrap credentials.
    pub bootstrap: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Check again after this time.
    Wait(Duration),
    /// Create a CSR with the current certificate.
    Renew,
    /// Create a CSR with the bootstrap credentials.
    Bootstrap,
    /// No valid certificate and no bootstrap credentials: only a user can help.
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

/// Decides on the next step.
pub(crate) fn step(state: &RotationState<'_>, now: Timestamp) -> Step {
    let current = state.validity.filter(|validity| validity.is_current(now));
    let Some(validity) = current else {
        return match state.bootstrap {
            true => Step::Bootstrap,
            false => Step::NoCredentials,
        };
    };
    let threshold = REJECTION_THRESHOLD * 2u32.pow(state.replaced.min(REJECTION_DOUBLINGS));
    let rejected = state.rejected_for.is_some_and(|time| time >= threshold);
    if rejected && state.bootstrap {
        // valid by its dates, but probably the cluster CA was replaced
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

/// Returns the certificate to use: a valid one before others, then the last issued, then the first
/// in the list.
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

/// Returns the back-off after the nth failure in a row, with up to 10 % jitter per node.
pub(crate) fn backoff(failures: u32, node: &str) -> Duration {
    let backoff = INITIAL_BACKOFF * 2u32.pow(failures.saturating_sub(1).min(DOUBLINGS));
    backoff.mul_f64(1.0 + 0.1 * jitter(&format!("{node}/{failures}")))
}

/// Returns a number in [0, 1) that depends only on the text.
fn jitter(text: &str) -> f64 {
    (fnv1a_64(text.as_bytes()) % 1024) as f64 / 1024.0
}
