//! The subset of kustomize that `deploy/` uses: resources and JSON patches of one target. Other
//! fields are errors. A test compares the result with kubectl, if installed.

use std::path::Path;

use anyhow::{Context, bail};
use serde_json::Value;
use windlass_manifests::yaml;

/// Overlays of `deploy/`.
pub const OVERLAYS: [&str; 3] = ["side-by-side", "opt-in", "cleanup"];

/// Returns the objects of a `kustomization.yaml`, in the order of its files.
///
/// # Errors
/// A file cannot be read or has an unsupported field.
pub fn objects(folder: &Path) -> anyhow::Result<Vec<Value>> {
    let file = folder.join("kustomization.yaml");
    let found = documents(&file)?;
    let made = of_kustomization(folder, found.first().unwrap_or(&Value::Null));
    made.with_context(|| file.display().to_string())
}

fn of_kustomization(folder: &Path, kustomization: &Value) -> anyhow::Result<Vec<Value>> {
    for key in kustomization.as_object().context("not an object")?.keys() {
        let known = ["apiVersion", "kind", "resources", "patches"];
        if !known.contains(&key.as_str()) {
            bail!("{key} is not supported; use `kubectl kustomize`");
        }
    }
    let mut objects = Vec::new();
    for resource in list(&kustomization["resources"]) {
        let path = folder.join(text(resource)?);
        match path.is_dir() {
            true => objects.extend(self::objects(&path)?),
            false => objects.extend(documents(&path)?),
        }
    }
    for entry in list(&kustomization["patches"]) {
        let target = &entry["target"];
        let same = |object: &&mut Value| {
            object["kind"] == target["kind"] && object["metadata"]["name"] == target["name"]
        };
        let object = objects.iter_mut().find(same);
        let object = object.with_context(|| format!("nothing to patch: {target}"))?;
        for steps in yaml::documents(text(&entry["patch"])?.as_bytes())? {
            for step in list(&steps) {
                apply(object, step)?;
            }
        }
    }
    Ok(objects)
}

/// Applies a step of a JSON patch (RFC 6902).
fn apply(object: &mut Value, step: &Value) -> anyhow::Result<()> {
    let path = text(&step["path"])?;
    let missing = || format!("nothing at {path}");
    let (parent, name) = path.rsplit_once('/').with_context(missing)?;
    let parent = object.pointer_mut(parent).with_context(missing)?;
    let name = name.replace("~1", "/").replace("~0", "~");
    let value = step["value"].clone();
    match (step["op"].as_str(), parent) {
        (Some("add"), Value::Array(list)) if name == "-" => list.push(value),
        (Some("add"), Value::Object(map)) => drop(map.insert(name, value)),
        (Some("replace"), parent) => *parent.get_mut(&name).with_context(missing)? = value,
        (op, _) => bail!("{op:?} at {path} is not supported; use `kubectl kustomize`"),
    }
    Ok(())
}

fn documents(path: &Path) -> anyhow::Result<Vec<Value>> {
    let name = || path.display().to_string();
    let text = std::fs::read(path).with_context(name)?;
    yaml::documents(&text).with_context(name)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value
        .as_str()
        .with_context(|| format!("not a text: {value}"))
}
