//! Assigns requests to connections.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::dial::Dialer;
use super::last_read::LastRead;
use super::{MAX_CONNECTIONS, MAX_STREAMS, TransportError};

/// A request that is canceled earlier says nothing about its connection.
const SUSPECT_THRESHOLD: Duration = Duration::from_secs(1);
/// How often the files of a client certificate are read again.
const IDENTITY_INTERVAL: Duration = Duration::from_secs(60);
/// An unneeded connection without requests for this long is closed: after a peak each would
/// continue to send pings.
const IDLE_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum attempts if a connection closes before the request was sent.
const MAX_ATTEMPTS: usize = 2;

/// Connections to one server.
pub(super) struct Pool {
    dialer: Dialer,
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Held while a connection is opened, so that a burst of requests opens only one.
    dialing: tokio::sync::Mutex<()>,
    identity_read: Mutex<Option<Instant>>,
}

/// One open connection.
pub(super) struct Connection {
    sender: Sender,
    last_read: LastRead,
    generation: u64,
    /// Requests whose response has not ended.
    open: AtomicUsize,
    /// When the last of them ended.
    idle_since: Mutex<Instant>,
    suspect: AtomicBool,
}

/// The HTTP side of a connection.
pub(super) enum Sender {
    /// Concurrent requests.
    Http2 {
        /// The handle of the connection.
        sender: http2::SendRequest<Body>,
        /// Maximum number of streams that the server allows.
        allowed: Arc<AtomicUsize>,
    },
    /// One request at a time.
    Http1(Mutex<http1::SendRequest<Body>>),
}

/// A permit for one request on a connection, held until the response has ended.
pub(super) struct Lease {
    connection: Arc<Connection>,
    /// When the request was sent, until the response.
    waiting: Option<Instant>,
}

/// A response body that holds its permit until it ends.
pub(crate) struct ResponseBody {
    body: Incoming,
    lease: Option<Lease>,
}

impl Pool {
    pub(super) fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            connections: Mutex::new(Vec::new()),
            dialing: tokio::sync::Mutex::new(()),
            identity_read: Mutex::new(None),
        }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        self.refresh_identity().await;
        *request.uri_mut() = absolute(&self.dialer.server, request.uri())?;
        let mut attempt = 1;
        loop {
            let mut lease = self.lease().await?;
            lease.waiting = Some(Instant::now());
            match lease.connection.sender.send(request).await {
                Ok(response) => {
                    lease.waiting = None;
                    let lease = Some(lease);
                    return Ok(response.map(|body| ResponseBody { body, lease }));
                }
                Err(mut error) => {
                    lease.waiting = None;
                    // a returned request was not sent
                    match error.take_message() {
                        Some(unsent) if attempt < MAX_ATTEMPTS => request = unsent,
                        _ => return Err(error.into_error().into()),
                    }
                    lease.connection.suspect.store(true, Ordering::Relaxed);
                    attempt += 1;
                }
            }
        }
    }

    async fn lease(&self) -> Result<Lease, TransportError> {
        if let Some(lease) = self.free() {
            return Ok(lease);
        }
        let _dialing = self.dialing.lock().await;
        if let Some(lease) = self.free() {
            return Ok(lease);
        }
        if self.connections.lock().len() >= MAX_CONNECTIONS {
            return Err(TransportError::Full);
        }
        let connection = Arc::new(Box::pin(self.dialer.dial()).await?);
        let lease = Lease::new(&connection);
        self.connections.lock().push(connection);
        Ok(lease)
    }

    /// Returns a permit on an open connection, and drops unused connections: their last responses
    /// may still be streaming.
    fn free(&self) -> Option<Lease> {
        let generation = self.dialer.identity.generation();
        let mut connections = self.connections.lock();
        connections.retain(|c| c.is_good(generation));
        drop_surplus(&mut connections);
        // the fullest first, so that the others become idle after a peak
        connections
            .iter()
            .filter(|c| c.has_room())
            .max_by_key(|c| c.open.load(Ordering::Relaxed))
            .map(Lease::new)
    }

    async fn refresh_identity(&self) {
        let due = {
            let mut read = self.identity_read.lock();
            let due = read.is_none_or(|at| at.elapsed() >= IDENTITY_INTERVAL);
            if due {
                *read = Some(Instant::now());
            }
            due
        };
        if due {
            self.dialer.identity.refresh().await;
        }
    }
}

