//! Plugins of DRA drivers on this node.
//!
//! A driver may have several plugins, during a rolling update. The one that registered last and is
//! connected serves, as upstream.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use crate::port::ClaimDriver;

/// One plugin of a driver.
#[derive(Clone, Debug)]
struct DriverPlugin {
    endpoint: PathBuf,
    client: Arc<dyn ClaimDriver>,
    connected: bool,
}

/// The plugins of all drivers, in the order of their registration. Clones share them.
#[derive(Clone, Debug)]
pub struct DraDrivers(Arc<watch::Sender<BTreeMap<String, Vec<DriverPlugin>>>>);

impl Default for DraDrivers {
    fn default() -> Self {
        Self(Arc::new(watch::channel(BTreeMap::new()).0))
    }
}

impl DraDrivers {
    /// Adds a plugin of a driver, not connected.
    ///
    /// # Errors
    /// Another plugin of the driver has the endpoint.
    pub fn add(
        &self,
        driver: &str,
        endpoint: &Path,
        client: Arc<dyn ClaimDriver>,
    ) -> Result<(), String> {
        let mut added = Ok(());
        self.0.send_if_modified(|drivers| {
            let plugins = drivers.entry(driver.to_owned()).or_default();
            if plugins.iter().any(|it| it.endpoint == endpoint) {
                let endpoint = endpoint.display();
                added = Err(format!(
                    "endpoint {endpoint} already registered for DRA driver plugin {driver}"
                ));
                return false;
            }
            plugins.push(DriverPlugin {
                endpoint: endpoint.to_owned(),
                client,
                connected: false,
            });
            true
        });
        added
    }

    /// Sets whether a plugin is connected.
    pub fn set_connected(&self, driver: &str, endpoint: &Path, connected: bool) {
        self.0.send_if_modified(|drivers| {
            let plugins = drivers.get_mut(driver).into_iter().flatten();
            let mut changed = false;
            for plugin in plugins.filter(|it| it.endpoint == endpoint) {
                changed |= std::mem::replace(&mut plugin.connected, connected) != connected;
            }
            changed
        });
    }

    /// Removes a plugin.
    pub fn remove(&self, driver: &str, endpoint: &Path) {
        self.0.send_if_modified(|drivers| {
            let Some(plugins) = drivers.get_mut(driver) else {
                return false;
            };
            plugins.retain(|it| it.endpoint != endpoint);
            if plugins.is_empty() {
                drivers.remove(driver);
            }
            true
        });
    }

    /// Client of the plugin that serves a driver.
    ///
    /// # Errors
    /// The driver has none.
    pub(crate) fn get(&self, driver: &str) -> Result<Arc<dyn ClaimDriver>, String> {
        if driver.is_empty() {
            return Err("DRA driver name is empty".to_owned());
        }
        let drivers = self.0.borrow();
        let plugins = drivers.get(driver).map(Vec::as_slice).unwrap_or_default();
        let connected = plugins.iter().rfind(|it| it.connected);
        let plugin = connected.or(plugins.last());
        let plugin = plugin.map(|it| Arc::clone(&it.client));
        plugin.ok_or_else(|| format!("DRA driver {driver} is not registered"))
    }

    /// Whether each driver can be called: a plugin of it is connected.
    pub(crate) fn usable(&self) -> BTreeMap<String, bool> {
        let drivers = self.0.borrow();
        let usable = |plugins: &Vec<DriverPlugin>| plugins.iter().any(|it| it.connected);
        let all = drivers.iter();
        all.map(|(name, plugins)| (name.clone(), usable(plugins)))
            .collect()
    }

    /// Notifies of changes.
    pub(crate) fn subscribe(&self) -> DriverChanges {
        DriverChanges(self.0.subscribe())
    }
}

/// Changes of the drivers.
pub(crate) struct DriverChanges(watch::Receiver<BTreeMap<String, Vec<DriverPlugin>>>);

impl DriverChanges {
    /// Waits for a change; an error means that the agent stops.
    pub(crate) async fn changed(&mut self) -> Result<(), watch::error::RecvError> {
        self.0.changed().await
    }
}
