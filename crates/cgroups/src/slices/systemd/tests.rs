//! Slices of a systemd at the other end of a socket pair.

use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use zbus::connection::Builder;
use zbus::{Guid, OwnedObjectPath, OwnedVariant};

use super::*;

/// Units and their properties, as text.
type Units = BTreeMap<String, BTreeMap<String, String>>;
type Properties = Vec<(String, OwnedVariant)>;

#[derive(Debug, zbus::DBusError)]
#[zbus(prefix = "org.freedesktop.systemd1")]
enum SystemdError {
    #[zbus(error)]
    Bus(Error),
    UnitExists(String),
    NoSuchUnit(String),
    PropertyReadOnly(String),
}

#[derive(Debug, Default)]
struct State {
    units: Mutex<Units>,
    servers: Mutex<Vec<Connection>>,
    connections: AtomicUsize,
}

/// Clones are one systemd.
#[derive(Clone, Debug, Default)]
struct FakeSystemd(Arc<State>);

impl FakeSystemd {
    fn slices(&self) -> SystemdSlices {
        let this = self.clone();
        SystemdSlices::with(CALL_DEADLINE, move || Box::pin(this.clone().accept()))
    }

    async fn accept(self) -> zbus::Result<Connection> {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let server = Builder::unix_stream(ours)
            .server(Guid::generate())
            .p2p()
            .serve_at(PATH, self.clone())
            .build();
        let client = Builder::unix_stream(theirs).p2p().build();
        let (server, client) = futures::try_join!(server, client)?;
        self.0.servers.lock().push(server);
        self.0.connections.fetch_add(1, Ordering::SeqCst);
        Ok(client)
    }

    async fn hang_up(&self) {
        let servers = std::mem::take(&mut *self.0.servers.lock());
        for server in servers {
            server.close().await.expect("closed");
        }
    }

    fn set(&self, name: &str, properties: Properties) -> Result<(), SystemdError> {
        let mut units = self.0.units.lock();
        let unit = units.entry(name.to_owned()).or_default();
        for (property, value) in properties {
            if property == "Id" {
                return Err(SystemdError::PropertyReadOnly("Id".to_owned()));
            }
            unit.insert(property, value.to_string());
        }
        Ok(())
    }

    /// `name: property=type value …` of each unit, without the switches.
    fn units(&self) -> Vec<String> {
        let units = self.0.units.lock();
        let lines = units.iter().map(|(name, properties)| {
            let values = properties.iter();
            let values = values.filter(|(name, _)| !SWITCHES.iter().any(|(s, _)| s == name));
            let words: String = values.map(|(n, v)| format!(" {n}={v}")).collect();
            format!("{name}:{words}")
        });
        lines.collect()
    }
}

#[zbus::interface(name = "org.freedesktop.systemd1.Manager")]
impl FakeSystemd {
    fn start_transient_unit(
        &self,
        name: &str,
        mode: &str,
        properties: Properties,
        aux: Vec<(String, Properties)>,
    ) -> Result<OwnedObjectPath, SystemdError> {
        assert_eq!((mode, aux.len()), ("replace", 0));
        if self.0.units.lock().contains_key(name) {
            return Err(SystemdError::UnitExists(name.to_owned()));
        }
        let switches = properties.iter().filter(|(_, v)| v.to_string() == "false");
        let off: Vec<&str> = switches.map(|(name, _)| name.as_str()).collect();
        assert_eq!(off, ["DefaultDependencies"]);
        self.set(name, properties).map(|()| job())
    }

    fn set_unit_properties(
        &self,
        name: &str,
        runtime: bool,
        properties: Properties,
    ) -> Result<(), SystemdError> {
        assert!(runtime, "nothing is written to the disk");
        self.set(name, properties)
    }

    fn stop_unit(&self, name: &str, mode: &str) -> Result<OwnedObjectPath, SystemdError> {
        assert_eq!(mode, "replace");
        match self.0.units.lock().remove(name) {
            Some(_) => Ok(job()),
            None => Err(SystemdError::NoSuchUnit(name.to_owned())),
        }
    }
}

fn job() -> OwnedObjectPath {
    OwnedObjectPath::try_from("/org/freedesktop/systemd1/job/7").expect("a path")
}

/// Runs what blocks where the agent does.
async fn blocking<T: Send + 'static>(
    slices: &Arc<SystemdSlices>,
    call: impl FnOnce(&SystemdSlices) -> T + Send + 'static,
) -> T {
    let slices = slices.clone();
    let call = tokio::task::spawn_blocking(move || call(&slices));
    call.await.expect("no panic")
}

#[tokio::test]
async fn slice_is_started_once_updated_and_stopped() {
    let systemd = FakeSystemd::default();
    let slices = Arc::new(systemd.slices());
    let start = |value| {
        blocking(&slices, move |slices| {
            slices.start("a.slice", &[("TasksMax", value)])
        })
    };
    start(7).await.expect("started");
    assert_eq!(systemd.units(), ["a.slice: TasksMax=uint64 7"]);
    start(8).await.expect("set");
    assert_eq!(systemd.units(), ["a.slice: TasksMax=uint64 8"]);
    let there = blocking(&slices, |slices| slices.start("a.slice", &[])).await;
    there.expect("there");
    for _ in 0..2 {
        let stopped = blocking(&slices, |slices| slices.stop("a.slice")).await;
        stopped.expect("stopped, or none");
        assert!(systemd.units().is_empty());
    }
    assert_eq!(systemd.0.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn systemd_error_is_returned_and_lost_connection_reopened() {
    let systemd = FakeSystemd::default();
    let slices = Arc::new(systemd.slices());
    let refused = blocking(&slices, |slices| slices.start("a.slice", &[("Id", 1)])).await;
    assert_eq!(
        refused.expect_err("read-only").to_string(),
        "systemd rejected the request: Id (org.freedesktop.systemd1.PropertyReadOnly)"
    );
    systemd.hang_up().await;
    let started = blocking(&slices, |slices| slices.start("b.slice", &[])).await;
    started.expect("started");
    assert_eq!(systemd.0.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn missing_or_silent_systemd_is_an_error_before_the_deadline() {
    let absent = || Box::pin(async { Err(Error::Failure("no bus".to_owned())) }) as BoxFuture<_>;
    let slices = Arc::new(SystemdSlices::with(CALL_DEADLINE, absent));
    let failed = blocking(&slices, |slices| slices.stop("a.slice")).await;
    assert_eq!(failed.expect_err("absent").to_string(), "systemd: no bus");
    let silent = || Box::pin(std::future::pending()) as BoxFuture<_>;
    let slices = Arc::new(SystemdSlices::with(Duration::from_millis(1), silent));
    let failed = blocking(&slices, |slices| slices.stop("a.slice")).await;
    assert_eq!(failed.expect_err("silent").kind(), io::ErrorKind::TimedOut);
    // a thread outside a runtime cannot call
    let slices = FakeSystemd::default().slices();
    let outside = std::thread::spawn(move || slices.stop("a.slice"));
    outside.join().expect("no panic").expect_err("no runtime");
}
