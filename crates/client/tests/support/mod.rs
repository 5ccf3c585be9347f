//! A small API server over TLS that records requests, and a proxy that can freeze connections.

#![expect(
    clippy::expect_used,
    reason = "a test server that cannot start fails its test"
)]

pub(crate) mod logbook;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("key");
        let mut params = CertificateParams::new(Vec::new()).expect("params");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test ca");
        let certificate = params.self_signed(&key).expect("authority");
        Self {
            pem: certificate.pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// PEM text of a certificate and its key.
    pub(crate) fn issue(&self, name: &str, hosts: &[&str]) -> String {
        let key = KeyPair::generate().expect("key");
        let hosts: Vec<String> = hosts.iter().map(|h| (*h).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("params");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        format!("{}{}", certificate.pem(), key.serialize_pem())
    }
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRequest {
    pub(crate) version: http::Version,
    pub(crate) common_name: Option<String>,
    pub(crate) authorization: Option<String>,
    pub(crate) agent: String,
    pub(crate) path: String,
}

/// A server that answers every GET with a `Node` and keeps every watch open.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) ca: String,
    seen: Arc<Mutex<Vec<RecordedRequest>>>,
    connections: Arc<AtomicUsize>,
    /// Number of times that GOAWAY was sent to all connections.
    goodbyes: watch::Sender<u64>,
    /// The only accepted `Authorization` value, if any; others receive 401.
    pub(crate) wanted: Arc<Mutex<Option<String>>>,
}

impl Server {
    /// With TLS, offering these protocols.
    pub(crate) async fn start(authority: &Authority, protocols: &[&str]) -> Self {
        let pem = authority.issue("server", &["127.0.0.1", "localhost"]);
        let chain = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("chain");
        let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("key");
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.pem.as_bytes()).expect("root");
        roots.add(root).expect("root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone())
            .allow_unauthenticated()
            .build()
            .expect("verifier");
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain, key)
            .expect("certificate");
        tls.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
        Self::serve(
            Some(TlsAcceptor::from(Arc::new(tls))),
            authority.pem.clone(),
        )
        .await
    }

    /// Without TLS.
    pub(crate) async fn plain() -> Self {
        Self::serve(None, String::new()).await
    }

    async fn serve(tls: Option<TlsAcceptor>, ca: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let server = Self {
            address: listener.local_addr().expect("address"),
            ca,
            seen: Arc::default(),
            connections: Arc::default(),
            goodbyes: watch::Sender::new(0),
            wanted: Arc::default(),
        };
        let accepting = server.clone();
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let server = accepting.clone();
                let tls = tls.clone();
                tokio::spawn(async move {
                    match tls {
                        None => server.connection(tcp, None).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(tcp).await else {
                                return;
                            };
                            let name = common_name(&stream);
                            server.connection(stream, name).await;
                        }
                    }
                });
            }
        });
        server
    }

    async fn connection<T>(self, stream: T, common_name: Option<String>)
    where
        T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        self.connections.fetch_add(1, Ordering::SeqCst);
        let mut goodbyes = self.goodbyes.subscribe();
        let service = service_fn(move |request: Request<Incoming>| {
            let server = self.clone();
            let common_name = common_name.clone();
            async move { Ok::<_, Infallible>(server.answer(common_name, &request)) }
        });
        let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        builder.http2().max_concurrent_streams(100);
        let mut serving = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            _ = serving.as_mut() => return,
            _ = goodbyes.changed() => serving.as_mut().graceful_shutdown(),
        }
        let _ = serving.await;
    }

    fn answer(
        &self,
        common_name: Option<String>,
        request: &Request<Incoming>,
    ) -> Response<BoxBody<Bytes, Infallible>> {
        let header = |name| {
            let value = request.headers().get(name)?;
            Some(value.to_str().expect("text").to_owned())
        };
        let authorization = header(http::header::AUTHORIZATION);
        let wanted = self.wanted.lock().expect("lock").clone();
        let refused = wanted.is_some() && wanted != authorization;
        self.seen.lock().expect("lock").push(RecordedRequest {
            version: request.version(),
            common_name,
            authorization,
            agent: header(http::header::USER_AGENT).unwrap_or_default(),
            path: request.uri().path().to_owned(),
        });
        if refused {
            let body = Full::from(r#"{"kind":"Status","code":401,"message":"no"}"#).boxed();
            let mut response = Response::new(body);
            *response.status_mut() = http::StatusCode::UNAUTHORIZED;
            return response;
        }
        if request
            .uri()
            .query()
            .is_some_and(|q| q.contains("watch=true"))
        {
            let never = futures::stream::pending::<Result<Frame<Bytes>, Infallible>>();
            return Response::new(BodyExt::boxed(StreamBody::new(never)));
        }
        let node = r#"{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1"}}"#;
        Response::new(Full::from(node).boxed())
    }

    pub(crate) fn seen(&self) -> Vec<RecordedRequest> {
        self.seen.lock().expect("lock").clone()
    }

    pub(crate) fn last(&self) -> RecordedRequest {
        self.seen().pop().expect("a request")
    }

    /// Sends GOAWAY as a restarting server: requests in progress may finish.
    pub(crate) fn send_goaway(&self) {
        self.goodbyes.send_modify(|count| *count += 1);
    }

    /// Number of accepted connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn common_name<T>(stream: &tokio_rustls::server::TlsStream<T>) -> Option<String> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?;
    Some(name.as_str().ok()?.to_owned())
}

/// Forwards connections. `freeze` stops those that are open; new ones pass.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    generation: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
        let address = listener.local_addr().expect("address");
        let (generation, changes) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut inner, _)) = listener.accept().await {
                let mut changes = changes.clone();
                tokio::spawn(async move {
                    let mut outer = TcpStream::connect(target).await.expect("connect");
                    changes.mark_unchanged();
                    tokio::select! {
                        biased;
                        // black hole: the sockets stay open and unread
                        _ = changes.changed() => std::future::pending().await,
                        _ = tokio::io::copy_bidirectional(&mut inner, &mut outer) => {}
                    }
                });
            }
        });
        Self {
            address,
            generation,
        }
    }

    pub(crate) fn freeze(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }
}
