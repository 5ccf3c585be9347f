//! The server over TLS connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use windlass_fake_api::{FakeApiServer, KubeconfigUser, ServerCertificate, TlsServer, User};

const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

type Connection = SendRequest<Empty<Bytes>>;

async fn connect(server: &TlsServer, identity: Option<&str>) -> io::Result<Connection> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(server.ca_pem()?.as_bytes()).unwrap();
    roots.add(ca).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match identity {
        Some(pem) => {
            let chain = CertificateDer::pem_slice_iter(pem.as_bytes());
            let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(server.address()).await?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let io = TokioIo::new(stream);
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
    let (sender, connection) = handshake.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn get(
    connection: &mut Connection,
    path: &str,
    token: Option<&str>,
) -> io::Result<StatusCode> {
    let mut request = Request::builder().uri(format!("https://127.0.0.1{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::new()).unwrap();
    let response = connection
        .send_request(request)
        .await
        .map_err(io::Error::other)?;
    let status = response.status();
    response
        .into_body()
        .collect()
        .await
        .map_err(io::Error::other)?;
    Ok(status)
}

#[tokio::test]
async fn user_is_from_the_certificate_or_the_token() {
    let api = FakeApiServer::new();
    let server = api.serve_tls().await.unwrap();
    let node = server
        .issue_client_cert("system:node:n1", &["system:nodes"], HOUR)
        .unwrap();
    let mut connection = connect(&server, Some(&node)).await.unwrap();
    assert_eq!(
        get(&mut connection, "/api/v1/nodes", None).await.unwrap(),
        200
    );
    // a node has its permissions from its groups
    assert_eq!(
        get(&mut connection, "/api/v1/secrets", None).await.unwrap(),
        403
    );
    api.add_token("t0", User::new("bootstrap", &[]));
    let mut connection = connect(&server, None).await.unwrap();
    assert_eq!(
        get(&mut connection, "/api/v1/nodes", Some("t0"))
            .await
            .unwrap(),
        200
    );
    assert_eq!(
        get(&mut connection, "/api/v1/nodes", Some("t1"))
            .await
            .unwrap(),
        401
    );
    assert_eq!(
        get(&mut connection, "/api/v1/nodes", None).await.unwrap(),
        200
    );
    let users: Vec<String> = api.requests().into_iter().map(|r| r.user).collect();
    assert_eq!(
        users[..3],
        ["system:node:n1", "system:node:n1", "bootstrap"]
    );
    assert_eq!(users[4], "system:anonymous");
}

#[tokio::test]
async fn expired_or_unknown_certificate_results_in_401() {
    let api = FakeApiServer::new();
    let server = api.serve_tls().await.unwrap();
    let other = FakeApiServer::new().serve_tls().await.unwrap();
    let two = ["system:masters", "system:nodes"];
    let foreign = other.issue_client_cert("admin", &two, HOUR).unwrap();
    let mut connection = connect(&server, Some(&foreign)).await.unwrap();
    assert_eq!(
        get(&mut connection, "/api/v1/nodes", None).await.unwrap(),
        401
    );
    let brief = server
        .issue_client_cert("admin", &[], Duration::from_secs(1))
        .unwrap();
    let mut connection = connect(&server, Some(&brief)).await.unwrap();
    let expired = async {
        // real time must pass: the certificate is verified by the wall clock
        while get(&mut connection, "/api/v1/nodes", None).await.unwrap() != 401 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, expired).await.unwrap();
}

#[tokio::test]
async fn stopped_server_refuses_connections_until_restarted() {
    let api = FakeApiServer::new();
    let mut server = api.serve_tls().await.unwrap();
    let mut connection = connect(&server, None).await.unwrap();
    assert_eq!(get(&mut connection, "/readyz", None).await.unwrap(), 200);
    server.stop().await;
    let lost = timeout(SOON, get(&mut connection, "/readyz", None))
        .await
        .unwrap();
    assert!(lost.is_err());
    let refused = connect(&server, None).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    server.restart().await.unwrap();
    let mut connection = connect(&server, None).await.unwrap();
    assert_eq!(get(&mut connection, "/readyz", None).await.unwrap(), 200);
}

#[tokio::test]
async fn black_hole_freezes_old_and_new_connections() {
    let api = FakeApiServer::new();
    let server = api.serve_tls().await.unwrap();
    let mut connection = connect(&server, None).await.unwrap();
    assert_eq!(get(&mut connection, "/readyz", None).await.unwrap(), 200);
    server.black_hole(true);
    let briefly = Duration::from_millis(100);
    let mut held = std::pin::pin!(get(&mut connection, "/readyz", None));
    assert!(timeout(briefly, &mut held).await.is_err());
    assert!(timeout(briefly, connect(&server, None)).await.is_err());
    server.black_hole(false);
    assert_eq!(timeout(SOON, held).await.unwrap().unwrap(), 200);
}

#[tokio::test]
async fn clients_reject_invalid_server_certificates() {
    let api = FakeApiServer::new();
    let server = api.serve_tls().await.unwrap();
    for (certificate, why) in [
        (ServerCertificate::Expired, "Expired"),
        (ServerCertificate::OtherName, "NotValidForName"),
        (ServerCertificate::OtherAuthority, "UnknownIssuer"),
    ] {
        server.set_certificate(certificate).unwrap();
        let error = connect(&server, None).await.unwrap_err();
        assert!(
            format!("{error:?}").contains(why),
            "{certificate:?}: {error:?}"
        );
    }
    server.set_certificate(ServerCertificate::Valid).unwrap();
    connect(&server, None).await.unwrap();
}

#[tokio::test]
async fn kubeconfig_has_server_ca_and_user() {
    let api = FakeApiServer::new();
    let server = api.serve_tls().await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    server
        .kubeconfig(&path, KubeconfigUser::Token("t0"))
        .unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(config["clusters"][0]["cluster"]["server"], server.url());
    assert_eq!(config["users"][0]["user"]["token"], "t0");
}
