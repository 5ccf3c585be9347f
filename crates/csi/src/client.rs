//! The node service of a driver over its socket.
//!
//! Each call has a connection of its own, as upstream's do, and a deadline that the driver is told.
//! What an error means for what may have happened is upstream's `isFinalError` ([`CsiError`]). An
//! error of NodeUnstageVolume and NodeUnpublishVolume is passed on whatever its code: a driver that
//! does not know the volume answers OK, and one that says NotFound may still have it mounted.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use windlass_metrics::Metrics;
use windlass_plugins::{Connection, error_chain};
use windlass_proto::csi_v1::node_client::NodeClient;
use windlass_proto::csi_v1::node_service_capability::Type;
use windlass_proto::csi_v1::node_service_capability::rpc::Type as Ability;
use windlass_proto::csi_v1::volume_capability::access_mode::Mode;
use windlass_proto::csi_v1::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use windlass_proto::csi_v1::volume_usage::Unit;
use windlass_proto::csi_v1::{self as pb, VolumeCapability};

use crate::port::{
    CsiError, CsiNode, NodeAbility, NodeInfo, PublishRequest, StageRequest, UsageEntry, UsageUnit,
    VolumeUsage,
};

/// Longest time of a call (upstream's `csiTimeout`).
pub(crate) const CSI_TIMEOUT: Duration = Duration::from_secs(120);
/// Longest text of a driver that is kept, in bytes: it goes into events, statuses and logs.
const LONGEST_MESSAGE: usize = 4096;
/// Longest answer, in bytes.
const LONGEST_ANSWER: usize = 1 << 20;

