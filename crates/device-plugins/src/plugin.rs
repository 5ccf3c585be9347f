//! Calls to one device plugin.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::time::{Instant, sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Response, Status, Streaming};
use windlass_metrics::Metrics;
use windlass_plugin_proto::deviceplugin_v1beta1::device_plugin_client::DevicePluginClient;
use windlass_plugin_proto::deviceplugin_v1beta1::{self as pb, Empty};
use windlass_plugins::Connection;
use windlass_resource_managers::devices::{
    DeviceResponse, PluginDevice, PluginOptions, PreferredQuestion,
};

/// Timeout of the connection (upstream's), and of the options.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between two attempts to connect.
const CONNECT_RETRY: Duration = Duration::from_millis(250);
/// Timeout of a preference; upstream has none.
const PREFERENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of Allocate, which may reset a device; upstream has none.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout of PreStartContainer (upstream's).
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);
/// Max bytes of a plugin's error text that are kept: it appears in statuses of pods and in logs.
const MAX_ERROR_BYTES: usize = 4096;
/// Health of a usable device.
const HEALTHY: &str = "Healthy";

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The plugin returned an error, has ended, or did not respond in time.
    #[error("rpc error: code = {code} desc = {message}")]
    Rpc {
        /// gRPC status code as gRPC for Go writes it.
        code: String,
        /// Text.
        message: String,
    },
    /// The response is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// A registered plugin. Clones share its connection.
#[derive(Clone, Debug)]
pub struct DevicePlugin(Arc<Registered>);

#[derive(Debug)]
struct Registered {
    resource: String,
    registration: u64,
    connection: Connection,
    metrics: Metrics,
}

impl DevicePlugin {
    pub(crate) async fn connect(
        resource: &str,
        registration: u64,
        endpoint: &Path,
        metrics: Metrics,
    ) -> Result<Self, String> {
        let mut failure = "context deadline exceeded".to_owned();
        let attempts = async {
            loop {
                match Connection::open(endpoint).await {
                    Ok(connection) => return connection,
                    // a plugin may register before it listens
                    Err(error) => failure = error,
                }
                sleep(CONNECT_RETRY).await;
            }
        };
        let connection = timeout(CONNECT_TIMEOUT, attempts).await;
        let connection =
            connection.map_err(|_| format!("failed to dial device plugin: {failure}"))?;
        Ok(Self(Arc::new(Registered {
            resource: resource.to_owned(),
            registration,
            connection,
            metrics,
        })))
    }

    /// The resource.
    pub fn resource(&self) -> &str {
        &self.0.resource
    }

    /// Number of its registration, unique in the agent run and growing.
    pub fn registration(&self) -> u64 {
        self.0.registration
    }

    pub(crate) async fn options(&self) -> Result<PluginOptions, CallError> {
        let mut client = self.client();
        let options = client.get_device_plugin_options(Empty {});
        let options = call(CONNECT_TIMEOUT, options).await?;
        Ok(PluginOptions {
            pre_start_required: options.pre_start_required,
            preferred_allocation: options.get_preferred_allocation_available,
        })
    }

    pub(crate) async fn list_and_watch(
        &self,
    ) -> Result<Streaming<pb::ListAndWatchResponse>, CallError> {
        let response = self.client().list_and_watch(Empty {}).await;
        Ok(response.map_err(|status| rpc(&status))?.into_inner())
    }

    /// Devices that the plugin prefers (`GetPreferredAllocation`); empty without a preference.
    ///
    /// # Errors
    /// The call failed.
    pub async fn preferred(
        &self,
        question: &PreferredQuestion,
    ) -> Result<BTreeSet<String>, CallError> {
        let request = pb::ContainerPreferredAllocationRequest {
            available_device_i_ds: question.available.iter().cloned().collect(),
            must_include_device_i_ds: question.must_include.iter().cloned().collect(),
            allocation_size: i32::try_from(question.size).unwrap_or(i32::MAX),
        };
        let request = pb::PreferredAllocationRequest {
            container_requests: vec![request],
        };
        let mut client = self.client();
        let response = call(PREFERENCE_TIMEOUT, client.get_preferred_allocation(request)).await;
        let response = response.map_err(|error| {
            CallError::Invalid(format!(
                "device plugin GetPreferredAllocation rpc failed with err: {error}"
            ))
        })?;
        let first = response.container_responses.into_iter().next();
        Ok(first.into_iter().flat_map(|it| it.device_i_ds).collect())
    }

