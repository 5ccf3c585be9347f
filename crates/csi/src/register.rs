//! Registration of CSI drivers: version negotiation, NodeGetInfo and the CSINode update.
//!
//! A driver is usable as soon as NodeGetInfo succeeds. Upstream removes it again if the CSINode
//! update fails; here the update is retried, and the driver is notified of its registration only
//! after it succeeded ([`Announcements`]). A permanent rejection by the API server removes the
//! driver. Of two drivers with one name the first stays, unless the other has a higher version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use windlass_metrics::Metrics;
use windlass_node_rules::plugin_registration::{
    PluginVersion, SocketId, check_driver_name, highest_supported_version,
};
use windlass_plugins::{Plugin, PluginHandler};

use crate::client::CsiClient;
use crate::drivers::{CsiDrivers, RegisteredDriver};
use crate::port::{CsiNode, NodeInfo};

/// Results of the CSINode updates by driver. Clones share them; the writer of the CSINode object
/// publishes, registrations wait.
#[derive(Clone, Debug)]
pub struct Announcements(Arc<watch::Sender<BTreeMap<String, Announcement>>>);

/// Result of the CSINode update for one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The node info in the update.
    pub info: NodeInfo,
    /// Success, or the reason of a permanent rejection.
    pub outcome: Result<(), String>,
}

impl Default for Announcements {
    fn default() -> Self {
        Self(Arc::new(watch::channel(BTreeMap::new()).0))
    }
}

impl Announcements {
    /// Replaces the results of all registered drivers.
    pub fn publish(&self, all: BTreeMap<String, Announcement>) {
        self.0.send_if_modified(|known| {
            let changed = *known != all;
            *known = all;
            changed
        });
    }

    /// Waits for the result of the CSINode update with this node info.
    ///
    /// # Errors
    /// The reason of a rejection.
    pub async fn wait_for(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        let mut known = self.0.subscribe();
        // the attach limit may change meanwhile
        let same =
            |other: &NodeInfo| other.node_id == info.node_id && other.topology == info.topology;
        let is_announced = |known: &BTreeMap<String, Announcement>| {
            known.get(driver).is_some_and(|it| same(&it.info))
        };
        // `self` holds the sender
        match known.wait_for(is_announced).await {
            Ok(known) => known.get(driver).map_or(Ok(()), |it| it.outcome.clone()),
            Err(_) => Ok(()),
        }
    }
}

/// Registers CSI drivers.
#[derive(Debug)]
pub struct CsiRegistration {
    drivers: CsiDrivers,
    /// `None` without an API server.
    announcements: Option<Announcements>,
    metrics: Metrics,
    owners: Mutex<BTreeMap<String, Owner>>,
}

/// The plugin that holds a driver name.
#[derive(Clone, Debug)]
struct Owner {
    socket: PathBuf,
    id: SocketId,
    version: PluginVersion,
}

impl Owner {
    fn is(&self, plugin: &Plugin) -> bool {
        self.socket == plugin.socket && self.id == plugin.id
    }
}

impl CsiRegistration {
    /// Adds registered drivers to `drivers`.
    pub fn new(
        drivers: CsiDrivers,
        announcements: Option<Announcements>,
        metrics: Metrics,
    ) -> Self {
        Self {
            drivers,
            announcements,
            metrics,
            owners: Mutex::default(),
        }
    }
}

/// Negotiates the version with a driver and checks that its name is free.
fn version(
    caller: &str,
    plugin: &Plugin,
    owners: &BTreeMap<String, Owner>,
) -> Result<PluginVersion, String> {
    let name = &plugin.name;
    let failed = format!("kubernetes.io/csi: {caller} for CSI driver \"{name}\" failed.");
    if plugin.versions.is_empty() {
        let why = "Plugin returned an empty list for supported versions";
        return Err(format!("{failed} {why}"));
    }
    let version = highest_supported_version(&plugin.versions).map_err(|error| {
        let versions = &plugin.versions;
        format!("{failed} None of the versions specified {versions:?} are supported. err={error}")
    })?;
    match owners.get(name) {
        Some(owner) if !owner.is(plugin) && owner.version >= version => Err(format!(
            "{failed} Another driver with the same name is already registered with a higher \
             supported version: \"{}\"",
            owner.version
        )),
        _ => Ok(version),
    }
}

#[async_trait]
impl PluginHandler for CsiRegistration {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
        let failed = |error| {
            format!("validation failed for CSI Driver {name} at endpoint {endpoint}: {error}")
        };
        check_driver_name(name).map_err(|error| failed(error.to_owned()))?;
        if !plugin.endpoint.is_absolute() {
            return Err(failed("the endpoint is not an absolute path".to_owned()));
        }
        version("ValidatePlugin", plugin, &self.owners.lock())
            .map(drop)
            .map_err(failed)
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        let name = &plugin.name;
        let client = CsiClient::new(name, &plugin.endpoint, self.metrics.clone());
        let info = client.info().await.map_err(|error| error.to_string())?;
        if info.node_id.is_empty() {
            let why = "error adding CSI driver node info: driverNodeID must not be empty";
            return Err(why.to_owned());
        }
        {
            let mut owners = self.owners.lock();
            let owner = Owner {
                socket: plugin.socket.clone(),
                id: plugin.id,
                version: version("RegisterPlugin", plugin, &owners)?,
            };
            owners.insert(name.clone(), owner);
            let node = Arc::new(client);
            let info = info.clone();
            self.drivers.add(name, RegisteredDriver { node, info });
        }
        tracing::info!(
            driver = name,
            node_id = info.node_id,
            "CSI driver registered"
        );
        match &self.announcements {
            Some(announcements) => announcements.wait_for(name, &info).await,
            None => Ok(()),
        }
    }

    fn deregister(&self, plugin: &Plugin) {
        let mut owners = self.owners.lock();
        if owners.get(&plugin.name).is_some_and(|it| it.is(plugin)) {
            owners.remove(&plugin.name);
            self.drivers.remove(&plugin.name);
        }
    }
}

#[cfg(test)]
mod tests;
