//! A signer of certificates for pods, as a cluster would have installed one.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, SubjectPublicKeyInfo};
use serde_json::{Value, json};
use windlass_types::certificatesv1beta1::PodCertificateRequest;
use windlass_types::{Timestamp, later};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;

use crate::authority::Authority;

/// How far certificates reach back, for clocks that disagree; the API server allows five minutes.
const BACKDATED: Duration = Duration::from_secs(60);
/// A certificate is to be renewed so long before its end; the API server wants ten minutes.
const RENEWED_BEFORE: Duration = Duration::from_secs(15 * 60);

/// Signs certificates of pods with a key of its own.
#[derive(Debug, Default)]
pub struct PodSigner(Authority);

impl PodSigner {
    /// A signer with a new key.
    pub fn new() -> Self {
        Self::default()
    }

    /// The status of a request that is granted: a certificate for the pod's account that lives for
    /// `lifetime`, and is to be renewed a quarter of an hour before its end.
    ///
    /// # Errors
    /// The request carries no proof that its key is held, or none that can be read.
    pub fn issue(
        &self,
        request: &PodCertificateRequest,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Value, String> {
        let words = |error: rcgen::Error| error.to_string();
        let key = public_key(&request.spec.stub_pkc_s10_request.0)?;
        let spec = &request.spec;
        let namespace = request.metadata.namespace.as_deref().unwrap_or_default();
        let name = format!("{namespace}/{}", spec.service_account_name);
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        // certificates and the API's times have whole seconds
        let now = Timestamp::from_second(now.as_second()).map_err(|error| error.to_string())?;
        let begin = now - BACKDATED;
        let end = later(begin, lifetime);
        let date = |at: Timestamp| {
            let since = u64::try_from(at.as_second()).unwrap_or_default();
            rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(since)
        };
        params.not_before = date(begin);
        params.not_after = date(end);
        let signed = self.0.certify(&params, &key).map_err(words)?;
        let root = self.0.certificate().map_err(words)?;
        Ok(json!({
            "conditions": [condition("Issued", "Signed", "", now)],
            "certificateChain": format!("{}{}", signed.pem(), root.pem()),
            "notBefore": begin.to_string(),
            "beginRefreshAt": (end - RENEWED_BEFORE).to_string(),
            "notAfter": end.to_string(),
        }))
    }

    /// The status of a request that is denied.
    pub fn deny(reason: &str, message: &str, now: Timestamp) -> Value {
        json!({ "conditions": [condition("Denied", reason, message, now)] })
    }
}

/// The key that a request proves to be held.
fn public_key(request: &[u8]) -> Result<SubjectPublicKeyInfo, String> {
    let parsed = X509CertificationRequest::from_der(request);
    let (_, parsed) = parsed.map_err(|error| error.to_string())?;
    match parsed.verify_signature() {
        // what the library cannot verify are signatures by P-521; the real API server can
        Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => {}
        Err(error) => return Err(error.to_string()),
    }
    let key = parsed.certification_request_info.subject_pki.raw;
    SubjectPublicKeyInfo::from_der(key).map_err(|error| error.to_string())
}

fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or_default();
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": now.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_without_a_proof_gets_no_certificate() {
        let now = Timestamp::UNIX_EPOCH;
        let signer = PodSigner::new();
        let request = PodCertificateRequest::default();
        let refused = signer.issue(&request, now, Duration::from_secs(3600));
        assert!(refused.is_err());
    }
}
