//! Pod certificates (`podCertificate` sources of projected volumes): the outcome of a request, and
//! the next step of a source.
//!
//! Each source has its own key and certificate, in memory only. After an agent restart a new
//! certificate is requested; until then the mounted files stay.

use std::fmt;
use std::sync::Arc;

use windlass_types::Timestamp;
use windlass_types::certificatesv1beta1::PodCertificateRequest;

use windlass_pod_inputs::projection::clean_chain;

mod due;
mod issuance;

pub use issuance::{CertificateEvent, Issuance, Step};

/// Outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// Not decided yet.
    Pending,
    /// A certificate was issued.
    Issued(Issued),
    /// Denied or failed.
    Rejected(CertificateRejection),
}

/// An issued certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    /// PEM chain, leaf first, without text between the blocks.
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

/// Rejection of a request by its signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRejection {
    /// Denied or failed.
    pub kind: RejectionKind,
    /// Reason of the condition.
    pub reason: String,
    /// Message of the condition.
    pub message: String,
}

windlass_types::text_enum! {
    /// Kind of rejection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RejectionKind {
        /// The signer denied the request.
        Denied = "denied",
        /// The signer failed to issue a certificate.
        Failed = "failed",
    }
}

/// Pending request as observed by the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservedRequest {
    /// The requests are not listed yet.
    NotRead,
    /// The request does not exist.
    Absent,
    /// The request exists.
    Found(Arc<RequestOutcome>),
}

impl RequestOutcome {
    /// Returns the outcome of an object, from its first deciding condition.
    pub fn from_request(request: &PodCertificateRequest) -> Self {
        let Some(status) = &request.status else {
            return Self::Pending;
        };
        let rejected = |kind, reason: &str, message: &str| {
            Self::Rejected(CertificateRejection {
                kind,
                reason: reason.to_owned(),
                message: message.to_owned(),
            })
        };
        for condition in status.conditions.iter().flatten() {
            let (reason, message) = (&condition.reason, &condition.message);
            match condition.type_.as_str() {
                "Denied" => return rejected(RejectionKind::Denied, reason, message),
                "Failed" => return rejected(RejectionKind::Failed, reason, message),
                "Issued" => {
                    let chain = status.certificate_chain.as_deref().unwrap_or_default();
                    let times = (&status.begin_refresh_at, &status.not_after);
                    let (Some(begin), Some(end)) = times else {
                        // rejected by the validation of the API server
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
