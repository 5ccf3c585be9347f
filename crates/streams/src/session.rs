//! Sessions, from the permit to the end of the stream.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::response::Parts;
use http::uri::Scheme;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::copy::{End, copy_bidirectional};
use crate::translate::{self, CommandStreams};
use crate::{StreamError, headers, tunnel, websocket};

/// Limits of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum concurrent sessions: two for each of 250 pods. With two buffers of 16 KiB and about
    /// 40 KiB for TLS and HTTP each, they use 36 MiB.
    pub sessions: usize,
    /// Timeout for the runtime to accept a connection and to answer the upgrade, which usually
    /// takes milliseconds.
    pub upgrade_timeout: Duration,
    /// Idle time in both directions after which a session ends. Upstream's
    /// `streamingConnectionIdleTimeout` has no effect; its server's read and write timeouts are
    /// these 4 h.
    pub idle_timeout: Duration,
    /// Maximum bytes of the runtime's error response; the rest is truncated.
    pub rejection_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 512,
            upgrade_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(4 * 3600),
            rejection_bytes: 64 << 10,
        }
    }
}

/// The sessions of a node. Clones share the limit.
#[derive(Clone, Debug)]
pub struct Sessions {
    permits: Arc<Semaphore>,
    limits: Limits,
    shutdown: CancellationToken,
}

impl Sessions {
    /// Creates an empty set of sessions; all end with `shutdown`.
    pub fn new(limits: Limits, shutdown: CancellationToken) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(limits.sessions)),
            limits,
            shutdown,
        }
    }

    /// Checks that a request is an upgrade, and acquires a permit.
    ///
    /// # Errors
    /// The request is not an upgrade, or the limit is reached.
    pub fn reserve<B>(&self, request: &Request<B>) -> Result<SessionPermit, StreamError> {
        headers::check(request)?;
        self.acquire()
    }

    /// Acquires a permit for work that is not a stream but may take as long.
    ///
    /// # Errors
    /// The limit is reached.
    pub fn acquire(&self) -> Result<SessionPermit, StreamError> {
        if self.shutdown.is_cancelled() {
            return Err(StreamError::Shutdown);
        }
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| StreamError::Full(self.limits.sessions))?;
        Ok(SessionPermit {
            permit,
            limits: self.limits,
            shutdown: self.shutdown.clone(),
        })
    }

    /// Returns the number of open sessions.
    pub fn open(&self) -> usize {
        self.limits.sessions - self.permits.available_permits()
    }
}

/// Permit for one session, released on drop.
#[derive(Debug)]
pub struct SessionPermit {
    permit: OwnedSemaphorePermit,
    limits: Limits,
    shutdown: CancellationToken,
}

