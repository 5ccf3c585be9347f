//! Why a sandbox' or container's configuration cannot be made.

use windlass_types::{Reason, Retry};

use crate::hosts::HostnameError;
use windlass_pod_inputs::env::EnvError;
use windlass_pod_inputs::paths::UnsafeNameError;
use windlass_pod_inputs::resources::ResourceError;

/// A pod that cannot be turned into a request to the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A name would leave its directory.
    #[error(transparent)]
    UnsafeNameError(#[from] UnsafeNameError),
    /// The host name is not valid.
    #[error(transparent)]
    Hostname(#[from] HostnameError),
    /// An amount cannot be read.
    #[error(transparent)]
    Resource(#[from] ResourceError),
    /// An environment variable has no value.
    #[error(transparent)]
    Env(#[from] EnvError),
    /// A mount names a volume that is not set up.
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
    /// Variables that `subPathExpr` refers to have no value; their names.
    #[error("missing value for {0}")]
    MissingValues(String),
    /// `subPath` is an absolute path.
    #[error("error SubPath `{0}` must not be an absolute path")]
    AbsoluteSubPath(String),
    /// `subPath` leads up.
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
    /// What `subPath` leads to cannot be bound. Why is for the log, as above.
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}")]
    SubPathNotPrepared {
        /// The volume.
        volume: String,
        /// The container.
        container: String,
    },
    /// A mount cannot be read-only with everything below it.
    #[error("failed to resolve recursive read-only mode: {0}")]
    RecursiveReadOnly(String),
    /// A mount is to share later mounts, and the agent's directory cannot.
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
    /// A field has a value that means nothing.
    #[error("{field}: {value:?} is not valid{hint}")]
    Invalid {
        /// Which field.
        field: String,
        /// Its value.
        value: String,
        /// What would be; starts with a separator, may be empty.
        hint: &'static str,
    },
    /// A field asks for what this version cannot do, and leaving it out would be unsafe.
    #[error("{field} of container {container:?} is not supported by this version of Windlass")]
    Unsupported {
        /// Which field.
        field: &'static str,
        /// The container.
        container: String,
    },
    /// A pod with `hostUsers: false` was given no IDs: it must not run with the node's.
    #[error("the pod has no user namespace")]
    NoUserNamespace,
    /// RuntimeClasses are objects of an API server.
    #[error(
        "runtimeClassName: RuntimeClass {0:?} is an object of the API server, which this agent is \
         not connected to"
    )]
    UnresolvedRuntimeClass(String),
    /// `runAsNonRoot` forbids the user the container would run as.
    #[error("{violation} (pod: {pod:?}, container: {container})")]
    RunAsNonRoot {
        /// Upstream's sentence.
        violation: String,
        /// `name_namespace(uid)`.
        pod: String,
        /// The container.
        container: String,
    },
}

impl ConfigError {
    /// The container's waiting reason.
    pub fn reason(&self) -> Reason {
        Reason::CreateContainerConfigError
    }

    /// Only a change of the pod helps, except where a volume, an object or an image may change.
    /// That an object changed makes the pod's worker look at once; the retry is the net below.
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
