//! Container images built from files of this host: [`PAUSE`] for sandboxes and [`BUSYBOX`] for
//! containers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use flate2::Compression;
use serde_json::{Value, json};

use crate::oci::{Blobs, Image, Layer};
use crate::platform::Platform;

/// The sandbox image.
pub const PAUSE: &str = "windlass.local/pause:1";
/// Busybox with every applet linked.
pub const BUSYBOX: &str = "windlass.local/busybox:1";

pub(crate) const BUSYBOX_BINARY: &str = "/bin/busybox";
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n\
                      member:x:7777:7777:member:/:/bin/sh\n";
/// The user `member` has a supplemental group.
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\nmember:x:7777:\nclub:x:8888:member\n";

/// File names of the archives of both images.
const ARCHIVES: [&str; 2] = ["pause.tar", "busybox.tar"];

/// Builds both images as OCI archives in `dir`.
///
/// # Errors
/// `cc` or busybox-static is missing, or the directory cannot be written.
pub fn build_all(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    build_pause(dir)?;
    build_busybox(dir)?;
    Ok(archives(dir))
}

/// Paths of the archives that [`build_all`] writes.
pub(crate) fn archives(dir: &Path) -> Vec<PathBuf> {
    ARCHIVES.iter().map(|name| dir.join(name)).collect()
}

fn build_pause(dir: &Path) -> anyhow::Result<PathBuf> {
    let binary = compile_pause(dir, Platform::host()?)?;
    let (layer, config) = pause(binary);
    write_archive(&dir.join("pause.tar"), PAUSE, layer, config)
}

/// Compiles the sandbox process for a platform in `dir`.
pub(crate) fn compile_pause(dir: &Path, platform: Platform) -> anyhow::Result<Vec<u8>> {
    let source = dir.join("pause.c");
    let binary = dir.join("pause");
    std::fs::write(&source, include_str!("images/pause.c"))?;
    let compiler = platform.c_compiler();
    let output = Command::new(&compiler)
        .args([
            "-static",
            "-nostdlib",
            "-ffreestanding",
            "-fno-stack-protector",
            "-Os",
            "-s",
            // it depends on the linker run
            "-Wl,--build-id=none",
        ])
        .arg("-o")
        .args([&binary, &source])
        .output()
        .with_context(|| {
            format!("cannot run {compiler}; install Debian's gcc and libc6-dev for {platform}")
        })?;
    if !output.status.success() {
        bail!(
            "{compiler} pause.c: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    std::fs::read(&binary).with_context(|| binary.display().to_string())
}

/// Layer and configuration of the sandbox image.
pub(crate) fn pause(binary: Vec<u8>) -> (Layer, Value) {
    let mut layer = Layer::default();
    layer.file("pause", 0o755, binary);
    (
        layer,
        json!({ "Entrypoint": ["/pause"], "WorkingDir": "/" }),
    )
}

fn build_busybox(dir: &Path) -> anyhow::Result<PathBuf> {
    let mut layer = Layer::default();
    for (path, mode) in [("root", 0o700), ("tmp", 0o1777), ("var/www", 0o755)] {
        layer.directory(path, mode);
    }
    add_busybox(&mut layer)?;
    layer.symlink("usr/bin", "../bin");
    layer.symlink("sbin", "bin");
    layer.file("etc/passwd", 0o644, PASSWD);
    layer.file("etc/group", 0o644, GROUP);
    let config = json!({
        "Cmd": ["/bin/sh"],
        "Env": ["PATH=/bin:/sbin:/usr/bin"],
        "WorkingDir": "/",
    });
    write_archive(&dir.join("busybox.tar"), BUSYBOX, layer, config)
}

/// Adds the busybox of this host to `/bin`, with all its applets.
fn add_busybox(layer: &mut Layer) -> anyhow::Result<()> {
    let binary = Path::new(BUSYBOX_BINARY);
    add_busybox_from(layer, binary, Platform::host()?)
        .context("busybox (fix: apt-get install busybox-static)")
}

/// Adds the busybox of a platform, which is run to list its applets.
pub(crate) fn add_busybox_from(
    layer: &mut Layer,
    busybox: &Path,
    platform: Platform,
) -> anyhow::Result<()> {
    let binary = std::fs::read(busybox).with_context(|| busybox.display().to_string())?;
    let mut list = match platform.emulator() {
        None => Command::new(busybox),
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.arg(busybox);
            command
        }
    };
    let output = list.arg("--list").output();
    let output = output.with_context(|| format!("cannot run {} --list", busybox.display()))?;
    if !output.status.success() {
        bail!("{} --list failed", busybox.display());
    }
    layer.file("bin/busybox", 0o755, binary);
    for applet in String::from_utf8_lossy(&output.stdout).lines() {
        if applet != "busybox" && !applet.is_empty() {
            layer.symlink(&format!("bin/{applet}"), "busybox");
        }
    }
    Ok(())
}

/// Builds an image `name` with these files (path, content) as an OCI archive in `dir`.
pub(crate) fn build_of_files(
    dir: &Path,
    name: &str,
    files: &[(&str, &str)],
) -> anyhow::Result<PathBuf> {
    let mut layer = Layer::default();
    for (path, content) in files {
        layer.file(path, 0o644, *content);
    }
    let file = name.replace(['/', ':'], "-");
    write_archive(&dir.join(format!("{file}.tar")), name, layer, json!({}))
}

/// Returns an image with busybox that sleeps.
pub(crate) fn sleeper() -> anyhow::Result<Blobs> {
    let mut layer = Layer::default();
    layer.file("busybox", 0o755, std::fs::read(BUSYBOX_BINARY)?);
    let config = json!({ "Entrypoint": ["/busybox", "sleep", "1000"] });
    image("windlass.local/sleeper:1", layer, config)?.blobs(Compression::fast())
}

fn write_archive(
    path: &Path,
    name: &str,
    layer: Layer,
    runtime_config: Value,
) -> anyhow::Result<PathBuf> {
    let image = image(name, layer, runtime_config)?;
    image.write_archive(path, Compression::fast())?;
    Ok(path.to_owned())
}

/// Creates an image for this host, dated 1970.
fn image(name: &str, layer: Layer, runtime_config: Value) -> anyhow::Result<Image> {
    Ok(Image {
        name: name.to_owned(),
        layer,
        runtime_config,
        epoch: 0,
        platform: Platform::host()?,
    })
}
