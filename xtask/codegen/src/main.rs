//! Generates `src/gen/*.rs` of the crates `proto`, `plugin-proto` and `node-proto` from `proto/`,
//! without protoc.
//!
//! `cargo run -p windlass-codegen` writes the files, which are committed. `--check` prints stale files and
//! exits with 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};

/// A crate of generated code.
struct ProtoCrate {
    /// Directory of the generated files.
    out_dir: &'static str,
    /// Sources and their generated files, whose names are unique; upstream packages may be just `v1`.
    protos: &'static [(&'static str, &'static str)],
}

const CRATES: &[ProtoCrate] = &[
    ProtoCrate {
        out_dir: "crates/proto/src/gen",
        protos: &[
            ("cri/v1/api.proto", "runtime.v1.rs"),
            ("containerd/events/events.proto", "containerd.events.rs"),
            (
                "containerd/events/v1/events.proto",
                "containerd.services.events.v1.rs",
            ),
            ("grpc/health/v1/health.proto", "grpc.health.v1.rs"),
        ],
    },
    ProtoCrate {
        out_dir: "crates/plugin-proto/src/gen",
        protos: &[
            ("csi/v1/csi.proto", "csi.v1.rs"),
            ("dra/v1/api.proto", "dra.v1.rs"),
            ("dra/v1beta1/api.proto", "dra.v1beta1.rs"),
            ("drahealth/v1alpha1/api.proto", "drahealth.v1alpha1.rs"),
            ("pluginregistration/v1/api.proto", "pluginregistration.rs"),
            ("deviceplugin/v1beta1/api.proto", "deviceplugin.v1beta1.rs"),
        ],
    },
    ProtoCrate {
        out_dir: "crates/node-proto/src/gen",
        protos: &[
            ("podresources/v1/api.proto", "podresources.v1.rs"),
            (
                "podresources/v1alpha1/api.proto",
                "podresources.v1alpha1.rs",
            ),
            ("pods/v1alpha1/api.proto", "pods.v1alpha1.rs"),
            ("windlass/v1/windlass.proto", "windlass.v1.rs"),
        ],
    },
];

/// Messages that carry secrets: their `Debug` is written by hand, in `secret.rs` of their crates.
const SECRET_MESSAGES: &[&str] = &[
    ".runtime.v1.AuthConfig",
    ".runtime.v1.KeyValue",
    ".csi.v1.NodeStageVolumeRequest",
    ".csi.v1.NodePublishVolumeRequest",
    ".csi.v1.NodeExpandVolumeRequest",
    ".csi.v1.VolumeCapability.MountVolume",
];

fn main() -> anyhow::Result<ExitCode> {
    let check = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => false,
        [flag] if flag == "--check" => true,
        other => bail!("usage: windlass-codegen [--check], got {other:?}"),
    };
    let root = workspace_root()?;
    let wanted = generate_all(&root.join("proto"))?;
    let stale = stale_files(&root, &wanted)?;

    if check {
        for path in &stale {
            eprintln!("stale: {path}");
        }
        return Ok(match stale.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }

    for path in &stale {
        update(&root.join(path), wanted.get(path))?;
        println!("updated {path}");
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes a generated file, or removes one that is no longer generated.
fn update(path: &Path, text: Option<&String>) -> anyhow::Result<()> {
    let updated = match text {
        Some(text) => path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(path, text)),
        None => std::fs::remove_file(path),
    };
    updated.with_context(|| format!("update {}", path.display()))
}

fn workspace_root() -> anyhow::Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .map(Path::to_path_buf)
        .context("the manifest is two levels below the workspace root")
}

/// Path in the workspace to content, for every file of [`CRATES`].
fn generate_all(proto_root: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for ProtoCrate { out_dir, protos } in CRATES {
        for (source, output) in *protos {
            let text = generate(proto_root, source)
                .with_context(|| format!("generate {output} from proto/{source}"))?;
            files.insert(format!("{out_dir}/{output}"), text);
        }
    }
    Ok(files)
}

fn generate(proto_root: &Path, source: &str) -> anyhow::Result<String> {
    let descriptors = protox::compile([source], [proto_root])?;
    let file = descriptors.file.iter().find(|file| file.name() == source);
    let package = file.context("the source itself")?.package().to_owned();
    let scratch = tempfile::tempdir()?;
    let mut builder = tonic_prost_build::configure()
        .out_dir(scratch.path())
        .emit_rerun_if_changed(false)
        // Other calls return Unimplemented.
        .generate_default_stubs(true)
        .btree_map(".")
        .bytes(".");
    builder = builder.skip_debug(SECRET_MESSAGES);
    builder.compile_fds(descriptors)?;
    let body = std::fs::read_to_string(scratch.path().join(format!("{package}.rs")))?;
    Ok(format!(
        "// @generated by windlass-codegen from proto/{source}: change that, then run\n\
         // `cargo run -p windlass-codegen`.\n{body}"
    ))
}

/// Paths in the workspace of files that are missing, different or no longer generated.
fn stale_files(root: &Path, wanted: &BTreeMap<String, String>) -> anyhow::Result<Vec<String>> {
    let mut found = BTreeMap::new();
    for ProtoCrate { out_dir, .. } in CRATES {
        let dir = root.join(out_dir);
        if !dir.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let path = format!("{out_dir}/{}", entry.file_name().to_string_lossy());
            found.insert(path, std::fs::read_to_string(entry.path())?);
        }
    }
    let mut stale: Vec<String> = wanted
        .iter()
        .filter(|(path, text)| found.get(*path) != Some(*text))
        .map(|(path, _)| path.clone())
        .collect();
    stale.extend(found.into_keys().filter(|path| !wanted.contains_key(path)));
    Ok(stale)
}

#[cfg(test)]
mod tests {
    use super::{generate_all, stale_files, workspace_root};

    #[test]
    fn committed_code_is_current() {
        let root = workspace_root().expect("root");
        let wanted = generate_all(&root.join("proto")).expect("the texts compile");
        let stale = stale_files(&root, &wanted).expect("readable");
        assert!(
            stale.is_empty(),
            "run `cargo run -p windlass-codegen`: {stale:?}"
        );
    }
}
