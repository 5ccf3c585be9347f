//! A fake DRA driver on sockets: each claim gets one device with one CDI device.
//!
//! It registers in `plugins_registry` of the agent, serves `v1` and `v1beta1` of its service and the
//! health of its devices, and records every call. A [`DraFault`] makes a call fail, lie or hang, or
//! kills the driver. It has its own thread and tokio runtime, whose end cuts all connections.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::io;
use std::os::unix::net::UnixListener as Listener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tonic::codegen::BoxStream;
use tonic::{Request, Response, Status, async_trait};
use windlass_plugin_proto::dra_v1 as v1;
use windlass_plugin_proto::dra_v1beta1 as v1beta1;
use windlass_plugin_proto::drahealth_v1alpha1 as health;
use windlass_plugin_proto::drahealth_v1alpha1::dra_resource_health_server::{
    DraResourceHealth, DraResourceHealthServer,
};
use windlass_plugin_proto::pluginregistration_v1 as registration;
use windlass_plugin_proto::pluginregistration_v1::registration_server::{
    Registration, RegistrationServer,
};

/// Options of a plugin of a driver.
#[derive(Clone, Debug)]
pub struct DraOptions {
    /// Name of the driver.
    pub driver: String,
    /// Name of the plugin, in the names of its sockets.
    pub instance: String,
    /// Services at registration.
    pub services: Vec<String>,
    /// `--root-dir` of the agent, with the sockets.
    pub root_dir: PathBuf,
    /// Endpoint at registration, if not its socket.
    pub endpoint: Option<String>,
    /// Serves the health of devices.
    pub health: bool,
}

impl DraOptions {
    /// Options of a driver's only plugin.
    pub fn new(root_dir: impl Into<PathBuf>, driver: &str) -> Self {
        Self {
            driver: driver.to_owned(),
            instance: driver.to_owned(),
            services: vec!["v1.DRAPlugin".to_owned(), "v1beta1.DRAPlugin".to_owned()],
            root_dir: root_dir.into(),
            endpoint: None,
            health: true,
        }
    }

    /// Returns the socket of the service.
    pub fn socket(&self) -> PathBuf {
        let plugins = self.root_dir.join("plugins").join(&self.driver);
        plugins.join(format!("{}.sock", self.instance))
    }

    /// Returns the registration socket.
    pub fn registration(&self) -> PathBuf {
        let registry = self.root_dir.join("plugins_registry");
        registry.join(format!("{}-reg.sock", self.instance))
    }
}

/// A fault of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DraFault {
    /// The call fails with this message.
    Fail(String),
    /// Each claim fails with this message.
    FailClaims(String),
    /// No claim has a result.
    Skip,
    /// A result is for another claim.
    Foreign,
    /// Never responds.
    Hang,
    /// Kills the driver; its socket files remain.
    Exit,
}

/// A driver's plugin and its process.
#[derive(Debug)]
pub struct DraDriver {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    options: DraOptions,
    state: Mutex<State>,
    health: watch::Sender<Vec<health::DeviceHealth>>,
    registrations: watch::Sender<Vec<Result<(), String>>>,
    calls: watch::Sender<Vec<String>>,
    connections: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    faults: VecDeque<DraFault>,
    /// Devices by name of the claim, instead of the default.
    devices: BTreeMap<String, Vec<v1::Device>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn die(&self) {
        if let Some(stop) = self.state().stop.take() {
            // it may have ended
            let _ = stop.send(());
        }
    }
}

