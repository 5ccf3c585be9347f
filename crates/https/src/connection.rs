//! One connection, from the handshake to its end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::IntoResponse;
use http::{Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};
use windlass_types::Clock;

use crate::body::{Activity, Answer, Bounded};
use crate::limits::{HEADER_BYTES, Limits, RESET_STREAMS, STREAM_HEADER_BYTES, STREAMS};
use crate::peer::Peer;
use crate::places::Place;
use crate::tls::ClientCa;

/// What a TLS connection begins with.
pub(crate) struct Tls {
    pub(crate) config: Arc<ServerConfig>,
    pub(crate) client_ca: Option<watch::Receiver<ClientCa>>,
    pub(crate) clock: Arc<dyn Clock>,
}

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub(crate) stream: TcpStream,
    pub(crate) address: SocketAddr,
    pub(crate) place: Arc<Place>,
    pub(crate) limits: Limits,
    pub(crate) shutdown: CancellationToken,
}

impl Accepted {
    /// Serves it until it ends, by itself or because it is idle, sent away, or the server ends.
    pub(crate) async fn run<S>(self, tls: Option<Tls>, service: S)
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
        S: Clone + Send + 'static,
        S::Future: Send,
    {
        let place = Arc::clone(&self.place);
        tokio::select! {
            biased;
            () = place.evicted() => {}
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
            let peer = Peer::new(self.address, Arc::clone(&self.place));
            let builder = builder().http1_only();
            let io = Held::new(self.stream, &self.place);
            return talk(
                io,
                builder,
                peer,
                service,
                &Terms::of(&self.place, self.limits, self.shutdown),
            )
            .await;
        };
        let terms = Terms::of(&self.place, self.limits, self.shutdown);
        let handshake = TlsAcceptor::from(tls.config).accept(self.stream);
        let stream = tokio::select! {
            biased;
            () = terms.shutdown.cancelled() => return,
            done = timeout(self.limits.handshake, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    tracing::debug!(address = %self.address, %error, "TLS handshake failed");
                    return;
                }
                Err(_) => {
                    tracing::debug!(address = %self.address, "TLS handshake took too long");
                    return;
                }
            },
        };
        let (_, session) = stream.get_ref();
        let chain = session.peer_certificates().unwrap_or_default();
        let peer = match tls.client_ca {
            Some(ca) => {
                Peer::with_chain(self.address, Arc::clone(&self.place), chain, ca, tls.clock)
            }
            None => Peer::new(self.address, Arc::clone(&self.place)),
        };
        let builder = match session.alpn_protocol() {
            Some(b"h2") => builder().http2_only(),
            _ => builder().http1_only(),
        };
        let io = Held::new(stream, &self.place);
        talk(io, builder, peer, service, &terms).await;
    }
}

/// How long a connection may do what.
struct Terms {
    limits: Limits,
    place: Arc<Place>,
    shutdown: CancellationToken,
}

impl Terms {
    fn of(place: &Arc<Place>, limits: Limits, shutdown: CancellationToken) -> Self {
        Self {
            limits,
            place: Arc::clone(place),
            shutdown,
        }
    }
}

/// HTTP until the end.
async fn talk<I, S>(
    io: Held<I>,
    builder: auto::Builder<TokioExecutor>,
    peer: Peer,
    service: S,
    terms: &Terms,
) where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let limits = terms.limits;
    let address = peer.address();
    let activity = Activity::new(Arc::clone(&terms.place));
    let requests = activity.subscribe();
    terms.place.set_busy(false);
    let answer = service_fn(move |request: Request<Incoming>| {
        let busy = activity.begin();
        // one that is refused keeps nothing of its request
        let answered = match activity.is_too_much(&limits) {
            true => None,
            false => {
                let mut request = request.map(|body| Body::new(Bounded::new(body, &limits)));
                request.extensions_mut().insert(peer.clone());
                Some(service.clone().oneshot(request))
            }
        };
        async move {
            let response = match answered {
                Some(answered) => answered.await?,
                None => too_much(),
            };
            Ok::<_, Infallible>(response.map(|inner| Answer { inner, _busy: busy }))
        }
    });
    let mut connection = pin!(builder.serve_connection_with_upgrades(TokioIo::new(io), answer));
    tokio::select! {
        biased;
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%address, %error, "connection broke");
            }
            return;
        }
        () = quiet(requests, &limits) => {}
        () = terms.shutdown.cancelled() => {}
    }
    // idle ones end at once, others may come to their end
    connection.as_mut().graceful_shutdown();
    if timeout(limits.linger, connection).await.is_err() {
        tracing::debug!(%address, "connection cut");
    }
}

/// What a stranger with too many requests at a time is told.
fn too_much() -> Response<Body> {
    let words = "too many requests at a time\n";
    let headers = [(header::RETRY_AFTER, "1")];
    (StatusCode::TOO_MANY_REQUESTS, headers, words).into_response()
}

/// Waits until the connection has had no request for too long.
async fn quiet(mut requests: watch::Receiver<usize>, limits: &Limits) {
    let mut patience = limits.first_request;
    loop {
        let idle = *requests.borrow_and_update() == 0;
        let changed = requests.changed();
        let over = if idle {
            timeout(patience, changed).await.is_err()
        } else {
            changed.await.is_err()
        };
        if over {
            return;
        }
        patience = limits.idle;
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // how long a header may take is watched by `quiet`, for both versions of HTTP
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(None)
        .max_buf_size(HEADER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(STREAM_HEADER_BYTES)
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESET_STREAMS);
    builder
}

/// Small answers go at once, and a client whose machine is gone is noticed: Go's values.
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

/// A stream that has its place for as long as it lives: also after an upgrade, when whoever
/// asked for it has it.
struct Held<I> {
    io: I,
    _place: Arc<Place>,
}

impl<I> Held<I> {
    fn new(io: I, place: &Arc<Place>) -> Self {
        Self {
            io,
            _place: Arc::clone(place),
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Held<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Held<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
