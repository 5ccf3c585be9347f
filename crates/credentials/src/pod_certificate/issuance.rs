//! State machine of one source, from its first request to the last renewal.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::{ClockReading, Reason};

use super::due::Due;
use super::{CertificateRejection, Issued, ObservedRequest, RejectionKind, RequestOutcome};
use windlass_pod_inputs::projection::Credential;
use windlass_units::hash::fnv1a_64;

/// Time after which an unobserved request counts as deleted (upstream `assumeDeletedThreshold`).
const ASSUME_DELETED: Duration = Duration::from_secs(10 * 60);
/// Time after which a renewal is overdue (upstream `refreshOverdueDuration`).
const OVERDUE_THRESHOLD: Duration = Duration::from_secs(10 * 60);
/// Maximum jitter of requests (upstream `jitterDuration`).
const JITTER: Duration = Duration::from_secs(5 * 60);
/// Back-off after the first failure; doubles with each further one (upstream's queue).
const INITIAL_BACKOFF: Duration = Duration::from_millis(5);
/// Maximum wait, plus the same amount of jitter (upstream's pass over all sources). Also the
/// minimum time between two certificates, which matters if the clock of the signer is wrong.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// The certificate of one source.
#[derive(Clone, Debug)]
pub struct Issuance {
    /// Seed of the jitter, unique per source.
    seed: String,
    serving: Option<Serving>,
    pending: Option<Pending>,
    rejection: Option<CertificateRejection>,
    /// No request before this time.
    backoff: Option<Due>,
    /// Consecutive failed requests.
    failures: u32,
    /// Last error.
    error: Option<String>,
    /// Number of drawn jitter values.
    draws: u64,
}

/// The certificate that the pod uses.
#[derive(Clone, Debug)]
struct Serving {
    credential: Credential,
    refresh: Due,
    overdue: Due,
    expiry: Due,
    overdue_reported: bool,
    expiry_reported: bool,
}

/// A request in progress.
#[derive(Clone)]
struct Pending {
    request: String,
    key: Arc<[u8]>,
    abandon: Due,
    seen: bool,
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}", self.request)
    }
}

/// Next step of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Create a key and a request.
    Request,
    /// A certificate was issued: update the pod.
    Issued,
    /// The request was rejected permanently: update the pod and record the event.
    Rejected(CertificateEvent),
    /// Record the event.
    Notify(CertificateEvent),
    /// Wait this long, or until the pending request changes.
    Wait(Duration),
    /// No further steps.
    Finished,
}

/// Event of a pod about its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateEvent {
    /// A request was rejected.
    Rejected {
        /// Namespace and name of the request.
        request: String,
        /// The rejection.
        rejection: CertificateRejection,
    },
    /// The renewal is overdue.
    Overdue,
    /// The certificate expired.
    Expired,
}

impl CertificateEvent {
    /// Returns the reason of the event.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Rejected { rejection, .. } => match rejection.kind {
                RejectionKind::Denied => Reason::Denied,
                RejectionKind::Failed => Reason::Failed,
            },
            Self::Overdue => Reason::CertificateOverdueForRefresh,
            Self::Expired => Reason::CertificateExpired,
        }
    }
}

impl fmt::Display for CertificateEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { request, rejection } => {
                let how = match rejection.kind {
                    RejectionKind::Denied => "was denied",
                    RejectionKind::Failed => "failed",
                };
                let CertificateRejection {
                    reason, message, ..
                } = rejection;
                write!(
                    f,
                    "PodCertificateRequest {request} {how}, reason={reason:?}, message={message:?}"
                )
            }
            Self::Overdue => f.write_str("PodCertificate refresh overdue"),
            Self::Expired => f.write_str("PodCertificate expired"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request => f.write_str("request"),
            Self::Issued => f.write_str("issued"),
            Self::Rejected(event) | Self::Notify(event) => {
                write!(f, "event {}: {event}", event.reason())
            }
            Self::Wait(left) => write!(f, "wait {}ms", left.as_millis()),
            Self::Finished => f.write_str("finished"),
        }
    }
}

impl Issuance {
    /// Creates the state before the first request. `seed` is unique per source: pod, volume, index.
    pub fn new(seed: String) -> Self {
        Self {
            seed,
            serving: None,
            pending: None,
            rejection: None,
            backoff: None,
            failures: 0,
            error: None,
            draws: 0,
        }
    }

    /// Returns the next step; call it again after the step is done.
    pub fn step(&mut self, now: ClockReading, seen: &ObservedRequest) -> Step {
        if self.rejection.is_some() {
            return Step::Finished;
        }
        if let Some(step) = self.take_decision(now, seen) {
            return step;
        }
        let serving = self.serving.as_mut();
        if let Some(event) = serving.and_then(|serving| serving.event(now)) {
            return Step::Notify(event);
        }
        let next = match &self.pending {
            Some(pending) if !pending.seen => pending.abandon.left(now),
            Some(_) => Duration::MAX,
            None => {
                let refresh = self.serving.as_ref().map(|it| it.refresh.left(now));
                let backoff = self.backoff.map(|backoff| backoff.left(now));
                let left = refresh.unwrap_or_default().max(backoff.unwrap_or_default());
                if left.is_zero() {
                    return Step::Request;
                }
                left
            }
        };
        let event = self.serving.as_ref().and_then(|it| it.until_event(now));
        let next = next.min(event.unwrap_or(Duration::MAX));
        Step::Wait(next.min(MAX_BACKOFF + self.jitter(MAX_BACKOFF)))
    }

