//! Which CSI drivers are registered on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::port::{CsiError, CsiNode, NodeInfo};

/// A driver that registered itself.
#[derive(Clone, Debug)]
pub struct RegisteredDriver {
    /// Its client.
    pub node: Arc<dyn CsiNode>,
    /// Its latest NodeGetInfo response.
    pub info: NodeInfo,
}

/// The registered drivers by name. Clones share them.
#[derive(Clone, Debug)]
pub struct CsiDrivers(Arc<watch::Sender<BTreeMap<String, RegisteredDriver>>>);

impl Default for CsiDrivers {
    fn default() -> Self {
        Self(Arc::new(watch::channel(BTreeMap::new()).0))
    }
}

impl CsiDrivers {
    /// Adds or replaces a driver.
    pub fn add(&self, name: &str, driver: RegisteredDriver) {
        self.0.send_modify(|drivers| {
            drivers.insert(name.to_owned(), driver);
        });
    }

    /// Updates the node info of a driver, unless `node` is no longer its client.
    pub fn update(&self, name: &str, node: &Arc<dyn CsiNode>, info: NodeInfo) {
        self.0.send_if_modified(|drivers| {
            let driver = drivers.get_mut(name);
            let driver = driver.filter(|driver| Arc::ptr_eq(&driver.node, node));
            match driver {
                Some(driver) => {
                    driver.info = info;
                    true
                }
                None => false,
            }
        });
    }

    /// Removes a driver.
    pub fn remove(&self, name: &str) {
        self.0
            .send_if_modified(|drivers| drivers.remove(name).is_some());
    }

    /// The driver of this name.
    ///
    /// # Errors
    /// It is not registered.
    pub fn get(&self, name: &str) -> Result<RegisteredDriver, CsiError> {
        let drivers = self.0.borrow();
        drivers
            .get(name)
            .cloned()
            .ok_or_else(|| CsiError::NotRegistered {
                driver: name.to_owned(),
            })
    }

    /// All drivers, with notification of changes.
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<String, RegisteredDriver>> {
        self.0.subscribe()
    }
}
