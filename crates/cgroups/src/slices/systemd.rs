//! systemd as the slice manager, through its D-Bus interface.

use std::fmt::{self, Debug};
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::time::timeout;
use zbus::{Connection, DBusError, DynamicType, Error, Variant};

use super::{Property, Slices};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
/// Upstream waits 30 s for the job; this waits only until systemd accepts it.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Properties of each slice besides its values: it outlives the services that stop first at
/// shutdown, and its usage is accounted.
const SWITCHES: [(&str, bool); 4] = [
    ("DefaultDependencies", false),
    ("CPUAccounting", true),
    ("MemoryAccounting", true),
    ("TasksAccounting", true),
];

type Connect = dyn Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync;

/// Implementation of [`Slices`] with systemd's D-Bus interface. Call it on a blocking thread of a
/// tokio runtime.
pub struct SystemdSlices {
    connect: Box<Connect>,
    deadline: Duration,
    connection: Mutex<Option<Connection>>,
}

impl Debug for SystemdSlices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SystemdSlices")
    }
}

impl SystemdSlices {
    /// The host's systemd, through the system bus. Connects with the first call.
    pub fn system() -> Self {
        // not systemd's private socket: its messages have a sender that D-Bus does not allow and
        // zbus rejects (systemd 252, zbus 6.2)
        Self::with(CALL_DEADLINE, || Box::pin(Connection::system()))
    }

    fn with(
        deadline: Duration,
        connect: impl Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            connect: Box::new(connect),
            deadline,
            connection: Mutex::default(),
        }
    }

    /// Calls a method; retries once on a new connection if the old one is lost.
    fn call<B>(&self, method: &'static str, body: &B) -> io::Result<MethodResult>
    where
        B: Serialize + DynamicType + Sync,
    {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let known = self.connection.lock().clone();
        let call = async {
            if let Some(connection) = known
                && let Ok(answer) = call_method(&connection, method, body).await
            {
                return Ok(answer);
            }
            let connection = (self.connect)().await?;
            let answer = call_method(&connection, method, body).await?;
            *self.connection.lock() = Some(connection);
            Ok(answer)
        };
        let answer = runtime.block_on(async { timeout(self.deadline, call).await });
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no response from systemd");
        let failed = |error: Error| io::Error::other(format!("systemd: {error}"));
        answer.map_err(|_| late())?.map_err(failed)
    }
}

impl Slices for SystemdSlices {
    fn start(&self, name: &str, properties: &[Property]) -> io::Result<()> {
        let values = properties.iter().map(|(name, value)| (*name, value.into()));
        let values: Vec<(&str, Variant<'_>)> = values.collect();
        let switches = SWITCHES.map(|(name, on)| (name, on.into()));
        let all: Vec<_> = values.iter().cloned().chain(switches).collect();
        let no_others: [(&str, Vec<(&str, Variant<'_>)>); 0] = [];
        let start = (name, "replace", all, no_others.as_slice());
        match self.call("StartTransientUnit", &start)? {
            MethodResult::Rejected { name: error, .. }
                if error == UNIT_EXISTS && values.is_empty() =>
            {
                Ok(())
            }
            MethodResult::Rejected { name: error, .. } if error == UNIT_EXISTS => {
                // until the next boot, as those of a slice that is started here
                let set = (name, true, values);
                self.call("SetUnitProperties", &set)?.done()
            }
            answer => answer.done(),
        }
    }

    fn stop(&self, name: &str) -> io::Result<()> {
        match self.call("StopUnit", &(name, "replace"))? {
            MethodResult::Rejected { name: error, .. } if error == NO_SUCH_UNIT => Ok(()),
            answer => answer.done(),
        }
    }
}

enum MethodResult {
    Done,
    Rejected { name: String, reason: String },
}

impl MethodResult {
    fn done(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            Self::Rejected { name, reason } => Err(io::Error::other(format!(
                "systemd rejected the request: {reason} ({name})"
            ))),
        }
    }
}

/// Calls a method; an error is a connection error.
async fn call_method<B>(
    bus: &Connection,
    method: &'static str,
    body: &B,
) -> zbus::Result<MethodResult>
where
    B: Serialize + DynamicType + Sync,
{
    let call = bus.call_method(Some(SERVICE), PATH, Some(INTERFACE), method, body);
    match call.await {
        Ok(_) => Ok(MethodResult::Done),
        Err(Error::MethodError(name, reason, _)) => Ok(MethodResult::Rejected {
            name: name.to_string(),
            reason: reason.unwrap_or_default(),
        }),
        Err(Error::FDO(error)) => Ok(MethodResult::Rejected {
            name: error.name().to_string(),
            reason: error.description().unwrap_or_default().to_owned(),
        }),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
