//! What it takes to register a CSI driver: a version that is spoken here, its name of this node, and
//! a cluster that knows.
//!
//! A driver can be used as soon as it has said what it calls this node. Upstream takes it away
//! again if the API server cannot be told at once; here that is tried until it succeeds
//! ([`Announcements`]), and only then is the driver told that it is registered. What the cluster
//! refuses for good takes the driver away. Of two drivers with one name the first stays, unless
//! the other speaks a higher version.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_node_rules::plugin_registration::{
    PluginVersion, SocketId, check_driver_name, highest_supported_version,
};
use windlass_metrics::Metrics;
use windlass_plugins::{Plugin, PluginHandler};

use crate::client::CsiClient;
use crate::drivers::{CsiDrivers, RegisteredDriver};
use crate::port::{CsiNode, NodeInfo};

/// What the cluster knows of the drivers of this node. Clones share it; whoever tells the API
/// server writes, registrations wait.
#[derive(Clone, Debug)]
pub struct Announcements(Arc<watch::Sender<BTreeMap<String, Announcement>>>);

/// What came of telling the cluster of one driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// What it was told.
    pub info: NodeInfo,
    /// It knows, or refused for good: why.
    pub outcome: Result<(), String>,
}

impl Default for Announcements {
    fn default() -> Self {
        Self(Arc::new(watch::channel(BTreeMap::new()).0))
    }
}

impl Announcements {
    /// Says what came of telling about all drivers that are registered now.
    pub fn publish(&self, all: BTreeMap<String, Announcement>) {
        self.0.send_if_modified(|known| {
            let changed = *known != all;
            *known = all;
            changed
        });
    }

    /// Waits until the cluster knows this of the driver, or refused it.
    ///
    /// # Errors
    /// It refused: why.
    pub async fn of(&self, driver: &str, info: &NodeInfo) -> Result<(), String> {
        let mut known = self.0.subscribe();
        // how many volumes fit may change meanwhile
        let same = |told: &NodeInfo| told.node_id == info.node_id && told.topology == info.topology;
        let said = |known: &BTreeMap<String, Announcement>| {
            known.get(driver).is_some_and(|it| same(&it.info))
        };
        // the other end lives as long as this
        match known.wait_for(said).await {
            Ok(known) => known.get(driver).map_or(Ok(()), |it| it.outcome.clone()),
            Err(_) => Ok(()),
        }
    }
}

/// Registers CSI drivers.
#[derive(Debug)]
pub struct CsiRegistration {
    drivers: CsiDrivers,
    /// `None` without a cluster: nobody has to know.
    announcements: Option<Announcements>,
    metrics: Metrics,
    owners: Mutex<BTreeMap<String, Owner>>,
}

/// Who has a name.
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
    /// Adds to `drivers` what registers.
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

    fn owners(&self) -> MutexGuard<'_, BTreeMap<String, Owner>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The version that is spoken with a driver, if the driver may have its name.
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
            return Err(failed("the endpoint is no absolute path".to_owned()));
        }
        version("ValidatePlugin", plugin, &self.owners())
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
            let mut owners = self.owners();
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
        tracing::info!(driver = name, node_id = info.node_id, "CSI driver");
        match &self.announcements {
            Some(announcements) => announcements.of(name, &info).await,
            None => Ok(()),
        }
    }

    fn deregister(&self, plugin: &Plugin) {
        let mut owners = self.owners();
        if owners.get(&plugin.name).is_some_and(|it| it.is(plugin)) {
            owners.remove(&plugin.name);
            self.drivers.remove(&plugin.name);
        }
    }
}

#[cfg(test)]
mod tests;
