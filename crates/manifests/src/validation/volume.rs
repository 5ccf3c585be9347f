//! Validates volumes.

use std::collections::BTreeSet;

use windlass_types::corev1::{DownwardAPIVolumeFile, PodSpec, Volume};

use super::container::{VOLUME_FIELDS, field_path};
use super::field::Errors;
use super::names;
use windlass_units::quantity::Quantity;

/// Validates `spec.volumes` and returns their names.
pub(super) fn all<'a>(spec: &'a PodSpec, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        let field = format!("{path}.name");
        errors.name(&field, &volume.name, names::label);
        if !volume.name.is_empty() && !seen.insert(volume.name.as_str()) {
            errors.duplicate(&field, &volume.name);
        }
        source(volume, &path, errors);
    }
    seen
}

fn source(volume: &Volume, path: &str, errors: &mut Errors) {
    // the JSON form has one key for the name and one for each source
    let sources = serde_json::to_value(volume)
        .ok()
        .and_then(|v| v.as_object().map(|o| o.len().saturating_sub(1)))
        .unwrap_or(0);
    match sources {
        0 => errors.required(path, "must specify a volume type"),
        1 => {}
        _ => errors.forbidden(path, "may not specify more than 1 volume type"),
    }
    if let Some(host_path) = &volume.host_path {
        let field = format!("{path}.hostPath.path");
        errors.name(&field, &host_path.path, names::no_parent);
        errors.one_of(
            &format!("{path}.hostPath.type"),
            host_path.type_.as_deref(),
            &[
                "",
                "DirectoryOrCreate",
                "Directory",
                "FileOrCreate",
                "File",
                "Socket",
                "CharDevice",
                "BlockDevice",
            ],
        );
    }
    let empty_dir = volume.empty_dir.as_ref();
    if let Some(limit) = empty_dir.and_then(|e| e.size_limit.as_ref()) {
        match limit.0.parse::<Quantity>() {
            Ok(size) if size.nanos() >= 0 => {}
            _ => {
                let field = format!("{path}.emptyDir.sizeLimit");
                let detail = "must be a non-negative quantity such as 64Mi";
                errors.invalid(&field, &limit.0, detail);
            }
        }
    }
    if let Some(downward) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        let field = format!("{path}.defaultMode");
        mode(&field, downward.default_mode, errors);
        files(&path, downward.items.as_deref().unwrap_or_default(), errors);
    }
    if let Some(projected) = &volume.projected {
        let path = format!("{path}.projected");
        let field = format!("{path}.defaultMode");
        mode(&field, projected.default_mode, errors);
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            if let Some(downward) = &source.downward_api {
                let path = format!("{path}.sources[{index}].downwardAPI");
                files(&path, downward.items.as_deref().unwrap_or_default(), errors);
            }
        }
    }
    if let Some(image) = &volume.image {
        let path = format!("{path}.image");
        if image.reference.as_deref().unwrap_or_default().is_empty() {
            errors.required(&format!("{path}.reference"), "");
        }
        errors.one_of(
            &format!("{path}.pullPolicy"),
            image.pull_policy.as_deref(),
            &["Always", "IfNotPresent", "Never"],
        );
    }
}

fn files(path: &str, items: &[DownwardAPIVolumeFile], errors: &mut Errors) {
    for (index, file) in items.iter().enumerate() {
        let path = format!("{path}.items[{index}]");
        let field = format!("{path}.path");
        errors.name(&field, &file.path, names::descending_path);
        mode(&format!("{path}.mode"), file.mode, errors);
        match (&file.field_ref, &file.resource_field_ref) {
            (Some(field), None) => field_path(&path, field, VOLUME_FIELDS, errors),
            (None, Some(_)) => {}
            (None, None) => {
                let detail = "one of fieldRef and resourceFieldRef is required";
                errors.required(&path, detail);
            }
            (Some(_), Some(_)) => {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.forbidden(&path, detail);
            }
        }
    }
}

fn mode(field: &str, mode: Option<i32>, errors: &mut Errors) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(field, mode, detail);
    }
}
