//! The registered plugins: one task each, which follows the plugin's list of devices.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use windlass_mailboxes::spawn_io;
use windlass_manifests::validation::qualified_name;
use windlass_metrics::Metrics;
use windlass_plugins::{Plugin, PluginHandler};
use windlass_resource_managers::devices::{PluginDevice, PluginOptions};

use crate::plugin::{CallError, DevicePlugin, devices, rpc};

/// Plugin type of device plugins in `plugins_registry`.
pub const DEVICE_PLUGIN: &str = "DevicePlugin";

/// Supported version of the API.
const VERSION: &str = "v1beta1";
/// Events that wait for the receiver. A plugin that lists devices faster waits.
const EVENT_BOUND: usize = 64;

/// Event of a plugin. Events of a registration that is not the latest of its resource are to be
/// ignored.
#[derive(Clone, Debug)]
pub enum PluginEvent {
    /// A plugin registered.
    Registered {
        /// The plugin, with resource and registration.
        plugin: DevicePlugin,
        /// Its options.
        options: PluginOptions,
    },
    /// A plugin listed its devices.
    Listed {
        /// Resource.
        resource: String,
        /// Number of the registration.
        registration: u64,
        /// All devices by ID.
        devices: BTreeMap<String, PluginDevice>,
    },
    /// The list of a plugin ended, or its socket was removed.
    Gone {
        /// Resource.
        resource: String,
        /// Number of the registration.
        registration: u64,
    },
}

/// Device plugins of the node. Clones share them.
#[derive(Clone, Debug)]
pub struct DevicePlugins(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    directory: PathBuf,
    metrics: Metrics,
    events: mpsc::Sender<PluginEvent>,
    registrations: AtomicU64,
    /// By resource.
    active: Mutex<BTreeMap<String, Active>>,
}

/// A plugin whose task runs; dropping it ends the task.
#[derive(Debug)]
struct Active {
    registration: u64,
    endpoint: PathBuf,
    _task: DropGuard,
}

impl DevicePlugins {
    /// Returns plugins without a registration and the receiver of their events. `directory` is that
    /// of `kubelet.sock`, with the sockets of plugins that register there.
    pub fn new(directory: &Path, metrics: Metrics) -> (Self, mpsc::Receiver<PluginEvent>) {
        let (events, receiver) = mpsc::channel(EVENT_BOUND);
        let shared = Shared {
            directory: directory.to_owned(),
            metrics,
            events,
            registrations: AtomicU64::new(0),
            active: Mutex::default(),
        };
        (Self(Arc::new(shared)), receiver)
    }

    /// Registers a plugin that connected to `kubelet.sock`; the texts are upstream's.
    pub(crate) async fn register_at(
        &self,
        version: &str,
        resource: &str,
        endpoint: &str,
    ) -> Result<(), String> {
        self.0.metrics.plugins.count_device_registration(resource);
        if version != VERSION {
            return Err(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version \
                 is [{VERSION:?}]"
            ));
        }
        check_resource(resource)?;
        let path = Path::new(endpoint);
        let mut parts = path.components();
        if endpoint.is_empty() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!(
                "endpoint {endpoint:?} is not the name of a socket in {}",
                self.0.directory.display()
            ));
        }
        self.connect(resource, self.0.directory.join(path)).await
    }

    async fn connect(&self, resource: &str, endpoint: PathBuf) -> Result<(), String> {
        let registration = self.0.registrations.fetch_add(1, Ordering::Relaxed) + 1;
        let metrics = self.0.metrics.clone();
        let plugin = DevicePlugin::connect(resource, registration, &endpoint, metrics).await?;
        let options = plugin.options().await;
        let options =
            options.map_err(|error| format!("failed to get device plugin options: {error}"))?;
        let stop = CancellationToken::new();
        let active = Active {
            registration,
            endpoint,
            _task: stop.clone().drop_guard(),
        };
        if self.activate(resource, active) {
            tracing::info!(resource, registration, "device plugin registered");
            spawn_io("device-plugin", follow(self.clone(), plugin, options, stop));
        }
        Ok(())
    }

    /// Replaces the plugin of a resource, unless a later one has registered.
    fn activate(&self, resource: &str, active: Active) -> bool {
        let mut all = self.0.active.lock();
        let newer = |old: &Active| old.registration > active.registration;
        if all.get(resource).is_some_and(newer) {
            return false;
        }
        all.insert(resource.to_owned(), active);
        true
    }

    fn remove(&self, resource: &str, is_it: impl Fn(&Active) -> bool) {
        let mut all = self.0.active.lock();
        if all.get(resource).is_some_and(is_it) {
            all.remove(resource);
        }
    }

    fn is_replaced(&self, resource: &str, registration: u64) -> bool {
        let all = self.0.active.lock();
        all.get(resource)
            .is_some_and(|it| it.registration > registration)
    }
}

