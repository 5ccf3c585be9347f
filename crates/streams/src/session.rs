//! A session, from its place to its end.

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

use crate::copy::{End, join};
use crate::translate::{self, CommandStreams};
use crate::{StreamError, headers, tunnel, websocket};

/// What sessions may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions at a time: two for each of 250 pods. With two buffers of 16 KiB and what TLS and
    /// HTTP keep (some 40 KiB) they are 36 MiB.
    pub sessions: usize,
    /// For the runtime to accept a connection and to answer the upgrade. It starts nothing
    /// before, so that this is a matter of milliseconds.
    pub answer: Duration,
    /// Silence in both directions after which a session ends. Upstream's
    /// `streamingConnectionIdleTimeout` is without effect; its server's read and write timeouts
    /// are these 4 h.
    pub idle: Duration,
    /// Most bytes of the runtime's words when it refuses; the rest is cut.
    pub refusal_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 512,
            answer: Duration::from_secs(30),
            idle: Duration::from_secs(4 * 3600),
            refusal_bytes: 64 << 10,
        }
    }
}

/// The sessions of a node. Clones share the places.
#[derive(Clone, Debug)]
pub struct Sessions {
    places: Arc<Semaphore>,
    limits: Limits,
    shutdown: CancellationToken,
}

impl Sessions {
    /// No session; all end with `shutdown`.
    pub fn new(limits: Limits, shutdown: CancellationToken) -> Self {
        Self {
            places: Arc::new(Semaphore::new(limits.sessions)),
            limits,
            shutdown,
        }
    }

    /// A place for a request, before the runtime is bothered with it.
    ///
    /// # Errors
    /// The request is no upgrade, or there is no place.
    pub fn reserve<B>(&self, request: &Request<B>) -> Result<Place, StreamError> {
        headers::check(request)?;
        self.take()
    }

    /// A place for what is no stream and may take as long; whoever drops it has ended.
    ///
    /// # Errors
    /// There is no place.
    pub fn take(&self) -> Result<Place, StreamError> {
        if self.shutdown.is_cancelled() {
            return Err(StreamError::Shutdown);
        }
        let permit = Arc::clone(&self.places).try_acquire_owned();
        let permit = permit.map_err(|_| StreamError::Full(self.limits.sessions))?;
        Ok(Place {
            permit,
            limits: self.limits,
            shutdown: self.shutdown.clone(),
        })
    }

    /// Sessions that are open.
    pub fn open(&self) -> usize {
        self.limits.sessions - self.places.available_permits()
    }
}

/// A place for one session; dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    permit: OwnedSemaphorePermit,
    limits: Limits,
    shutdown: CancellationToken,
}

