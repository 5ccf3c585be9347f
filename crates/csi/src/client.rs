//! Client of a driver's node service over its socket.
//!
//! Each call uses its own connection, as upstream's do, and sends its deadline to the driver.
//! Errors are classified as upstream's `isFinalError` ([`CsiError`]). Errors of
//! NodeUnstageVolume and NodeUnpublishVolume are returned whatever their code: a driver that does
//! not know the volume returns OK, and one that returns NotFound may still have it mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_plugin_proto::csi_v1::node_client::NodeClient;
use windlass_plugin_proto::csi_v1::node_service_capability::Type;
use windlass_plugin_proto::csi_v1::node_service_capability::rpc::Type as RpcType;
use windlass_plugin_proto::csi_v1::volume_capability::access_mode::Mode;
use windlass_plugin_proto::csi_v1::volume_capability::{
    AccessMode, AccessType, BlockVolume, MountVolume,
};
use windlass_plugin_proto::csi_v1::volume_usage::Unit;
use windlass_plugin_proto::csi_v1::{self as pb, VolumeCapability};
use windlass_plugins::{Connection, error_chain};

use crate::port::{
    CsiError, CsiNode, NodeCapability, NodeInfo, PublishRequest, StageRequest, UsageEntry,
    UsageUnit, VolumeUsage,
};

/// Timeout of a call (upstream's `csiTimeout`).
pub(crate) const CSI_TIMEOUT: Duration = Duration::from_secs(120);
/// Max bytes of a driver message that are kept: it appears in events, statuses and logs.
const MAX_MESSAGE_BYTES: usize = 4096;
/// Max size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// A client of one driver. No connection is open between two calls.
#[derive(Clone, Debug)]
pub struct CsiClient {
    driver: String,
    socket: PathBuf,
    metrics: Metrics,
}

impl CsiClient {
    /// A client for the driver at `socket`.
    pub fn new(driver: &str, socket: &Path, metrics: Metrics) -> Self {
        Self {
            driver: driver.to_owned(),
            socket: socket.to_owned(),
            metrics,
        }
    }

    /// Makes one call and records its metrics under the method name.
    async fn call<Q, A, F>(
        &self,
        method: &'static str,
        message: Q,
        call: impl FnOnce(NodeClient<Channel>, Request<Q>) -> F,
    ) -> Result<A, CsiError>
    where
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let started = Instant::now();
        let attempt = async {
            let connection = match Connection::open(&self.socket).await {
                Ok(connection) => connection,
                Err(error) => {
                    // the text of grpc-go
                    let text = format!("connection error: desc = \"transport: {error}\"");
                    return Err(Status::unavailable(text));
                }
            };
            let client = NodeClient::new(connection.channel());
            let client = client.max_decoding_message_size(MAX_RESPONSE_BYTES);
            let mut request = Request::new(message);
            request.set_timeout(CSI_TIMEOUT);
            call(client, request).await
        };
        let outcome = timeout(CSI_TIMEOUT, attempt)
            .await
            .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        let elapsed = started.elapsed();
        let outcome = outcome
            .map(Response::into_inner)
            // the transport reports its own timeout as a cancellation
            .map_err(|status| classify(&status, elapsed >= CSI_TIMEOUT));
        let code = match &outcome {
            Ok(_) => "OK",
            Err(CsiError::Refused { code, .. } | CsiError::Uncertain { code, .. }) => code,
            Err(_) => "Unknown",
        };
        let method = format!("/csi.v1.Node/{method}");
        self.metrics
            .plugins
            .observe_csi_call(&self.driver, &method, code, elapsed.as_secs_f64());
        outcome
    }

    /// The VolumeCapability of a request.
    async fn capability(&self, volume: &StageRequest) -> Result<VolumeCapability, CsiError> {
        let mode = access_mode(&volume.access_modes, || async {
            let capabilities = self.capabilities().await?;
            Ok(capabilities.contains(&NodeCapability::SingleNodeMultiWriter))
        })
        .await?;
        let access_type = match volume.block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume {
                fs_type: volume.fs_type.clone(),
                mount_flags: volume.mount_flags.clone(),
                volume_mount_group: volume
                    .mount_group
                    .map_or_else(String::new, |it| it.to_string()),
            }),
        };
        Ok(VolumeCapability {
            access_type: Some(access_type),
            access_mode: Some(AccessMode {
                mode: i32::from(mode),
            }),
        })
    }
}

