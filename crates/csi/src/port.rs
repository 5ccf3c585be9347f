//! Ports to a driver's node service and to the API server objects that mounting needs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::path::PathBuf;

use async_trait::async_trait;
use windlass_types::{Retry, SharedPod};
use windlass_volume_plan::volume_source::SecretRef;

/// The node service of one registered driver. Every call has a deadline and may be repeated, as CSI
/// requires of drivers.
#[async_trait]
pub trait CsiNode: Send + Sync + Debug + 'static {
    /// NodeGetInfo.
    async fn info(&self) -> Result<NodeInfo, CsiError>;

    /// NodeGetCapabilities, without unknown ones.
    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CsiError>;

    /// NodeStageVolume.
    async fn stage(&self, request: StageRequest) -> Result<(), CsiError>;

    /// NodeUnstageVolume.
    async fn unstage(&self, handle: &str, staging_path: &std::path::Path) -> Result<(), CsiError>;

    /// NodePublishVolume.
    async fn publish(&self, request: PublishRequest) -> Result<(), CsiError>;

    /// NodeUnpublishVolume.
    async fn unpublish(&self, handle: &str, target_path: &std::path::Path) -> Result<(), CsiError>;

    /// NodeExpandVolume; returns the new size in bytes, 0 if the driver does not report it.
    async fn expand(
        &self,
        request: StageRequest,
        wanted: u64,
        at: PathBuf,
    ) -> Result<u64, CsiError>;

    /// NodeGetVolumeStats of a published (or staged) path.
    async fn usage(
        &self,
        handle: &str,
        path: &std::path::Path,
        staging_path: Option<&std::path::Path>,
    ) -> Result<VolumeUsage, CsiError>;
}

/// Response to NodeGetInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The driver's ID of this node.
    pub node_id: String,
    /// Attach limit; `None` for no limit.
    pub max_volumes: Option<i64>,
    /// Topology segments of this node.
    pub topology: BTreeMap<String, String>,
}

/// A capability of a driver's node service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeCapability {
    /// STAGE_UNSTAGE_VOLUME.
    Stage,
    /// GET_VOLUME_STATS.
    Usage,
    /// EXPAND_VOLUME.
    Expand,
    /// VOLUME_CONDITION.
    Condition,
    /// SINGLE_NODE_MULTI_WRITER.
    SingleNodeMultiWriter,
    /// VOLUME_MOUNT_GROUP: the driver applies fsGroup.
    MountGroup,
}

/// The fields of NodeStageVolume, most of them shared with NodePublishVolume.
#[derive(Clone, Default, PartialEq)]
pub struct StageRequest {
    /// `volume_id`.
    pub handle: String,
    /// `publish_context`, of the VolumeAttachment.
    pub publish_context: BTreeMap<String, String>,
    /// Staging path; `None` for a driver that does not stage.
    pub staging_path: Option<PathBuf>,
    /// Block access instead of a file system.
    pub block: bool,
    /// File system type; empty for the driver's default.
    pub fs_type: String,
    /// Options for `mount`.
    pub mount_flags: Vec<String>,
    /// fsGroup, for a driver with [`NodeCapability::MountGroup`].
    pub mount_group: Option<u32>,
    /// Access modes of the PersistentVolume; `ReadWriteOnce` for inline volumes.
    pub access_modes: Vec<String>,
    /// `secrets`.
    pub secrets: BTreeMap<String, Vec<u8>>,
    /// `volume_context`.
    pub context: BTreeMap<String, String>,
}

impl Debug for StageRequest {
    /// Omits secrets and the context, which may contain a service account token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StageRequest")
            .field("handle", &self.handle)
            .field("staging_path", &self.staging_path)
            .field("block", &self.block)
            .field("fs_type", &self.fs_type)
            .field("access_modes", &self.access_modes)
            .finish_non_exhaustive()
    }
}

/// The fields of NodePublishVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishRequest {
    /// The volume.
    pub volume: StageRequest,
    /// Target path in the directory of the pod.
    pub target_path: PathBuf,
    /// Publish read-only.
    pub read_only: bool,
}

/// Response to NodeGetVolumeStats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Bytes and inodes, as reported.
    pub entries: Vec<UsageEntry>,
    /// Message of an abnormal volume condition.
    pub abnormal: Option<String>,
}

/// Usage in one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// The unit.
    pub unit: UsageUnit,
    /// Available amount.
    pub available: u64,
    /// Capacity.
    pub total: u64,
    /// Used amount.
    pub used: u64,
}

/// Unit of a [`UsageEntry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageUnit {
    /// Bytes.
    Bytes,
    /// Inodes.
    Inodes,
}

