//! The TLS of a server: versions and ciphers, its certificate, its clients' CA.

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

/// Where the TLS of a server comes from. Each part may change while it serves.
#[derive(Clone, Debug)]
pub struct TlsSource {
    /// The server's own certificate; handshakes fail while there is none.
    pub certificate: watch::Receiver<Option<ServingCertificate>>,
    /// Who vouches for clients; without it no certificate is asked for.
    pub client_ca: Option<watch::Receiver<ClientCa>>,
    /// Versions and ciphers.
    pub profile: TlsProfile,
    /// By what time client certificates are judged.
    pub clock: Arc<dyn Clock>,
}

/// What to offer. Numbers are IANA's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsChoice {
    /// No TLS 1.2.
    pub only_tls13: bool,
    /// Cipher suites of TLS 1.2; empty for all. Those of TLS 1.3 are always offered, as by Go.
    pub suites: Vec<u16>,
    /// Groups for the key exchange; empty for the default.
    pub groups: Vec<u16>,
}

/// Certificates, keys or choices that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A cipher suite that there is not.
    #[error("cipher suite {0:#06x} is not available")]
    Suite(u16),
    /// A key exchange group that there is not.
    #[error("key exchange group {0} is not available")]
    Group(u16),
    /// The text is no PEM.
    #[error("not readable as PEM: {0}")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// There is no certificate in it.
    #[error("there is no certificate in it")]
    Empty,
    /// Certificate, key or CA are not usable.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
    /// No client could be verified by these.
    #[error("no client can be verified by it: {0}")]
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
    /// A suite or group that this TLS library has not.
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
    /// No certificate or key in it, or they do not belong together.
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

/// Who vouches for clients.
#[derive(Clone)]
pub struct ClientCa {
    roots: Arc<RootCertStore>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// From PEM. Certificates in it that cannot mark_authenticated for anybody are left out.
    ///
    /// # Errors
    /// No certificate in it that can.
    pub fn from_pem(pem: &[u8]) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let (added, ignored) = roots.add_parsable_certificates(certificates(pem)?);
        if ignored > 0 {
            tracing::warn!(added, ignored, "client CA certificates that cannot be used");
        }
        let roots = Arc::new(roots);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider);
        Ok(Self {
            roots,
            verifier: builder.build()?,
        })
    }

    /// Whether it is the same one, not one of the same content.
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

/// The configuration for the next handshake. Made anew when the client CA changes; the server's
/// certificate is looked up in each handshake.
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
                Err(error) => tracing::error!(%error, "client CA not taken over"),
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
        Some(ca) => builder.with_client_cert_verifier(Arc::new(AskForCertificate {
            hints: ca.borrow().roots.subjects(),
            algorithms: provider.signature_verification_algorithms,
        })),
        None => builder.with_no_client_auth(),
    };
    let mut config =
        builder.with_cert_resolver(Arc::new(CurrentCertificate(source.certificate.clone())));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // a session that is resumed would bring back a certificate of a CA that is gone
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The server's certificate of the moment.
#[derive(Debug)]
struct CurrentCertificate(watch::Receiver<Option<ServingCertificate>>);

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().as_ref().map(|it| Arc::clone(&it.0))
    }
}

/// Asks for a certificate and has the client prove that it has the key, no more: `Peer` judges it.
#[derive(Debug)]
struct AskForCertificate {
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for AskForCertificate {
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