impl DraDriver {
    /// Starts the driver.
    ///
    /// # Errors
    /// A socket cannot be created.
    pub fn start(options: DraOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            options,
            state: Mutex::default(),
            health: watch::channel(Vec::new()).0,
            registrations: watch::channel(Vec::new()).0,
            calls: watch::channel(Vec::new()).0,
            connections: AtomicU32::new(0),
        });
        let mut this = Self {
            shared,
            thread: None,
        };
        this.restart()?;
        Ok(this)
    }

    /// Restarts the process with new sockets at the same paths.
    ///
    /// # Errors
    /// A socket cannot be created.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        let service = listen(&self.shared.options.socket())?;
        let registration = listen(&self.shared.options.registration())?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        self.shared.state().stop = Some(stop);
        let plugin = Service(Arc::clone(&self.shared));
        let thread = std::thread::Builder::new().name("dra-driver".to_owned());
        self.thread = Some(thread.spawn(move || {
            runtime.block_on(async move {
                tokio::select! {
                    biased;
                    // callers see a closed connection
                    _ = stopped => {}
                    _ = serve(service, registration, plugin) => {}
                }
            });
            // ends the connection tasks
            runtime.shutdown_background();
        })?);
        Ok(())
    }

    /// Kills the process; the socket files remain.
    pub fn kill(&mut self) {
        self.shared.die();
        // a panic was already printed
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }

    /// Removes the registration socket; the driver keeps running.
    pub fn deregister(&self) {
        // may not exist
        let _ = fs::remove_file(self.shared.options.registration());
    }

    /// Adds a fault for the next call that prepares or unprepares claims.
    pub fn fault(&self, fault: DraFault) {
        self.shared.state().faults.push_back(fault);
    }

    /// Sets the devices of a claim.
    pub fn set_devices(&self, claim: &str, devices: Vec<v1::Device>) {
        let mut state = self.shared.state();
        state.devices.insert(claim.to_owned(), devices);
    }

    /// Reports the health of a device, alone.
    pub fn report(&self, device: &str, status: health::HealthStatus, message: &str) {
        self.shared.health.send_replace(vec![health::DeviceHealth {
            device: Some(health::DeviceIdentifier {
                pool_name: "pool".to_owned(),
                device_name: device.to_owned(),
            }),
            health: status.into(),
            message: message.to_owned(),
            ..health::DeviceHealth::default()
        }]);
    }

    /// Returns all calls, as `v1 prepare a,b`.
    pub fn calls(&self) -> Vec<String> {
        self.shared.calls.borrow().clone()
    }

    /// Returns the number of connections to the service so far.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Waits for a number of calls.
    ///
    /// # Errors
    /// The timeout expired.
    pub async fn called(&self, count: usize, within: Duration) -> Result<Vec<String>, String> {
        let mut calls = self.shared.calls.subscribe();
        let enough = calls.wait_for(|calls| calls.len() >= count);
        match tokio::time::timeout(within, enough).await {
            Ok(_) => Ok(self.calls()),
            Err(_) => Err(format!("calls: {:?}", self.calls())),
        }
    }

    /// Waits for a number of registration results and returns the last one.
    ///
    /// # Errors
    /// The registration failed or the timeout expired.
    pub async fn registered(&self, count: usize, within: Duration) -> Result<(), String> {
        let mut results = self.shared.registrations.subscribe();
        let enough = results.wait_for(|results| results.len() >= count);
        match tokio::time::timeout(within, enough).await {
            Ok(Ok(results)) => results.last().cloned().unwrap_or(Ok(())),
            _ => Err(format!("no registration result within {within:?}")),
        }
    }
}

impl Drop for DraDriver {
    fn drop(&mut self) {
        self.kill();
        self.deregister();
        // may not exist
        let _ = fs::remove_file(self.shared.options.socket());
    }
}

/// Creates a socket at `path` and removes an existing file.
fn listen(path: &Path) -> io::Result<Listener> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = Listener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

async fn serve(service: Listener, registration: Listener, plugin: Service) -> io::Result<()> {
    let shared = Arc::clone(&plugin.0);
    let service = UnixListenerStream::new(UnixListener::from_std(service)?);
    let service = service.map(move |connection| {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        connection
    });
    let registration = UnixListenerStream::new(UnixListener::from_std(registration)?);
    let health = plugin.0.options.health;
    let health = health.then(|| DraResourceHealthServer::new(plugin.clone()));
    let node = tonic::transport::Server::builder()
        .add_service(v1::dra_plugin_server::DraPluginServer::new(plugin.clone()))
        .add_service(v1beta1::dra_plugin_server::DraPluginServer::new(
            plugin.clone(),
        ))
        .add_optional_service(health)
        .serve_with_incoming(service);
    let registrar = tonic::transport::Server::builder()
        .add_service(RegistrationServer::new(plugin))
        .serve_with_incoming(registration);
    tokio::try_join!(node, registrar)
        .map(drop)
        .map_err(io::Error::other)
}

#[derive(Clone, Debug)]
struct Service(Arc<Shared>);

type RpcResult<T> = Result<Response<T>, Status>;

impl Service {
    /// Records a call; returns the result of each claim.
    async fn results<T>(
        &self,
        (version, method): (&str, &str),
        claims: Vec<v1::Claim>,
        of: impl Fn(&v1::Claim, String) -> T,
    ) -> RpcResult<BTreeMap<String, T>> {
        let names: Vec<_> = claims.iter().map(|claim| claim.name.as_str()).collect();
        let call = format!("{version} {method} {}", names.join(","));
        self.0.calls.send_modify(|calls| calls.push(call));
        let fault = self.0.state().faults.pop_front();
        let result = |claim: &v1::Claim, error: String| (claim.uid.clone(), of(claim, error));
        let results: BTreeMap<_, _> = match fault {
            None => claims
                .iter()
                .map(|claim| result(claim, String::new()))
                .collect(),
            Some(DraFault::FailClaims(error)) => claims
                .iter()
                .map(|claim| result(claim, error.clone()))
                .collect(),
            Some(DraFault::Skip) => BTreeMap::new(),
            Some(DraFault::Foreign) => {
                let claim = v1::Claim::default();
                BTreeMap::from([("foreign".to_owned(), of(&claim, String::new()))])
            }
            Some(DraFault::Fail(error)) => return Err(Status::internal(error)),
            Some(DraFault::Hang) => return std::future::pending().await,
            Some(DraFault::Exit) => {
                self.0.die();
                return std::future::pending().await;
            }
        };
        Ok(Response::new(results))
    }