/// Drops connections that have been idle for long, except one that may be needed.
pub(super) fn drop_surplus(connections: &mut Vec<Arc<Connection>>) {
    let mut room = connections.iter().any(|c| c.is_used() && c.has_room());
    connections.retain(|c| c.is_used() || !c.is_idle() || !std::mem::replace(&mut room, true));
}

impl Connection {
    pub(super) fn new(sender: Sender, last_read: LastRead, generation: u64) -> Self {
        Self {
            sender,
            last_read,
            generation,
            open: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
            suspect: AtomicBool::new(false),
        }
    }

    fn is_good(&self, generation: u64) -> bool {
        self.generation == generation
            && !self.suspect.load(Ordering::Relaxed)
            && !self.sender.is_closed()
    }

    fn is_used(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn is_idle(&self) -> bool {
        let since = self.idle_since.lock();
        since.elapsed() >= IDLE_TIMEOUT
    }

    fn has_room(&self) -> bool {
        let open = self.open.load(Ordering::Relaxed);
        match &self.sender {
            Sender::Http2 { allowed, .. } => {
                open < MAX_STREAMS.min(allowed.load(Ordering::Relaxed))
            }
            Sender::Http1(sender) => open == 0 && sender.lock().is_ready(),
        }
    }
}

impl Sender {
    pub(super) fn http1(sender: http1::SendRequest<Body>) -> Self {
        Self::Http1(Mutex::new(sender))
    }

    pub(super) fn protocol(&self) -> &'static str {
        match self {
            Self::Http2 { .. } => "h2",
            Self::Http1(_) => "http/1.1",
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http2 { sender, .. } => sender.is_closed(),
            Self::Http1(sender) => sender.lock().is_closed(),
        }
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        match self {
            Self::Http2 { sender, .. } => {
                request.headers_mut().remove(http::header::HOST);
                sender.clone().try_send_request(request).await
            }
            Self::Http1(sender) => {
                let host = request.uri().authority().map(|a| a.as_str().to_owned());
                if let Some(Ok(host)) = host.map(|host| HeaderValue::from_str(&host)) {
                    request.headers_mut().insert(http::header::HOST, host);
                }
                let sent = sender.lock().try_send_request(request);
                sent.await
            }
        }
    }
}

impl Lease {
    pub(super) fn new(connection: &Arc<Connection>) -> Self {
        connection.open.fetch_add(1, Ordering::Relaxed);
        Self {
            connection: connection.clone(),
            waiting: None,
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.connection.open.fetch_sub(1, Ordering::Relaxed) == 1 {
            *self.connection.idle_since.lock() = Instant::now();
        }
        let Some(sent) = self.waiting else {
            return;
        };
        // canceled without a response: bytes that were in flight when the connection died may still
        // have arrived in the first half
        let waited = sent.elapsed();
        if waited >= SUSPECT_THRESHOLD && !self.connection.last_read.since(sent + waited / 2) {
            tracing::debug!(
                "connection to the API server silent, opening another one with the next request"
            );
            self.connection.suspect.store(true, Ordering::Relaxed);
        }
    }
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            self.lease = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The request's path on the server, behind the prefix of the server's URL.
fn absolute(server: &Uri, uri: &Uri) -> Result<Uri, http::Error> {
    let asked = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let prefix = server.path().trim_end_matches('/');
    let mut parts = server.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{prefix}{asked}"))?);
    Ok(Uri::from_parts(parts)?)
}
