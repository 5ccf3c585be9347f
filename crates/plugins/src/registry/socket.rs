//! Registration task of one socket path.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::Channel;
use windlass_metrics::Metrics;
use windlass_node_rules::plugin_registration::{SocketId, retry_delay};
use windlass_plugin_proto::pluginregistration_v1::registration_client::RegistrationClient;
use windlass_plugin_proto::pluginregistration_v1::{InfoRequest, PluginInfo, RegistrationStatus};

use super::{Plugin, PluginHandler, shown};
use crate::connection::{Connection, error_chain};

/// Timeout of the connection (upstream's `dialTimeoutDuration`).
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout of `GetInfo`; upstream's 1 s is too short on a busy host.
const INFO_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the notification (upstream's `notifyTimeoutDuration`).
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of the plugin info: a name, a path and some versions.
const MAX_INFO_BYTES: usize = 64 << 10;
/// Maximum size of an error text that is sent to a plugin or logged.
const MAX_TEXT_BYTES: usize = 4096;

/// State shared by the tasks.
#[derive(Debug)]
pub(super) struct RegistrationContext {
    handlers: BTreeMap<String, Arc<dyn PluginHandler>>,
    metrics: Metrics,
    /// Changes when a registered plugin deregisters: its name may be free for a waiting plugin.
    /// Failed registrations do not count, or two of them would wake each other.
    left: watch::Sender<()>,
}

impl RegistrationContext {
    pub(super) fn new(
        handlers: BTreeMap<String, Arc<dyn PluginHandler>>,
        metrics: Metrics,
    ) -> Self {
        Self {
            handlers,
            metrics,
            left: watch::channel(()).0,
        }
    }

    /// Records a new socket.
    pub(super) fn expect(&self, socket: &Path) {
        self.metrics.plugins.set_desired(&shown(socket), true);
    }

    /// Records a removed socket.
    pub(super) fn forget(&self, socket: &Path) {
        self.metrics.plugins.set_desired(&shown(socket), false);
    }

    fn left(&self, (handler, plugin): (Arc<dyn PluginHandler>, Plugin)) {
        handler.deregister(&plugin);
        let socket = shown(&plugin.socket);
        self.metrics.plugins.set_registered(&socket, false);
        tracing::info!(plugin = plugin.name, socket, "plugin deregistered");
        self.left.send_replace(());
    }
}

/// Plugin whose handler has begun to register it.
type ActiveRegistration = Option<(Arc<dyn PluginHandler>, Plugin)>;

/// Keeps the plugin at `socket` registered until the socket is removed.
pub(super) async fn run_registration(
    socket: PathBuf,
    mut wanted: watch::Receiver<Option<SocketId>>,
    context: Arc<RegistrationContext>,
) {
    let mut registered: ActiveRegistration = None;
    let mut failures = 0;
    loop {
        let now = match wanted.has_changed() {
            Ok(_) => *wanted.borrow_and_update(),
            // the registry has ended
            Err(_) => None,
        };
        if let Some(old) = registered.take_if(|(_, plugin)| Some(plugin.id) != now) {
            context.left(old);
            failures = 0;
        }
        let Some(id) = now else { return };
        let mut pause = None;
        let mut left = context.left.subscribe();
        if registered.is_none() {
            let mut active = None;
            let attempt = register(&socket, id, &context, &mut active);
            let outcome = tokio::select! {
                biased;
                _ = wanted.changed() => Err("the socket was removed".to_owned()),
                outcome = attempt => outcome,
            };
            match outcome {
                Ok(()) => {
                    registered = active;
                    failures = 0;
                    let socket = shown(&socket);
                    context.metrics.plugins.set_registered(&socket, true);
                }
                Err(error) => {
                    if let Some((handler, plugin)) = active {
                        handler.deregister(&plugin);
                    }
                    failures += 1;
                    pause = Some(retry_delay(failures));
                    log_failure(&socket, failures, &error);
                }
            }
        }
        if wanted.has_changed().unwrap_or(true) {
            continue;
        }
        tokio::select! {
            biased;
            // the sender sends `None` before it is dropped
            _ = wanted.changed() => {}
            _ = left.changed(), if pause.is_some() => {}
            () = tokio::time::sleep(pause.unwrap_or_default()), if pause.is_some() => {}
        }
    }
}

/// Logs the first failure as a warning and further ones at debug level.
fn log_failure(socket: &Path, failures: u32, error: &str) {
    let socket = socket.display();
    let error = bounded(error);
    match failures {
        1 => tracing::warn!(%socket, error, further_at_debug = true, "plugin not registered"),
        _ => tracing::debug!(%socket, error, failures, "plugin not registered"),
    }
}

/// One registration attempt. `active` is set before the handler registers the plugin, and stays set
/// if the attempt fails or is dropped.
async fn register(
    socket: &Path,
    id: SocketId,
    context: &RegistrationContext,
    active: &mut ActiveRegistration,
) -> Result<(), String> {
    let at = shown(socket);
    let connection = match timeout(DIAL_TIMEOUT, Connection::open(socket)).await {
        Ok(Ok(connection)) => connection,
        Ok(Err(error)) => return Err(format!("dial failed at socket {at}, err: {error}")),
        Err(_) => {
            return Err(format!(
                "dial failed at socket {at}, err: no answer in time"
            ));
        }
    };
    let mut client =
        RegistrationClient::new(connection.channel()).max_decoding_message_size(MAX_INFO_BYTES);
    let info = match timeout(INFO_TIMEOUT, client.get_info(InfoRequest {})).await {
        Ok(Ok(info)) => info.into_inner(),
        Ok(Err(status)) => {
            let error = text_of(&status);
            return Err(format!(
                "failed to get plugin info using RPC GetInfo at socket {at}, err: {error}"
            ));
        }
        Err(_) => {
            return Err(format!(
                "failed to get plugin info using RPC GetInfo at socket {at}, err: no answer in time"
            ));
        }
    };
    let Some(handler) = context.handlers.get(&info.r#type) else {
        let kind = bounded(&info.r#type);
        let text = format!("no handler registered for plugin type: {kind} at socket {at}");
        return reject(client, text).await;
    };
    let plugin = plugin(socket, id, info);
    if let Err(error) = handler.validate(&plugin) {
        let text = format!("plugin validation failed with err: {error}");
        return reject(client, text).await;
    }
    *active = Some((Arc::clone(handler), plugin.clone()));
    if let Err(error) = handler.register(&plugin).await {
        let text = format!("plugin registration failed with err: {error}");
        return reject(client, text).await;
    }
    notify_status(client, true, "").await.map_err(|error| {
        format!("failed to send registration status at socket {at}, err: {error}")
    })?;
    let endpoint = shown(&plugin.endpoint);
    tracing::info!(plugin = plugin.name, endpoint, versions = ?plugin.versions, "plugin registered");
    Ok(())
}

fn plugin(socket: &Path, id: SocketId, info: PluginInfo) -> Plugin {
    // a unix URL is accepted besides the path that upstream requires
    let endpoint = info.endpoint.strip_prefix("unix://");
    let endpoint = endpoint.unwrap_or(&info.endpoint);
    Plugin {
        socket: socket.to_owned(),
        id,
        name: info.name,
        endpoint: match endpoint {
            "" => socket.to_owned(),
            path => PathBuf::from(path),
        },
        versions: info.supported_versions,
    }
}

/// Notifies the plugin of the error, and returns it as the result of the attempt.
async fn reject(client: RegistrationClient<Channel>, text: String) -> Result<(), String> {
    let text = bounded(&format!("RegisterPlugin error -- {text}"));
    match notify_status(client, false, &text).await {
        Ok(()) => Err(text),
        Err(error) => Err(format!("{text}; notifying the plugin failed: {error}")),
    }
}

async fn notify_status(
    mut client: RegistrationClient<Channel>,
    plugin_registered: bool,
    error: &str,
) -> Result<(), String> {
    let status = RegistrationStatus {
        plugin_registered,
        error: error.to_owned(),
    };
    match timeout(NOTIFY_TIMEOUT, client.notify_registration_status(status)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(status)) => Err(text_of(&status)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

fn text_of(status: &Status) -> String {
    bounded(&error_chain(status))
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}
