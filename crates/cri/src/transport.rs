//! A gRPC channel over a Unix socket that reconnects automatically.
//!
//! tonic reconnects with the first call after a loss. The gate before the connector limits the
//! dials: after a failure, calls fail immediately with the last error until the back-off has
//! passed.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};

/// Reconnect options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Redial {
    pub(crate) connect_timeout: Duration,
    /// Back-off after the first failure; doubles with each further one.
    pub(crate) backoff_base: Duration,
    /// Maximum back-off.
    pub(crate) backoff_max: Duration,
}

/// Creates a channel that dials with its first call. Requires a tokio runtime.
pub(crate) fn channel(path: PathBuf, redial: Redial) -> Channel {
    let gate = Arc::new(Mutex::new(Gate::default()));
    let connector = tower::service_fn(move |_: Uri| dial(path.clone(), redial, gate.clone()));
    // the authority is never resolved; gRPC servers only require a valid one
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

async fn dial(
    path: PathBuf,
    redial: Redial,
    gate: Arc<Mutex<Gate>>,
) -> io::Result<TokioIo<UnixStream>> {
    if let Some(reason) = gate.lock().closed(Instant::now()) {
        return Err(io::Error::new(io::ErrorKind::ConnectionRefused, reason));
    }
    let result =
        match tokio::time::timeout(redial.connect_timeout, UnixStream::connect(&path)).await {
            Ok(result) => result,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "no answer to connect",
            )),
        };
    match result {
        Ok(stream) => {
            gate.lock().opened();
            tracing::debug!(socket = %path.display(), "runtime connected");
            Ok(TokioIo::new(stream))
        }
        Err(error) => {
            let reason = format!("connect {}: {error}", path.display());
            tracing::debug!(socket = %path.display(), %error, "runtime not reached");
            gate.lock().failed(Instant::now(), reason.clone(), redial);
            Err(io::Error::new(error.kind(), reason))
        }
    }
}

/// Back-off between dials; open until the first failure.
#[derive(Debug, Default)]
struct Gate {
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    reason: String,
    wait: Duration,
    next: Instant,
}

impl Gate {
    /// Returns why dialing is not allowed now.
    fn closed(&self, now: Instant) -> Option<String> {
        self.failure
            .as_ref()
            .filter(|failure| now < failure.next)
            .map(|failure| failure.reason.clone())
    }

    fn opened(&mut self) {
        self.failure = None;
    }

    fn failed(&mut self, now: Instant, reason: String, redial: Redial) {
        let wait = match &self.failure {
            Some(failure) => (failure.wait * 2).min(redial.backoff_max),
            None => redial.backoff_base,
        };
        self.failure = Some(Failure {
            reason,
            wait,
            next: now + wait,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Gate, Redial};

    #[tokio::test(start_paused = true)]
    async fn reconnect_backoff_doubles_to_its_max_and_resets_on_success() {
        let redial = Redial {
            connect_timeout: Duration::from_secs(5),
            backoff_base: Duration::from_millis(100),
            backoff_max: Duration::from_secs(3),
        };
        let mut gate = Gate::default();
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = Instant::now();
            gate.failed(now, "gone".into(), redial);
            assert_eq!(gate.closed(now).as_deref(), Some("gone"));
            let wait = gate.failure.as_ref().expect("failed").next - now;
            assert!(gate.closed(now + wait).is_none());
            waits.push(wait.as_millis());
        }
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3000, 3000]);
        gate.opened();
        assert!(gate.closed(Instant::now()).is_none());
    }
}
