//! Watches the plugin directory and keeps each plugin registered.
//!
//! A new or recreated socket is a plugin that registers; a removed one is a plugin that
//! deregisters. Each path has a task ([`socket`]) that receives its current [`SocketId`]. It reads
//! the plugin's info, validates, registers and notifies it (upstream's operation generator), with
//! back-off after failures. The [`PluginHandler`] implements the plugin type.

mod scan;
mod socket;
mod watcher;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_mailboxes::spawn_io;
use windlass_metrics::Metrics;
use windlass_node_rules::plugin_registration::{SocketId, SocketPlan, plan_sockets};

use socket::{RegistrationContext, run_registration};
use watcher::Watcher;

/// Plugin type of CSI drivers.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// Interval between two scans of a directory that cannot be watched.
const UNWATCHED_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// Info of a plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// Registration socket in the directory.
    pub socket: PathBuf,
    /// Identity of the socket at that path.
    pub id: SocketId,
    /// Name, unique within its type.
    pub name: String,
    /// Socket of its service.
    pub endpoint: PathBuf,
    /// Supported versions of the service.
    pub versions: Vec<String>,
}

/// Handler of one plugin type (upstream's `PluginHandler`).
#[async_trait]
pub trait PluginHandler: Send + Sync + Debug + 'static {
    /// Validates the plugin before its registration (`ValidatePlugin`).
    ///
    /// # Errors
    /// The plugin is invalid; the text is sent to the plugin, and the registration retried later.
    fn validate(&self, plugin: &Plugin) -> Result<(), String>;

    /// Registers the plugin (`RegisterPlugin`). Is dropped if the socket is removed.
    ///
    /// # Errors
    /// The registration failed; handled as for [`Self::validate`].
    async fn register(&self, plugin: &Plugin) -> Result<(), String>;

    /// Deregisters a removed or incompletely registered plugin (`DeRegisterPlugin`). Follows every
    /// `register`; another plugin may have taken its name.
    fn deregister(&self, plugin: &Plugin);
}

/// Directory and handlers of plugins.
#[derive(Clone, Debug)]
pub struct PluginRegistry {
    /// The directory; created if missing.
    pub directory: PathBuf,
    /// Handlers by plugin type.
    pub handlers: BTreeMap<String, Arc<dyn PluginHandler>>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Watches the directory and runs the registrations until dropped.
pub async fn run_plugin_registry(registry: PluginRegistry) {
    let directory = registry.directory;
    let watcher = Watcher::new(directory.clone());
    let context = Arc::new(RegistrationContext::new(
        registry.handlers,
        registry.metrics,
    ));
    let mut sockets = BTreeMap::<PathBuf, watch::Sender<Option<SocketId>>>::new();
    loop {
        let found = watcher.scan().await;
        if let Some(found) = &found.sockets {
            let known = desired_sockets(&sockets);
            let plan = plan_sockets(&known, found);
            if plan != SocketPlan::default() {
                tracing::info!(%plan, directory = %directory.display(), "plugins");
            }
            apply(plan, &mut sockets, &context);
        }
        tokio::select! {
            biased;
            () = watcher.changed() => {}
            () = tokio::time::sleep(UNWATCHED_SCAN_INTERVAL), if !found.watched => {}
        }
    }
}

fn desired_sockets(
    sockets: &BTreeMap<PathBuf, watch::Sender<Option<SocketId>>>,
) -> BTreeMap<PathBuf, SocketId> {
    sockets
        .iter()
        .filter_map(|(path, wanted)| Some((path.clone(), (*wanted.borrow())?)))
        .collect()
}

fn apply(
    plan: SocketPlan,
    sockets: &mut BTreeMap<PathBuf, watch::Sender<Option<SocketId>>>,
    context: &Arc<RegistrationContext>,
) {
    for path in plan.removed {
        if let Some(wanted) = sockets.remove(&path) {
            // ends the task
            wanted.send_replace(None);
        }
        context.forget(&path);
    }
    for (path, id) in plan.new {
        context.expect(&path);
        match sockets.get(&path) {
            Some(wanted) => {
                wanted.send_replace(Some(id));
            }
            None => {
                let (sender, wanted) = watch::channel(Some(id));
                sockets.insert(path.clone(), sender);
                let context = Arc::clone(context);
                spawn_io("plugin", run_registration(path, wanted, context));
            }
        }
    }
}

/// `path` as text, for messages and labels.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
