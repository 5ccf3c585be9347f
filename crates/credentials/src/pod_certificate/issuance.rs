//! One source from its first request to the last renewal: upstream's states as a value that says
//! what is to be done next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_types::Reason;

use super::due::{Due, Moment};
use super::{Issued, Outcome, Refusal, Seen, Verdict};
use windlass_pod_inputs::projection::Credential;
use windlass_units::hash::fnv1a_64;

/// A request that the watch has not shown for so long was deleted (upstream
/// `assumeDeletedThreshold`).
const ASSUME_DELETED: Duration = Duration::from_secs(10 * 60);
/// A renewal that takes longer than this is overdue (upstream `refreshOverdueDuration`).
const OVERDUE: Duration = Duration::from_secs(10 * 60);
/// Requests made at the same time come up to this much apart (upstream `jitterDuration`).
const JITTER: Duration = Duration::from_secs(5 * 60);
/// The pause after the first failure; it doubles with each more (upstream's queue).
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// Nobody waits longer than this and as much jitter (upstream's pass over all sources), which is
/// also the shortest time between two certificates of a signer whose clock is wrong.
const PASS: Duration = Duration::from_secs(60);

/// The certificate of one source.
#[derive(Clone, Debug)]
pub struct Issuance {
    /// Makes the jitter: the same in every replay, another for each source.
    seed: String,
    serving: Option<Serving>,
    pending: Option<Pending>,
    refusal: Option<Refusal>,
    /// Nothing is asked before.
    pause: Option<Due>,
    /// Since a request was last accepted.
    failures: u32,
    /// What went wrong last.
    error: Option<String>,
    /// How often the jitter was used.
    draws: u64,
}

/// What is shown to the pod.
#[derive(Clone, Debug)]
struct Serving {
    credential: Credential,
    refresh: Due,
    overdue: Due,
    expiry: Due,
    told_overdue: bool,
    told_expired: bool,
}

/// A request that was made.
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

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Make a key and a request for it.
    Ask,
    /// There is a new certificate: the pod is to be told.
    Issued,
    /// The request was turned down for good: the pod and everybody else is to be told.
    Refused(Notice),
    /// Somebody has to know.
    Tell(Notice),
    /// Nothing until then, unless something changes about the pending request.
    Wait(Duration),
    /// Nothing more.
    Over,
}

/// What is told of a certificate, as an event of its pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A request was turned down.
    Refused {
        /// Namespace and name.
        request: String,
        /// By what.
        refusal: Refusal,
    },
    /// It should have been renewed ten minutes ago.
    Overdue,
    /// It ran out.
    Expired,
}

impl Notice {
    /// The event's reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Refused { refusal, .. } => match refusal.verdict {
                Verdict::Denied => Reason::Denied,
                Verdict::Failed => Reason::Failed,
            },
            Self::Overdue => Reason::CertificateOverdueForRefresh,
            Self::Expired => Reason::CertificateExpired,
        }
    }
}

/// The event's message.
impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { request, refusal } => {
                let how = match refusal.verdict {
                    Verdict::Denied => "was denied",
                    Verdict::Failed => "failed",
                };
                let Refusal {
                    reason, message, ..
                } = refusal;
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
            Self::Ask => f.write_str("ask"),
            Self::Issued => f.write_str("issued"),
            Self::Refused(notice) | Self::Tell(notice) => {
                write!(f, "tell {}: {notice}", notice.reason())
            }
            Self::Wait(left) => write!(f, "wait {}ms", left.as_millis()),
            Self::Over => f.write_str("over"),
        }
    }
}

impl Issuance {
    /// Nothing was asked yet. `seed` is the source's own: pod, volume and place in it.
    pub fn new(seed: String) -> Self {
        Self {
            seed,
            serving: None,
            pending: None,
            refusal: None,
            pause: None,
            failures: 0,
            error: None,
            draws: 0,
        }
    }

    /// What is to be done, given what is known of the pending request. Ask again when that is done.
    pub fn step(&mut self, now: Moment, seen: &Seen) -> Step {
        if self.refusal.is_some() {
            return Step::Over;
        }
        if let Some(step) = self.decided(now, seen) {
            return step;
        }
        let serving = self.serving.as_mut();
        if let Some(notice) = serving.and_then(|serving| serving.notice(now)) {
            return Step::Tell(notice);
        }
        let next = match &self.pending {
            Some(pending) if !pending.seen => pending.abandon.left(now),
            Some(_) => Duration::MAX,
            None => {
                let refresh = self.serving.as_ref().map(|it| it.refresh.left(now));
                let pause = self.pause.map(|pause| pause.left(now));
                let left = refresh.unwrap_or_default().max(pause.unwrap_or_default());
                if left.is_zero() {
                    return Step::Ask;
                }
                left
            }
        };
        let notice = self.serving.as_ref().and_then(|it| it.until_notice(now));
        let next = next.min(notice.unwrap_or(Duration::MAX));
        Step::Wait(next.min(PASS + self.jitter(PASS)))
    }

    /// A request was made.
    pub fn asked(&mut self, now: Moment, request: String, key: Arc<[u8]>) {
        let abandon = Due::after(now, ASSUME_DELETED + self.draw(JITTER));
        self.pending = Some(Pending {
            request,
            key,
            abandon,
            seen: false,
        });
        self.failures = 0;
        self.pause = None;
        self.error = None;
    }

