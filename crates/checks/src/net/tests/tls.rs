//! HTTPS with any certificate and without session resumption.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{HandshakeKind, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::*;

fn acceptor() -> TlsAcceptor {
    let names = vec!["other.example".to_owned()];
    let own = rcgen::generate_simple_self_signed(names).expect("certificate");
    acceptor_with(own.cert.der().clone(), own.signing_key.serialize_der())
}

/// Creates an acceptor whose certificate and key need not match.
fn acceptor_with(certificate: CertificateDer<'static>, key: Vec<u8>) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key));
    let key = provider.key_provider.load_private_key(key).expect("key");
    let shown = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(shown));
    TlsAcceptor::from(Arc::new(config))
}

fn secure(address: SocketAddr) -> HttpTarget {
    HttpTarget {
        scheme: Scheme::Https,
        ..target(address)
    }
}

#[tokio::test]
async fn any_certificate_is_accepted_with_full_handshakes() {
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = kinds.clone();
    let acceptor = acceptor();
    let address = server(move |stream| {
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        async move {
            let mut stream = acceptor.accept(stream).await.expect("handshake");
            let kind = stream.get_ref().1.handshake_kind();
            seen.lock().expect("lock").push(kind);
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.expect("read");
            assert!(request[..length].starts_with(b"GET / HTTP/1.1\r\n"));
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            stream.write_all(answer).await.expect("write");
            // close_notify of the client
            let end = stream.read(&mut request).await.expect("close_notify");
            assert_eq!(end, 0);
        }
    })
    .await;
    let checks = NetChecks::new();
    for _ in 0..2 {
        let answer = checks.http(&secure(address), Some(LONG)).await;
        assert_eq!(line(answer, address), "200 \"ok\"");
    }
    let mut named = secure(address);
    named.host = "localhost".to_owned();
    assert!(checks.http(&named, Some(LONG)).await.is_ok());
    let kinds = kinds.lock().expect("lock");
    // no session resumption
    let whole = |kind: &Option<HandshakeKind>| {
        matches!(
            kind,
            Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest)
        )
    };
    assert!(kinds.len() == 3 && kinds.iter().all(whole), "{kinds:?}");
}

#[tokio::test]
async fn invalid_certificate_and_missing_close_notify_are_ok() {
    // the certificate cannot be parsed either
    let key = rcgen::KeyPair::generate().expect("key").serialize_der();
    let acceptor = acceptor_with(CertificateDer::from(b"none".to_vec()), key);
    let address = server(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let mut stream = acceptor.accept(stream).await.expect("handshake");
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.expect("read");
            stream
                .write_all(b"HTTP/1.0 200 OK\r\n\r\nok")
                .await
                .expect("write");
            stream.flush().await.expect("flush");
        }
    })
    .await;
    let answer = NetChecks::new().http(&secure(address), Some(LONG)).await;
    assert_eq!(line(answer, address), "200 \"ok\"");
}

#[tokio::test]
async fn plain_http_server_is_detected() {
    let address = server(|mut stream| async move {
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.expect("read");
        let answer = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent something odd.\n";
        stream.write_all(answer).await.expect("write");
        until_closed(stream).await;
    })
    .await;
    let answer = NetChecks::new().http(&secure(address), Some(LONG)).await;
    assert_eq!(answer, Err(CheckError::PlainHttp));
}

#[tokio::test]
async fn failed_handshake_fails_and_hung_handshake_times_out() {
    let checks = NetChecks::new();
    let address = server(|mut stream| async move {
        stream.write_all(b"certainly not TLS").await.expect("write");
        until_closed(stream).await;
    })
    .await;
    let answer = checks.http(&secure(address), Some(LONG)).await;
    let why = "tls: first record does not look like a TLS handshake";
    assert_eq!(answer, Err(CheckError::Failed(why.to_owned())));

    let closing = server(|mut stream| async move {
        let mut hello = [0; 5];
        stream.read_exact(&mut hello).await.expect("read");
        stream.shutdown().await.expect("shutdown");
        until_closed(stream).await;
    })
    .await;
    let answer = checks.http(&secure(closing), Some(LONG)).await;
    assert_eq!(answer, Err(CheckError::Failed("EOF".to_owned())));

    let silent = server(until_closed).await;
    let answer = checks.http(&secure(silent), Some(SHORT)).await;
    assert_eq!(answer, Err(CheckError::ConnectTimedOut(SHORT)));
}
