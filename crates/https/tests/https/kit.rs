//! CAs, a server with a test service, and clients.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Request};
use axum::response::IntoResponse;
use axum::routing::{any, get};
use http::{Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use windlass_https::{
    ClientCa, Limits, Peer, ServingCertificate, TlsChoice, TlsProfile, TlsSource, Transport, serve,
};
use windlass_types::{Clock, Timestamp};

/// Longer than any test step takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Waits for a future with the test deadline.
pub(crate) async fn soon<T>(what: &str, happens: impl Future<Output = T>) -> T {
    match timeout(DEADLINE, happens).await {
        Ok(value) => value,
        Err(_) => panic!("{what}: not within {DEADLINE:?}"),
    }
}

/// A certificate authority.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// A chain and key in one PEM text: valid from a day ago until `days` from now.
    pub(crate) fn issue(&self, name: &str, days: i64, purpose: ExtendedKeyUsagePurpose) -> String {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a good name");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        let day = |at: i64| {
            let seconds =
                Duration::from_secs(u64::try_from(NOW + at * 86_400).expect("after 1970"));
            rcgen::date_time_ymd(1970, 1, 1) + seconds
        };
        params.not_before = day(-10);
        params.not_after = day(days);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed");
        format!("{}{}", certificate.pem(), key.serialize_pem())
    }

    pub(crate) fn client(&self, name: &str) -> String {
        self.issue(name, 10, ExtendedKeyUsagePurpose::ClientAuth)
    }

    pub(crate) fn server(&self) -> String {
        self.issue("server", 10, ExtendedKeyUsagePurpose::ServerAuth)
    }
}

/// Time of the tests: 2026-11-22.
const NOW: i64 = 1_795_305_600;

/// A clock that is set by hand.
#[derive(Debug)]
pub(crate) struct SetClock(Mutex<i64>);

impl SetClock {
    pub(crate) fn pass_days(&self, days: i64) {
        self.pass_seconds(days * 86_400);
    }

    pub(crate) fn pass_seconds(&self, seconds: i64) {
        *self.0.lock().expect("no panic") += seconds;
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(*self.0.lock().expect("no panic")).expect("in range")
    }
}

/// A server with its certificates, client CA and clock.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) certificate: watch::Sender<Option<ServingCertificate>>,
    pub(crate) client_ca: watch::Sender<ClientCa>,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) shutdown: CancellationToken,
    pub(crate) ended: JoinHandle<()>,
    pub(crate) servers: Authority,
    pub(crate) clients: Authority,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(&TlsChoice::default(), Limits::default()).await
    }

    pub(crate) async fn with(choice: &TlsChoice, limits: Limits) -> Self {
        Self::serving(router(), choice, limits).await
    }

    /// A server of another service.
    pub(crate) async fn serving<S>(service: S, choice: &TlsChoice, limits: Limits) -> Self
    where
        S: tower::Service<Request, Response = Response<Body>, Error = std::convert::Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
        let pair = ServingCertificate::from_pem(servers.server().as_bytes()).expect("a pair");
        let ca = ClientCa::from_pem(clients.pem.as_bytes()).expect("a bundle");
        let (certificate, current) = watch::channel(Some(pair));
        let (client_ca, current_ca) = watch::channel(ca);
        let clock = Arc::new(SetClock(Mutex::new(NOW)));
        let source = TlsSource {
            certificate: current,
            client_ca: Some(current_ca),
            profile: TlsProfile::new(choice).expect("possible"),
            clock: clock.clone(),
        };
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))
            .await
            .expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let shutdown = CancellationToken::new();
        let transport = Transport::Tls(source);
        let ended = tokio::spawn(serve(
            listener,
            service,
            transport,
            limits,
            shutdown.clone(),
        ));
        Self {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            certificate,
            client_ca,
            clock,
            shutdown,
            ended,
            servers,
            clients,
        }
    }

    /// A connection of a client with this certificate and key, if any.
    pub(crate) async fn connect(
        &self,
        client: Option<&str>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        self.dial(Dial {
            client,
            ..Dial::default()
        })
        .await
    }

    pub(crate) async fn dial(&self, dial: Dial<'_>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.servers.pem.as_bytes()).expect("PEM");
        roots.add(ca).expect("an authority");
        let mut provider = aws_lc_rs::default_provider();
        if let Some(suites) = dial.suites {
            provider
                .cipher_suites
                .retain(|suite| suites.contains(&u16::from(suite.suite())));
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(dial.versions)
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match dial.client {
            Some(pem) => builder
                .with_client_auth_cert(
                    CertificateDer::pem_slice_iter(pem.as_bytes())
                        .collect::<Result<_, _>>()
                        .expect("a chain"),
                    PrivateKeyDer::from_pem_slice(pem.as_bytes()).expect("a key"),
                )
                .expect("a pair"),
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![dial.alpn.to_vec()];
        let socket = TcpSocket::new_v4()?;
        socket.bind((dial.from, 0).into())?;
        let stream = soon("connect", socket.connect(self.address)).await?;
        // the first request shall not wait 40 ms for the kernel to acknowledge the handshake's end
        stream.set_nodelay(true)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
        soon("handshake", connecting).await
    }

    /// The response to `GET path` on a new connection.
    pub(crate) async fn get(&self, client: Option<&str>, path: &str) -> Result<String, String> {
        let stream = self
            .connect(client)
            .await
            .map_err(|error| error.to_string())?;
        let mut connection = Http::over(stream, Version::HTTP_11).await;
        connection.get(path).await
    }
}

/// Options of a connection.
pub(crate) struct Dial<'a> {
    pub(crate) client: Option<&'a str>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
    pub(crate) suites: Option<&'a [u16]>,
    pub(crate) alpn: &'a [u8],
    pub(crate) from: IpAddr,
}