/// A client of one driver. Nothing is open between two calls.
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

    /// One call, counted under the method's name.
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
                    // as grpc-go says it
                    let text = format!("connection error: desc = \"transport: {error}\"");
                    return Err(Status::unavailable(text));
                }
            };
            let client = NodeClient::new(connection.channel());
            let client = client.max_decoding_message_size(LONGEST_ANSWER);
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
            // the transport calls its own end of time a cancellation
            .map_err(|status| error_of(&status, elapsed >= CSI_TIMEOUT));
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

    /// What CSI calls the way in which the volume is used.
    async fn capability(&self, volume: &StageRequest) -> Result<VolumeCapability, CsiError> {
        let mode = access_mode(&volume.access_modes, || async {
            let abilities = self.abilities().await?;
            Ok(abilities.contains(&NodeAbility::SingleNodeMultiWriter))
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

/// The access mode for the first of a volume's modes, which is the one that upstream takes. Only
/// what is used on one node depends on the driver.
async fn access_mode<F>(
    modes: &[String],
    single_node_multi_writer: impl FnOnce() -> F,
) -> Result<Mode, CsiError>
where
    F: Future<Output = Result<bool, CsiError>>,
{
    // upstream's default for what has none, inline volumes before all
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

#[async_trait]
impl CsiNode for CsiClient {
    async fn info(&self) -> Result<NodeInfo, CsiError> {
        let answer = self
            .call(
                "NodeGetInfo",
                pb::NodeGetInfoRequest {},
                |mut client, request| async move { client.node_get_info(request).await },
            )
            .await?;
        Ok(NodeInfo {
            node_id: answer.node_id,
            max_volumes: match answer.max_volumes_per_node {
                0 => None,
                max if max < 0 => {
                    tracing::warn!(driver = self.driver, max, "invalid attach limit");
                    None
                }
                max => Some(max),
            },
            topology: answer
                .accessible_topology
                .map(|topology| topology.segments)
                .unwrap_or_default(),
        })
    }

    async fn abilities(&self) -> Result<BTreeSet<NodeAbility>, CsiError> {
        let answer = self
            .call(
                "NodeGetCapabilities",
                pb::NodeGetCapabilitiesRequest {},
                |mut client, request| async move { client.node_get_capabilities(request).await },
            )
            .await?;
        let abilities = answer.capabilities.iter().filter_map(|capability| {
            let Type::Rpc(rpc) = capability.r#type.as_ref()?;
            ability(Ability::try_from(rpc.r#type).ok()?)
        });
        Ok(abilities.collect())
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
        self.call(
            "NodeStageVolume",
            message,
            |mut client, request| async move { client.node_stage_volume(request).await },
        )
        .await
        .map(drop)
    }

    async fn unstage(&self, handle: &str, staging_path: &Path) -> Result<(), CsiError> {
        check("volume id", handle)?;
        let message = pb::NodeUnstageVolumeRequest {
            volume_id: handle.to_owned(),
            staging_target_path: path("staging target path", Some(staging_path))?,
        };
        self.call(
            "NodeUnstageVolume",
            message,
            |mut client, request| async move { client.node_unstage_volume(request).await },
        )
        .await
        .map(drop)
    }

    async fn publish(&self, request: PublishRequest) -> Result<(), CsiError> {
        let volume = request.volume;
        check("volume id", &volume.handle)?;
        let target_path = path("target path", Some(&request.target_path))?;
        let staging = volume.staging_path.as_deref();
        let staging_target_path = match staging {
            Some(staging) => path("staging target path", Some(staging))?,
            None => String::new(),
        };
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
        self.call(
            "NodePublishVolume",
            message,
            |mut client, request| async move { client.node_publish_volume(request).await },
        )
        .await
        .map(drop)
    }

    async fn unpublish(&self, handle: &str, target_path: &Path) -> Result<(), CsiError> {
        check("volume id", handle)?;
        let message = pb::NodeUnpublishVolumeRequest {
            volume_id: handle.to_owned(),
            target_path: path("target path", Some(target_path))?,
        };
        self.call(
            "NodeUnpublishVolume",
            message,
            |mut client, request| async move { client.node_unpublish_volume(request).await },
        )
        .await
        .map(drop)
    }

    async fn expand(
        &self,
        request: StageRequest,
        wanted: u64,
        at: PathBuf,
    ) -> Result<u64, CsiError> {
        check("volume id", &request.handle)?;
        let volume_path = path("volume path", Some(&at))?;
        let staging_target_path = match request.staging_path.as_deref() {
            Some(staging) => path("staging target path", Some(staging))?,
            None => String::new(),
        };
        let required_bytes = i64::try_from(wanted).map_err(|_| CsiError::Invalid {
            message: format!("{wanted} bytes are more than a volume can have"),
        })?;
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
        let answer = self
            .call(
                "NodeExpandVolume",
                message,
                |mut client, request| async move { client.node_expand_volume(request).await },
            )
            .await?;
        Ok(amount(answer.capacity_bytes))
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
            staging_target_path: match staging_path {
                Some(staging) => path("staging target path", Some(staging))?,
                None => String::new(),
            },
        };
        let answer = self
            .call(
                "NodeGetVolumeStats",
                message,
                |mut client, request| async move { client.node_get_volume_stats(request).await },
            )
            .await?;
        let abnormal = answer
            .volume_condition
            .filter(|condition| condition.abnormal)
            .map(|condition| bounded(&condition.message));
        Ok(VolumeUsage {
            entries: answer.usage.iter().filter_map(usage_entry).collect(),
            abnormal,
        })
    }
}

fn ability(ability: Ability) -> Option<NodeAbility> {
    Some(match ability {
        Ability::Unknown => return None,
        Ability::StageUnstageVolume => NodeAbility::Stage,
        Ability::GetVolumeStats => NodeAbility::Usage,
        Ability::ExpandVolume => NodeAbility::Expand,
        Ability::VolumeCondition => NodeAbility::Condition,
        Ability::SingleNodeMultiWriter => NodeAbility::SingleNodeMultiWriter,
        Ability::VolumeMountGroup => NodeAbility::MountGroup,
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

/// A negative amount is a driver's mistake.
fn amount(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// CSI's secrets are texts; upstream passes bytes that are none as they are, which gRPC refuses.
fn text_secrets(secrets: BTreeMap<String, Vec<u8>>) -> Result<BTreeMap<String, String>, CsiError> {
    let texts = secrets.into_iter().map(|(key, value)| {
        let value = String::from_utf8(value).map_err(|_| CsiError::Invalid {
            message: format!("the value of {key:?} in the secret is no text"),
        })?;
        Ok((key, value))
    });
    texts.collect()
}

fn check(what: &str, value: &str) -> Result<(), CsiError> {
    match value.is_empty() {
        true => Err(CsiError::Invalid {
            message: format!("missing {what}"),
        }),
        false => Ok(()),
    }
}

fn path(what: &str, path: Option<&Path>) -> Result<String, CsiError> {
    let text = path.unwrap_or(Path::new("")).to_str();
    let text = text.ok_or_else(|| CsiError::Invalid {
        message: format!("the {what} is no text"),
    })?;
    check(what, text)?;
    Ok(text.to_owned())
}

/// What an error of a call means. One that no server sent comes from the connection.
fn error_of(status: &Status, too_late: bool) -> CsiError {
    let lost = status.source().is_some();
    let code = match status.code() {
        _ if too_late => Code::DeadlineExceeded,
        _ if lost => Code::Unavailable,
        code => code,
    };
    let message = match lost {
        true => bounded(&error_chain(status)),
        false => bounded(status.message()),
    };
    let name = code_name(code).to_owned();
    match code {
        Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Unavailable
        | Code::ResourceExhausted
        | Code::Aborted => CsiError::Uncertain {
            code: name,
            message,
        },
        _ => CsiError::Refused {
            code: name,
            message,
        },
    }
}

fn bounded(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST_MESSAGE)].to_owned()
}

/// As grpc-go prints a code.
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
