//! systemd as the manager of slices, by its D-Bus interface.

use std::fmt::{self, Debug};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
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
/// Upstream waits 30 s for a job; here only that it is accepted is waited for.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// What a slice of pods has besides its values: it outlives the services that stop first at a
/// shutdown, and what its pods use is counted.
const SWITCHES: [(&str, bool); 4] = [
    ("DefaultDependencies", false),
    ("CPUAccounting", true),
    ("MemoryAccounting", true),
    ("TasksAccounting", true),
];

type Connect = dyn Fn() -> BoxFuture<'static, zbus::Result<Connection>> + Send + Sync;

/// Implementation of [`Slices`] by systemd's D-Bus interface. Its functions have to be called on
/// a blocking thread of a tokio runtime.
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
    /// The machine's systemd, by the system bus. Nothing is connected before the first call.
    pub fn system() -> Self {
        // systemd's private socket would do without a bus, but what it sends on it names a sender
        // that D-Bus does not allow and zbus refuses (systemd 252, zbus 6.2)
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

    /// Calls a method; once more on a new connection if the one there was is gone.
    fn call<B>(&self, method: &'static str, body: &B) -> io::Result<Answer>
    where
        B: Serialize + DynamicType + Sync,
    {
        let runtime = Handle::try_current().map_err(io::Error::other)?;
        let known = self.lock().clone();
        let call = async {
            if let Some(connection) = known
                && let Ok(answer) = ask(&connection, method, body).await
            {
                return Ok(answer);
            }
            let connection = (self.connect)().await?;
            let answer = ask(&connection, method, body).await?;
            *self.lock() = Some(connection);
            Ok(answer)
        };
        let answer = runtime.block_on(async { timeout(self.deadline, call).await });
        let late = || io::Error::new(io::ErrorKind::TimedOut, "systemd does not answer");
        let failed = |error: Error| io::Error::other(format!("systemd: {error}"));
        answer.map_err(|_| late())?.map_err(failed)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connection>> {
        let connection = self.connection.lock();
        connection.unwrap_or_else(PoisonError::into_inner)
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
            Answer::Refused { name: error, .. } if error == UNIT_EXISTS && values.is_empty() => {
                Ok(())
            }
            Answer::Refused { name: error, .. } if error == UNIT_EXISTS => {
                // until the machine starts again, as those of a slice that is started here
                let set = (name, true, values);
                self.call("SetUnitProperties", &set)?.done()
            }
            answer => answer.done(),
        }
    }

    fn stop(&self, name: &str) -> io::Result<()> {
        match self.call("StopUnit", &(name, "replace"))? {
            Answer::Refused { name: error, .. } if error == NO_SUCH_UNIT => Ok(()),
            answer => answer.done(),
        }
    }
}

/// What systemd says to a call.
enum Answer {
    Done,
    Refused { name: String, reason: String },
}

impl Answer {
    fn done(self) -> io::Result<()> {
        match self {
            Self::Done => Ok(()),
            Self::Refused { name, reason } => Err(io::Error::other(format!(
                "systemd refuses: {reason} ({name})"
            ))),
        }
    }
}

/// An error is one of the connection.
async fn ask<B>(bus: &Connection, method: &'static str, body: &B) -> zbus::Result<Answer>
where
    B: Serialize + DynamicType + Sync,
{
    let call = bus.call_method(Some(SERVICE), PATH, Some(INTERFACE), method, body);
    match call.await {
        Ok(_) => Ok(Answer::Done),
        Err(Error::MethodError(name, reason, _)) => Ok(Answer::Refused {
            name: name.to_string(),
            reason: reason.unwrap_or_default(),
        }),
        Err(Error::FDO(error)) => Ok(Answer::Refused {
            name: error.name().to_string(),
            reason: error.description().unwrap_or_default().to_owned(),
        }),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
