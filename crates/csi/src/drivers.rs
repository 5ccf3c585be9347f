//! Which CSI drivers are registered on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

use crate::port::{CsiError, CsiNode, NodeInfo};

/// A driver that registered itself.
#[derive(Clone, Debug)]
pub struct RegisteredDriver {
    /// The way to it.
    pub node: Arc<dyn CsiNode>,
    /// What it said of this node.
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
    /// A driver came, or came back.
    pub fn add(&self, name: &str, driver: RegisteredDriver) {
        self.0.send_modify(|drivers| {
            drivers.insert(name.to_owned(), driver);
        });
    }

    /// A driver says something else of this node than before. Nothing happens if `node` is not the
    /// way to it any more.
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

    /// A driver went.
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

    /// All of them, now and whenever one comes or goes.
    pub fn subscribe(&self) -> watch::Receiver<BTreeMap<String, RegisteredDriver>> {
        self.0.subscribe()
    }
}