/// Sends the events of a plugin until its list ends, it is replaced, or there is no receiver.
async fn follow(
    plugins: DevicePlugins,
    plugin: DevicePlugin,
    options: PluginOptions,
    stop: CancellationToken,
) {
    let resource = plugin.resource().to_owned();
    let registration = plugin.registration();
    let events = plugins.0.events.clone();
    let ended = tokio::select! {
        biased;
        () = stop.cancelled() => "socket removed".to_owned(),
        error = list(plugin, options, &events) => error.to_string(),
    };
    if plugins.is_replaced(&resource, registration) {
        tracing::info!(resource, registration, "device plugin replaced");
        return;
    }
    tracing::warn!(resource, registration, error = ended, "device plugin ended");
    plugins.remove(&resource, |it| it.registration == registration);
    // without a receiver the agent ends
    let _ = events
        .send(PluginEvent::Gone {
            resource,
            registration,
        })
        .await;
}

async fn list(
    plugin: DevicePlugin,
    options: PluginOptions,
    events: &mpsc::Sender<PluginEvent>,
) -> CallError {
    let closed = || CallError::Invalid("the agent is stopping".to_owned());
    let resource = plugin.resource().to_owned();
    let registration = plugin.registration();
    let calls = plugin.clone();
    let registered = PluginEvent::Registered { plugin, options };
    if events.send(registered).await.is_err() {
        return closed();
    }
    let mut stream = match calls.list_and_watch().await {
        Ok(stream) => stream,
        Err(error) => return error,
    };
    loop {
        let devices = match stream.message().await {
            Ok(Some(list)) => devices(list),
            Ok(None) => return CallError::Invalid("EOF".to_owned()),
            Err(status) => return rpc(&status),
        };
        tracing::debug!(
            resource,
            registration,
            devices = devices.len(),
            "devices listed"
        );
        let listed = PluginEvent::Listed {
            resource: resource.clone(),
            registration,
            devices,
        };
        if events.send(listed).await.is_err() {
            return closed();
        }
    }
}

/// An extended resource, as upstream `IsExtendedResourceName`.
fn check_resource(name: &str) -> Result<(), String> {
    let extended = name.contains('/')
        && !name.contains("kubernetes.io/")
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_ok();
    extended
        .then_some(())
        .ok_or_else(|| format!("the ResourceName {name:?} is invalid"))
}

#[async_trait]
impl PluginHandler for DevicePlugins {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        if !plugin.versions.iter().any(|it| it == VERSION) {
            return Err(format!(
                "manager version, {VERSION}, is not among plugin supported versions [{}]",
                plugin.versions.join(" ")
            ));
        }
        check_resource(&plugin.name)
            .map_err(|error| format!("invalid name of device plugin socket: {error}"))
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        self.connect(&plugin.name, plugin.endpoint.clone()).await
    }

    fn deregister(&self, plugin: &Plugin) {
        self.remove(&plugin.name, |it| it.endpoint == plugin.endpoint);
    }
}
