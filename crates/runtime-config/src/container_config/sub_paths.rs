//! Volume subpaths of a container (`subPath`, `subPathExpr`) and their bind targets.
//!
//! A subpath is opened without following links out of the volume, then bound to a target that the
//! container mounts. Later changes of the path in the volume have no effect. Targets are
//! upstream's, so that a Go kubelet cleans them up.

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

/// Directory of the bind targets, below the pod directory.
pub const SUB_PATHS_DIR: &str = "volume-subpaths";

/// A subpath of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPath {
    /// Name of the volume, for errors.
    pub volume: String,
    /// Name of the container, for errors.
    pub container: String,
    /// Path of the volume.
    pub source: PathBuf,
    /// Normalized relative path without `..`; empty is the whole volume.
    pub path: String,
    /// Bind target: `volume-subpaths/<volume>/<container>/<index of the mount>`.
    pub target: PathBuf,
}

impl fmt::Display for SubPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, target) = (self.source.display(), self.target.display());
        write!(f, "{target}<-{source}//{}", self.path)
    }
}

/// Returns the subpaths to bind before the container is created, in the order of its mounts.
///
/// # Errors
/// A variable has no value, or a path leaves its volume.
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

/// Returns the bind target of a subpath of the volume at `source`.
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

/// Returns the expanded subpath of a mount; `None` is the whole volume.
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

/// Expands an expression. A variable without a value is an error: it would change the path.
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

/// Returns the name of the volume directory in `pods/<uid>/volumes/<plugin>/<name>`, which the
/// tear-down uses (upstream `InnerVolumeSpecName`). For a PersistentVolume it differs from the
/// volume name in the pod. `None` for a host path, whose subpaths are removed with the pod.
fn volume_dir_name<'a>(pod_dir: &Path, source: &'a Path) -> Option<&'a str> {
    let below = source.strip_prefix(pod_dir.join("volumes")).ok()?;
    below.components().nth(1)?.as_os_str().to_str()
}

fn is_set(field: &Option<String>) -> bool {
    field.as_deref().is_some_and(|text| !text.is_empty())
}
