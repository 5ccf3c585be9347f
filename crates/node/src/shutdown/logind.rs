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
/// A bus that has not answered by then does not work.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Why a shutdown cannot be delayed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogindError {
    /// There is no system bus, or it went away.
    #[error("no connection to D-Bus: {0}")]
    Bus(String),
    /// A call failed.
    #[error("{call} of {service}: {reason}")]
    Call {
        /// Method or property.
        call: &'static str,
        /// Who was called.
        service: &'static str,
        /// What it said.
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
    /// logind keeps delaying for less than the pods are to have.
    #[error(
        "logind delays a shutdown for at most {actual:?}, but shutdownGracePeriod is {wanted:?}; \
         raise InhibitDelayMaxSec in logind.conf"
    )]
    TooShort {
        /// What logind grants.
        actual: Duration,
        /// What is configured.
        wanted: Duration,
    },
}

/// How to reach the bus logind is on.
#[derive(Clone)]
pub struct LogindBus(Arc<dyn Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync>);

impl fmt::Debug for LogindBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogindBus")
    }
}

impl LogindBus {
    /// The machine's system bus.
    pub fn system() -> Self {
        Self::with(Connection::system)
    }

    /// Whatever `connect` connects to.
    pub(super) fn with<F>(connect: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = zbus::Result<Connection>> + Send + 'static,
    {
        Self(Arc::new(move || Box::pin(connect())))
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<Logind, LogindError> {
        match tokio::time::timeout(CALL_DEADLINE, (self.0)()).await {
            Ok(Ok(bus)) => Ok(Logind { bus }),
            Ok(Err(error)) => Err(LogindError::Bus(error.to_string())),
            Err(_) => Err(LogindError::Bus("no answer".to_owned())),
        }
    }
}

/// A connection on which logind answers.
#[derive(Clone, Debug)]
pub(super) struct Logind {
    bus: Connection,
}

impl Logind {
    /// How long logind waits for those who delay a shutdown (`InhibitDelayMaxUSec`).
    pub(super) async fn inhibit_delay(&self) -> Result<Duration, LogindError> {
        const CALL: &str = "InhibitDelayMaxUSec";
        let get = async {
            let logind = self.proxy(SERVICE, PATH, INTERFACE).await?;
            logind.get_property::<u64>(CALL).await
        };
        answer(CALL, SERVICE, get).await.map(Duration::from_micros)
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
        answer(CALL, SERVICE, inhibit).await
    }

    /// Has logind read its configuration again; it does so a little later.
    pub(super) async fn reload(&self) -> Result<(), LogindError> {
        const CALL: &str = "KillUnit";
        let hup = ("systemd-logind.service", "all", SIGHUP);
        let kill = async {
            let systemd = self.proxy(SYSTEMD, SYSTEMD_PATH, SYSTEMD_INTERFACE).await?;
            systemd.call::<_, _, ()>(CALL, &hup).await
        };
        answer(CALL, SYSTEMD, kill).await
    }

    /// True when a shutdown begins, false when it was cancelled; ends with the connection.
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
                // the bus lets through only what logind itself says
                rule = rule.sender(SERVICE);
            }
            MessageStream::for_match_rule(rule.build()?, &self.bus, None).await
        };
        let messages = answer(CALL, SERVICE, subscribe).await?;
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

async fn answer<T>(
    call: &'static str,
    service: &'static str,
    future: impl Future<Output = zbus::Result<T>>,
) -> Result<T, LogindError> {
    let failed = |reason| LogindError::Call {
        call,
        service,
        reason,
    };
    match tokio::time::timeout(CALL_DEADLINE, future).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_) => Err(failed("no answer in time".to_owned())),
    }
}
