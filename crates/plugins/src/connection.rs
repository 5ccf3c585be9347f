//! A short-lived gRPC connection to a Unix socket, as in upstream.
//!
//! Calls to plugins are rare and plugins restart at any time, so a cached connection would often be
//! stale. The tasks of a connection end with it, even if the peer has stopped reading.

use std::error::Error;
use std::io;
use std::path::Path;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::io::InspectReader;
use tonic::transport::{Channel, Endpoint, Uri};

/// Maximum time to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// Its tasks end when this does.
    _alive: watch::Sender<()>,
    closed: watch::Receiver<()>,
}

impl Connection {
    /// Connects to a socket, without a timeout of its own.
    ///
    /// # Errors
    /// The connection failed; the text has the system error.
    pub async fn open(socket: &Path) -> Result<Self, String> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|error| format!("dial unix {}: {error}", socket.display()))?;
        let (alive, tasks) = watch::channel(());
        let (open, closed) = watch::channel(());
        // the closure is dropped with the stream
        let stream = InspectReader::new(stream, move |_: &[u8]| {
            let _open = &open;
        });
        // the connector is used once
        let mut stream = Some(stream);
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take();
            let gone = || io::Error::from(io::ErrorKind::NotConnected);
            async move { stream.map(TokioIo::new).ok_or_else(gone) }
        });
        // the authority is never resolved; gRPC servers only require a valid one
        let channel = Endpoint::from_static("http://localhost")
            .executor(Tasks(tasks))
            .connect_with_connector(connector)
            .await
            .map_err(|error| error_chain(&error))?;
        Ok(Self {
            channel,
            _alive: alive,
            closed,
        })
    }

    /// Waits until the peer closes the connection.
    pub async fn closed(&self) {
        let mut closed = self.closed.clone();
        // nothing is sent: the sender is dropped with the stream
        while closed.changed().await.is_ok() {}
    }

    /// Channel for a client.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }
}

/// Runs the tasks of a connection until it is dropped.
#[derive(Clone)]
struct Tasks(watch::Receiver<()>);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        let mut alive = self.0.clone();
        tokio::spawn(async move {
            let closed = async {
                // changes only when the connection is dropped
                let _ = alive.changed().await;
                tokio::time::sleep(CLOSE_TIMEOUT).await;
            };
            tokio::select! {
                biased;
                () = task => {}
                () = closed => {}
            }
        });
    }
}

/// Text of an error with all its causes.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
