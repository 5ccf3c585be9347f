//! The cluster's certificate authority.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, PublicKeyData,
};
use windlass_types::Timestamp;

/// Start of certificates before now, for clock skew, as the real signer.
const BACKDATED: Duration = Duration::from_secs(300);

/// A key or certificate cannot be created.
pub(crate) type AuthorityError = rcgen::Error;

/// A CA. Its key is created on first use.
#[derive(Default)]
pub(crate) struct Authority {
    made: OnceLock<Result<Made, String>>,
}

struct Made {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// The purpose of a new certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Client,
    Server,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    fn made(&self) -> Result<&Made, AuthorityError> {
        let made = self
            .made
            .get_or_init(|| make().map_err(|error| error.to_string()));
        made.as_ref()
            .map_err(|_| AuthorityError::CouldNotParseKeyPair)
    }

    /// Returns its certificate.
    pub(crate) fn certificate(&self) -> Result<&Certificate, AuthorityError> {
        Ok(&self.made()?.certificate)
    }

    /// Returns a new key and its certificate, valid until `now + lifetime`.
    pub(crate) fn issue(
        &self,
        mut params: CertificateParams,
        purpose: Purpose,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<(Certificate, KeyPair), AuthorityError> {
        let key = KeyPair::generate()?;
        restrict(&mut params, purpose, now, lifetime);
        Ok((params.signed_by(&key, &self.made()?.issuer)?, key))
    }

    /// Returns the certificate of a CSR.
    pub(crate) fn sign(
        &self,
        mut request: CertificateSigningRequestParams,
        purpose: Purpose,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Certificate, AuthorityError> {
        restrict(&mut request.params, purpose, now, lifetime);
        request.signed_by(&self.made()?.issuer)
    }

    /// Returns a certificate with this subject for a key.
    pub(crate) fn certify(
        &self,
        params: &CertificateParams,
        key: &impl PublicKeyData,
    ) -> Result<Certificate, AuthorityError> {
        params.signed_by(key, &self.made()?.issuer)
    }
}

fn make() -> Result<Made, AuthorityError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    // CAs of different servers have different names, so that another CA is an unknown issuer
    let mark = key.der_bytes().iter().rev().take(4);
    let mark: String = mark.map(|byte| format!("{byte:02x}")).collect();
    let name = format!("windlass-fake-api {mark}");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    // rcgen's default validity, from 1975 to 4096, suits any simulated time
    let certificate = params.self_signed(&key)?;
    Ok(Made {
        certificate,
        issuer: Issuer::new(params, key),
    })
}

fn restrict(params: &mut CertificateParams, purpose: Purpose, now: Timestamp, lifetime: Duration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = Duration::from_secs(u64::try_from(now.as_second()).unwrap_or_default());
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now + lifetime;
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match purpose {
        Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
    }];
}