impl SessionPermit {
    /// Replays the client's request to the streaming server at `url`. Returns the server's
    /// response: 101 with a session behind it, or an error.
    ///
    /// `client` is appended to `X-Forwarded-For`.
    ///
    /// # Errors
    /// The server is unreachable, or its response is neither an upgrade nor an error.
    pub async fn proxy(
        self,
        mut request: Request<Body>,
        url: &str,
        client: Option<IpAddr>,
    ) -> Result<Response<Body>, StreamError> {
        let target = target(url)?;
        let replayed = headers::replay(&request, &target, client)
            .map_err(|error| StreamError::BadUrl(format!("{url}: {error}")))?;
        let (mut runtime, connection) = match self.upgrade(&target, replayed).await? {
            UpgradeOutcome::Upgraded(answer, connection) => (answer, connection),
            UpgradeOutcome::Rejected(parts, words) => return Ok(rejection(&parts, words)),
        };
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = runtime.headers().clone();
        let ends = (
            hyper::upgrade::on(&mut request),
            hyper::upgrade::on(&mut runtime),
        );
        let idle = self.limits.idle_timeout;
        let session = async move {
            // the client's upgrade resolves when it has received the 101, or fails
            let upgraded = tokio::try_join!(ends.0, ends.1);
            let (client, runtime) = upgraded.ok()?;
            drop(connection);
            Some(copy_bidirectional(TokioIo::new(client), TokioIo::new(runtime), idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    /// Serves a WebSocket that [`is_tunneled_spdy`](crate::is_tunneled_spdy) and requests the SPDY
    /// connection inside from the streaming server at `url`. Returns a WebSocket response, or the
    /// server's error.
    ///
    /// # Errors
    /// The WebSocket handshake is invalid, the server is unreachable, or its response is neither an
    /// upgrade nor an error.
    pub async fn tunnel(
        self,
        mut request: Request<Body>,
        url: &str,
        client: Option<IpAddr>,
    ) -> Result<Response<Body>, StreamError> {
        // before the runtime is contacted
        websocket::accept(&request, None)?;
        let target = target(url)?;
        let offered = websocket::tunneled_protocols(request.headers());
        let mut replayed = headers::replay(&request, &target, client)
            .map_err(|error| StreamError::BadUrl(format!("{url}: {error}")))?;
        headers::request_spdy(&mut replayed, &offered)
            .map_err(|_| StreamError::BadWebSocket("its subprotocol cannot be passed on"))?;
        let (mut runtime, connection) = match self.upgrade(&target, replayed).await? {
            UpgradeOutcome::Upgraded(answer, connection) => (answer, connection),
            UpgradeOutcome::Rejected(parts, words) => return Ok(rejection(&parts, words)),
        };
        if !headers::is_spdy(runtime.headers()) {
            return Err(StreamError::NotSpdy);
        }
        let chosen = headers::stream_protocol(runtime.headers());
        let chosen = chosen.filter(|chosen| offered.contains(chosen));
        let chosen = chosen.map(websocket::tunnel_protocol);
        let answer = websocket::accept(&request, chosen.as_deref())?;
        let ends = (
            hyper::upgrade::on(&mut request),
            hyper::upgrade::on(&mut runtime),
        );
        let idle = self.limits.idle_timeout;
        let session = async move {
            let (client, runtime) = tokio::try_join!(ends.0, ends.1).ok()?;
            drop(connection);
            Some(tunnel::serve(TokioIo::new(client), TokioIo::new(runtime), idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    /// Serves a WebSocket that [`is_remote_command_v5`](crate::is_remote_command_v5), with a new
    /// SPDY connection to the streaming server at `url`. Errors after the handshake are a status in
    /// the WebSocket.
    ///
    /// # Errors
    /// The WebSocket handshake is invalid, or the URL is unusable.
    pub fn translate(
        self,
        mut request: Request<Body>,
        url: &str,
        streams: CommandStreams,
    ) -> Result<Response<Body>, StreamError> {
        let answer = websocket::accept(&request, Some(websocket::REMOTE_COMMAND_V5))?;
        let target = target(url)?;
        let client = hyper::upgrade::on(&mut request);
        let connector = Connector {
            target,
            limits: self.limits,
        };
        let idle = self.limits.idle_timeout;
        let session = async move {
            let client = TokioIo::new(client.await.ok()?);
            Some(translate::serve(client, connector.connect(), streams, idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    async fn upgrade(
        &self,
        target: &Uri,
        request: Request<Empty<Bytes>>,
    ) -> Result<UpgradeOutcome, StreamError> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(StreamError::Shutdown),
            outcome = request_with_timeout(target, request, self.limits) => outcome,
        }
    }

    /// Runs the session until a side ends, then releases the permit.
    async fn run(self, session: impl Future<Output = Option<End>>) {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {}
            end = session => match end {
                Some(end) => tracing::debug!(?end, "stream ended"),
                None => tracing::debug!("stream not started"),
            },
        }
        drop(self.permit);
    }
}

/// Opens a SPDY connection to the runtime.
struct Connector {
    target: Uri,
    limits: Limits,
}

impl Connector {
    async fn connect(self) -> Result<TokioIo<Upgraded>, StreamError> {
        let replayed = headers::spdy_request(&self.target, translate::REMOTE_COMMAND_V4)
            .map_err(|error| StreamError::BadUrl(format!("{}: {error}", self.target)))?;
        let outcome = request_with_timeout(&self.target, replayed, self.limits).await?;
        let (mut answer, connection) = match outcome {
            UpgradeOutcome::Upgraded(answer, connection) => (answer, connection),
            UpgradeOutcome::Rejected(_, words) => {
                return Err(StreamError::Rejected(reason(&words)));
            }
        };
        let headers = answer.headers();
        if !headers::is_spdy(headers) {
            return Err(StreamError::NotSpdy);
        }
        let chosen = headers::stream_protocol(headers).unwrap_or_default();
        if chosen != translate::REMOTE_COMMAND_V4 {
            return Err(StreamError::WrongProtocol(chosen.to_owned()));
        }
        let upgraded = hyper::upgrade::on(&mut answer).await;
        drop(connection);
        upgraded.map(TokioIo::new).map_err(StreamError::Broken)
    }
}

/// Returns the message in the JSON of an error response, else its text.
fn reason(words: &[u8]) -> String {
    let json: serde_json::Value = serde_json::from_slice(words).unwrap_or_default();
    let fields = ["message", "error"].into_iter();
    let mut fields = fields.filter_map(|name| json.get(name)?.as_str());
    let text = String::from_utf8_lossy(words);
    let words = fields.find(|field| !field.trim().is_empty());
    match words.unwrap_or(&text).trim() {
        "" => "empty server response".to_owned(),
        words => words.to_owned(),
    }
}

enum UpgradeOutcome {
    Upgraded(Response<Incoming>, Connection),
    Rejected(Parts, Vec<u8>),
}

async fn request_with_timeout(
    target: &Uri,
    request: Request<Empty<Bytes>>,
    limits: Limits,
) -> Result<UpgradeOutcome, StreamError> {
    let upgrade = async {
        let (connection, answer) = send(target, request).await?;
        let status = answer.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(UpgradeOutcome::Upgraded(answer, connection));
        }
        if status.is_client_error() || status.is_server_error() {
            let (parts, words) = read_body(answer, limits.rejection_bytes).await;
            drop(connection);
            return Ok(UpgradeOutcome::Rejected(parts, words));
        }
        Err(StreamError::NotUpgraded(status.as_u16()))
    };
    let outcome = timeout(limits.upgrade_timeout, upgrade).await;
    outcome.map_err(|_| StreamError::Timeout(limits.upgrade_timeout.as_secs()))?
}

/// Parses the URL of the streaming server. It comes from the runtime's socket, which only root and
/// the runtime can write to, so it may contain any address. TLS is not supported, as runtimes serve
/// streams on the loopback address.
fn target(url: &str) -> Result<Uri, StreamError> {
    let bad = |why: &str| StreamError::BadUrl(format!("{url}: {why}"));
    let target: Uri = url.parse().map_err(|_| bad("not a URL"))?;
    if target.host().is_none() {
        return Err(bad("no host"));
    }
    match target.scheme() == Some(&Scheme::HTTP) {
        true => Ok(target),
        false => Err(bad(
            "only http is supported; streaming over TLS has to be turned off in the runtime",
        )),
    }
}

/// Drives HTTP until the upgrade; dropping it ends the connection.
type Connection = AbortOnDropHandle<()>;

async fn send(
    target: &Uri,
    request: Request<Empty<Bytes>>,
) -> Result<(Connection, Response<Incoming>), StreamError> {
    let host = target.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = target.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(StreamError::Dial)?;
    // send keystrokes without delay
    stream.set_nodelay(true).map_err(StreamError::Dial)?;
    let handshake = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(StreamError::Broken)?;
    let connection = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "connection to the streaming server broke");
        }
    }));
    let answer = sender.send_request(request).await;
    Ok((connection, answer.map_err(StreamError::Broken)?))
}

/// Reads the body of an error response, up to `max` bytes.
async fn read_body(answer: Response<Incoming>, max: usize) -> (Parts, Vec<u8>) {
    let (parts, body) = answer.into_parts();
    let mut body = Limited::new(body, max);
    let mut words = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            words.extend_from_slice(&data);
        }
    }
    (parts, words)
}

/// Returns the runtime's error response.
fn rejection(parts: &Parts, words: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(words));
    *response.status_mut() = parts.status;
    *response.headers_mut() = headers::without_framing(&parts.headers);
    response
}