    /// How a container gets devices (`Allocate`).
    ///
    /// # Errors
    /// The call failed, or the response is invalid.
    pub async fn allocate(&self, ids: &BTreeSet<String>) -> Result<DeviceResponse, CallError> {
        let request = pb::ContainerAllocateRequest {
            devices_ids: ids.iter().cloned().collect(),
        };
        let request = pb::AllocateRequest {
            container_requests: vec![request],
        };
        let started = Instant::now();
        let response = call(ALLOCATE_TIMEOUT, self.client().allocate(request)).await;
        let seconds = started.elapsed().as_secs_f64();
        let metrics = &self.0.metrics.plugins;
        metrics.observe_device_allocation(&self.0.resource, seconds);
        let first = response?.container_responses.into_iter().next();
        let first = first.ok_or_else(|| {
            CallError::Invalid("no containers return in allocation response".to_owned())
        })?;
        validated(&first)
    }

    /// Prepares devices for the start of their container (`PreStartContainer`).
    ///
    /// # Errors
    /// The call failed.
    pub async fn pre_start(&self, ids: &BTreeSet<String>) -> Result<(), CallError> {
        let request = pb::PreStartContainerRequest {
            devices_ids: ids.iter().cloned().collect(),
        };
        let mut client = self.client();
        let response = call(PRE_START_TIMEOUT, client.pre_start_container(request)).await;
        response.map(drop).map_err(|error| {
            CallError::Invalid(format!(
                "device plugin PreStartContainer rpc failed with err: {error}"
            ))
        })
    }

    fn client(&self) -> DevicePluginClient<Channel> {
        DevicePluginClient::new(self.0.connection.channel())
    }
}

async fn call<T>(
    limit: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, CallError> {
    match timeout(limit, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(rpc(&status)),
        Err(_) => Err(rpc(&Status::deadline_exceeded("context deadline exceeded"))),
    }
}

/// The error of a status, with the code as gRPC for Go writes it.
pub(crate) fn rpc(status: &Status) -> CallError {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        Code::Cancelled => "Canceled".to_owned(),
        code => format!("{code:?}"),
    };
    let mut message = status.message().to_owned();
    let mut end = message.len().min(MAX_ERROR_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message.truncate(end);
    CallError::Rpc { code, message }
}

/// Devices of a list by ID; those without an ID are left out. A later one replaces an earlier one.
pub(crate) fn devices(list: pb::ListAndWatchResponse) -> BTreeMap<String, PluginDevice> {
    let named = list.devices.into_iter().filter(|it| !it.id.is_empty());
    named
        .map(|device| {
            let nodes = device.topology.into_iter().flat_map(|it| it.nodes);
            let nodes = nodes.filter_map(|node| u32::try_from(node.id).ok());
            let healthy = device.health == HEALTHY;
            let nodes = nodes.collect();
            (device.id, PluginDevice { healthy, nodes })
        })
        .collect()
}

/// Converts a response that a runtime can apply.
fn validated(response: &pb::ContainerAllocateResponse) -> Result<DeviceResponse, CallError> {
    let invalid = |what: &str, value: &str| {
        let text = format!("invalid allocation response: {what} {value:?}");
        Err(CallError::Invalid(text))
    };
    let bad_path = |path: &str| path.is_empty() || path.contains('\0');
    for name in response.envs.keys() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return invalid("environment variable", name);
        }
    }
    let mounts = response.mounts.iter();
    let mounts = mounts.flat_map(|it| {
        [
            ("mount to", &it.container_path),
            ("mount of", &it.host_path),
        ]
    });
    let devices = response.devices.iter();
    let devices = devices.flat_map(|it| {
        [
            ("device to", &it.container_path),
            ("device of", &it.host_path),
        ]
    });
    if let Some((what, path)) = mounts.chain(devices).find(|(_, path)| bad_path(path)) {
        return invalid(what, path);
    }
    let mut permissions = response.devices.iter().map(|it| &it.permissions);
    if let Some(bad) = permissions.find(|it| it.contains(|c| !"rwm".contains(c))) {
        return invalid("device permissions", bad);
    }
    if response.cdi_devices.iter().any(|it| it.name.is_empty()) {
        return invalid("CDI device", "");
    }
    // the same message: `DeviceResponse` has the fields of the interface
    DeviceResponse::decode(response.encode_to_vec().as_slice())
        .map_err(|error| CallError::Invalid(error.to_string()))
}
