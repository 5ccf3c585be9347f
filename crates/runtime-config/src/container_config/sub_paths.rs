//! Which parts of its volumes a container is given (`subPath`, `subPathExpr`), and where they are
//! bound.
//!
//! A part is opened without following a link out of its volume and bound to a place of its own,
//! which is what the container gets: whatever becomes of the path in the volume afterwards, the
//! container sees what was opened. The place is upstream's, because a Go kubelet that takes the
//! node over cleans it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use windlass_types::corev1::VolumeMount;
use windlass_types::{MountedContent, PodExt};

use super::ContainerInput;
use crate::config_error::ConfigError;
use windlass_pod_inputs::env::{environment, expand};
use windlass_volume_plan::volume_source::PodVolume;

/// Directory below a pod's in which parts of its volumes are bound.
pub const SUB_PATHS_DIR: &str = "volume-subpaths";

/// A part of a volume that one container is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Name of the volume in the pod, for the error's text.
    pub volume: String,
    /// Name of the container, for the error's text.
    pub container: String,
    /// Where the volume lies.
    pub source: PathBuf,
    /// The part: names with single slashes between them, no `..`; empty for all of it.
    pub path: String,
    /// Where it is bound: `volume-subpaths/<volume>/<container>/<index of the mount>`.
    pub target: PathBuf,
}

impl fmt::Display for SubPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, target) = (self.source.display(), self.target.display());
        write!(f, "{target}<-{source}//{}", self.path)
    }
}

/// What has to be bound before the container can be created, in the order of its mounts.
///
/// # Errors
/// A variable has no value, or a path would leave its volume.
pub fn sub_paths(input: ContainerInput<'_>) -> Result<Vec<SubPath>, ConfigError> {
    let mounts = input.container.volume_mounts.as_deref().unwrap_or_default();
    let envs = match mounts.iter().any(|m| is_set(&m.sub_path_expr)) {
        true => environment(input.env())?,
        false => Vec::new(),
    };
    let mut parts = Vec::new();
    for (index, mount) in mounts.iter().enumerate() {
        let path = sub_path_of(mount, &envs)?;
        let Some(volume) = input.volumes.get(&mount.name) else {
            continue;
        };
        if let (Some(path), MountedContent::Path(source)) = (path, &volume.content) {
            parts.push(SubPath {
                volume: mount.name.clone(),
                container: input.container.name.clone(),
                target: target(input, mount, source, index),
                path: clean(&path),
                source: source.clone(),
            });
        }
    }
    Ok(parts)
}

/// Where a part of the volume at `source` is bound.
pub(super) fn target(
    input: ContainerInput<'_>,
    mount: &VolumeMount,
    source: &Path,
    index: usize,
) -> PathBuf {
    let pod_dir = input.node.paths.pod_dir(&input.pod.uid());
    let dir = pod_dir.join(SUB_PATHS_DIR);
    let mut volumes = input.pod_volumes.iter();
    let volume = volumes.find(|volume| volume.name == mount.name);
    let told = volume.map_or(mount.name.as_str(), PodVolume::display_name);
    dir.join(volume_dir_name(&pod_dir, source).unwrap_or(told))
        .join(&input.container.name)
        .join(index.to_string())
}

/// The part that a mount asks for, as its author and the variables spell it; `None` for all of
/// its volume.
pub(super) fn sub_path_of(
    mount: &VolumeMount,
    envs: &[(String, String)],
) -> Result<Option<String>, ConfigError> {
    let path = match &mount.sub_path_expr {
        Some(expression) if !expression.is_empty() => expanded(expression, envs)?,
        _ => mount.sub_path.clone().unwrap_or_default(),
    };
    if path.starts_with('/') {
        return Err(ConfigError::AbsoluteSubPath(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(ConfigError::SubPathBacksteps(path));
    }
    Ok(Some(path).filter(|path| !path.is_empty()))
}

/// A name without a value would make another path of the expression than its author meant.
fn expanded(expression: &str, envs: &[(String, String)]) -> Result<String, ConfigError> {
    let missing = RefCell::new(BTreeSet::new());
    let path = expand(expression, |name| {
        let found = envs.iter().find(|(known, _)| known == name);
        let value = found.map_or("", |(_, value)| value.as_str());
        if value.is_empty() {
            missing.borrow_mut().insert(name.to_owned());
        }
        Some(value)
    });
    let missing = missing.into_inner();
    match missing.is_empty() {
        true => Ok(path),
        false => {
            let names: Vec<String> = missing.into_iter().collect();
            Err(ConfigError::MissingValues(names.join(", ")))
        }
    }
}

fn clean(path: &str) -> String {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.collect::<Vec<_>>().join("/")
}

/// The directory of a volume below its kind's: `pods/<uid>/volumes/<kind>/<this>/…`. It is not
/// the volume's name in the pod where a PersistentVolume stands behind that, and teardown knows
/// only the directory. `None` for what lies elsewhere: a path of the node, which has the name of
/// its PersistentVolume too (upstream `InnerVolumeSpecName`), and is removed with the pod.
fn volume_dir_name<'a>(pod_dir: &Path, source: &'a Path) -> Option<&'a str> {
    let below = source.strip_prefix(pod_dir.join("volumes")).ok()?;
    below.components().nth(1)?.as_os_str().to_str()
}

fn is_set(field: &Option<String>) -> bool {
    field.as_deref().is_some_and(|text| !text.is_empty())
}
