//! Opens connections: DNS lookup, TCP, proxy, TLS, HTTP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use kube::client::Body;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::last_read::LastRead;
use super::pool::{Connection, Sender};
use super::tunnel::Tunnels;
use super::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_STREAMS, TransportError, tls};
use crate::config::proxy::unbracketed;
use crate::config::{ApiServerConfig, ConfigError};
use crate::identity::ClientIdentity;

/// Timeout of a connection to one address, with TLS: 15 + 8 + 5 < 30 s. After a timeout the
/// address is tried last.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Flow-control window of a stream. A connection has this for each of its streams (20 MiB), so
/// that an unread watch does not block the others.
const STREAM_WINDOW: u32 = 256 << 10;

/// Opens connections to one server.
pub(super) struct Dialer {
    pub(super) server: http::Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The proxy to connect to, if any.
    tunnels: Option<Tunnels>,
    pub(super) identity: ClientIdentity,
    /// The address of the server or proxy to try first.
    first: AtomicUsize,
}

impl Dialer {
    pub(super) fn new(config: &ApiServerConfig) -> Result<Self, ConfigError> {
        let server = config.server().clone();
        let host = unbracketed(server.host().unwrap_or_default()).to_owned();
        let secure = server.scheme_str() != Some("http");
        let tls = if secure {
            let name = match &config.server_name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.clone()).map_err(|_| ConfigError::Tls {
                    server: server.to_string(),
                    problem: "the host is not a DNS name or IP address".to_owned(),
                })?,
            };
            let settings = tls::client_config(config)?;
            Some((TlsConnector::from(Arc::new(settings)), name))
        } else {
            None
        };
        Ok(Self {
            port: server.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            host,
            server,
            tls,
            tunnels: Tunnels::from_config(config)?,
            identity: config.identity().clone(),
            first: AtomicUsize::new(0),
        })
    }

    /// Connects to the first reachable address of the server.
    pub(super) async fn dial(&self) -> Result<Connection, TransportError> {
        self.identity.refresh().await;
        let addresses = self.addresses().await?;
        let first = self.first.load(Ordering::Relaxed);
        let mut failure = None;
        for turn in 0..addresses.len() {
            let at = (first + turn) % addresses.len();
            let address = addresses[at];
            // set before the attempt, because the caller may cancel it
            self.first.store(at + 1, Ordering::Relaxed);
            match tokio::time::timeout(DIAL_TIMEOUT, self.connect(address)).await {
                Ok(Ok(connection)) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(connection);
                }
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {
                    failure = Some(TransportError::ConnectTimeout {
                        address: address.to_string(),
                    });
                }
            }
        }
        Err(failure.unwrap_or_else(|| TransportError::NoAddress {
            host: self.peer().0.to_owned(),
        }))
    }

    /// Returns host and port to connect to: the proxy or the server.
    fn peer(&self) -> (&str, u16) {
        match &self.tunnels {
            Some(tunnels) => (&tunnels.proxy.host, tunnels.proxy.port),
            None => (&self.host, self.port),
        }
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, TransportError> {
        let peer = self.peer();
        let lookup = tokio::net::lookup_host(peer);
        match tokio::time::timeout(DIAL_TIMEOUT, lookup).await {
            Ok(Ok(addresses)) => Ok(addresses.collect()),
            Ok(Err(source)) => Err(TransportError::Lookup {
                host: peer.0.to_owned(),
                source,
            }),
            Err(_) => Err(TransportError::ConnectTimeout {
                address: peer.0.to_owned(),
            }),
        }
    }

    async fn connect(&self, address: SocketAddr) -> Result<Connection, TransportError> {
        // before the handshake, so that a certificate change during it makes the connection outdated
        let generation = self.identity.generation();
        let failed = |source| TransportError::Connect { address, source };
        let tcp = TcpStream::connect(address).await.map_err(failed)?;
        prepare(&tcp).map_err(failed)?;
        let last = LastRead::new();
        let sender = match &self.tunnels {
            None => self.speak(tcp, address, &last).await?,
            Some(tunnels) => {
                let tunnel = tunnels.open(tcp, &self.host, self.port).await?;
                self.speak(tunnel, address, &last).await?
            }
        };
        tracing::debug!(%address, protocol = sender.protocol(), "connected to the API server");
        Ok(Connection::new(sender, last, generation))
    }

    /// Starts TLS and HTTP with the server.
    async fn speak<T>(
        &self,
        stream: T,
        address: SocketAddr,
        last: &LastRead,
    ) -> Result<Sender, TransportError>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some((connector, name)) = &self.tls else {
            return http1(stream, last).await;
        };
        let stream = connector.connect(name.clone(), stream).await;
        let stream = stream.map_err(|source| TransportError::Connect { address, source })?;
        match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => http2(stream, last).await,
            _ => http1(stream, last).await,
        }
    }
}

/// Sends small requests at once, and detects unreachable peers after 23 s even without HTTP pings.
fn prepare(tcp: &TcpStream) -> std::io::Result<()> {
    use rustix::net::sockopt;
    tcp.set_nodelay(true)?;
    sockopt::set_socket_keepalive(tcp, true)?;
    sockopt::set_tcp_keepidle(tcp, KEEP_ALIVE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(tcp, KEEP_ALIVE_TIMEOUT / 2)?;
    sockopt::set_tcp_keepcnt(tcp, 2)?;
    Ok(())
}

pub(super) async fn http2<T>(stream: T, last: &LastRead) -> Result<Sender, TransportError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(last.track(stream));
    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(STREAM_WINDOW * MAX_STREAMS as u32)
        .handshake::<_, Body>(io)
        .await?;
    let allowed = Arc::new(AtomicUsize::new(MAX_STREAMS));
    let known = allowed.clone();
    let mut connection = Box::pin(connection);
    spawn(std::future::poll_fn(move |context| {
        let polled = connection.as_mut().poll(context);
        known.store(connection.current_max_send_streams(), Ordering::Relaxed);
        polled
    }));
    Ok(Sender::Http2 { sender, allowed })
}

async fn http1<T>(stream: T, last: &LastRead) -> Result<Sender, TransportError>
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let io = TokioIo::new(last.track(stream));
    let (mut sender, connection) = hyper::client::conn::http1::handshake::<_, Body>(io).await?;
    spawn(connection);
    sender.ready().await?;
    Ok(Sender::http1(sender))
}

/// Drives a connection until the server closes it or its sender is dropped.
pub(super) fn spawn(connection: impl Future<Output = hyper::Result<()>> + Send + 'static) {
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to the API server ended");
        }
    });
}
