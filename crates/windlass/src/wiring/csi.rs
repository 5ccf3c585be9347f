//! Plugin registration, which serves CSI and DRA drivers, and the CSINode entries of the former.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::NodeUpdate;
use windlass_csi::{Announcements, CsiDrivers, CsiRegistration, run_attach_limit_refresh};
use windlass_device_plugins::{DEVICE_PLUGIN, DevicePlugins};
use windlass_dra::{DRA_PLUGIN, DraClaims, DraRegistration};
use windlass_mailboxes::spawn_io;
use windlass_metrics::Metrics;
use windlass_node::{CsiNodeDeps, CsiNodeStatus, run_csi_node_sync};
use windlass_plugins::{CSI_PLUGIN, PluginHandler, PluginRegistry, run_plugin_registry};
use windlass_volume_manager::DriverRegistrations;

use crate::cluster::ClusterParts;

/// Dependencies of driver registration.
pub(super) struct CsiWiring<'a> {
    /// `<root-dir>/plugins_registry`.
    pub(super) registry: PathBuf,
    pub(super) claims: Arc<DraClaims>,
    pub(super) drivers: CsiDrivers,
    /// Handler of device plugins.
    pub(super) device_plugins: Option<DevicePlugins>,
    pub(super) cluster: Option<&'a ClusterParts>,
    pub(super) node_name: String,
    pub(super) node_seen: watch::Receiver<NodeUpdate>,
    pub(super) status: watch::Sender<CsiNodeStatus>,
    pub(super) metrics: Metrics,
}

/// Returns a counter that changes with each driver registration.
pub(super) fn driver_registrations(drivers: &CsiDrivers) -> watch::Receiver<DriverRegistrations> {
    let (sender, receiver) = watch::channel(DriverRegistrations::default());
    let mut registered = drivers.subscribe();
    spawn_io("csi-drivers", async move {
        let mut known = registered.borrow_and_update().len();
        // until the agent stops
        while registered.changed().await.is_ok() {
            let now = registered.borrow_and_update().len();
            // a driver may have re-registered in between
            if now >= known {
                sender.send_modify(|came| came.0 += 1);
            }
            known = now;
        }
    });
    receiver
}

/// Starts the tasks. Plugins register in standalone mode, too.
pub(super) fn spawn_csi(wiring: CsiWiring<'_>) {
    let announcements = wiring.cluster.map(|_| Announcements::default());
    let registration = CsiRegistration::new(
        wiring.drivers.clone(),
        announcements.clone(),
        wiring.metrics.clone(),
    );
    let handlers: [(&str, Arc<dyn PluginHandler>); 2] = [
        (CSI_PLUGIN, Arc::new(registration)),
        (DRA_PLUGIN, Arc::new(DraRegistration::new(wiring.claims))),
    ];
    let mut handlers = BTreeMap::from(handlers.map(|(kind, it)| (kind.to_owned(), it)));
    if let Some(plugins) = wiring.device_plugins {
        handlers.insert(DEVICE_PLUGIN.to_owned(), Arc::new(plugins));
    }
    spawn_io(
        "plugins",
        run_plugin_registry(PluginRegistry {
            directory: wiring.registry,
            handlers,
            metrics: wiring.metrics,
        }),
    );
    if let (Some(cluster), Some(announcements)) = (wiring.cluster, announcements) {
        let allocatable =
            run_attach_limit_refresh(wiring.drivers.clone(), Arc::clone(&cluster.csi));
        spawn_io("csi-attach-limits", allocatable);
        spawn_io(
            "csi-node",
            run_csi_node_sync(CsiNodeDeps {
                node_name: wiring.node_name,
                client: cluster.clients.main.clone(),
                // set once there are credentials
                node: wiring.node_seen,
                drivers: wiring.drivers,
                announcements,
                status: wiring.status,
            }),
        );
    }
}
