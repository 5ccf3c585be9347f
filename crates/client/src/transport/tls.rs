//! Verification of the server certificate, and use of the client certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::config::proxy::Proxy;
use crate::config::{ApiServerConfig, ConfigError, Trust};

/// The system's CA bundles of distributions, in upstream's order.
const SYSTEM_BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Returns the TLS settings of all connections to the server of `config`.
pub(crate) fn client_config(config: &ApiServerConfig) -> Result<ClientConfig, ConfigError> {
    let problem = |problem: String| ConfigError::Tls {
        server: config.server().to_string(),
        problem,
    };
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(error.to_string()))?;
    let builder = match &config.trust {
        Trust::Anything => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider))),
        Trust::Authorities(authorities) => {
            let mut roots = RootCertStore::empty();
            let (_, unusable) = roots.add_parsable_certificates(authorities.iter().cloned());
            if roots.is_empty() {
                return Err(problem(format!(
                    "none of the {unusable} certificate authorities can be used; \
                     they must be X.509 version 3"
                )));
            }
            builder.with_root_certificates(roots)
        }
        Trust::System => builder.with_root_certificates(system_authorities().ok_or_else(|| {
            problem(
                "the system has no certificate authorities; set certificate-authority".to_owned(),
            )
        })?),
    };
    let mut tls = builder.with_client_cert_resolver(Arc::new(config.identity().clone()));
    // a resumed session would keep the old client certificate
    tls.resumption = Resumption::disabled();
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(tls)
}

/// Returns the TLS settings of connections to an `https` proxy. It must be trusted by the system's
/// CAs or those of the server, and receives no client certificate.
pub(crate) fn proxy_config(
    config: &ApiServerConfig,
    proxy: &Proxy,
) -> Result<ClientConfig, ConfigError> {
    let problem = |problem: String| ConfigError::Tls {
        server: proxy.to_string(),
        problem,
    };
    let mut roots = system_authorities().unwrap_or_else(RootCertStore::empty);
    roots.add_parsable_certificates(config.authorities().iter().cloned());
    if roots.is_empty() {
        let text = "no certificate authority to verify the proxy; set certificate-authority";
        return Err(problem(text.to_owned()));
    }
    let mut tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| problem(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(tls)
}

fn system_authorities() -> Option<RootCertStore> {
    SYSTEM_BUNDLES.iter().find_map(|bundle| {
        let certificates = CertificateDer::pem_file_iter(Path::new(bundle)).ok()?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.flatten());
        (!roots.is_empty()).then_some(roots)
    })
}

/// `insecure-skip-tls-verify`: accepts any certificate, if the server has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
