//! Ports: calls of device plugins, their events, and the state files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_device_plugins::{DevicePlugin, PluginEvent};
use windlass_resource_managers::devices::{
    DeviceResponse, PluginDevice, PluginOptions, PreferredQuestion,
};

/// Calls of one device plugin. Each has a deadline; errors are texts for users.
#[async_trait]
pub trait PluginCalls: Send + Sync + Debug + 'static {
    /// Returns the devices that the plugin prefers (`GetPreferredAllocation`).
    async fn preferred(&self, question: &PreferredQuestion) -> Result<BTreeSet<String>, String>;

    /// Returns how a container gets devices (`Allocate`).
    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<DeviceResponse, String>;

    /// Prepares devices for the start of their container (`PreStartContainer`).
    async fn pre_start(&self, ids: &BTreeSet<String>) -> Result<(), String>;
}

#[async_trait]
impl PluginCalls for DevicePlugin {
    async fn preferred(&self, question: &PreferredQuestion) -> Result<BTreeSet<String>, String> {
        let answer = Self::preferred(self, question).await;
        answer.map_err(|error| error.to_string())
    }

    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<DeviceResponse, String> {
        let answer = Self::allocate(self, ids).await;
        answer.map_err(|error| error.to_string())
    }

    async fn pre_start(&self, ids: &BTreeSet<String>) -> Result<(), String> {
        let answer = Self::pre_start(self, ids).await;
        answer.map_err(|error| error.to_string())
    }
}

/// Event of a device plugin. Registrations are numbered; events of an old number have no effect.
#[derive(Clone, Debug)]
pub enum DeviceEvent {
    /// A plugin registered.
    Registered {
        /// Resource.
        resource: String,
        /// Number of the registration.
        registration: u64,
        /// Options.
        options: PluginOptions,
        /// The plugin.
        calls: Arc<dyn PluginCalls>,
    },
    /// A plugin listed all of its devices.
    Listed {
        /// Resource.
        resource: String,
        /// Number of the registration.
        registration: u64,
        /// Devices by ID.
        devices: BTreeMap<String, PluginDevice>,
    },
    /// A plugin ended.
    Gone {
        /// Resource.
        resource: String,
        /// Number of the registration.
        registration: u64,
    },
}

impl From<PluginEvent> for DeviceEvent {
    fn from(event: PluginEvent) -> Self {
        match event {
            PluginEvent::Registered { plugin, options } => Self::Registered {
                resource: plugin.resource().to_owned(),
                registration: plugin.registration(),
                options,
                calls: Arc::new(plugin),
            },
            PluginEvent::Listed {
                resource,
                registration,
                devices,
            } => Self::Listed {
                resource,
                registration,
                devices,
            },
            PluginEvent::Gone {
                resource,
                registration,
            } => Self::Gone {
                resource,
                registration,
            },
        }
    }
}

/// A state file of the managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateFile {
    /// `device-plugins/kubelet_internal_checkpoint`.
    Devices,
    /// `cpu_manager_state`.
    Cpus,
    /// `memory_manager_state`.
    Memory,
}

/// The state files. Calls block on the disk.
pub trait StateFiles: Send + Sync + Debug + 'static {
    /// Returns the content; `None` without a file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn load(&self, file: StateFile) -> Result<Option<String>, String>;

    /// Replaces the content durably.
    ///
    /// # Errors
    /// The write failed.
    fn save(&self, file: StateFile, content: &str) -> Result<(), String>;

    /// Runs work that blocks on the disk in the background.
    fn run(&self, work: Box<dyn FnOnce() + Send>) {
        drop(tokio::task::spawn_blocking(work));
    }

    /// Renames a file that cannot be used, and logs why.
    fn set_aside(&self, file: StateFile, why: &str);
}