    /// Handles a created request.
    pub fn requested(&mut self, now: ClockReading, request: String, key: Arc<[u8]>) {
        let abandon = Due::after(now, ASSUME_DELETED + self.draw(JITTER));
        self.pending = Some(Pending {
            request,
            key,
            abandon,
            seen: false,
        });
        self.failures = 0;
        self.backoff = None;
        self.error = None;
    }

    /// Handles an error of a request; `retry_after` is from the API server.
    pub fn failed(&mut self, now: ClockReading, error: String, retry_after: Option<Duration>) {
        let doubled = INITIAL_BACKOFF.saturating_mul(1_u32 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let backoff = doubled.min(MAX_BACKOFF + self.draw(MAX_BACKOFF));
        let backoff = backoff.max(retry_after.unwrap_or_default());
        self.backoff = Some(Due::after(now, backoff));
        self.error = Some(error);
    }

    /// Returns the name of the pending request.
    pub fn pending(&self) -> Option<&str> {
        self.pending.as_ref().map(|it| it.request.as_str())
    }

    /// Returns the current credential.
    ///
    /// # Errors
    /// No certificate is issued yet, or the request was rejected. The text is upstream's, plus the
    /// last error, which upstream only logs.
    pub fn credential(&self) -> Result<Credential, String> {
        if let Some(CertificateRejection {
            kind,
            reason,
            message,
        }) = &self.rejection
        {
            return Err(format!(
                "PodCertificateRequest was permanently {kind}: \
                 reason={reason:?} message={message:?}"
            ));
        }
        match (&self.serving, &self.error) {
            (Some(serving), _) => Ok(serving.credential.clone()),
            (None, None) => Err("credential bundle is not issued yet".to_owned()),
            (None, Some(error)) => Err(format!("credential bundle is not issued yet: {error}")),
        }
    }

    /// Returns true after the first certificate or a rejection.
    pub fn is_settled(&self) -> bool {
        self.serving.is_some() || self.rejection.is_some()
    }

    /// Returns the state for the metric `kubelet_podcertificate_states`.
    pub fn state(&self, now: ClockReading) -> &'static str {
        match (&self.rejection, &self.serving) {
            (Some(rejection), _) => match rejection.kind {
                RejectionKind::Denied => "denied",
                RejectionKind::Failed => "failed",
            },
            (None, None) => "not_yet_issued",
            (None, Some(serving)) if serving.expiry.is_reached(now) => "expired",
            (None, Some(serving)) if serving.overdue.is_reached(now) => "overdue_for_refresh",
            (None, Some(_)) => "fresh",
        }
    }

    /// Handles the observed request; `None` if it is pending or was deleted.
    fn take_decision(&mut self, now: ClockReading, seen: &ObservedRequest) -> Option<Step> {
        let mut pending = self.pending.take()?;
        match seen {
            ObservedRequest::Found(outcome) => match &**outcome {
                RequestOutcome::Issued(issued) => {
                    self.serve(now, pending.key, issued);
                    return Some(Step::Issued);
                }
                RequestOutcome::Rejected(rejection) => {
                    self.rejection = Some(rejection.clone());
                    self.serving = None;
                    return Some(Step::Rejected(CertificateEvent::Rejected {
                        request: pending.request,
                        rejection: rejection.clone(),
                    }));
                }
                RequestOutcome::Pending => pending.seen = true,
            },
            // upstream always waits for the threshold
            ObservedRequest::Absent if pending.seen || pending.abandon.is_reached(now) => {
                let request = &pending.request;
                let error =
                    format!("PodCertificateRequest {request:?} appears to have been deleted");
                self.failed(now, error, None);
                return None;
            }
            ObservedRequest::Absent | ObservedRequest::NotRead => {}
        }
        self.pending = Some(pending);
        None
    }

    fn serve(&mut self, now: ClockReading, key: Arc<[u8]>, issued: &Issued) {
        let refresh = Due::at(now, issued.begin_refresh_at).plus(self.draw(JITTER));
        self.serving = Some(Serving {
            credential: Credential {
                key,
                chain: Arc::clone(&issued.chain),
            },
            refresh,
            overdue: refresh.plus(OVERDUE_THRESHOLD),
            expiry: Due::at(now, issued.not_after),
            overdue_reported: false,
            expiry_reported: false,
        });
        self.backoff = Some(Due::after(now, MAX_BACKOFF + self.draw(MAX_BACKOFF)));
        self.failures = 0;
        self.error = None;
    }

    /// Returns a new jitter below `max`.
    fn draw(&mut self, max: Duration) -> Duration {
        self.draws += 1;
        self.jitter(max)
    }

    fn jitter(&self, max: Duration) -> Duration {
        let seed = fnv1a_64(format!("{}/{}", self.seed, self.draws).as_bytes());
        max.mul_f64((seed % 4096) as f64 / 4096.0)
    }
}

impl Serving {
    /// Returns a due event that was not reported yet.
    fn event(&mut self, now: ClockReading) -> Option<CertificateEvent> {
        if self.overdue.is_reached(now) && !self.overdue_reported {
            self.overdue_reported = true;
            return Some(CertificateEvent::Overdue);
        }
        if self.expiry.is_reached(now) && !self.expiry_reported {
            self.expiry_reported = true;
            return Some(CertificateEvent::Expired);
        }
        None
    }

    fn until_event(&self, now: ClockReading) -> Option<Duration> {
        let overdue = (!self.overdue_reported).then(|| self.overdue.left(now));
        let expiry = (!self.expiry_reported).then(|| self.expiry.left(now));
        overdue.into_iter().chain(expiry).min()
    }
}
