//! Payloads of configMap, secret, downwardAPI and projected volumes.
//!
//! A payload is the whole content of a volume, computed from snapshots. `windlass-volumes` writes
//! it atomically.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::corev1::Volume;
use windlass_types::{Pod, PodExt};

use crate::env::EnvError;
use crate::node_facts::NodeFacts;

mod collect;
mod path;
mod pem;
mod quote;
mod snapshot;
mod trust;

pub use path::PathError;
pub use pem::clean_chain;
pub use snapshot::{ConfigMapContent, Credential, ObjectSnapshot, Referent, SecretContent, Token};
pub use trust::TrustBundle;

use collect::{Collector, ObjectSource};

/// Payloads of a pod's volumes, by volume name.
pub type VolumePayloads = BTreeMap<String, VolumePayload>;

/// The whole content of one volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumePayload {
    /// Files by path in the volume; no component is empty, `.` or `..`.
    pub files: BTreeMap<String, PayloadFile>,
    /// The content must be on a tmpfs.
    pub in_memory: bool,
}

/// One file of a payload; `Debug` omits the content, which may be secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    /// Content, shared with other pods.
    pub data: Arc<[u8]>,
    /// Permission bits.
    pub mode: u32,
    /// Owner, if set (upstream `fsUser`).
    pub owner: Option<u32>,
}

impl fmt::Debug for PayloadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes mode {:o}", self.data.len(), self.mode)
    }
}

/// Input of [`project_volumes`].
#[derive(Clone, Copy, Debug)]
pub struct ProjectionInput<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node, for default resources.
    pub node: &'a NodeFacts,
    /// Objects that the pod refers to.
    pub objects: &'a ObjectSnapshot,
}

/// Payloads and errors of the volumes of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Projection {
    /// Available payloads.
    pub payloads: VolumePayloads,
    /// Errors of unavailable payloads, by volume name; such a volume keeps its content.
    pub errors: BTreeMap<String, ProjectionErrors>,
}

/// Errors of one volume; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectionErrors(pub Vec<ProjectionError>);

/// Why a payload is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProjectionError {
    /// A ConfigMap or Secret does not exist.
    #[error("{kind} \"{name}\" not found")]
    MissingObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Name.
        name: String,
    },
    /// A ConfigMap or Secret has no such key.
    #[error("{subject} key: {key}")]
    MissingKey {
        /// Text of upstream for this kind of object.
        subject: &'static str,
        /// The key.
        key: String,
    },
    /// An object could not be read: the API server is unreachable, or rejects the request.
    #[error("failed to read {object}: {why}")]
    Unread {
        /// The object.
        object: Referent,
        /// Cause.
        why: String,
    },
    /// Unsupported field or resource of the pod.
    #[error("{0}")]
    Field(EnvError),
    /// Invalid path.
    #[error("{0}")]
    Path(PathError),
    /// A path is a file of one source and a directory of another.
    #[error("invalid path {0:?}: it is a file and a directory")]
    Conflict(String),
    /// The token is unavailable.
    #[error("failed to fetch token: {0}")]
    Token(String),
    /// The trust bundle is unavailable.
    #[error("{0}")]
    TrustBundle(String),
    /// The pod certificate is unavailable.
    #[error("{0}")]
    Certificate(String),
}

impl fmt::Display for ProjectionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&errors.join(", "))
    }
}

/// Returns the payloads of all configMap, secret, downwardAPI and projected volumes of a pod.
pub fn project_volumes(input: ProjectionInput<'_>) -> Projection {
    let mut projection = Projection::default();
    for volume in PodExt::spec(input.pod).volumes.iter().flatten() {
        let name = || volume.name.clone();
        match project(input, volume) {
            None => {}
            Some(Ok(payload)) => {
                projection.payloads.insert(name(), payload);
            }
            Some(Err(errors)) => {
                projection.errors.insert(name(), ProjectionErrors(errors));
            }
        }
    }
    projection
}

/// Returns `None` for a volume of another kind.
fn project(
    input: ProjectionInput<'_>,
    volume: &Volume,
) -> Option<Result<VolumePayload, Vec<ProjectionError>>> {
    let mut in_memory = true;
    let collector = if let Some(source) = &volume.config_map {
        in_memory = false;
        let mut collector = Collector::new(input, source.default_mode);
        collector.config_map(ObjectSource {
            name: &source.name,
            items: source.items.as_deref(),
            optional: source.optional,
        });
        collector
    } else if let Some(source) = &volume.secret {
        let mut collector = Collector::new(input, source.default_mode);
        collector.secret(ObjectSource {
            name: source.secret_name.as_deref().unwrap_or_default(),
            items: source.items.as_deref(),
            optional: source.optional,
        });
        collector
    } else if let Some(source) = &volume.downward_api {
        let mut collector = Collector::new(input, source.default_mode);
        collector.downward_api(source.items.as_deref());
        collector
    } else if let Some(source) = &volume.projected {
        let mut collector = Collector::new(input, source.default_mode);
        collector.projected(&volume.name, source);
        collector
    } else {
        return None;
    };
    let Collector {
        files, mut errors, ..
    } = collector;
    errors.extend(conflicts(&files));
    Some(if errors.is_empty() {
        Ok(VolumePayload { files, in_memory })
    } else {
        Err(errors)
    })
}

/// Returns files whose path is also a directory.
fn conflicts(files: &BTreeMap<String, PayloadFile>) -> impl Iterator<Item = ProjectionError> {
    files.keys().filter_map(|path| {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let file = parents
            .into_iter()
            .find(|parent| files.contains_key(*parent))?;
        Some(ProjectionError::Conflict(file.to_owned()))
    })
}

#[cfg(test)]
mod tests;
