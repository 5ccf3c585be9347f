//! Loads static pods from a manifest: parse, default, name, validate, reject API references.
//!
//! The node name is a suffix of the pod name, so that the mirror pod is unique in the cluster. The
//! UID is a hash of the decoded pod, the node name and the origin, so a changed field makes another
//! pod and changed white space does not. It is computed before defaulting, so that a new default in
//! a later version restarts no pod.

mod references;
#[cfg(test)]
mod tests;

use std::cell::LazyCell;
use std::sync::Arc;

use windlass_types::corev1::{PodStatus, Toleration};
use windlass_types::pod::SharedPod;
use windlass_types::{Pod, PodSource, names};

use crate::manifest::{self, ManifestError, Origin, ParsedPod, Problem};
use crate::{defaults, validation, yaml};
use windlass_units::hash::fnv1a_128;

pub use references::ApiReference;
pub(crate) use references::api_references;

/// Max unknown fields of one pod in the warnings.
const MAX_WARNINGS: usize = 20;

/// Content of a valid manifest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadedManifest {
    /// The pods, validated. Empty only for an empty PodList.
    pub pods: Vec<SharedPod>,
    /// Warnings for the user: unknown fields.
    pub warnings: Vec<String>,
}

/// Loads the static pods of a manifest. One invalid pod rejects the whole manifest, but no other.
pub fn load(
    bytes: &[u8],
    origin: &Origin,
    node_name: &str,
) -> Result<LoadedManifest, ManifestError> {
    let mut loaded = LoadedManifest::default();
    let positions = LazyCell::new(|| yaml::Locator::new(bytes));
    for parsed in manifest::parse(bytes, origin)? {
        let ParsedPod {
            mut pod,
            document,
            path,
            unknown_fields,
        } = parsed;
        let locate = |field: &str| positions.locate(document, &yaml::join(&path, field));
        make_static(&mut pod, origin, node_name);

        let mut errors = validation::validate(&pod);
        if !errors.is_empty() {
            for error in &mut errors {
                error.position = locate(&error.field);
                error.field = yaml::join(&path, &error.field);
            }
            return Err(ManifestError::new(origin, Problem::Invalid(errors)));
        }
        let mut references = api_references(&pod);
        if !references.is_empty() {
            for reference in &mut references {
                reference.position = locate(&reference.field);
                reference.field = yaml::join(&path, &reference.field);
            }
            return Err(ManifestError::new(
                origin,
                Problem::ApiReferences(references),
            ));
        }
        let more = unknown_fields.len().saturating_sub(MAX_WARNINGS);
        for field in unknown_fields.into_iter().take(MAX_WARNINGS) {
            let line = positions
                .locate(document, &field)
                .map_or(String::new(), |p| format!("line {}: ", p.line));
            loaded.warnings.push(format!(
                "{origin}: {line}unknown field {field:?} is ignored"
            ));
        }
        if more > 0 {
            loaded
                .warnings
                .push(format!("{origin}: {more} more unknown fields are ignored"));
        }
        loaded.pods.push(Arc::new(pod));
    }
    Ok(loaded)
}

/// Turns a decoded pod into a static pod of this node (upstream `applyDefaults`).
///
/// [`PodStorage`](crate::merge::PodStorage) adds the annotation with the first-seen time.
pub(crate) fn make_static(pod: &mut Pod, origin: &Origin, node_name: &str) {
    let uid = match pod.metadata.uid.take().filter(|uid| !uid.is_empty()) {
        Some(uid) => uid,
        None => manifest_hash(pod, origin, node_name),
    };
    defaults::apply(pod);

    let meta = &mut pod.metadata;
    meta.uid = Some(uid.clone());
    // validation rejects a missing name
    if let Some(name) = meta.name.as_mut().filter(|name| !name.is_empty()) {
        *name = format!("{name}-{}", node_name.to_lowercase());
    }
    if meta.namespace.as_deref().unwrap_or_default().is_empty() {
        meta.namespace = Some("default".to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    // only the mirror pod has this annotation
    annotations.remove(names::ANN_CONFIG_MIRROR);
    annotations.insert(names::ANN_CONFIG_HASH.to_owned(), uid);
    annotations.insert(
        names::ANN_CONFIG_SOURCE.to_owned(),
        origin.source().as_str().to_owned(),
    );

    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(node_name.to_owned());
    if origin.source() == PodSource::File {
        // node conditions must not evict pods that run the node
        let everything = Toleration {
            operator: Some("Exists".to_owned()),
            effect: Some("NoExecute".to_owned()),
            ..Toleration::default()
        };
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(&everything) {
            tolerations.push(everything);
        }
    }
    // a status in the manifest is from another cluster or node
    pod.status = Some(PodStatus {
        phase: Some("Pending".to_owned()),
        ..PodStatus::default()
    });
}

/// Returns the hex FNV-1a-128 of the decoded pod as JSON, the node name and the origin.
fn manifest_hash(pod: &Pod, origin: &Origin, node_name: &str) -> String {
    // a decoded object always serializes
    let mut dump = serde_json::to_vec(pod).unwrap_or_default();
    let kind = match origin {
        Origin::File(_) => "file",
        Origin::Url(_) => "url",
    };
    dump.extend_from_slice(format!("host:{node_name}{kind}:{origin}").as_bytes());
    format!("{:032x}", fnv1a_128(&dump))
}
