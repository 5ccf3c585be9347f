//! The accept loop.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Request, Response};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::connection::{AcceptedConnection, Tls};
use crate::connections::ConnectionLimiter;
use crate::limits::Limits;
use crate::tls::{Handshakes, TlsSource};

/// The transport of a server.
#[derive(Clone, Debug)]
pub enum Transport {
    /// HTTP/1.1 without TLS.
    Plain,
    /// HTTP/1.1 and HTTP/2 over TLS.
    Tls(TlsSource),
}

/// Back-off when the process is out of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(500);

/// Serves until `shutdown`, then drains requests in progress for at most
/// [`Limits::drain_timeout`]. Upgraded connections are not waited for.
///
/// Returns at once if the TLS settings are unusable.
pub async fn serve<S>(
    listener: TcpListener,
    service: S,
    transport: Transport,
    limits: Limits,
    shutdown: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let mut handshakes = match transport {
        Transport::Plain => None,
        Transport::Tls(source) => match Handshakes::new(source) {
            Ok(handshakes) => Some(handshakes),
            Err(error) => {
                tracing::error!(%error, "TLS settings unusable");
                return;
            }
        },
    };
    let limiter = ConnectionLimiter::new(limits);
    let tasks = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                if !concerns_one_connection(&error) {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
                continue;
            }
        };
        let connection = AcceptedConnection {
            stream,
            address,
            permit: Arc::new(limiter.admit(address.ip())),
            limits,
            shutdown: shutdown.clone(),
        };
        let tls = handshakes.as_mut().map(|handshakes| Tls {
            config: handshakes.config(),
            client_ca: handshakes.source().client_ca.clone(),
            clock: Arc::clone(&handshakes.source().clock),
        });
        tasks.spawn(connection.run(tls, service.clone()));
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

/// Returns true if the next connection may be accepted.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
