//! A logind, and the systemd that reloads it, at the other end of a socket pair.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use zbus::connection::Builder;
use zbus::{Connection, Guid};

use super::LIMIT;
use crate::shutdown::LogindBus;

const PATH: &str = "/org/freedesktop/login1";

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    /// Our ends of the inhibitors; the holder closes the other end.
    locks: Vec<UnixStream>,
    connection: Option<Connection>,
}

/// See the module documentation. Clones share one logind.
#[derive(Clone, Debug)]
pub(super) struct FakeLogind {
    state: Arc<Mutex<State>>,
    conf_dir: Option<PathBuf>,
}

struct Login1(FakeLogind);

#[zbus::interface(name = "org.freedesktop.login1.Manager")]
impl Login1 {
    fn inhibit(&self, what: &str, who: &str, _why: &str, mode: &str) -> zbus::OwnedFd {
        assert_eq!((what, who, mode), ("shutdown", "kubelet", "delay"));
        let (mine, theirs) = UnixStream::pair().expect("pair");
        mine.set_nonblocking(true).expect("nonblocking");
        self.0.state.lock().expect("lock").locks.push(mine);
        zbus::OwnedFd::from(OwnedFd::from(theirs))
    }

    #[zbus(property, name = "InhibitDelayMaxUSec")]
    fn inhibit_delay_max(&self) -> u64 {
        let delay = self.0.state.lock().expect("lock").delay;
        u64::try_from(delay.as_micros()).expect("micros")
    }
}

struct Systemd(FakeLogind);

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl Systemd {
    fn kill_unit(&self, unit: &str, who: &str, signal: i32) {
        assert_eq!((unit, who, signal), ("systemd-logind.service", "all", 1));
        let Some(dir) = &self.0.conf_dir else { return };
        for entry in std::fs::read_dir(dir).expect("conf dir") {
            let text = std::fs::read_to_string(entry.expect("entry").path()).expect("text");
            let value = text
                .lines()
                .find_map(|l| l.strip_prefix("InhibitDelayMaxSec="));
            if let Some(seconds) = value.and_then(|v| v.parse().ok()) {
                self.0.state.lock().expect("lock").delay = Duration::from_secs(seconds);
            }
        }
    }
}

impl FakeLogind {
    /// A logind with this delay.
    pub(super) fn new(delay: Duration) -> Self {
        let state = State {
            delay,
            ..State::default()
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            conf_dir: None,
        }
    }

    /// A logind that reads drop-ins on reload.
    pub(super) fn reading(conf_dir: &Path, delay: Duration) -> Self {
        Self {
            conf_dir: Some(conf_dir.to_owned()),
            ..Self::new(delay)
        }
    }

    /// Connects to it.
    pub(super) fn bus(&self) -> LogindBus {
        let this = self.clone();
        LogindBus::with(move || this.clone().accept())
    }

    async fn accept(self) -> zbus::Result<Connection> {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let server = Builder::unix_stream(ours)
            .server(Guid::generate())
            .p2p()
            .serve_at(PATH, Login1(self.clone()))
            .serve_at("/org/freedesktop/systemd1", Systemd(self.clone()))
            .build();
        let client = Builder::unix_stream(theirs).p2p().build();
        let (server, client) = futures::try_join!(server, client)?;
        self.state.lock().expect("lock").connection = Some(server);
        Ok(client)
    }

    fn connection(&self) -> Connection {
        let state = self.state.lock().expect("lock");
        state.connection.clone().expect("connected")
    }

    /// Sends the signal.
    pub(super) async fn prepare(&self, begins: bool) {
        let bus = self.connection();
        let interface = "org.freedesktop.login1.Manager";
        bus.emit_signal(None::<()>, PATH, interface, "PrepareForShutdown", &begins)
            .await
            .expect("signal");
    }

    /// Closes the connection.
    pub(super) async fn break_connection(&self) {
        self.connection().close().await.expect("close");
    }

    /// Waits until an inhibitor is held.
    pub(super) fn is_delayed(&self) -> bool {
        let mut state = self.state.lock().expect("lock");
        let open = |lock: &mut UnixStream| !matches!(lock.read(&mut [0]), Ok(0));
        state.locks.iter_mut().any(open)
    }

    pub(super) async fn until_delayed(&self, expected: bool) {
        self.until(|this| this.is_delayed() == expected).await;
    }

    /// Waits until this many inhibitors were acquired, whether held or not.
    pub(super) async fn until_taken(&self, count: usize) {
        self.until(|this| this.state.lock().expect("lock").locks.len() == count)
            .await;
    }

    async fn until(&self, done: impl Fn(&Self) -> bool) {
        let wait = async {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(LIMIT, wait).await.expect("in time");
    }
}
