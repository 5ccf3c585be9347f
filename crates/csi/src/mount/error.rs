//! Errors of mounting, expanding, measuring and unmounting CSI volumes.
//!
//! The texts are upstream's: they appear in events and blockers of pods.

use std::io;
use std::path::{Path, PathBuf};

use windlass_pod_inputs::paths::UnsafeNameError;
use windlass_types::{DeviceName, ExpansionError, Retry};

use crate::port::{CsiError, ObjectError};

/// Codes for a size that the driver can never reach (upstream
/// `isInfeasibleError`).
const INFEASIBLE: [&str; 3] = ["InvalidArgument", "OutOfRange", "NotFound"];
/// Code of a driver that does not expand volumes in use.
const IN_USE: &str = "FailedPrecondition";

/// A failed operation on a CSI volume.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The volume definition is invalid.
    #[error("{0}")]
    Invalid(String),
    /// A name would escape its directory.
    #[error(transparent)]
    Name(#[from] UnsafeNameError),
    /// The driver is not registered, or a call to it failed.
    #[error("kubernetes.io/csi: {step}: {source}")]
    Driver {
        /// Upstream's name of the step, `mounter.SetUpAt failed to get CSI client`.
        step: &'static str,
        /// Cause.
        #[source]
        source: CsiError,
    },
    /// Staging or publishing failed.
    #[error(transparent)]
    Mount(CsiError),
    /// Expansion failed.
    #[error("Expander.NodeExpand failed to expand the volume : {0}")]
    Expand(#[source] CsiError),
    /// The driver can never expand the volume to that size.
    #[error("Expander.NodeExpand failed to expand the volume {0}")]
    Infeasible(#[source] CsiError),
    /// The driver lacks the EXPAND_VOLUME capability.
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    NoExpansion(String),
    /// An API server object could not be read.
    #[error("kubernetes.io/csi: {step}: {source}")]
    Object {
        /// Upstream's name of the step.
        step: &'static str,
        /// Cause.
        #[source]
        source: ObjectError,
    },
    /// A Secret could not be read.
    #[error("fetching {field} {secret} failed: {source}")]
    Secret {
        /// `NodeStageSecretRef` and the like.
        field: &'static str,
        /// Namespace and name.
        secret: String,
        /// Cause.
        #[source]
        source: ObjectError,
    },
    /// The controller has not attached the volume.
    #[error("{0}")]
    NotAttached(String),
    /// The CSIDriver object does not allow this volume mode.
    #[error(
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \
         {mode:?} not supported by driver {driver} ({why})"
    )]
    LifecycleMode {
        /// `Persistent` or `Ephemeral`.
        mode: &'static str,
        /// The driver.
        driver: String,
        /// Modes that the driver supports.
        why: String,
    },
    /// The ownership change of a mounted volume failed.
    #[error("applyFSGroup failed for vol {handle}: {message}")]
    Ownership {
        /// Volume handle.
        handle: String,
        /// Cause.
        message: String,
    },
    /// A volume is mounted, but its volume data is invalid.
    #[error(
        "kubernetes.io/csi: unmounter failed to load volume data file [{}]: {message}; {} is \
         mounted and left alone", path.display(), mounted.display()
    )]
    VolumeData {
        /// The volume data file.
        path: PathBuf,
        /// Why it is invalid.
        message: String,
        /// The mount.
        mounted: PathBuf,
    },
    /// The driver reported success, but the volume is still mounted.
    #[error(
        "kubernetes.io/csi: {step}: the driver did not unmount {}", path.display()
    )]
    StillMounted {
        /// Upstream's name of the step.
        step: &'static str,
        /// The mount.
        path: PathBuf,
    },
    /// A device is published to a pod and must not be unstaged.
    #[error("device {device} is published to the pod at {}", path.display())]
    InUse {
        /// The device.
        device: DeviceName,
        /// Volume directory of one of the pods.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("kubernetes.io/csi: failed to {action} [{}]: {source}", path.display())]
    Io {
        /// The operation.
        action: &'static str,
        /// Its path.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// File work timed out or did not start.
    #[error("{0}")]
    Files(String),
}

impl MountError {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path: path.clone(),
            source,
        }
    }

    pub(crate) fn driver(step: &'static str) -> impl Fn(CsiError) -> Self {
        move |source| Self::Driver { step, source }
    }

    pub(crate) fn object(step: &'static str) -> impl Fn(ObjectError) -> Self {
        move |source| Self::Object { step, source }
    }

    /// Retry class of this error.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Invalid(_) | Self::Name(_) | Self::Infeasible(_) => Retry::Never,
            Self::Driver { source, .. } | Self::Mount(source) | Self::Expand(source) => {
                source.retry()
            }
            Self::Object { source, .. } | Self::Secret { source, .. } => source.retry,
            // includes NoExpansion: the capabilities of a driver may change
            Self::NoExpansion(_)
            | Self::NotAttached(_)
            | Self::LifecycleMode { .. }
            | Self::Ownership { .. }
            | Self::VolumeData { .. }
            | Self::StillMounted { .. }
            | Self::InUse { .. }
            | Self::Io { .. }
            | Self::Files(_) => Retry::Later,
        }
    }

    /// Classifies an error of NodeExpandVolume.
    pub(crate) fn from_expansion(error: CsiError) -> Self {
        match &error {
            CsiError::Refused { code, .. } if INFEASIBLE.contains(&code.as_str()) => {
                Self::Infeasible(error)
            }
            _ => Self::Expand(error),
        }
    }

    /// Class of this error for volume expansion.
    pub fn expansion_error(&self) -> ExpansionError {
        match self {
            Self::Driver {
                source: CsiError::NotRegistered { .. },
                ..
            } => ExpansionError::Away,
            Self::NoExpansion(_) => ExpansionError::Unsupported,
            Self::Infeasible(_) => ExpansionError::Infeasible,
            Self::Expand(CsiError::Refused { code, .. }) if code == IN_USE => ExpansionError::InUse,
            Self::Expand(CsiError::Uncertain { .. }) | Self::Files(_) => ExpansionError::Uncertain,
            _ => ExpansionError::Failed,
        }
    }

    /// Whether the failed call left nothing behind. Otherwise the volume may be mounted and needs
    /// tear-down (upstream: an error that is neither final nor transient).
    pub fn is_final(&self) -> bool {
        match self {
            Self::Mount(error) => !matches!(error, CsiError::Uncertain { .. }),
            Self::Ownership { .. } | Self::StillMounted { .. } | Self::Files(_) => false,
            _ => true,
        }
    }
}
