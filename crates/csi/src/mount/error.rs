//! Why a volume of a CSI driver could not be mounted, grown, measured or taken back.
//!
//! The words are upstream's: they stand in the events and blockers of pods.

use std::io;
use std::path::{Path, PathBuf};

use windlass_pod_inputs::paths::UnsafeName;
use windlass_types::{DeviceName, ExpansionError, Retry};

use crate::port::{CsiError, ObjectError};

/// Codes by which a driver says that a volume can never be grown to that size (upstream
/// `isInfeasibleError`).
const INFEASIBLE: [&str; 3] = ["InvalidArgument", "OutOfRange", "NotFound"];
/// Code by which a driver says that it does not grow a volume that is in use.
const IN_USE: &str = "FailedPrecondition";

/// A volume of a CSI driver is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The volume's definition makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// A name in it would lead elsewhere.
    #[error(transparent)]
    Name(#[from] UnsafeName),
    /// The driver is not there, or could not be asked what it is able to do.
    #[error("kubernetes.io/csi: {step}: {source}")]
    Driver {
        /// Upstream's name of the step, `mounter.SetUpAt failed to get CSI client`.
        step: &'static str,
        /// Why not.
        #[source]
        source: CsiError,
    },
    /// The driver was asked to mount, and did not.
    #[error(transparent)]
    Mount(CsiError),
    /// The driver was asked to grow a volume, and did not.
    #[error("Expander.NodeExpand failed to expand the volume : {0}")]
    Expand(#[source] CsiError),
    /// The driver says that the volume can never be grown to that size.
    #[error("Expander.NodeExpand failed to expand the volume {0}")]
    Infeasible(#[source] CsiError),
    /// The driver does not grow volumes on nodes.
    #[error("NodeExpand is not supported by the CSI driver {0}")]
    NoExpansion(String),
    /// Something that mounting needs of the API server could not be had.
    #[error("kubernetes.io/csi: {step}: {source}")]
    Object {
        /// Upstream's name of the step.
        step: &'static str,
        /// Why not.
        #[source]
        source: ObjectError,
    },
    /// A Secret could not be had.
    #[error("fetching {field} {secret} failed: {source}")]
    Secret {
        /// `NodeStageSecretRef` and the like.
        field: &'static str,
        /// Namespace and name.
        secret: String,
        /// Why not.
        #[source]
        source: ObjectError,
    },
    /// The controller has not attached the volume.
    #[error("{0}")]
    NotAttached(String),
    /// The CSIDriver object says that the driver has no such volumes.
    #[error(
        "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \
         {mode:?} not supported by driver {driver} ({why})"
    )]
    LifecycleMode {
        /// `Persistent` or `Ephemeral`.
        mode: &'static str,
        /// The driver.
        driver: String,
        /// What is said of it.
        why: String,
    },
    /// The files of a mounted volume could not be given to the pod's group.
    #[error("applyFSGroup failed for vol {handle}: {message}")]
    Ownership {
        /// Which volume.
        handle: String,
        /// Why not.
        message: String,
    },
    /// Nothing tells who mounted what is mounted.
    #[error(
        "kubernetes.io/csi: unmounter failed to load volume data file [{}]: {message}; {} is \
         mounted and left alone", path.display(), mounted.display()
    )]
    Notes {
        /// The notes.
        path: PathBuf,
        /// What is wrong with them.
        message: String,
        /// What is mounted.
        mounted: PathBuf,
    },
    /// The driver says that a volume is gone, but it is there.
    #[error(
        "kubernetes.io/csi: {step}: the driver did not unmount {}", path.display()
    )]
    StillMounted {
        /// Upstream's name of the step.
        step: &'static str,
        /// What is mounted.
        path: PathBuf,
    },
    /// A device is published to a pod and may not be taken back.
    #[error("device {device} is published to the pod at {}", path.display())]
    InUse {
        /// Which.
        device: DeviceName,
        /// Directory of the volume of one of the pods.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("kubernetes.io/csi: failed to {action} [{}]: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file system does not answer.
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

    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Invalid(_) | Self::Name(_) | Self::Infeasible(_) => Retry::Never,
            Self::Driver { source, .. } | Self::Mount(source) | Self::Expand(source) => {
                source.retry()
            }
            Self::Object { source, .. } | Self::Secret { source, .. } => source.retry,
            // the CSIDriver object may change, as everything else
            Self::NoExpansion(_)
            | Self::NotAttached(_)
            | Self::LifecycleMode { .. }
            | Self::Ownership { .. }
            | Self::Notes { .. }
            | Self::StillMounted { .. }
            | Self::InUse { .. }
            | Self::Io { .. }
            | Self::Files(_) => Retry::Later,
        }
    }

    /// A driver's answer to being asked to grow a volume.
    pub(crate) fn of_growth(error: CsiError) -> Self {
        match &error {
            CsiError::Refused { code, .. } if INFEASIBLE.contains(&code.as_str()) => {
                Self::Infeasible(error)
            }
            _ => Self::Expand(error),
        }
    }

    /// Which failure this is if a volume was to be grown.
    pub fn growth_fault(&self) -> ExpansionError {
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

    /// Nothing of the volume is left by what failed. Otherwise it may be mounted and has to be
    /// taken back some day (upstream: an error that is neither final nor transient).
    pub fn is_final(&self) -> bool {
        match self {
            Self::Mount(error) => !matches!(error, CsiError::Uncertain { .. }),
            Self::Ownership { .. } | Self::StillMounted { .. } | Self::Files(_) => false,
            _ => true,
        }
    }
}
