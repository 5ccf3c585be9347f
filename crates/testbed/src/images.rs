//! Container images without a registry: OCI layouts built from files of this machine.
//!
//! Two images are enough for every test and for the demo: [`PAUSE`] for sandboxes and
//! [`BUSYBOX`] for everything that runs in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The sandbox image.
pub const PAUSE: &str = "windlass.local/pause:1";
/// Busybox with every applet linked.
pub const BUSYBOX: &str = "windlass.local/busybox:1";

const BUSYBOX_BINARY: &str = "/bin/busybox";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n\
                      member:x:7777:7777:member:/:/bin/sh\n";
/// The user `member` is in a group of the image besides its own.
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\nmember:x:7777:\nclub:x:8888:member\n";

/// Builds both images as OCI archives in `dir`; what they are made of needs `cc` and
/// busybox-static.
pub fn build_all(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    Ok(vec![build_pause(dir)?, build_busybox(dir)?])
}

fn build_pause(dir: &Path) -> anyhow::Result<PathBuf> {
    let source = dir.join("pause.c");
    let binary = dir.join("pause");
    std::fs::write(&source, include_str!("images/pause.c"))?;
    let output = Command::new("cc")
        .args([
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
            "-Os",
            "-s",
        ])
        .arg("-o")
        .args([&binary, &source])
        .output()
        .context("cannot run cc (fix: apt-get install gcc libc6-dev)")?;
    if !output.status.success() {
        bail!(
            "cc pause.c: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let mut layer = Layer::new();
    layer.file("pause", 0o755, &std::fs::read(&binary)?)?;
    let config = json!({ "Entrypoint": ["/pause"], "WorkingDir": "/" });
    write_archive(&dir.join("pause.tar"), PAUSE, layer, config)
}

fn build_busybox(dir: &Path) -> anyhow::Result<PathBuf> {
    let binary = std::fs::read(BUSYBOX_BINARY)
        .with_context(|| format!("{BUSYBOX_BINARY} (fix: apt-get install busybox-static)"))?;
    let output = Command::new(BUSYBOX_BINARY).arg("--list").output()?;
    if !output.status.success() {
        bail!("{BUSYBOX_BINARY} --list failed");
    }
    let mut layer = Layer::new();
    for (path, mode) in [
        ("bin/", 0o755),
        ("etc/", 0o755),
        ("root/", 0o700),
        ("tmp/", 0o1777),
        ("usr/", 0o755),
        ("var/", 0o755),
        ("var/www/", 0o755),
    ] {
        layer.directory(path, mode)?;
    }
    layer.file("bin/busybox", 0o755, &binary)?;
    for applet in String::from_utf8_lossy(&output.stdout).lines() {
        if applet != "busybox" && !applet.is_empty() {
            layer.symlink(&format!("bin/{applet}"), "busybox")?;
        }
    }
    layer.symlink("usr/bin", "../bin")?;
    layer.symlink("sbin", "bin")?;
    layer.file("etc/passwd", 0o644, PASSWD.as_bytes())?;
    layer.file("etc/group", 0o644, GROUP.as_bytes())?;
    let config = json!({
        "Cmd": ["/bin/sh"],
        "Env": ["PATH=/bin:/sbin:/usr/bin"],
        "WorkingDir": "/",
    });
    write_archive(&dir.join("busybox.tar"), BUSYBOX, layer, config)
}

/// Builds an image `name` with nothing but these files (path, content) in it, as an OCI archive in
/// `dir`. A path may have directories, which are made.
pub fn build_of_files(dir: &Path, name: &str, files: &[(&str, &str)]) -> anyhow::Result<PathBuf> {
    let mut layer = Layer::new();
    for (path, content) in files {
        let parents = Path::new(path).ancestors().skip(1);
        let parents: Vec<_> = parents.filter(|p| !p.as_os_str().is_empty()).collect();
        for parent in parents.iter().rev() {
            layer.directory(&format!("{}/", parent.display()), 0o755)?;
        }
        layer.file(path, 0o644, content.as_bytes())?;
    }
    let file = name.replace(['/', ':'], "-");
    write_archive(&dir.join(format!("{file}.tar")), name, layer, json!({}))
}

/// A file system layer in the making. Everything in it belongs to root and is as old as the
/// epoch, so that one input gives one digest.
struct Layer(tar::Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn directory(&mut self, path: &str, mode: u32) -> anyhow::Result<()> {
        self.append(path, tar::EntryType::Directory, mode, &[])
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> anyhow::Result<()> {
        self.append(path, tar::EntryType::Regular, mode, content)
    }

    fn symlink(&mut self, path: &str, target: &str) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        Ok(self.0.append_link(&mut header, path, target)?)
    }

    fn append(
        &mut self,
        path: &str,
        kind: tar::EntryType,
        mode: u32,
        content: &[u8],
    ) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(content.len() as u64);
        Ok(self.0.append_data(&mut header, path, content)?)
    }
}

/// What an image is made of.
pub(crate) struct Blobs {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) layer: Vec<u8>,
}

/// An image with nothing but busybox, which sleeps.
pub(crate) fn sleeper() -> anyhow::Result<Blobs> {
    let mut layer = Layer::new();
    layer.file("busybox", 0o755, &std::fs::read(BUSYBOX_BINARY)?)?;
    blobs(
        layer,
        json!({ "Entrypoint": ["/busybox", "sleep", "1000"] }),
    )
}

fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image architecture for {other}"),
    }
}

fn blobs(layer: Layer, runtime_config: Value) -> anyhow::Result<Blobs> {
    let layer = layer.0.into_inner()?;
    let layer_digest = digest(&layer);
    let architecture = architecture()?;
    let config = serde_json::to_vec(&json!({
        "architecture": architecture,
        "os": "linux",
        "config": runtime_config,
        "rootfs": { "type": "layers", "diff_ids": [layer_digest] },
    }))?;
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest(&config),
            "size": config.len(),
        },
        "layers": [{
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": layer_digest,
            "size": layer.len(),
        }],
    }))?;
    Ok(Blobs {
        manifest,
        config,
        layer,
    })
}

/// Writes an OCI image layout with one image as a tar archive that `ctr images import` reads.
fn write_archive(
    path: &Path,
    name: &str,
    layer: Layer,
    runtime_config: Value,
) -> anyhow::Result<PathBuf> {
    let Blobs {
        manifest,
        config,
        layer,
    } = blobs(layer, runtime_config)?;
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "manifests": [{
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest(&manifest),
            "size": manifest.len(),
            "platform": { "architecture": architecture()?, "os": "linux" },
            "annotations": { "io.containerd.image.name": name },
        }],
    }))?;

    let mut archive = Layer::new();
    archive.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    archive.file("index.json", 0o644, &index)?;
    for blob in [&manifest, &config, &layer] {
        let hex = digest(blob).replace("sha256:", "");
        archive.file(&format!("blobs/sha256/{hex}"), 0o644, blob)?;
    }
    std::fs::write(path, archive.0.into_inner()?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.to_owned())
}

pub(crate) fn digest(content: &[u8]) -> String {
    let hex: String = Sha256::digest(content)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}
