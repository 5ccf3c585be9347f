//! `manifests`: writes the DaemonSet overlays as plain files, for `kubectl apply -f` and private
//! registries.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::Value;
use windlass_manifests::yaml;
use windlass_testbed::kustomize::{OVERLAYS, objects};

use xtask_run as run;

/// Placeholder registry of the images of `deploy/`, which are never pulled.
const REGISTRY: &str = "windlass.dev/";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Directory for the files, one for each overlay.
    #[arg(long, value_name = "DIR", default_value = "target/manifests")]
    out: PathBuf,
    /// Registry to pull both images from, such as registry.example:5000/team; not required if every
    /// node has imported them.
    #[arg(long, value_name = "PREFIX")]
    registry: Option<String>,
}

/// Writes the files and prints their names.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let out = run::root().join(&options.out);
    std::fs::create_dir_all(&out).with_context(|| out.display().to_string())?;
    for overlay in OVERLAYS {
        let folder = run::root().join("deploy/overlays").join(overlay);
        let mut text = String::new();
        for mut object in objects(&folder)? {
            if let Some(registry) = &options.registry {
                replace_registry(registry.trim_end_matches('/'), &mut object);
            }
            text.push_str("---\n");
            text.push_str(&yaml::to_string(&object)?);
        }
        let file = out.join(overlay).with_extension("yaml");
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        println!("{}", file.display());
    }
    Ok(())
}

/// Replaces the placeholder registry, and the pull policy with it.
fn replace_registry(registry: &str, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let image = fields.get("image").and_then(Value::as_str);
            if let Some(ours) = image.and_then(|text| text.strip_prefix(REGISTRY)) {
                let image = format!("{registry}/{ours}");
                fields.insert("image".to_owned(), image.into());
                fields.insert("imagePullPolicy".to_owned(), "IfNotPresent".into());
            }
            for field in fields.values_mut() {
                replace_registry(registry, field);
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| replace_registry(registry, item)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_manifests_match_overlays_with_replaced_registry() {
        let out = tempfile::tempdir().expect("directory");
        let written = |registry: Option<&str>| {
            let options = Options {
                out: out.path().to_owned(),
                registry: registry.map(str::to_owned),
            };
            run(&options).expect("written");
            OVERLAYS.map(|overlay| {
                let file = out.path().join(overlay).with_extension("yaml");
                std::fs::read_to_string(file).expect("text")
            })
        };
        for (overlay, text) in OVERLAYS.iter().zip(written(None)) {
            let folder = run::root().join("deploy/overlays").join(overlay);
            let made = objects(&folder).expect("objects");
            assert_eq!(yaml::documents(text.as_bytes()).expect("YAML"), made);
            assert!(text.contains("image: windlass.dev/windlass:"), "{text}");
        }
        for text in written(Some("registry.example:5000/team/")) {
            let ours = text
                .matches("image: registry.example:5000/team/windlass")
                .count();
            assert!(ours >= 2, "{text}");
            assert!(!text.contains("image: windlass.dev/"), "{text}");
            assert!(!text.contains("imagePullPolicy: Never"), "{text}");
        }
    }
}
