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
use windlass_actors::spawn_io;
use windlass_node_rules::plugin_registration::{SocketId, SocketPlan, plan_sockets};
use windlass_metrics::Metrics;

use socket::{Surroundings, keep_registered};
use watcher::Watcher;

/// Type of CSI drivers.
pub const CSI_PLUGIN: &str = "CSIPlugin";

/// Pause between two looks at the directory while it cannot be watched.
const UNWATCHED_PAUSE: Duration = Duration::from_secs(10);

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
pub async fn keep_plugins(registry: PluginRegistry) {
    let directory = registry.directory;
    let watcher = Watcher::new(directory.clone());
    let surroundings = Arc::new(Surroundings::new(registry.handlers, registry.metrics));
    let mut sockets = BTreeMap::<PathBuf, watch::Sender<Option<SocketId>>>::new();
    loop {
        let found = watcher.look().await;
        if let Some(found) = &found.sockets {
            let known = known(&sockets);
            let plan = plan_sockets(&known, found);
            if plan != SocketPlan::default() {
                tracing::info!(%plan, directory = %directory.display(), "plugins");
            }
            carry_out(plan, &mut sockets, &surroundings);
        }
        tokio::select! {
            biased;
            () = watcher.changed() => {}
            () = tokio::time::sleep(UNWATCHED_PAUSE), if !found.watched => {}
        }
    }
}

fn known(
    sockets: &BTreeMap<PathBuf, watch::Sender<Option<SocketId>>>,
) -> BTreeMap<PathBuf, SocketId> {
    sockets
        .iter()
        .filter_map(|(path, wanted)| Some((path.clone(), (*wanted.borrow())?)))
        .collect()
}

fn carry_out(
    plan: SocketPlan,
    sockets: &mut BTreeMap<PathBuf, watch::Sender<Option<SocketId>>>,
    surroundings: &Arc<Surroundings>,
) {
    for path in plan.gone {
        if let Some(wanted) = sockets.remove(&path) {
            // the task hears it and ends
            wanted.send_replace(None);
        }
        surroundings.forget(&path);
    }
    for (path, id) in plan.new {
        surroundings.expect(&path);
        match sockets.get(&path) {
            Some(wanted) => {
                wanted.send_replace(Some(id));
            }
            None => {
                let (sender, wanted) = watch::channel(Some(id));
                sockets.insert(path.clone(), sender);
                let surroundings = Arc::clone(surroundings);
                spawn_io("plugin", keep_registered(path, wanted, surroundings));
            }
        }
    }
}

/// `path` as text, for messages and labels.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
