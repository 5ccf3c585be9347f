//! Image volumes: those of a container, and whether the container runtime supports them.
//!
//! CRI does not report the support: an old runtime mounts an empty path, or the whole image instead
//! of a subpath. Known runtimes are rejected by version.

use std::collections::BTreeMap;

use windlass_types::corev1::Container;
use windlass_types::cri::{MountedImage, RuntimeVersion};
use windlass_types::{MountedContent, MountedVolumes};

use crate::config_error::ConfigError;
use windlass_manifests::image_name::PullPolicy;

/// Images of a container's volumes as resolved by the runtime, by volume name.
pub type MountedImages = BTreeMap<String, MountedImage>;

/// Runtimes with support: name, first version with images, first version with subpaths.
const SINCE: [History; 2] = [("containerd", [2, 1], [2, 2]), ("cri-o", [1, 31], [1, 33])];

/// An image that a container mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedImageVolume<'a> {
    /// Name of the volume.
    pub volume: &'a str,
    /// Image reference of the pod spec.
    pub reference: &'a str,
    /// Pull policy.
    pub policy: PullPolicy,
    /// The mount has a subpath.
    pub in_part: bool,
}

/// Returns the image mounts of a container.
pub fn wanted_images<'a>(
    container: &'a Container,
    volumes: &'a MountedVolumes,
) -> Vec<WantedImageVolume<'a>> {
    let mounts = container.volume_mounts.iter().flatten();
    let wanted = mounts.filter_map(|mount| match &volumes.get(&mount.name)?.content {
        MountedContent::Image {
            reference,
            pull_policy,
        } => Some(WantedImageVolume {
            volume: &mount.name,
            reference,
            policy: PullPolicy::for_image(Some(pull_policy), reference),
            in_part: [&mount.sub_path, &mount.sub_path_expr]
                .into_iter()
                .any(|path| path.as_deref().is_some_and(|path| !path.is_empty())),
        }),
        MountedContent::Path(_) | MountedContent::Device(_) => None,
    });
    wanted.collect()
}

/// Checks that the runtime supports the image volumes, because an old one ignores them silently.
///
/// # Errors
/// The version of the runtime is too old.
pub fn check_runtime(
    runtime: &RuntimeVersion,
    wanted: WantedImageVolume<'_>,
) -> Result<(), ConfigError> {
    let Some(((name, whole, part), _)) = known(runtime) else {
        return Ok(());
    };
    let missing = missing(runtime);
    let (since, what, lacks) = match wanted.in_part {
        false => (whole, "image volumes", missing.whole),
        true => (part, "subPath of image volumes", missing.part),
    };
    if !lacks {
        return Ok(());
    }
    Err(ConfigError::ImageVolume {
        volume: wanted.volume.to_owned(),
        message: format!(
            "{what} need {name} {}.{} or later, and this node has {}",
            since[0], since[1], runtime.version
        ),
    })
}

/// Missing support of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Image volumes.
    pub(crate) whole: bool,
    /// Subpaths of image volumes.
    pub(crate) part: bool,
}

/// Returns the missing support of this version; an unknown runtime lacks nothing.
pub(crate) fn missing(runtime: &RuntimeVersion) -> Missing {
    let missing = known(runtime).map(|((_, whole, part), version)| Missing {
        whole: version < *whole,
        part: version < *part,
    });
    missing.unwrap_or_default()
}

/// A runtime with its first versions that support images and subpaths.
type History = (&'static str, [u64; 2], [u64; 2]);

/// Returns the entry of a runtime, and its version.
fn known(runtime: &RuntimeVersion) -> Option<(&'static History, [u64; 2])> {
    let known = SINCE.iter().find(|(name, ..)| *name == runtime.name);
    known.zip(major_and_minor(&runtime.version))
}

/// Parses major and minor: `v1.6.20~ds1` is `[1, 6]`.
pub(crate) fn major_and_minor(version: &str) -> Option<[u64; 2]> {
    let version = version.strip_prefix('v').unwrap_or(version);
    let mut parts = version.splitn(3, '.');
    let major = parts.next()?.parse().ok()?;
    let minor = parts.next()?;
    let digits = minor.find(|c: char| !c.is_ascii_digit());
    let minor = minor[..digits.unwrap_or(minor.len())].parse().ok()?;
    Some([major, minor])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_without_image_volumes_is_rejected() {
        let check = |name: &str, version: &str, in_part: bool, expected: &str| {
            let runtime = RuntimeVersion {
                name: name.to_owned(),
                version: version.to_owned(),
                ..RuntimeVersion::default()
            };
            let wanted = WantedImageVolume {
                volume: "model",
                reference: "r/m:1",
                policy: PullPolicy::Always,
                in_part,
            };
            let line = match check_runtime(&runtime, wanted) {
                Ok(()) => "yes".to_owned(),
                Err(error) => error.to_string(),
            };
            assert_eq!(line, expected, "{name} {version}");
        };
        check(
            "containerd",
            "1.6.20~ds1",
            false,
            "volume \"model\": image volumes need containerd 2.1 or later, and this node has \
             1.6.20~ds1",
        );
        check("containerd", "v2.1.0-rc.0", false, "yes");
        check(
            "containerd",
            "v2.1.4",
            true,
            "volume \"model\": subPath of image volumes need containerd 2.2 or later, and this \
             node has v2.1.4",
        );
        check("containerd", "3.0", true, "yes");
        check("cri-o", "1.31.2", false, "yes");
        check(
            "cri-o",
            "1.30.9",
            false,
            "volume \"model\": image volumes need cri-o 1.31 or later, and this node has 1.30.9",
        );
        // unknown runtimes are accepted
        check("fake", "0.1.0", true, "yes");
        check("containerd", "unknown", false, "yes");
    }
}
