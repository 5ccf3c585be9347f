//! Why a sandbox' or container's configuration cannot be made.

use windlass_types::{Reason, Retry};

use crate::env::EnvError;
use crate::hosts::HostnameError;
use crate::paths::UnsafeName;
use crate::resources::ResourceError;

/// A pod that cannot be turned into a request to the runtime.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A name would leave its directory.
    #[error(transparent)]
    UnsafeName(#[from] UnsafeName),
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
