//! A short-lived gRPC connection to a Unix socket, as in upstream.
//!
//! Calls to plugins are rare and plugins restart at any time, so a cached connection would often be
//! stale. The tasks of a connection end with it, even if the peer has stopped reading.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tonic::transport::{Channel, Endpoint, Uri};

/// Maximum time to close a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An open connection. Dropping it closes it.
#[derive(Debug)]
pub struct Connection {
    channel: Channel,
    /// Its tasks end when this does.
    _alive: watch::Sender<()>,
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
        // the connector is used once
        let mut stream = Some(stream);
        let connector = tower::service_fn(move |_: Uri| {
            let stream = stream.take();
            let gone = || std::io::Error::from(std::io::ErrorKind::NotConnected);
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
        })
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
