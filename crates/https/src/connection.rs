//! One connection, from its handshake to its end.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::IntoResponse;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::io::InspectReader;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use windlass_types::Clock;

use crate::body::{Activity, LimitedBody, TrackedBody};
use crate::connections::ConnectionPermit;
use crate::limits::{
    Limits, MAX_HEADER_BYTES, MAX_RESET_STREAMS, MAX_STREAM_HEADER_BYTES, MAX_STREAMS,
};
use crate::peer::Peer;
use crate::tls::ClientCa;

/// TLS settings of a connection.
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) client_ca: Option<watch::Receiver<ClientCa>>,
    pub(crate) clock: Arc<dyn Clock>,
}

pub(crate) struct AcceptedConnection {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) permit: Arc<ConnectionPermit>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
}

impl AcceptedConnection {
    /// Serves the connection until it ends, is idle or evicted, or the server shuts down.
    pub(crate) async fn run<S>(self, tls: Option<Tls>, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        let permit = Arc::clone(&self.permit);
        tokio::select! {
            biased;
            () = permit.evicted() => {}
            () = self.serve(tls, service) => {}
        }
    }

    async fn serve<S>(self, tls: Option<Tls>, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        prepare(&self.stream);
        let Some(tls) = tls else {
            let peer = Peer::new(self.address, Arc::clone(&self.permit));
            let builder = builder().http1_only();
            return serve_http(
                self.stream,
                builder,
                peer,
                service,
                &ConnectionTimeouts::new(&self.permit, self.limits, self.shutdown),
            )
            .await;
        };
        let timeouts = ConnectionTimeouts::new(&self.permit, self.limits, self.shutdown);
        let handshake = TlsAcceptor::from(tls.config).accept(self.stream);
        let stream = tokio::select! {
            biased;
            () = timeouts.shutdown.cancelled() => return,
            done = timeout(self.limits.handshake, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(address = %self.address, %error, "TLS handshake failed");
                    return;
                }
                Err(_) => {
                    tracing::debug!(address = %self.address, "TLS handshake timed out");
                    return;
                }
            },
        };
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().unwrap_or_default();
        let peer = match tls.client_ca {
            Some(ca) => {
                Peer::with_chain(self.address, Arc::clone(&self.permit), chain, ca, tls.clock)
            }
            None => Peer::new(self.address, Arc::clone(&self.permit)),
        };
        let builder = match session.alpn_protocol() {
            Some(b"h2") => builder().http2_only(),
            _ => builder().http1_only(),
        };
        serve_http(stream, builder, peer, service, &timeouts).await;
    }
}

struct ConnectionTimeouts {
    limits: Limits,
    permit: Arc<ConnectionPermit>,
    shutdown: CancellationToken,
}

impl ConnectionTimeouts {
    fn new(permit: &Arc<ConnectionPermit>, limits: Limits, shutdown: CancellationToken) -> Self {
        Self {
            limits,
            permit: Arc::clone(permit),
            shutdown,
        }
    }
}

/// Serves HTTP until the connection ends.
async fn serve_http<I, S>(
    stream: I,
    builder: auto::Builder<TokioExecutor>,
    peer: Peer,
    service: S,
    timeouts: &ConnectionTimeouts,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let limits = timeouts.limits;
    let address = peer.address();
    let activity = Activity::new(Arc::clone(&timeouts.permit));
    let requests = activity.subscribe();
    timeouts.permit.set_busy(false);
    let handler = service_fn(move |request: Request<Incoming>| {
        let busy = activity.begin();
        // a rejected request must not keep its body
        let response = match activity.exceeds_request_limit(&limits) {
            true => None,
            false => {
                let mut request = request.map(|body| Body::new(LimitedBody::new(body, &limits)));
                request.extensions_mut().insert(peer.clone());
                Some(service.clone().oneshot(request))
            }
        };
        async move {
            let response = match response {
                Some(response) => response.await?,
                None => too_many_requests(),
            };
            Ok::<_, Infallible>(response.map(|inner| TrackedBody { inner, _busy: busy }))
        }
    });
    // the stream keeps its permit, also after an upgrade
    let permit = Arc::clone(&timeouts.permit);
    let io = TokioIo::new(InspectReader::new(stream, move |_: &[u8]| {
        let _permit = &permit;
    }));
    let mut connection = pin!(builder.serve_connection_with_upgrades(io, handler));
    tokio::select! {
        biased;
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection failed");
            }
            return;
        }
        () = wait_until_idle(requests, &limits) => {}
        () = timeouts.shutdown.cancelled() => {}
    }
    // idle connections end at once, requests in progress may finish
    connection.as_mut().graceful_shutdown();
    if timeout(limits.drain_timeout, connection).await.is_err() {
        tracing::debug!(%address, "connection closed at the drain timeout");
    }
}

/// The response to an unauthenticated connection over its request limit.
fn too_many_requests() -> Response<Body> {
    let text = "too many concurrent requests\n";
    let headers = [(header::RETRY_AFTER, "1")];
    (StatusCode::TOO_MANY_REQUESTS, headers, text).into_response()
}

/// Waits until no request was in progress for too long.
async fn wait_until_idle(mut requests: watch::Receiver<usize>, limits: &Limits) {
    let mut limit = limits.first_request;
    loop {
        let idle = *requests.borrow_and_update() == 0;
        let changed = requests.changed();
        let expired = if idle {
            timeout(limit, changed).await.is_err()
        } else {
            changed.await.is_err()
        };
        if expired {
            return;
        }
        limit = limits.idle;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // `wait_until_idle` limits the time for a header, for both HTTP versions
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(MAX_HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_STREAM_HEADER_BYTES)
        .max_concurrent_streams(MAX_STREAMS)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS);
    builder
}

/// Sends small responses at once and detects unreachable clients, with Go's values.
fn prepare(stream: &TcpStream) {
    use rustix::net::sockopt;
    let period = std::time::Duration::from_secs(15);
    let set = stream
        .set_nodelay(true)
        .and_then(|()| Ok(sockopt::set_socket_keepalive(stream, true)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepidle(stream, period)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepintvl(stream, period)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepcnt(stream, 9)?));
    if let Err(error) = set {
        tracing::debug!(%error, "socket options");
    }
}
