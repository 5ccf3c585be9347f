//! The ContainerManager and device plugins.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use windlass_actors::{
    AllocateResources, AllocationScope, PluginResourceUpdate, ResourcesAllocated,
};
use windlass_container_manager::{
    AssignedResourcesReader, ContainerManager, ContainerManagerDeps, DeviceEvent, Managers,
    StateFiles,
};
use windlass_device_plugins::{DevicePlugins, open_registration, serve_registration};
use windlass_mailboxes::{SlotReceiver, SlotSender, spawn_io, start_actor};
use windlass_types::PodUid;

use super::links::{Links, Shared};

/// Events of plugins that wait for the actor.
const EVENT_BOUND: usize = 64;

/// CPUs, memory nodes and devices of containers.
#[derive(Debug)]
pub struct ContainerManagerParts {
    /// The managers, with the assignments of the state files.
    pub managers: Managers,
    /// The state files; `None` in simulations without a disk.
    pub files: Option<Arc<dyn StateFiles>>,
    /// Where device plugins register.
    pub plugins: DevicePluginParts,
}

/// Where device plugins register.
#[derive(Debug)]
pub enum DevicePluginParts {
    /// At `kubelet.sock` in this directory, and with the plugin watcher.
    Directory(PathBuf),
    /// In a simulation.
    Simulated(mpsc::Receiver<DeviceEvent>),
}

/// Ends of the channels of the actor.
pub(super) struct ContainerManagerEnds {
    pub(super) requests: SlotReceiver<PodUid, AllocateResources>,
    pub(super) answers: SlotSender<PodUid, ResourcesAllocated>,
    pub(super) scope: watch::Sender<Arc<AllocationScope>>,
}

/// Starts the actor; returns its readers, and the handler of plugins that the watcher finds.
pub(super) fn spawn_container_manager(
    parts: ContainerManagerParts,
    ends: ContainerManagerEnds,
    shared: &Shared,
    links: &Links,
) -> (
    AssignedResourcesReader,
    Option<DevicePlugins>,
    watch::Receiver<PluginResourceUpdate>,
) {
    let (events, plugins) = match parts.plugins {
        DevicePluginParts::Simulated(events) => (events, None),
        DevicePluginParts::Directory(directory) => {
            let (plugins, events) = spawn_device_plugins(directory, shared);
            (events, Some(plugins))
        }
    };
    let (sender, plugin_resources) = watch::channel(PluginResourceUpdate::default());
    let deps = ContainerManagerDeps {
        managers: parts.managers,
        files: parts.files,
        answers: ends.answers,
        scope: ends.scope,
        plugin_resources: sender,
        status_store: shared.status_store.clone(),
        pleg: links.pleg.clone(),
        runtime: Arc::clone(&shared.runtime),
        metrics: shared.metrics.resource_managers.clone(),
        hung: shared.hung_operations.clone(),
    };
    let (manager, reader) = ContainerManager::new(deps, ends.requests, events);
    start_actor(manager);
    (reader, plugins, plugin_resources)
}

/// Serves the registration of plugins.
fn spawn_device_plugins(
    directory: PathBuf,
    shared: &Shared,
) -> (DevicePlugins, mpsc::Receiver<DeviceEvent>) {
    let (plugins, mut events) = DevicePlugins::new(&directory, shared.metrics.clone());
    let (registrar, stop) = (plugins.clone(), shared.shutdown.token());
    shared.shutdown.track(async move {
        let listener = match open_registration(&directory) {
            Ok(listener) => listener,
            Err(error) => {
                tracing::error!(%error, "device plugins cannot register");
                return;
            }
        };
        if let Err(error) = serve_registration(listener, registrar, stop).await {
            tracing::error!(%error, "registration of device plugins failed");
        }
    });
    let (sender, receiver) = mpsc::channel(EVENT_BOUND);
    spawn_io("device-plugin-events", async move {
        while let Some(event) = events.recv().await {
            if sender.send(DeviceEvent::from(event)).await.is_err() {
                return;
            }
        }
    });
    (plugins, receiver)
}