/// The CSI access mode for the first mode of a volume, as upstream. Single-node modes depend on the
/// driver.
async fn access_mode<F>(
    modes: &[String],
    single_node_multi_writer: impl FnOnce() -> F,
) -> Result<Mode, CsiError>
where
    F: Future<Output = Result<bool, CsiError>>,
{
    // upstream's default for volumes without modes, such as inline volumes
    let mode = modes.first().map_or("ReadWriteOnce", String::as_str);
    Ok(match mode {
        "ReadOnlyMany" => Mode::MultiNodeReaderOnly,
        "ReadWriteMany" => Mode::MultiNodeMultiWriter,
        "ReadWriteOnce" | "ReadWriteOncePod" => match (single_node_multi_writer().await?, mode) {
            (true, "ReadWriteOnce") => Mode::SingleNodeMultiWriter,
            (true, _) => Mode::SingleNodeSingleWriter,
            (false, _) => Mode::SingleNodeWriter,
        },
        _ => Mode::Unknown,
    })
}

/// Calls a method of the node service by its CSI name and its name in the generated client.
macro_rules! call {
    ($client:expr, $name:literal, $method:ident, $message:expr) => {
        $client
            .call($name, $message, |mut client, request| async move {
                client.$method(request).await
            })
            .await
    };
}