    fn devices(&self, claim: &v1::Claim) -> Vec<v1::Device> {
        let own = self.0.state().devices.get(&claim.name).cloned();
        own.unwrap_or_else(|| {
            vec![v1::Device {
                pool_name: "pool".to_owned(),
                device_name: format!("device-{}", claim.name),
                cdi_device_ids: vec![format!("{}/claim={}", self.0.options.driver, claim.name)],
                ..v1::Device::default()
            }]
        })
    }
}

#[async_trait]
impl v1::dra_plugin_server::DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> RpcResult<v1::NodePrepareResourcesResponse> {
        let prepared = |claim: &v1::Claim, error| v1::NodePrepareResourceResponse {
            devices: self.devices(claim),
            error,
        };
        let claims = request.into_inner().claims;
        let results = self.results(("v1", "prepare"), claims, prepared).await?;
        Ok(results.map(|claims| v1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> RpcResult<v1::NodeUnprepareResourcesResponse> {
        let reverted = |_: &v1::Claim, error| v1::NodeUnprepareResourceResponse { error };
        let claims = request.into_inner().claims;
        let results = self.results(("v1", "unprepare"), claims, reverted).await?;
        Ok(results.map(|claims| v1::NodeUnprepareResourcesResponse { claims }))
    }
}

fn newer(claims: Vec<v1beta1::Claim>) -> Vec<v1::Claim> {
    let claim = |claim: v1beta1::Claim| v1::Claim {
        namespace: claim.namespace,
        uid: claim.uid,
        name: claim.name,
    };
    claims.into_iter().map(claim).collect()
}

#[async_trait]
impl v1beta1::dra_plugin_server::DraPlugin for Service {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> RpcResult<v1beta1::NodePrepareResourcesResponse> {
        let older = |device: v1::Device| v1beta1::Device {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
        };
        let prepared = |claim: &v1::Claim, error| v1beta1::NodePrepareResourceResponse {
            devices: self.devices(claim).into_iter().map(older).collect(),
            error,
        };
        let claims = newer(request.into_inner().claims);
        let results = self
            .results(("v1beta1", "prepare"), claims, prepared)
            .await?;
        Ok(results.map(|claims| v1beta1::NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> RpcResult<v1beta1::NodeUnprepareResourcesResponse> {
        let reverted = |_: &v1::Claim, error| v1beta1::NodeUnprepareResourceResponse { error };
        let claims = newer(request.into_inner().claims);
        let results = self
            .results(("v1beta1", "unprepare"), claims, reverted)
            .await?;
        Ok(results.map(|claims| v1beta1::NodeUnprepareResourcesResponse { claims }))
    }
}

#[async_trait]
impl DraResourceHealth for Service {
    async fn node_watch_resources(
        &self,
        _: Request<health::NodeWatchResourcesRequest>,
    ) -> RpcResult<BoxStream<health::NodeWatchResourcesResponse>> {
        let reports = WatchStream::new(self.0.health.subscribe());
        let reports = reports.map(|devices| Ok(health::NodeWatchResourcesResponse { devices }));
        Ok(Response::new(Box::pin(reports)))
    }
}

#[async_trait]
impl Registration for Service {
    async fn get_info(
        &self,
        _: Request<registration::InfoRequest>,
    ) -> RpcResult<registration::PluginInfo> {
        let options = &self.0.options;
        let socket = options.socket().display().to_string();
        Ok(Response::new(registration::PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: options.driver.clone(),
            endpoint: options.endpoint.clone().unwrap_or(socket),
            supported_versions: options.services.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<registration::RegistrationStatus>,
    ) -> RpcResult<registration::RegistrationStatusResponse> {
        let status = request.into_inner();
        let result = match status.plugin_registered {
            true => Ok(()),
            false => Err(status.error),
        };
        self.0
            .registrations
            .send_modify(|results| results.push(result));
        Ok(Response::new(registration::RegistrationStatusResponse {}))
    }
}
