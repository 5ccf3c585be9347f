//! Finds the sockets of plugins and keeps each plugin registered.
//!
//! A socket that is made, or made anew at its old path, is a plugin that introduces itself; one that
//! is gone is a plugin that left. Each has a task ([`socket`]), which hears only what lies at its
//! path ([`SocketId`]) and asks, checks, registers and tells the plugin (upstream's operation
//! generator), with a pause after each failure. What kind of plugin does what when it registers is
//! its [`PluginHandler`].

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

/// Type of CSI drivers.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// Pause between two looks at the directory while it cannot be watched.
const UNWATCHED_SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// A plugin as it introduced itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The socket in the directory.
    pub socket: PathBuf,
    /// Which one at that path.
    pub id: SocketId,
    /// Its name, unique within its type.
    pub name: String,
    /// Socket of its service.
    pub endpoint: PathBuf,
    /// Versions of the service that it speaks.
    pub versions: Vec<String>,
}

/// What is done with the plugins of one type (upstream's `PluginHandler`).
#[async_trait]
pub trait PluginHandler: Send + Sync + Debug + 'static {
    /// Whether the plugin may register (`ValidatePlugin`).
    ///
    /// # Errors
    /// It may not; the plugin is told the text and asked again later.
    fn validate(&self, plugin: &Plugin) -> Result<(), String>;

    /// Registers it (`RegisterPlugin`). Is dropped if the socket goes meanwhile.
    ///
    /// # Errors
    /// As above.
    async fn register(&self, plugin: &Plugin) -> Result<(), String>;

    /// It left, or its registration was not finished (`DeRegisterPlugin`). Follows every
    /// `register` at some time; another plugin may have taken its name.
    fn deregister(&self, plugin: &Plugin);
}

/// Where plugins are looked for, and what is done with them.
#[derive(Clone, Debug)]
pub struct PluginRegistry {
    /// The directory; it is made if it is missing.
    pub directory: PathBuf,
    /// By type.
    pub handlers: BTreeMap<String, Arc<dyn PluginHandler>>,
    /// Metrics.
    pub metrics: Metrics,
}

/// Watches the directory for as long as it runs. A directory in which nothing happens costs
/// nothing.
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
    for path in plan.gone {
        if let Some(wanted) = sockets.remove(&path) {
            // the task hears it and ends
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