/// A call to a driver failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CsiError {
    /// No driver of this name is registered.
    #[error("driver name {driver} not found in the list of registered CSI drivers")]
    NotRegistered {
        /// Name of the driver.
        driver: String,
    },
    /// The driver rejected the call without effect (upstream: a final error).
    #[error("rpc error: code = {code} desc = {message}")]
    Refused {
        /// Name of the gRPC status code, such as `InvalidArgument`.
        code: String,
        /// Message of the driver.
        message: String,
    },
    /// The call may have had an effect: no response, a lost connection, or the code Canceled,
    /// DeadlineExceeded, Unavailable, ResourceExhausted or Aborted (upstream: uncertain progress).
    #[error("rpc error: code = {code} desc = {message}")]
    Uncertain {
        /// Name of the gRPC status code.
        code: String,
        /// Message of the driver or the transport.
        message: String,
    },
    /// The request is invalid; no call was made.
    #[error("{message}")]
    Invalid {
        /// Reason.
        message: String,
    },
}

impl CsiError {
    /// Retry class of this error.
    pub fn retry(&self) -> Retry {
        match self {
            // the driver may be starting
            Self::NotRegistered { .. } | Self::Refused { .. } | Self::Uncertain { .. } => {
                Retry::Later
            }
            Self::Invalid { .. } => Retry::Never,
        }
    }
}

/// API server objects that mounting needs.
#[async_trait]
pub trait CsiObjects: Send + Sync + Debug + 'static {
    /// The CSIDriver object of a driver; `None` if there is none, which means the defaults.
    async fn driver(&self, name: &str) -> Result<Option<CsiDriverSpec>, ObjectError>;

    /// The VolumeAttachment of this name; `None` if there is none.
    async fn attachment(&self, name: &str) -> Result<Option<Attachment>, ObjectError>;

    /// The data of a Secret. Its values must not be logged.
    async fn secret(&self, secret: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError>;

    /// A token of the pod's service account.
    async fn token(&self, pod: &SharedPod, request: &TokenRequest)
    -> Result<PodToken, ObjectError>;
}

/// A token for a driver, omitted from `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct PodToken {
    /// The token.
    pub token: String,
    /// When it expires, RFC 3339.
    pub expires: String,
}

impl Debug for PodToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "token until {}", self.expires)
    }
}

/// `spec` of a CSIDriver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CsiDriverSpec {
    /// `attachRequired`: a controller attaches its volumes before they are staged.
    pub attach_required: bool,
    /// `podInfoOnMount`.
    pub pod_info_on_mount: bool,
    /// `fsGroupPolicy`.
    pub fs_group_policy: FsGroupPolicy,
    /// `volumeLifecycleModes`: may be in a PersistentVolume.
    pub persistent: bool,
    /// `volumeLifecycleModes`: may be inline.
    pub ephemeral: bool,
    /// `tokenRequests`.
    pub token_requests: Vec<TokenRequest>,
    /// `serviceAccountTokenInSecrets`: the tokens are among the secrets instead of the context.
    pub tokens_in_secrets: bool,
    /// `requiresRepublish`: each set-up publishes again.
    pub requires_republish: bool,
    /// `seLinuxMount`.
    pub se_linux_mount: bool,
    /// `nodeAllocatableUpdatePeriodSeconds`: period of the attach limit refresh.
    pub allocatable_update: Option<std::time::Duration>,
}

/// The defaults of the API, which also hold for a driver without an object.
impl Default for CsiDriverSpec {
    fn default() -> Self {
        Self {
            attach_required: true,
            pod_info_on_mount: false,
            fs_group_policy: FsGroupPolicy::ReadWriteOnceWithFsType,
            persistent: true,
            ephemeral: false,
            token_requests: Vec::new(),
            tokens_in_secrets: false,
            requires_republish: false,
            se_linux_mount: false,
            allocatable_update: None,
        }
    }
}

/// `fsGroupPolicy`: whether the node applies fsGroup to a driver's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsGroupPolicy {
    /// If the volume has a file system type and is ReadWriteOnce.
    ReadWriteOnceWithFsType,
    /// Always.
    File,
    /// Never.
    None,
}

/// A token that a driver requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRequest {
    /// `audience`; empty is the API server.
    pub audience: String,
    /// `expirationSeconds`.
    pub expiration_seconds: Option<i64>,
}

/// `status` of a VolumeAttachment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// `attached`.
    pub attached: bool,
    /// `attachmentMetadata`: the publish context.
    pub metadata: BTreeMap<String, String>,
    /// `attachError.message`.
    pub error: Option<String>,
    /// `attachError.errorCode` is `ResourceExhausted`: the node is at its attach limit.
    pub node_full: bool,
}

/// An object could not be read from the API server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ObjectError {
    /// Object and cause, without secrets.
    pub message: String,
    /// Retry class of this error.
    pub retry: Retry,
}
