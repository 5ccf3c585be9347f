//! What a driver's node service can be asked, in our types, and what is asked of the API server on
//! its behalf.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::path::PathBuf;

use async_trait::async_trait;
use windlass_volume_plan::volume_source::SecretRef;
use windlass_types::{Retry, SharedPod};

/// The node service of one registered driver. Every call ends with an error at its deadline rather
/// than never, and may be repeated: CSI asks that of drivers.
#[async_trait]
pub trait CsiNode: Send + Sync + Debug + 'static {
    /// NodeGetInfo.
    async fn info(&self) -> Result<NodeInfo, CsiError>;

    /// NodeGetCapabilities; what is not known here is left out.
    async fn abilities(&self) -> Result<BTreeSet<NodeAbility>, CsiError>;

    /// NodeStageVolume.
    async fn stage(&self, request: StageRequest) -> Result<(), CsiError>;

    /// NodeUnstageVolume.
    async fn unstage(&self, handle: &str, staging_path: &std::path::Path) -> Result<(), CsiError>;

    /// NodePublishVolume.
    async fn publish(&self, request: PublishRequest) -> Result<(), CsiError>;

    /// NodeUnpublishVolume.
    async fn unpublish(&self, handle: &str, target_path: &std::path::Path) -> Result<(), CsiError>;

    /// NodeExpandVolume: the size in bytes that the volume has now, 0 if the driver does not say.
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

/// Answer to NodeGetInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInfo {
    /// The driver's own name of this node.
    pub node_id: String,
    /// Volumes that fit, `None` for no limit.
    pub max_volumes: Option<i64>,
    /// Topology segments of this node.
    pub topology: BTreeMap<String, String>,
}

/// What a driver's node service can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NodeAbility {
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

/// A volume for NodeStageVolume, and what is common with NodePublishVolume.
#[derive(Clone, Default, PartialEq)]
pub struct StageRequest {
    /// `volume_id`.
    pub handle: String,
    /// `publish_context`, of the VolumeAttachment.
    pub publish_context: BTreeMap<String, String>,
    /// Where it is staged; `None` for a driver that does not stage.
    pub staging_path: Option<PathBuf>,
    /// Block access instead of a file system.
    pub block: bool,
    /// File system; empty for the driver's choice.
    pub fs_type: String,
    /// Options for `mount`.
    pub mount_flags: Vec<String>,
    /// fsGroup, for a driver with [`NodeAbility::MountGroup`].
    pub mount_group: Option<u32>,
    /// Access modes of the PersistentVolume in Kubernetes' words; `ReadWriteOnce` for inline volumes.
    pub access_modes: Vec<String>,
    /// `secrets`.
    pub secrets: BTreeMap<String, Vec<u8>>,
    /// `volume_context`.
    pub context: BTreeMap<String, String>,
}

impl Debug for StageRequest {
    /// Without secrets, and without the context: a token of the pod's account may be in it.
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

/// A volume for NodePublishVolume.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PublishRequest {
    /// The volume.
    pub volume: StageRequest,
    /// Where the pod is to see it.
    pub target_path: PathBuf,
    /// Nobody may write.
    pub read_only: bool,
}

/// Answer to NodeGetVolumeStats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeUsage {
    /// Bytes and inodes, as far as the driver tells.
    pub entries: Vec<UsageEntry>,
    /// The driver says that something is wrong with the volume: what.
    pub abnormal: Option<String>,
}

/// One measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageEntry {
    /// Of what.
    pub unit: UsageUnit,
    /// Free for use.
    pub available: u64,
    /// All there is.
    pub total: u64,
    /// In use.
    pub used: u64,
}

/// What is measured.
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
    /// Nobody of this name is registered.
    #[error("driver name {driver} not found in the list of registered CSI drivers")]
    NotRegistered {
        /// Name of the driver.
        driver: String,
    },
    /// The driver refused, and nothing happened: trying something else is safe.
    #[error("rpc error: code = {code} desc = {message}")]
    Refused {
        /// gRPC status code in its name, `InvalidArgument`.
        code: String,
        /// The driver's words.
        message: String,
    },
    /// Nobody knows whether it happened: no answer, a lost connection, or an answer that says so
    /// (Canceled, DeadlineExceeded, Unavailable, ResourceExhausted, Aborted: upstream's
    /// "uncertain progress").
    #[error("rpc error: code = {code} desc = {message}")]
    Uncertain {
        /// gRPC status code in its name.
        code: String,
        /// What is known.
        message: String,
    },
    /// The driver has nothing to do with this volume (NotFound of unpublish and unstage is no error).
    #[error("{message}")]
    Invalid {
        /// Why.
        message: String,
    },
}

impl CsiError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            // its pod may be on its way up
            Self::NotRegistered { .. } | Self::Refused { .. } | Self::Uncertain { .. } => {
                Retry::Later
            }
            Self::Invalid { .. } => Retry::Never,
        }
    }
}

/// What the API server knows that mounting needs.
#[async_trait]
pub trait CsiObjects: Send + Sync + Debug + 'static {
    /// The CSIDriver object of a driver; `None` if there is none, which means the defaults.
    async fn driver(&self, name: &str) -> Result<Option<CsiDriverSpec>, ObjectError>;

    /// The VolumeAttachment of this name; `None` if there is none.
    async fn attachment(&self, name: &str) -> Result<Option<Attachment>, ObjectError>;

    /// The data of a Secret. Its values go into no log.
    async fn secret(&self, secret: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError>;

    /// A token of the pod's service account.
    async fn token(&self, pod: &SharedPod, request: &TokenRequest)
    -> Result<PodToken, ObjectError>;
}

/// A token for a driver. Shown nowhere.
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
    /// `requiresRepublish`: published again and again, for what changes.
    pub requires_republish: bool,
    /// `seLinuxMount`.
    pub se_linux_mount: bool,
    /// `nodeAllocatableUpdatePeriodSeconds`: how often it is asked how many volumes fit.
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

/// Who applies fsGroup to a driver's volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsGroupPolicy {
    /// The node, if the volume has a file system type and is ReadWriteOnce.
    ReadWriteOnceWithFsType,
    /// The node, always.
    File,
    /// Nobody.
    None,
}

/// A token that a driver asks for.
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
    /// `attachError.errorCode` is that of `ResourceExhausted`: the node has no room for the volume.
    pub node_full: bool,
}

/// Something of the API server could not be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ObjectError {
    /// What, and why not. Without secrets.
    pub message: String,
    /// What trying again would bring.
    pub retry: Retry,
}
