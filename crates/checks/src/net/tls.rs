//! TLS towards containers, whose certificates nobody verifies.
//!
//! A probe asks whether something answers, not who; upstream decides the same. Nothing that is
//! secret goes over these connections but what the pod's own author wrote into its headers.

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

use super::dial::Ends;
use crate::CheckError;

/// A TLS connection to a container.
pub(super) type Stream = tokio_rustls::client::TlsStream<FirstBytes>;

/// How a plain HTTP server begins its complaint about a TLS handshake.
const PLAIN: &[u8; 5] = b"HTTP/";

/// What all connections share. It is made for the first one: most nodes have no HTTPS probes.
#[derive(Clone, Debug, Default)]
pub(super) struct Tls(Arc<OnceLock<Result<Arc<ClientConfig>, rustls::Error>>>);

impl Tls {
    fn config(&self) -> Result<Arc<ClientConfig>, CheckError> {
        let config = self.0.get_or_init(|| config().map(Arc::new)).clone();
        config.map_err(|error| CheckError::Failed(format!("tls: {error}")))
    }
}

/// No session is remembered: the next probe proves that the server still can do a handshake.
fn config() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Begins TLS on a connection.
pub(super) async fn handshake(
    tls: &Tls,
    host: &str,
    (stream, ends): (TcpStream, Ends),
) -> Result<Stream, CheckError> {
    // a name that is none for TLS is not sent, and nobody compares it
    let name = ServerName::try_from(host.to_owned()).unwrap_or(ServerName::IpAddress(
        std::net::Ipv4Addr::UNSPECIFIED.into(),
    ));
    let connector = TlsConnector::from(tls.config()?);
    let first = FirstBytes {
        stream,
        bytes: [0; PLAIN.len()],
        read: 0,
    };
    let (error, first) = match connector.connect(name, first).into_fallible().await {
        Ok(stream) => return Ok(stream),
        Err(failed) => failed,
    };
    if first.bytes == *PLAIN {
        return Err(CheckError::PlainHttp);
    }
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return Err(CheckError::Failed("EOF".to_owned()));
    }
    Err(match error.raw_os_error() {
        Some(_) => ends.error("read", &error),
        None if is_no_tls(&error) => {
            CheckError::Failed("tls: first record does not look like a TLS handshake".to_owned())
        }
        None => CheckError::Failed(format!("tls: {error}")),
    })
}

fn is_no_tls(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref());
    let no_record = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
    cause == Some(&no_record)
}

/// Ends TLS, if that can be said at once. Nobody waits for a peer that does not listen.
pub(super) async fn say_goodbye(mut stream: Stream) {
    let _ = tokio::time::timeout(Duration::ZERO, stream.shutdown()).await;
}

/// A connection that remembers how its peer began.
#[derive(Debug)]
pub(super) struct FirstBytes {
    stream: TcpStream,
    bytes: [u8; PLAIN.len()],
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
            let Some(place) = this.bytes.get_mut(this.read) else {
                break;
            };
            *place = *byte;
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

/// Takes every certificate, also one that cannot be read (an X.509 v1 one, for example): its
/// signature proves nothing if anyone may sign.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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
