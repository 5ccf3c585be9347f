//! TLS of a server: versions, ciphers, serving certificate and client CA.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature,
    verify_tls13_signature,
};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::sync::watch;
use windlass_types::Clock;

/// Sources of a server's TLS settings. The certificate and the client CA may change at any time.
#[derive(Clone, Debug)]
pub struct TlsSource {
    /// The serving certificate; handshakes fail without one.
    pub certificate: watch::Receiver<Option<ServingCertificate>>,
    /// The CA of clients; without it no client certificate is requested.
    pub client_ca: Option<watch::Receiver<ClientCa>>,
    /// Versions and ciphers.
    pub profile: TlsProfile,
    /// The clock for verifying client certificates.
    pub clock: Arc<dyn Clock>,
}

/// Configured TLS options. Numbers are IANA's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsChoice {
    /// No TLS 1.2.
    pub only_tls13: bool,
    /// Cipher suites of TLS 1.2; empty for all. As with Go, those of TLS 1.3 are always offered.
    pub suites: Vec<u16>,
    /// Groups for the key exchange; empty for the default.
    pub groups: Vec<u16>,
}

/// Unusable certificates, keys or options.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Unknown cipher suite.
    #[error("cipher suite {0:#06x} is not available")]
    Suite(u16),
    /// Unknown key exchange group.
    #[error("key exchange group {0} is not available")]
    Group(u16),
    /// The text is not PEM.
    #[error("cannot parse PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The PEM text has no certificate.
    #[error("no certificate found")]
    Empty,
    /// Unusable certificate, key or CA.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// Unusable client CA.
    #[error("unusable client CA: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

static BOTH: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13, &rustls::version::TLS12];
static ONLY_TLS13: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Versions and ciphers.
#[derive(Clone)]
pub struct TlsProfile {
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
}

impl TlsProfile {
    /// # Errors
    /// A suite or group that is not available.
    pub fn new(choice: &TlsChoice) -> Result<Self, TlsError> {
        let mut provider = aws_lc_rs::default_provider();
        for code in &choice.suites {
            let known = provider
                .cipher_suites
                .iter()
                .any(|suite| u16::from(suite.suite()) == *code);
            if !known {
                return Err(TlsError::Suite(*code));
            }
        }
        if !choice.suites.is_empty() {
            provider.cipher_suites.retain(|suite| {
                suite.tls13().is_some() || choice.suites.contains(&u16::from(suite.suite()))
            });
        }
        if !choice.groups.is_empty() {
            let group = |code: &u16| {
                let all = aws_lc_rs::ALL_KX_GROUPS.iter().copied();
                let mut found = all.filter(|group| u16::from(group.name()) == *code);
                found.next().ok_or(TlsError::Group(*code))
            };
            provider.kx_groups = choice.groups.iter().map(group).collect::<Result<_, _>>()?;
        }
        let tls12 = provider
            .cipher_suites
            .iter()
            .any(|suite| suite.tls13().is_none());
        Ok(Self {
            provider: Arc::new(provider),
            versions: match tls12 && !choice.only_tls13 {
                true => BOTH,
                false => ONLY_TLS13,
            },
        })
    }
}

impl fmt::Debug for TlsProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suites: Vec<_> = self
            .provider
            .cipher_suites
            .iter()
            .map(|suite| suite.suite())
            .collect();
        f.debug_tuple("TlsProfile").field(&suites).finish()
    }
}

/// A certificate chain with its key, ready for use.
#[derive(Clone)]
pub struct ServingCertificate(Arc<CertifiedKey>);

impl ServingCertificate {
    /// From PEM: certificates, the server's own first, and a key, in any order.
    ///
    /// # Errors
    /// The certificate or the key is missing, or they do not match.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(pem)?;
        let key = PrivateKeyDer::from_pem_slice(pem)?;
        let provider = aws_lc_rs::default_provider();
        Ok(Self(Arc::new(CertifiedKey::from_der(
            chain, key, &provider,
        )?)))
    }
}

impl fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServingCertificate(..)")
    }
}

/// The CA of clients.
#[derive(Clone)]
pub struct ClientCa {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// From PEM. Certificates that are not usable as a CA are ignored.
    ///
    /// # Errors
    /// The text has no usable CA certificate.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let (added, ignored) = roots.add_parsable_certificates(certificates(pem)?);
        if ignored > 0 {
            tracing::warn!(added, ignored, "unusable client CA certificates ignored");
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider);
        Ok(Self {
            roots,
            verifier: builder.build()?,
        })
    }

    /// Returns whether both are the same instance.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.roots, &other.roots)
    }

    pub(crate) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.verifier)
    }
}

impl fmt::Debug for ClientCa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCa")
            .field("certificates", &self.roots.len())
            .finish()
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?;
    match chain.is_empty() {
        true => Err(TlsError::Empty),
        false => Ok(chain),
    }
}

/// The configuration of the next handshake, rebuilt when the client CA changes.
#[derive(Debug)]
pub(crate) struct Handshakes {
    source: TlsSource,
    config: Arc<ServerConfig>,
}

impl Handshakes {
    pub(crate) fn new(source: TlsSource) -> Result<Self, rustls::Error> {
        let config = config(&source)?;
        Ok(Self { source, config })
    }

    pub(crate) fn source(&self) -> &TlsSource {
        &self.source
    }

    pub(crate) fn config(&mut self) -> Arc<ServerConfig> {
        let ca = self.source.client_ca.as_mut();
        let changed = ca.is_some_and(|ca| {
            let changed = ca.has_changed().unwrap_or(false);
            ca.mark_unchanged();
            changed
        });
        if changed {
            match config(&self.source) {
                Ok(config) => self.config = config,
                Err(error) => tracing::error!(%error, "client CA not applied"),
            }
        }
        Arc::clone(&self.config)
    }
}

fn config(source: &TlsSource) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = &source.profile.provider;
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(source.profile.versions)?;
    let builder = match &source.client_ca {
        Some(ca) => builder.with_client_cert_verifier(Arc::new(RequestCertificate {
            hints: ca.borrow().roots.subjects(),
            algorithms: provider.signature_verification_algorithms,
        })),
        None => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_cert_resolver(Arc::new(CurrentCertificate(source.certificate.clone())));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // a resumed session would keep a certificate of a removed CA
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// Resolves the current serving certificate.
#[derive(Debug)]
struct CurrentCertificate(watch::Receiver<Option<ServingCertificate>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|it| Arc::clone(&it.0))
    }
}

/// Requests a certificate and verifies only that the client has its key; `Peer` verifies the
/// chain.
#[derive(Debug)]
struct RequestCertificate {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for RequestCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
