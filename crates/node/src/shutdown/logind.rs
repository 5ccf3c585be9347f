//! The part of logind's D-Bus interface that delays a shutdown.

use std::fmt;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{Stream, StreamExt};
use zbus::message::Type;
use zbus::proxy::{Builder, CacheProperties};
use zbus::{Connection, MatchRule, MessageStream, Proxy};

const SERVICE: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const INTERFACE: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const SIGHUP: i32 = 1;
/// Timeout of a D-Bus call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a shutdown cannot be delayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogindError {
    /// The system bus is unreachable.
    #[error("no connection to D-Bus: {0}")]
    Bus(String),
    /// A call failed.
    #[error("{call} of {service}: {reason}")]
    Call {
        /// Method or property.
        call: &'static str,
        /// Called service.
        service: &'static str,
        /// Its error.
        reason: String,
    },
    /// The drop-in for logind cannot be written.
    #[error("cannot write {path}: {reason}; set InhibitDelayMaxSec in logind.conf")]
    DropIn {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// logind delays for less than the configured grace period.
    #[error(
        "logind delays a shutdown by at most {actual:?}, but shutdownGracePeriod is {required:?}; \
         raise InhibitDelayMaxSec in logind.conf"
    )]
    TooShort {
        /// Delay that logind grants.
        actual: Duration,
        /// Configured delay.
        required: Duration,
    },
}

/// Connects to the D-Bus of logind.
#[derive(Clone)]
pub struct LogindBus(Arc<dyn Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync>);

impl fmt::Debug for LogindBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogindBus")
    }
}

impl LogindBus {
    /// The host's system bus.
    pub fn system() -> Self {
        Self::with(Connection::system)
    }

    /// A bus reached by `connect`.
    pub(super) fn with<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = zbus::Result<Connection>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(connect())))
    }

    pub(super) async fn connect(&self) -> Result<Logind, LogindError> {
        match tokio::time::timeout(CALL_TIMEOUT, (self.0)()).await {
            Ok(Ok(bus)) => Ok(Logind { bus }),
            Ok(Err(error)) => Err(LogindError::Bus(error.to_string())),
            Err(_) => Err(LogindError::Bus("timeout".to_owned())),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Logind {
    bus: Connection,
}

impl Logind {
    /// Returns how long logind waits for inhibitors (`InhibitDelayMaxUSec`).
    pub(super) async fn inhibit_delay(&self) -> Result<Duration, LogindError> {
        const CALL: &str = "InhibitDelayMaxUSec";
        let get = async {
            let logind = self.proxy(SERVICE, PATH, INTERFACE).await?;
            logind.get_property::<u64>(CALL).await
        };
        with_timeout(CALL, SERVICE, get)
            .await
            .map(Duration::from_micros)
    }

    /// Delays every shutdown until the descriptor is closed.
    pub(super) async fn inhibit(&self) -> Result<OwnedFd, LogindError> {
        const CALL: &str = "Inhibit";
        let who = ("shutdown", "kubelet", "Pods are stopped in order", "delay");
        let inhibit = async {
            let logind = self.proxy(SERVICE, PATH, INTERFACE).await?;
            let lock: zbus::OwnedFd = logind.call(CALL, &who).await?;
            Ok(lock.into())
        };
        with_timeout(CALL, SERVICE, inhibit).await
    }

    /// Makes logind reload its configuration, which happens asynchronously.
    pub(super) async fn reload(&self) -> Result<(), LogindError> {
        const CALL: &str = "KillUnit";
        let hup = ("systemd-logind.service", "all", SIGHUP);
        let kill = async {
            let systemd = self.proxy(SYSTEMD, SYSTEMD_PATH, SYSTEMD_INTERFACE).await?;
            systemd.call::<_, _, ()>(CALL, &hup).await
        };
        with_timeout(CALL, SYSTEMD, kill).await
    }

    /// Yields true when a shutdown starts, false when it was cancelled; ends with the connection.
    pub(super) async fn shutdowns(
        &self,
    ) -> Result<impl Stream<Item = bool> + Send + use<>, LogindError> {
        const CALL: &str = "PrepareForShutdown";
        let subscribe = async {
            let mut rule = MatchRule::builder()
                .msg_type(Type::Signal)
                .path(PATH)
                .interface(INTERFACE)
                .member(CALL);
            if self.bus.is_bus() {
                // only signals of logind itself pass
                rule = rule.sender(SERVICE);
            }
            MessageStream::for_match_rule(rule.build()?, &self.bus, None).await
        };
        let messages = with_timeout(CALL, SERVICE, subscribe).await?;
        Ok(messages.filter_map(|message| async move {
            let message = message.ok()?;
            message.body().deserialize::<bool>().ok()
        }))
    }

    async fn proxy(
        &self,
        service: &'static str,
        path: &'static str,
        interface: &'static str,
    ) -> zbus::Result<Proxy<'static>> {
        Builder::new(&self.bus)
            .destination(service)
            .path(path)
            .interface(interface)
            .cache_properties(CacheProperties::No)
            .build()
            .await
    }
}

async fn with_timeout<T>(
    call: &'static str,
    service: &'static str,
    future: impl Future<Output = zbus::Result<T>>,
) -> Result<T, LogindError> {
    let failed = |reason| LogindError::Call {
        call,
        service,
        reason,
    };
    match tokio::time::timeout(CALL_TIMEOUT, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("timeout".to_owned())),
    }
}
