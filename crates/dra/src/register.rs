//! Registration of DRA drivers' plugins, and the connection to each.
//!
//! A task per plugin keeps one connection open, which shows whether the plugin runs, and follows
//! the health of its devices on it. An idle plugin costs nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use windlass_mailboxes::spawn_io;
use windlass_plugin_proto::drahealth_v1alpha1::NodeWatchResourcesRequest;
use windlass_plugin_proto::drahealth_v1alpha1::dra_resource_health_client::DraResourceHealthClient;
use windlass_plugins::{Connection, Plugin, PluginHandler};

use crate::client::{DraClient, Version};
use crate::link::Link;
use crate::manager::DraClaims;

/// Plugin type of DRA drivers.
pub const DRA_PLUGIN: &str = "DRAPlugin";

/// Timeout of connecting to a plugin.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Back-off between attempts to connect; doubles to the maximum.
const CONNECT_BACKOFF: Duration = Duration::from_secs(1);
const MAX_CONNECT_BACKOFF: Duration = Duration::from_secs(60);
/// Interval between two health streams, as upstream.
const STREAM_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Max size of a health report in bytes.
const MAX_REPORT_BYTES: usize = 4 << 20;

/// Registers plugins of DRA drivers.
#[derive(Debug)]
pub struct DraRegistration {
    claims: Arc<DraClaims>,
    /// Tasks by registration socket.
    tasks: Mutex<BTreeMap<PathBuf, PluginTask>>,
}

/// A registered plugin.
#[derive(Debug)]
struct PluginTask {
    plugin: Plugin,
    link: Arc<Link>,
    _task: AbortOnDropHandle<()>,
}

impl DraRegistration {
    /// Adds registered plugins to the drivers of `claims`.
    pub fn new(claims: Arc<DraClaims>) -> Self {
        Self {
            claims,
            tasks: Mutex::default(),
        }
    }
}

/// The version of a plugin.
fn version(plugin: &Plugin) -> Result<Version, String> {
    let (name, endpoint) = (&plugin.name, plugin.endpoint.display());
    let invalid = format!(
        "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}:"
    );
    if plugin.versions.is_empty() {
        return Err(format!(
            "{invalid} empty list of supported gRPC services (aka supported versions)"
        ));
    }
    Version::choose(&plugin.versions).ok_or_else(|| {
        let quoted = |names: Vec<&str>| {
            let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
            names.join(" ")
        };
        let offered = quoted(plugin.versions.iter().map(String::as_str).collect());
        let known = quoted(Version::ALL.iter().map(|(_, name)| *name).collect());
        format!(
            "{invalid} none of services supported by the plugin ([{offered}]) are supported by the \
             kubelet ([{known}])"
        )
    })
}

#[async_trait]
impl PluginHandler for DraRegistration {
    fn validate(&self, plugin: &Plugin) -> Result<(), String> {
        if !plugin.endpoint.is_absolute() {
            let endpoint = plugin.endpoint.display();
            return Err(format!("the endpoint {endpoint} is not an absolute path"));
        }
        version(plugin).map(drop)
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), String> {
        let version = version(plugin)?;
        let (name, endpoint) = (&plugin.name, &plugin.endpoint);
        let link = Arc::<Link>::default();
        let client = DraClient::new(name, Arc::clone(&link), version, self.claims.metrics());
        let drivers = self.claims.drivers();
        drivers.add(name, endpoint, Arc::new(client))?;
        let task = run_plugin(Arc::clone(&self.claims), plugin.clone(), Arc::clone(&link));
        let task = PluginTask {
            plugin: plugin.clone(),
            link,
            _task: AbortOnDropHandle::new(spawn_io("dra-plugin", task)),
        };
        let mut tasks = self.tasks.lock();
        tasks.insert(plugin.socket.clone(), task);
        tracing::info!(driver = name, endpoint = %endpoint.display(), ?version, "DRA driver registered");
        Ok(())
    }

    fn deregister(&self, plugin: &Plugin) {
        let mut tasks = self.tasks.lock();
        // a rejected plugin has no task, but may have the endpoint of another
        let is_own = |task: &PluginTask| task.plugin == *plugin;
        if !tasks.get(&plugin.socket).is_some_and(is_own) {
            return;
        }
        if let Some(task) = tasks.remove(&plugin.socket) {
            task.link.failed("the plugin is deregistered".to_owned());
        }
        drop(tasks);
        self.claims.drivers().remove(&plugin.name, &plugin.endpoint);
        self.claims.clear_unusable(&plugin.name);
    }
}

/// Keeps a plugin connected until dropped.
async fn run_plugin(claims: Arc<DraClaims>, plugin: Plugin, link: Arc<Link>) {
    let (name, endpoint) = (&plugin.name, &plugin.endpoint);
    let mut backoff = CONNECT_BACKOFF;
    loop {
        match timeout(CONNECT_TIMEOUT, Connection::open(endpoint)).await {
            Ok(Ok(connection)) => {
                backoff = CONNECT_BACKOFF;
                link.connected(connection.channel());
                claims.drivers().set_connected(name, endpoint, true);
                tokio::select! {
                    biased;
                    () = connection.closed() => {}
                    () = follow_health(&claims, name, &connection) => {}
                }
                link.failed("the plugin closed the connection".to_owned());
                claims.drivers().set_connected(name, endpoint, false);
                claims.clear_unusable(name);
                tracing::info!(driver = name, "DRA driver disconnected");
            }
            failed => {
                let error = failed.map_or_else(
                    |_| "timed out".to_owned(),
                    |it| it.err().unwrap_or_default(),
                );
                tracing::debug!(driver = name, error, "DRA driver not connected");
                link.failed(error);
                backoff = (backoff * 2).min(MAX_CONNECT_BACKOFF);
            }
        }
        tokio::select! {
            () = link.wanted() => {}
            () = sleep(backoff) => {}
        }
    }
}

/// Follows the health of a driver's devices until dropped.
async fn follow_health(claims: &DraClaims, driver: &str, connection: &Connection) {
    if !claims.follows_health() {
        return std::future::pending().await;
    }
    loop {
        let client = DraResourceHealthClient::new(connection.channel());
        let mut client = client.max_decoding_message_size(MAX_REPORT_BYTES);
        let ended = match client
            .node_watch_resources(NodeWatchResourcesRequest {})
            .await
        {
            Ok(stream) => follow_stream(claims, driver, stream.into_inner()).await,
            Err(status) => Err(status),
        };
        claims.clear_health(driver);
        match ended {
            // the driver does not report health; upstream repeats the call all the same
            Err(status) if status.code() == Code::Unimplemented => {
                return std::future::pending().await;
            }
            Err(status) => tracing::debug!(driver, error = %status, "health stream ended"),
            Ok(()) => {}
        }
        sleep(STREAM_RETRY_INTERVAL).await;
    }
}

async fn follow_stream(
    claims: &DraClaims,
    driver: &str,
    mut stream: tonic::Streaming<
        windlass_plugin_proto::drahealth_v1alpha1::NodeWatchResourcesResponse,
    >,
) -> Result<(), tonic::Status> {
    let mut expiry: Option<Instant> = None;
    loop {
        let expires = async {
            match expiry {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            message = stream.message() => match message? {
                Some(report) => expiry = claims.reported(driver, report.devices),
                None => return Ok(()),
            },
            () = expires => expiry = claims.reported(driver, Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests;
