//! Error of a sandbox or container configuration.

use windlass_types::{Reason, Retry};

use crate::hosts::HostnameError;
use windlass_pod_inputs::env::EnvError;
use windlass_pod_inputs::paths::UnsafeNameError;
use windlass_pod_inputs::resources::ResourceError;

/// Error of a pod that has no valid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A name is not a single path component.
    #[error(transparent)]
    UnsafeNameError(#[from] UnsafeNameError),
    /// The host name is not valid.
    #[error(transparent)]
    Hostname(#[from] HostnameError),
    /// An invalid quantity.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// An environment variable has no value.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A mount refers to a volume that is not set up.
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    MissingVolume {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// A block volume does not exist, or is not a device.
    #[error("cannot find volume {volume:?} to pass into container {container:?}")]
    MissingDevice {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// `devicePath` is relative.
    #[error("error DevicePath `{0}` must be an absolute path")]
    DevicePath(String),
    /// Variables of `subPathExpr` without a value.
    #[error("missing value for {0}")]
    MissingValues(String),
    /// `subPath` is an absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// `subPath` contains `..`.
    #[error("unable to provision SubPath `{0}`: must not contain '..'")]
    SubPathBacksteps(String),
    /// A directory for `subPath` cannot be created. The cause is only logged: it names files of the
    /// node.
    #[error(
        "failed to create subPath directory for volumeMount {volume:?} of container {container:?}"
    )]
    SubPathNotMade {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// The target of `subPath` cannot be bound. The cause is only logged, as above.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPathNotPrepared {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// A mount cannot be recursively read-only.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
    /// Mount propagation requires shared mounts, and the root directory is not on one.
    #[error(
        "volume {volume:?}: mount propagation needs shared mounts, and {root_dir} is not on one"
    )]
    RootNotShared {
        /// The volume.
        volume: String,
        /// `--root-dir`.
        root_dir: String,
    },
    /// The runtime does not mount images.
    #[error("volume {volume:?}: {message}")]
    ImageVolume {
        /// The volume.
        volume: String,
        /// What the volume requires, and what the runtime has.
        message: String,
    },
    /// A field has an invalid value.
    #[error("{field}: {value:?} is not valid{hint}")]
    Invalid {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// Valid values with a leading separator; may be empty.
        hint: &'static str,
    },
    /// A field is not supported, and ignoring it would be unsafe.
    #[error("{field} of container {container:?} is not supported by this version of Windlass")]
    Unsupported {
        /// The field.
        field: &'static str,
        /// The container.
        container: String,
    },
    /// A pod with `hostUsers: false` has no IDs: it must not run with those of the host.
    #[error("the pod has no user namespace")]
    NoUserNamespace,
    /// A RuntimeClass requires an API server.
    #[error(
        "runtimeClassName: RuntimeClass {0:?} is an object of the API server, which this agent is \
         not connected to"
    )]
    UnresolvedRuntimeClass(String),
    /// `runAsNonRoot` forbids the user of the container.
    #[error("{violation} (pod: {pod:?}, container: {container})")]
    RunAsNonRoot {
        /// Upstream's text.
        violation: String,
        /// `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
}

impl ConfigError {
    /// Returns the waiting reason of the container.
    pub fn reason(&self) -> Reason {
        Reason::CreateContainerConfigError
    }

    /// Returns the retry class: `Never`, unless a volume, an object or an image may change. A
    /// changed object requeues the pod immediately; the retry is a fallback.
    pub fn retry(&self) -> Retry {
        match self {
            Self::MissingVolume { .. }
            | Self::MissingDevice { .. }
            | Self::MissingValues(_)
            | Self::SubPathBacksteps(_)
            | Self::AbsoluteSubPath(_)
            | Self::SubPathNotMade { .. }
            | Self::SubPathNotPrepared { .. }
            | Self::RecursiveReadOnly(_)
            | Self::RootNotShared { .. }
            | Self::ImageVolume { .. }
            | Self::RunAsNonRoot { .. }
            | Self::Env(
                EnvError::MissingObject { .. }
                | EnvError::MissingKey { .. }
                | EnvError::NoVolumeOfFile(_)
                | EnvError::File { .. }
                | EnvError::MissingFileKey { .. }
                | EnvError::TooLarge { .. },
            ) => Retry::Later,
            _ => Retry::Never,
        }
    }
}
