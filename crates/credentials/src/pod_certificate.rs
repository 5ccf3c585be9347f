//! Certificates of pods (`podCertificate` sources of projected volumes): what a signer made of a
//! request, and what is to be done next for one source.
//!
//! Each source has a key and a certificate of its own, and nothing of them outlives the agent:
//! after a restart a new one is asked for, while the files of the old one serve on.

use std::fmt;
use std::sync::Arc;

use windlass_types::Timestamp;
use windlass_types::certificatesv1beta1::PodCertificateRequest;

use windlass_pod_inputs::projection::clean_chain;

mod due;
mod issuance;

pub use due::Moment;
pub use issuance::{Issuance, Notice, Step};

/// What has become of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nobody has decided yet.
    Pending,
    /// There is a certificate.
    Issued(Issued),
    /// There will be none.
    Refused(Refusal),
}

/// A certificate as its signer gave it.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// The chain, leaf first, PEM without anything between the blocks.
    pub chain: Arc<[u8]>,
    /// `status.beginRefreshAt`.
    pub begin_refresh_at: Timestamp,
    /// `status.notAfter`.
    pub not_after: Timestamp,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "issued until {}", self.not_after)
    }
}

/// A request that was turned down, in the words of whoever did it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// How.
    pub verdict: Verdict,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

/// How a request was turned down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The signer would not.
    Denied,
    /// The signer could not.
    Failed,
}

/// What the watch of the node's requests knows of the one that is pending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// The requests were not read yet.
    NotRead,
    /// They were, and it is not among them.
    Absent,
    /// It is.
    Found(Arc<Outcome>),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Denied => "denied",
            Self::Failed => "failed",
        })
    }
}

impl Outcome {
    /// Reads it from the object; the first condition that decides counts.
    pub fn of(request: &PodCertificateRequest) -> Self {
        let Some(status) = &request.status else {
            return Self::Pending;
        };
        let refused = |verdict, reason: &str, message: &str| {
            Self::Refused(Refusal {
                verdict,
                reason: reason.to_owned(),
                message: message.to_owned(),
            })
        };
        for condition in status.conditions.iter().flatten() {
            let (reason, message) = (&condition.reason, &condition.message);
            match condition.type_.as_str() {
                "Denied" => return refused(Verdict::Denied, reason, message),
                "Failed" => return refused(Verdict::Failed, reason, message),
                "Issued" => {
                    let chain = status.certificate_chain.as_deref().unwrap_or_default();
                    let times = (&status.begin_refresh_at, &status.not_after);
                    let (Some(begin), Some(end)) = times else {
                        // the API server lets none through without them
                        return Self::Pending;
                    };
                    return Self::Issued(Issued {
                        chain: clean_chain(chain),
                        begin_refresh_at: begin.0,
                        not_after: end.0,
                    });
                }
                _ => {}
            }
        }
        Self::Pending
    }
}

#[cfg(test)]
mod tests;
