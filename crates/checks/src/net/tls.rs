//! TLS to containers, without certificate verification, as upstream.
//!
//! A probe checks for a response, not for identity. Only the headers of the pod spec may be secret.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, InvalidMessage, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::dial::ConnectionEndpoints;
use crate::CheckError;

/// A TLS connection to a container.
pub(super) type Stream = tokio_rustls::client::TlsStream<FirstBytes>;

/// Start of the response of a plain HTTP server to a TLS handshake.
const PLAIN_HTTP: &[u8; 5] = b"HTTP/";

/// Shared TLS configuration, created on first use.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls(Arc<OnceLock<Result<Arc<ClientConfig>, rustls::Error>>>);

impl Tls {
    fn config(&self) -> Result<Arc<ClientConfig>, CheckError> {
        let config = self.0.get_or_init(|| config().map(Arc::new)).clone();
        config.map_err(|error| CheckError::Failed(format!("tls: {error}")))
    }
}

/// Creates the configuration without session resumption, so that each probe does a handshake.
fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Performs the TLS handshake.
pub(super) async fn handshake(
    tls: &Tls,
    host: &str,
    (stream, endpoints): (TcpStream, ConnectionEndpoints),
) -> Result<Stream, CheckError> {
    // an invalid server name is not sent, and names are not verified
    let name = ServerName::try_from(host.to_owned()).unwrap_or(ServerName::IpAddress(
        std::net::Ipv4Addr::UNSPECIFIED.into(),
    ));
    let connector = TlsConnector::from(tls.config()?);
    let first = FirstBytes {
        stream,
        bytes: [0; PLAIN_HTTP.len()],
        read: 0,
    };
    let (error, first) = match connector.connect(name, first).into_fallible().await {
        Ok(stream) => return Ok(stream),
        Err(failed) => failed,
    };
    if first.bytes == *PLAIN_HTTP {
        return Err(CheckError::PlainHttp);
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Err(CheckError::Failed("EOF".to_owned()));
    }
    Err(match error.raw_os_error() {
        Some(_) => endpoints.error("read", &error),
        None if is_not_tls(&error) => {
            CheckError::Failed("tls: first record does not look like a TLS handshake".to_owned())
        }
        None => CheckError::Failed(format!("tls: {error}")),
    })
}

fn is_not_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let invalid_content = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
    cause == Some(&invalid_content)
}

/// Sends close_notify if that does not block.
pub(super) async fn send_close_notify(mut stream: Stream) {
    let _ = tokio::time::timeout(Duration::ZERO, stream.shutdown()).await;
}

/// A connection that records the first received bytes.
#[derive(Debug)]
pub(super) struct FirstBytes {
    stream: TcpStream,
    bytes: [u8; PLAIN_HTTP.len()],
    read: usize,
}

impl AsyncRead for FirstBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        let this = &mut *self;
        for byte in buf.filled().iter().skip(before) {
            let Some(slot) = this.bytes.get_mut(this.read) else {
                break;
            };
            *slot = *byte;
            this.read += 1;
        }
        polled
    }
}

impl AsyncWrite for FirstBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Accepts any certificate, even one that cannot be parsed (for example X.509 v1).
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
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let mut schemes = self.0.signature_verification_algorithms.supported_schemes();
        schemes.extend([
            SignatureScheme::RSA_PKCS1_SHA1,
            SignatureScheme::ECDSA_SHA1_Legacy,
        ]);
        schemes
    }
}