impl Default for Dial<'_> {
    fn default() -> Self {
        Self {
            client: None,
            versions: rustls::ALL_VERSIONS,
            suites: None,
            alpn: b"http/1.1",
            from: Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// An HTTP client on one connection.
pub(crate) enum Http {
    One(hyper::client::conn::http1::SendRequest<Full<Bytes>>),
    Two(hyper::client::conn::http2::SendRequest<Full<Bytes>>),
}

impl Http {
    pub(crate) async fn over(stream: TlsStream<TcpStream>, version: Version) -> Self {
        let io = TokioIo::new(stream);
        if version == Version::HTTP_2 {
            let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
            let (sender, connection) = builder.handshake(io).await.expect("HTTP/2");
            tokio::spawn(connection);
            return Self::Two(sender);
        }
        let (sender, connection) = hyper::client::conn::http1::handshake(io)
            .await
            .expect("HTTP/1.1");
        tokio::spawn(connection.with_upgrades());
        Self::One(sender)
    }

    pub(crate) async fn send(
        &mut self,
        request: http::Request<Full<Bytes>>,
    ) -> Result<Response<hyper::body::Incoming>, hyper::Error> {
        let sent = async {
            match self {
                Self::One(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Self::Two(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        soon("an answer", sent).await
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<String, String> {
        let uri = format!("https://localhost{path}");
        let request = http::Request::get(uri).header("host", "localhost");
        let request = request.body(Full::default()).expect("a request");
        let response = self
            .send(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let body = soon("a body", response.into_body().collect()).await;
        let body = body.map_err(|error| error.to_string())?.to_bytes();
        match status {
            StatusCode::OK => Ok(String::from_utf8_lossy(&body).into_owned()),
            status => Err(status.to_string()),
        }
    }
}

/// Returns the client certificate, reads bodies, upgrades connections.
pub(crate) fn router() -> Router {
    Router::new()
        .route("/who", get(who))
        .route(
            "/mark_authenticated",
            get(async |Extension(peer): Extension<Peer>| peer.mark_authenticated()),
        )
        .route("/read", any(read))
        .route("/echo", any(echo))
        .route("/endless", get(endless))
}

async fn who(Extension(peer): Extension<Peer>) -> String {
    match peer.certificate() {
        Ok(Some(certificate)) => format!("certificate of {} bytes", certificate.der.len().min(1)),
        Ok(None) => "no certificate".to_owned(),
        Err(error) => format!("rejected: {error}"),
    }
}

async fn read(body: Body) -> Response<Body> {
    match body.collect().await {
        Ok(body) => body.to_bytes().len().to_string().into_response(),
        Err(error) => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

async fn echo(request: Request) -> Response<Body> {
    tokio::spawn(async move {
        let upgraded = hyper::upgrade::on(request).await.expect("an upgrade");
        let (mut from, mut to) = tokio::io::split(TokioIo::new(upgraded));
        let _ = tokio::io::copy(&mut from, &mut to).await;
    });
    Response::builder()
        .status(StatusCode::SWITCHING_PROTOCOLS)
        .header("connection", "Upgrade")
        .header("upgrade", "SPDY/3.1")
        .body(Body::empty())
        .expect("a response")
}

/// A body that never ends.
async fn endless() -> Body {
    struct Endless(bool);
    impl http_body::Body for Endless {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
            match std::mem::replace(&mut self.0, true) {
                false => {
                    let frame = http_body::Frame::data(Bytes::from_static(b"begun"));
                    std::task::Poll::Ready(Some(Ok(frame)))
                }
                true => std::task::Poll::Pending,
            }
        }
    }
    Body::new(Endless(false))
}