impl Place {
    /// Asks the streaming server at `url` for what the client asks for. The answer is the
    /// server's own: 101 with a session behind it, or what it refuses with.
    ///
    /// `client` is put behind `X-Forwarded-For`.
    ///
    /// # Errors
    /// The server is not reached, or answers neither the one nor the other.
    pub async fn join(
        self,
        mut request: Request<Body>,
        url: &str,
        client: Option<IpAddr>,
    ) -> Result<Response<Body>, StreamError> {
        let target = target(url)?;
        let asked = headers::replay(&request, &target, client)
            .map_err(|error| StreamError::BadUrl(format!("{url}: {error}")))?;
        let (mut runtime, connection) = match self.ask(&target, asked).await? {
            Asked::Joined(answer, connection) => (answer, connection),
            Asked::Refused(parts, words) => return Ok(refused(&parts, words)),
        };
        let mut answer = Response::new(Body::empty());
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *answer.headers_mut() = runtime.headers().clone();
        let ends = (
            hyper::upgrade::on(&mut request),
            hyper::upgrade::on(&mut runtime),
        );
        let idle = self.limits.idle;
        let session = async move {
            // the client's end comes when it has the 101; if it never takes it, with an error
            let joined = tokio::try_join!(ends.0, ends.1);
            let (client, runtime) = joined.ok()?;
            drop(connection);
            Some(join(TokioIo::new(client), TokioIo::new(runtime), idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    /// Serves a WebSocket that [`is_tunneled_spdy`](crate::is_tunneled_spdy) and asks the
    /// streaming server at `url` for the SPDY connection inside. The answer is a WebSocket's, or
    /// what the server refuses with.
    ///
    /// # Errors
    /// The request is no proper WebSocket, or the server is not reached, or answers neither the
    /// one nor the other.
    pub async fn tunnel(
        self,
        mut request: Request<Body>,
        url: &str,
        client: Option<IpAddr>,
    ) -> Result<Response<Body>, StreamError> {
        // before the runtime is bothered with it
        websocket::accept(&request, None)?;
        let target = target(url)?;
        let offered = websocket::tunneled_protocols(request.headers());
        let mut asked = headers::replay(&request, &target, client)
            .map_err(|error| StreamError::BadUrl(format!("{url}: {error}")))?;
        headers::ask_for_spdy(&mut asked, &offered)
            .map_err(|_| StreamError::BadWebSocket("its subprotocol cannot be passed on"))?;
        let (mut runtime, connection) = match self.ask(&target, asked).await? {
            Asked::Joined(answer, connection) => (answer, connection),
            Asked::Refused(parts, words) => return Ok(refused(&parts, words)),
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
        let idle = self.limits.idle;
        let session = async move {
            let (client, runtime) = tokio::try_join!(ends.0, ends.1).ok()?;
            drop(connection);
            Some(tunnel::join(TokioIo::new(client), TokioIo::new(runtime), idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    /// Serves a WebSocket that [`is_remote_command_v5`](crate::is_remote_command_v5), with a SPDY
    /// connection of its own to the streaming server at `url`. What fails behind the handshake is
    /// a status in the WebSocket.
    ///
    /// # Errors
    /// The request is no proper WebSocket, or the URL cannot be used.
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
        let idle = self.limits.idle;
        let session = async move {
            let client = TokioIo::new(client.await.ok()?);
            Some(translate::serve(client, connector.connect(), streams, idle).await)
        };
        tokio::spawn(self.run(session));
        Ok(answer)
    }

    async fn ask(&self, target: &Uri, asked: Request<Empty<Bytes>>) -> Result<Asked, StreamError> {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => Err(StreamError::Shutdown),
            asked = ask_in_time(target, asked, self.limits) => asked,
        }
    }

    /// The session itself, until a side is done; the place is given back then.
    async fn run(self, session: impl Future<Output = Option<End>>) {
        tokio::select! {
            biased;
            () = self.shutdown.cancelled() => {}
            end = session => match end {
                Some(end) => tracing::debug!(?end, "stream ended"),
                None => tracing::debug!("stream not joined"),
            },
        }
        drop(self.permit);
    }
}

/// Where and how a SPDY connection of our own is made.
struct Connector {
    target: Uri,
    limits: Limits,
}

impl Connector {
    async fn connect(self) -> Result<TokioIo<Upgraded>, StreamError> {
        let asked = headers::spdy_request(&self.target, translate::REMOTE_COMMAND_V4)
            .map_err(|error| StreamError::BadUrl(format!("{}: {error}", self.target)))?;
        let asked = ask_in_time(&self.target, asked, self.limits).await?;
        let (mut answer, connection) = match asked {
            Asked::Joined(answer, connection) => (answer, connection),
            Asked::Refused(_, words) => return Err(StreamError::Refused(reason(&words))),
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

/// Why the runtime refused: its words, or the message in its JSON.
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

enum Asked {
    Joined(Response<Incoming>, Connection),
    Refused(Parts, Vec<u8>),
}

async fn ask_in_time(
    target: &Uri,
    asked: Request<Empty<Bytes>>,
    limits: Limits,
) -> Result<Asked, StreamError> {
    let asking = async {
        let (connection, answer) = ask(target, asked).await?;
        let status = answer.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(Asked::Joined(answer, connection));
        }
        if status.is_client_error() || status.is_server_error() {
            let (parts, words) = words(answer, limits.refusal_bytes).await;
            drop(connection);
            return Ok(Asked::Refused(parts, words));
        }
        Err(StreamError::NotUpgraded(status.as_u16()))
    };
    let asked = timeout(limits.answer, asking).await;
    asked.map_err(|_| StreamError::NoAnswer(limits.answer.as_secs()))?
}

/// Where the runtime serves streams. The URL comes from its socket, which only root and the
/// runtime can write to, and may name any address; TLS is not spoken, as runtimes serve streams
/// on the loopback address.
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

/// Drives HTTP up to the upgrade; without it nothing more comes.
type Connection = AbortOnDropHandle<()>;

async fn ask(
    target: &Uri,
    request: Request<Empty<Bytes>>,
) -> Result<(Connection, Response<Incoming>), StreamError> {
    let host = target.host().unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = target.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(StreamError::Dial)?;
    // keystrokes go at once
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

/// What the runtime says when it refuses, as far as its words fit.
async fn words(answer: Response<Incoming>, most: usize) -> (Parts, Vec<u8>) {
    let (parts, body) = answer.into_parts();
    let mut body = Limited::new(body, most);
    let mut words = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(data) = frame.into_data() {
            words.extend_from_slice(&data);
        }
    }
    (parts, words)
}

/// The runtime's own refusal.
fn refused(parts: &Parts, words: Vec<u8>) -> Response<Body> {
    let mut refused = Response::new(Body::from(words));
    *refused.status_mut() = parts.status;
    *refused.headers_mut() = headers::without_framing(&parts.headers);
    refused
}
