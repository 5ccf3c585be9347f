//! Client certificates: as in the real server, every certificate passes the handshake and is
//! verified per request; an invalid one results in 401.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use windlass_types::Timestamp;
use x509_parser::prelude::{FromDer, X509Certificate};

use crate::identity::User;

/// Verifies client certificates.
pub(crate) struct ClientCerts {
    strict: Arc<dyn ClientCertVerifier>,
}

impl fmt::Debug for ClientCerts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCerts")
    }
}

impl ClientCerts {
    pub(crate) fn new(authority: CertificateDer<'static>) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(io::Error::other)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let strict = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(io::Error::other)?;
        Ok(Self { strict })
    }

    /// Returns the user of these certificates; `None` if they are not valid at the server's time.
    pub(crate) fn user_of(&self, chain: &[CertificateDer<'_>], now: Timestamp) -> Option<User> {
        let Some((own, others)) = chain.split_first() else {
            return Some(User::anonymous());
        };
        let now = Duration::from_secs(u64::try_from(now.as_second()).ok()?);
        let now = UnixTime::since_unix_epoch(now);
        self.strict.verify_client_cert(own, others, now).ok()?;
        let (_, certificate) = X509Certificate::from_der(own).ok()?;
        let subject = certificate.subject();
        let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
        let organizations = subject.iter_organization();
        let groups = organizations.filter_map(|part| part.as_str().ok().map(str::to_owned));
        let groups = groups.chain(["system:authenticated".to_owned()]).collect();
        Some(User { name, groups })
    }
}

impl ClientCertVerifier for ClientCerts {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.strict.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.strict.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.strict.supported_verify_schemes()
    }
}
