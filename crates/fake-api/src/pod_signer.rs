//! A signer of pod certificates, as installed in a cluster.

use std::time::Duration;

use rcgen::{CertificateParams, DistinguishedName, DnType, SubjectPublicKeyInfo};
use serde_json::{Value, json};
use windlass_types::certificatesv1beta1::PodCertificateRequest;
use windlass_types::{Timestamp, later};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;

use crate::authority::Authority;

/// Start of certificates before now, for clock skew; the API server allows five minutes.
const BACKDATED: Duration = Duration::from_secs(60);
/// Renewal time before the end; the API server requires ten minutes.
const RENEWED_BEFORE: Duration = Duration::from_secs(15 * 60);

/// Signs pod certificates with its own key.
#[derive(Debug, Default)]
pub struct PodSigner(Authority);

impl PodSigner {
    /// A signer with a new key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the status of an approved request: a certificate for the pod's service account,
    /// valid for `lifetime`, with renewal a quarter of an hour before its end.
    ///
    /// # Errors
    /// The request has no valid proof of possession.
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

    /// Returns the status of a denied request.
    pub fn deny(reason: &str, message: &str, now: Timestamp) -> Value {
        json!({ "conditions": [condition("Denied", reason, message, now)] })
    }
}

/// Returns the key of a request after verifying its proof of possession.
fn public_key(request: &[u8]) -> Result<SubjectPublicKeyInfo, String> {
    let parsed = X509CertificationRequest::from_der(request);
    let (_, parsed) = parsed.map_err(|error| error.to_string())?;
    match parsed.verify_signature() {
        // the library cannot verify P-521 signatures; the real API server can
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