    /// A request could not be made; the API server may have said how long to wait.
    pub fn failed(&mut self, now: Moment, error: String, retry_after: Option<Duration>) {
        let doubled = FIRST_PAUSE.saturating_mul(1_u32 << self.failures.min(20));
        self.failures = self.failures.saturating_add(1);
        let pause = doubled.min(PASS + self.draw(PASS));
        let pause = pause.max(retry_after.unwrap_or_default());
        self.pause = Some(Due::after(now, pause));
        self.error = Some(error);
    }

    /// Name of the request that is pending.
    pub fn pending(&self) -> Option<&str> {
        self.pending.as_ref().map(|it| it.request.as_str())
    }

    /// What the pod is shown, or why there is nothing.
    ///
    /// # Errors
    /// There is no certificate yet, or none will come; in upstream's words, and with what went
    /// wrong last, which upstream tells its log only.
    pub fn credential(&self) -> Result<Credential, String> {
        if let Some(Refusal {
            verdict,
            reason,
            message,
        }) = &self.refusal
        {
            return Err(format!(
                "PodCertificateRequest was permanently {verdict}: \
                 reason={reason:?} message={message:?}"
            ));
        }
        match (&self.serving, &self.error) {
            (Some(serving), _) => Ok(serving.credential.clone()),
            (None, None) => Err("credential bundle is not issued yet".to_owned()),
            (None, Some(error)) => Err(format!("credential bundle is not issued yet: {error}")),
        }
    }

    /// There is an answer, good or bad.
    pub fn is_settled(&self) -> bool {
        self.serving.is_some() || self.refusal.is_some()
    }

    /// The state as `kubelet_podcertificate_states` counts it.
    pub fn state(&self, now: Moment) -> &'static str {
        match (&self.refusal, &self.serving) {
            (Some(refusal), _) => match refusal.verdict {
                Verdict::Denied => "denied",
                Verdict::Failed => "failed",
            },
            (None, None) => "not_yet_issued",
            (None, Some(serving)) if serving.expiry.is_reached(now) => "expired",
            (None, Some(serving)) if serving.overdue.is_reached(now) => "overdue_for_refresh",
            (None, Some(_)) => "fresh",
        }
    }

    /// Takes in what became of the pending request; `None` if it is still pending, or was lost.
    fn decided(&mut self, now: Moment, seen: &Seen) -> Option<Step> {
        let mut pending = self.pending.take()?;
        match seen {
            Seen::Found(outcome) => match &**outcome {
                Outcome::Issued(issued) => {
                    self.serve(now, pending.key, issued);
                    return Some(Step::Issued);
                }
                Outcome::Refused(refusal) => {
                    self.refusal = Some(refusal.clone());
                    self.serving = None;
                    return Some(Step::Refused(Notice::Refused {
                        request: pending.request,
                        refusal: refusal.clone(),
                    }));
                }
                Outcome::Pending => pending.seen = true,
            },
            // upstream waits for the threshold even for one that it has seen
            Seen::Absent if pending.seen || pending.abandon.is_reached(now) => {
                let request = &pending.request;
                let error =
                    format!("PodCertificateRequest {request:?} appears to have been deleted");
                self.failed(now, error, None);
                return None;
            }
            Seen::Absent | Seen::NotRead => {}
        }
        self.pending = Some(pending);
        None
    }

    fn serve(&mut self, now: Moment, key: Arc<[u8]>, issued: &Issued) {
        let refresh = Due::at(now, issued.begin_refresh_at).plus(self.draw(JITTER));
        self.serving = Some(Serving {
            credential: Credential {
                key,
                chain: Arc::clone(&issued.chain),
            },
            refresh,
            overdue: refresh.plus(OVERDUE),
            expiry: Due::at(now, issued.not_after),
            told_overdue: false,
            told_expired: false,
        });
        self.pause = Some(Due::after(now, PASS + self.draw(PASS)));
        self.failures = 0;
        self.error = None;
    }

    /// Less than `most`, another one each time.
    fn draw(&mut self, most: Duration) -> Duration {
        self.draws += 1;
        self.jitter(most)
    }

    fn jitter(&self, most: Duration) -> Duration {
        let seed = fnv1a_64(format!("{}/{}", self.seed, self.draws).as_bytes());
        most.mul_f64((seed % 4096) as f64 / 4096.0)
    }
}

impl Serving {
    /// What is to be told of it now; each once.
    fn notice(&mut self, now: Moment) -> Option<Notice> {
        if self.overdue.is_reached(now) && !self.told_overdue {
            self.told_overdue = true;
            return Some(Notice::Overdue);
        }
        if self.expiry.is_reached(now) && !self.told_expired {
            self.told_expired = true;
            return Some(Notice::Expired);
        }
        None
    }

    fn until_notice(&self, now: Moment) -> Option<Duration> {
        let overdue = (!self.told_overdue).then(|| self.overdue.left(now));
        let expiry = (!self.told_expired).then(|| self.expiry.left(now));
        overdue.into_iter().chain(expiry).min()
    }
}
