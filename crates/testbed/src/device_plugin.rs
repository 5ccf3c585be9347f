//! A device plugin on sockets, with faults.
//!
//! It runs on the current tokio runtime, so that a test may pause the clock. It registers on
//! `kubelet.sock`, or by its socket in `plugins_registry`. A [`PluginFault`] fails, hangs, kills the
//! plugin or makes its response invalid.

mod service;

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Code, Status};
use windlass_plugin_proto::deviceplugin_v1beta1::device_plugin_server::DevicePluginServer;
use windlass_plugin_proto::deviceplugin_v1beta1::registration_client::RegistrationClient;
use windlass_plugin_proto::deviceplugin_v1beta1::{
    ContainerAllocateResponse, DevicePluginOptions, RegisterRequest,
};
use windlass_plugin_proto::pluginregistration_v1::registration_server::RegistrationServer;

use service::Service;

/// A device of the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestDevice {
    /// ID.
    pub id: String,
    /// Health, `Healthy` or any other text.
    pub health: String,
    /// NUMA nodes; empty without topology.
    pub nodes: Vec<i64>,
}

impl TestDevice {
    /// A healthy device of these NUMA nodes.
    pub fn healthy(id: &str, nodes: &[i64]) -> Self {
        Self {
            id: id.to_owned(),
            health: "Healthy".to_owned(),
            nodes: nodes.to_vec(),
        }
    }

    /// The device, unhealthy.
    pub fn unhealthy(self) -> Self {
        let health = "Unhealthy".to_owned();
        Self { health, ..self }
    }
}

/// Options of a plugin.
#[derive(Clone, Debug)]
pub struct DevicePluginSettings {
    /// Directory of its socket: `device-plugins`, or `plugins_registry` to be found there.
    pub directory: PathBuf,
    /// File name of its socket.
    pub socket: String,
    /// Resource.
    pub resource: String,
    /// API version at registration.
    pub version: String,
    /// First list of devices; `None` lists none until [`DevicePlugin::list`].
    pub devices: Option<Vec<TestDevice>>,
    /// `PreStartContainer` is required.
    pub pre_start_required: bool,
    /// Devices of `GetPreferredAllocation`, which is available if there are any.
    pub preferred: Vec<String>,
    /// Added to each response of Allocate, which has the variable `TEST_DEVICES`.
    pub response: ContainerAllocateResponse,
}

impl DevicePluginSettings {
    /// A plugin with healthy devices without topology.
    pub fn new(directory: impl Into<PathBuf>, resource: &str, devices: &[&str]) -> Self {
        let devices = devices.iter().map(|id| TestDevice::healthy(id, &[]));
        Self {
            directory: directory.into(),
            socket: format!("{}.sock", resource.replace('/', "_")),
            resource: resource.to_owned(),
            version: "v1beta1".to_owned(),
            devices: Some(devices.collect()),
            pre_start_required: false,
            preferred: Vec::new(),
            response: ContainerAllocateResponse::default(),
        }
    }
}

/// A call that a fault can be set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PluginCall {
    /// `GetDevicePluginOptions`.
    Options,
    /// `ListAndWatch`.
    List,
    /// `GetPreferredAllocation`.
    Preferred,
    /// `Allocate`.
    Allocate,
    /// `PreStartContainer`.
    PreStart,
}

/// What a plugin does instead of its response.
#[derive(Clone, Debug)]
pub enum PluginFault {
    /// Returns an error.
    Fail(Code, String),
    /// Never responds.
    Hang,
    /// Ends, with all connections.
    Die,
    /// Responds without content, or with devices that do not exist.
    Lie,
}

/// A running plugin. Dropping it ends it, with all connections.
#[derive(Debug)]
pub struct DevicePlugin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    settings: DevicePluginSettings,
    devices: watch::Sender<Option<Vec<TestDevice>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    faults: BTreeMap<PluginCall, PluginFault>,
    calls: Vec<String>,
    connections: Vec<OwnedFd>,
    server: Option<AbortHandle>,
}

impl DevicePlugin {
    /// Serves the plugin's socket, and registers nowhere.
    ///
    /// # Errors
    /// The socket cannot be created.
    pub fn start(settings: DevicePluginSettings) -> io::Result<Self> {
        std::fs::create_dir_all(&settings.directory)?;
        let path = settings.directory.join(&settings.socket);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let shared = Arc::new(Shared {
            devices: watch::Sender::new(settings.devices.clone()),
            settings,
            state: Mutex::default(),
        });
        let accepted = Arc::clone(&shared);
        let connections = UnixListenerStream::new(listener).map(move |stream| {
            let stream = stream?;
            let handle = stream.as_fd().try_clone_to_owned()?;
            accepted.state().connections.push(handle);
            Ok::<UnixStream, io::Error>(stream)
        });
        let service = Service(Arc::clone(&shared));
        let server = Server::builder()
            .add_service(DevicePluginServer::new(service.clone()))
            .add_service(RegistrationServer::new(service))
            .serve_with_incoming(connections);
        shared.state().server = Some(tokio::spawn(server).abort_handle());
        Ok(Self { shared })
    }

    /// Registers on `kubelet.sock`, under the settings.
    ///
    /// # Errors
    /// The agent rejected it.
    pub async fn register(&self) -> Result<(), Status> {
        self.register_as(&self.shared.settings.socket).await
    }

    /// Registers on `kubelet.sock` with another endpoint.
    ///
    /// # Errors
    /// The agent rejected it.
    pub async fn register_as(&self, endpoint: &str) -> Result<(), Status> {
        let settings = &self.shared.settings;
        let socket = settings.directory.join("kubelet.sock");
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(&socket).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://localhost");
        let channel = channel.connect_with_connector(connector).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        let request = RegisterRequest {
            version: settings.version.clone(),
            endpoint: endpoint.to_owned(),
            resource_name: settings.resource.clone(),
            options: Some(self.shared.options()),
        };
        let mut client = RegistrationClient::new(channel);
        client.register(request).await.map(drop)
    }

    /// Lists other devices.
    pub fn list(&self, devices: Vec<TestDevice>) {
        self.shared.devices.send_replace(Some(devices));
    }

    /// Sets a fault of a call, until it is set again; `None` ends it.
    pub fn fault(&self, call: PluginCall, fault: Option<PluginFault>) {
        let mut state = self.shared.state();
        match fault {
            Some(fault) => drop(state.faults.insert(call, fault)),
            None => drop(state.faults.remove(&call)),
        }
    }

    /// Received calls, each with its devices, for example `Allocate a,b`.
    pub fn calls(&self) -> Vec<String> {
        self.shared.state().calls.clone()
    }

    /// Ends the plugin, with all connections. Its socket remains, as after a kill.
    pub fn die(&self) {
        self.shared.die();
    }
}

impl Drop for DevicePlugin {
    fn drop(&mut self) {
        self.die();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn options(&self) -> DevicePluginOptions {
        DevicePluginOptions {
            pre_start_required: self.settings.pre_start_required,
            get_preferred_allocation_available: !self.settings.preferred.is_empty(),
        }
    }

    fn die(&self) {
        let mut state = self.state();
        if let Some(server) = state.server.take() {
            server.abort();
        }
        for connection in state.connections.drain(..) {
            // already closed by the peer
            let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
        }
    }
}