#[async_trait]
impl CsiNode for CsiClient {
    async fn info(&self) -> Result<NodeInfo, CsiError> {
        let message = pb::NodeGetInfoRequest {};
        let response = call!(self, "NodeGetInfo", node_get_info, message)?;
        Ok(NodeInfo {
            node_id: response.node_id,
            max_volumes: match response.max_volumes_per_node {
                0 => None,
                max if max < 0 => {
                    tracing::warn!(driver = self.driver, max, "invalid attach limit");
                    None
                }
                max => Some(max),
            },
            topology: response
                .accessible_topology
                .map(|topology| topology.segments)
                .unwrap_or_default(),
        })
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CsiError> {
        let message = pb::NodeGetCapabilitiesRequest {};
        let response = call!(self, "NodeGetCapabilities", node_get_capabilities, message)?;
        let capabilities = response.capabilities.iter().filter_map(|capability| {
            let Type::Rpc(rpc) = capability.r#type.as_ref()?;
            node_capability(RpcType::try_from(rpc.r#type).ok()?)
        });
        Ok(capabilities.collect())
    }

    async fn stage(&self, request: StageRequest) -> Result<(), CsiError> {
        check("volume id", &request.handle)?;
        let staging = request.staging_path.as_deref();
        let staging = path("staging target path", staging)?;
        let volume_capability = Some(self.capability(&request).await?);
        let message = pb::NodeStageVolumeRequest {
            volume_id: request.handle,
            publish_context: request.publish_context,
            staging_target_path: staging,
            volume_capability,
            secrets: text_secrets(request.secrets)?,
            volume_context: request.context,
        };
        call!(self, "NodeStageVolume", node_stage_volume, message).map(drop)
    }

    async fn unstage(&self, handle: &str, staging_path: &Path) -> Result<(), CsiError> {
        check("volume id", handle)?;
        let message = pb::NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: path("staging target path", Some(staging_path))?,
        };
        call!(self, "NodeUnstageVolume", node_unstage_volume, message).map(drop)
    }

    async fn publish(&self, request: PublishRequest) -> Result<(), CsiError> {
        let volume = request.volume;
        check("volume id", &volume.handle)?;
        let target_path = path("target path", Some(&request.target_path))?;
        let staging_target_path = optional_staging(volume.staging_path.as_deref())?;
        let volume_capability = Some(self.capability(&volume).await?);
        let message = pb::NodePublishVolumeRequest {
            volume_id: volume.handle,
            publish_context: volume.publish_context,
            staging_target_path,
            target_path,
            volume_capability,
            readonly: request.read_only,
            secrets: text_secrets(volume.secrets)?,
            volume_context: volume.context,
        };
        call!(self, "NodePublishVolume", node_publish_volume, message).map(drop)
    }

    async fn unpublish(&self, handle: &str, target_path: &Path) -> Result<(), CsiError> {
        check("volume id", handle)?;
        let message = pb::NodeUnpublishVolumeRequest {
            volume_id: handle.to_owned(),
            target_path: path("target path", Some(target_path))?,
        };
        call!(self, "NodeUnpublishVolume", node_unpublish_volume, message).map(drop)
    }

    async fn expand(
        &self,
        request: StageRequest,
        wanted: u64,
        at: PathBuf,
    ) -> Result<u64, CsiError> {
        check("volume id", &request.handle)?;
        let volume_path = path("volume path", Some(&at))?;
        let staging_target_path = optional_staging(request.staging_path.as_deref())?;
        let required_bytes = i64::try_from(wanted)
            .map_err(|_| invalid(format!("{wanted} bytes are more than a volume can have")))?;
        let volume_capability = Some(self.capability(&request).await?);
        let message = pb::NodeExpandVolumeRequest {
            volume_id: request.handle,
            volume_path,
            capacity_range: Some(pb::CapacityRange {
                required_bytes,
                limit_bytes: 0,
            }),
            staging_target_path,
            volume_capability,
            secrets: text_secrets(request.secrets)?,
        };
        let response = call!(self, "NodeExpandVolume", node_expand_volume, message)?;
        Ok(amount(response.capacity_bytes))
    }

    async fn usage(
        &self,
        handle: &str,
        volume_path: &Path,
        staging_path: Option<&Path>,
    ) -> Result<VolumeUsage, CsiError> {
        check("volume id", handle)?;
        let message = pb::NodeGetVolumeStatsRequest {
            volume_id: handle.to_owned(),
            volume_path: path("target path", Some(volume_path))?,
            staging_target_path: optional_staging(staging_path)?,
        };
        let response = call!(self, "NodeGetVolumeStats", node_get_volume_stats, message)?;
        let abnormal = response
            .volume_condition
            .filter(|condition| condition.abnormal)
            .map(|condition| bounded(&condition.message));
        Ok(VolumeUsage {
            entries: response.usage.iter().filter_map(usage_entry).collect(),
            abnormal,
        })
    }
}

fn node_capability(rpc: RpcType) -> Option<NodeCapability> {
    Some(match rpc {
        RpcType::Unknown => return None,
        RpcType::StageUnstageVolume => NodeCapability::Stage,
        RpcType::GetVolumeStats => NodeCapability::Usage,
        RpcType::ExpandVolume => NodeCapability::Expand,
        RpcType::VolumeCondition => NodeCapability::Condition,
        RpcType::SingleNodeMultiWriter => NodeCapability::SingleNodeMultiWriter,
        RpcType::VolumeMountGroup => NodeCapability::MountGroup,
    })
}

fn usage_entry(usage: &pb::VolumeUsage) -> Option<UsageEntry> {
    let unit = match Unit::try_from(usage.unit) {
        Ok(Unit::Bytes) => UsageUnit::Bytes,
        Ok(Unit::Inodes) => UsageUnit::Inodes,
        Ok(Unit::Unknown) | Err(_) => return None,
    };
    Some(UsageEntry {
        unit,
        available: amount(usage.available),
        total: amount(usage.total),
        used: amount(usage.used),
    })
}

/// Negative amounts, which violate CSI, count as 0.
fn amount(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Secrets as CSI's strings; upstream passes other bytes unchanged, which gRPC rejects.
fn text_secrets(secrets: BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, String>, CsiError> {
    let texts = secrets.into_iter().map(|(key, value)| {
        let value = String::from_utf8(value)
            .map_err(|_| invalid(format!("the value of {key:?} in the secret is not UTF-8")))?;
        Ok((key, value))
    });
    texts.collect()
}

fn invalid(message: String) -> CsiError {
    CsiError::Invalid { message }
}

fn check(what: &str, value: &str) -> Result<(), CsiError> {
    match value.is_empty() {
        true => Err(invalid(format!("missing {what}"))),
        false => Ok(()),
    }
}

fn path(what: &str, path: Option<&Path>) -> Result<String, CsiError> {
    let text = path.unwrap_or(Path::new("")).to_str();
    let text = text.ok_or_else(|| invalid(format!("the {what} is not UTF-8")))?;
    check(what, text)?;
    Ok(text.to_owned())
}

/// The staging path of a driver that stages; otherwise empty.
fn optional_staging(staging: Option<&Path>) -> Result<String, CsiError> {
    staging.map_or(Ok(String::new()), |staging| {
        path("staging target path", Some(staging))
    })
}

/// Classifies the status of a call. A status with a source comes from the connection.
fn classify(status: &Status, timed_out: bool) -> CsiError {
    let is_transport = status.source().is_some();
    let code = match status.code() {
        _ if timed_out => Code::DeadlineExceeded,
        _ if is_transport => Code::Unavailable,
        code => code,
    };
    let message = match is_transport {
        true => bounded(&error_chain(status)),
        false => bounded(status.message()),
    };
    let is_uncertain = matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::ResourceExhausted
            | Code::Aborted
    );
    let code = code_name(code).to_owned();
    match is_uncertain {
        true => CsiError::Uncertain { code, message },
        false => CsiError::Refused { code, message },
    }
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)].to_owned()
}

/// Name of a code as grpc-go prints it.
fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests;
