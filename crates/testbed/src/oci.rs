//! OCI images made of bytes: a layer, the JSON around it, a layout directory and an archive.
//!
//! One input gives one digest: entries are sorted, belong to root and carry one given time, and
//! gzip keeps none. Nothing here runs a container engine.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Media type of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// A file system layer in the making, by path without a leading `/`.
#[derive(Clone, Debug, Default)]
pub struct Layer(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

impl Layer {
    /// Adds a directory and those above it.
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.insert(path, Entry::Directory { mode });
    }

    /// Adds a file and the directories above it.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let content = content.into();
        self.insert(path, Entry::File { mode, content });
    }

    /// Adds a symbolic link and the directories above it.
    pub fn symlink(&mut self, path: &str, target: &str) {
        let target = target.to_owned();
        self.insert(path, Entry::Symlink { target });
    }

    /// Paths of all files, not of directories and links.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let files = self.0.iter();
        files.filter_map(|(path, entry)| {
            matches!(entry, Entry::File { .. }).then_some(path.as_str())
        })
    }

    /// What a file has in it.
    #[cfg(test)]
    pub(crate) fn content(&self, path: &str) -> Option<&[u8]> {
        match self.0.get(path)? {
            Entry::File { content, .. } => Some(content),
            _ => None,
        }
    }

    fn insert(&mut self, path: &str, entry: Entry) {
        let path = path.trim_matches('/');
        for (end, _) in path.match_indices('/') {
            let parent = self.0.entry(path[..end].to_owned());
            parent.or_insert(Entry::Directory { mode: 0o755 });
        }
        self.0.insert(path.to_owned(), entry);
    }

    /// The layer as a tar stream in which everything is as old as `epoch`, in seconds since 1970.
    fn tar(&self, epoch: u64) -> anyhow::Result<Vec<u8>> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, entry) in &self.0 {
            let mut header = tar::Header::new_gnu();
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(epoch);
            header.set_size(0);
            match entry {
                Entry::Directory { mode } => {
                    header.set_entry_type(tar::EntryType::Directory);
                    header.set_mode(*mode);
                    builder.append_data(&mut header, format!("{path}/"), &[][..])?;
                }
                Entry::File { mode, content } => {
                    header.set_entry_type(tar::EntryType::Regular);
                    header.set_mode(*mode);
                    header.set_size(content.len() as u64);
                    builder.append_data(&mut header, path, &content[..])?;
                }
                Entry::Symlink { target } => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_mode(0o777);
                    builder.append_link(&mut header, path, target)?;
                }
            }
        }
        Ok(builder.into_inner()?)
    }
}

/// An image of one layer.
#[derive(Clone, Debug)]
pub struct Image {
    /// What runtimes call it, with its tag.
    pub name: String,
    /// Its files.
    pub layer: Layer,
    /// `config` of its configuration: entry point, environment.
    pub runtime_config: Value,
    /// When it was made, in seconds since 1970; everything in it is as old.
    pub epoch: u64,
}

/// What an image is made of, as it is stored.
#[derive(Clone, Debug)]
pub struct Blobs {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    /// Compressed with gzip.
    pub(crate) layer: Vec<u8>,
    unpacked: usize,
}

impl Blobs {
    /// Digest of the manifest: what the image is, bit for bit.
    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// Bytes that a registry stores and a node pulls.
    pub fn packed_bytes(&self) -> usize {
        self.manifest.len() + self.config.len() + self.layer.len()
    }

    /// Bytes of the layer's tar stream, about what it takes on a node's disk.
    pub fn unpacked_bytes(&self) -> usize {
        self.unpacked
    }
}

impl Image {
    /// Packs it.
    ///
    /// # Errors
    /// An entry's name or target does not fit into a tar header, or this machine's processor is
    /// of no architecture that images have a name for.
    pub fn blobs(&self, compression: Compression) -> anyhow::Result<Blobs> {
        let tar = self.layer.tar(self.epoch)?;
        // the header of this gzip has neither a name nor a time
        let mut packer = GzEncoder::new(Vec::new(), compression);
        packer.write_all(&tar)?;
        let layer = packer.finish()?;
        let created = jiff::Timestamp::from_second(i64::try_from(self.epoch)?)?;
        let config = serde_json::to_vec(&json!({
            "created": created.to_string(),
            "architecture": architecture()?,
            "os": "linux",
            "config": self.runtime_config,
            "rootfs": { "type": "layers", "diff_ids": [digest(&tar)] },
        }))?;
        let manifest = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": digest(&config),
                "size": config.len(),
            },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                "digest": digest(&layer),
                "size": layer.len(),
            }],
        }))?;
        Ok(Blobs {
            manifest,
            config,
            layer,
            unpacked: tar.len(),
        })
    }

    /// The files of an OCI image layout with this image in it.
    ///
    /// # Errors
    /// As [`Image::blobs`].
    pub fn layout(&self, blobs: &Blobs) -> anyhow::Result<Layer> {
        let tag = self.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        let index = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [{
                "mediaType": MANIFEST,
                "digest": blobs.digest(),
                "size": blobs.manifest.len(),
                "platform": { "architecture": architecture()?, "os": "linux" },
                "annotations": {
                    "io.containerd.image.name": self.name,
                    "org.opencontainers.image.ref.name": tag,
                },
            }],
        }))?;
        let mut layout = Layer::default();
        let version: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
        layout.file("oci-layout", 0o644, version);
        layout.file("index.json", 0o644, index);
        for blob in [&blobs.manifest, &blobs.config, &blobs.layer] {
            let hex = digest(blob).replace("sha256:", "");
            layout.file(&format!("blobs/sha256/{hex}"), 0o644, blob.as_slice());
        }
        Ok(layout)
    }

    /// Writes the layout as an archive that `ctr images import` reads.
    ///
    /// # Errors
    /// As [`Image::blobs`], or the file cannot be written.
    pub fn write_archive(&self, path: &Path, blobs: &Blobs) -> anyhow::Result<PathBuf> {
        let archive = self.layout(blobs)?.tar(self.epoch)?;
        std::fs::write(path, archive).with_context(|| path.display().to_string())?;
        Ok(path.to_owned())
    }
}

impl Layer {
    /// Writes the regular files below `dir`.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write_files(&self, dir: &Path) -> anyhow::Result<()> {
        for (path, entry) in &self.0 {
            let path = dir.join(path);
            let written = match entry {
                Entry::Directory { .. } => std::fs::create_dir_all(&path),
                Entry::File { content, .. } => path
                    .parent()
                    .map_or(Ok(()), std::fs::create_dir_all)
                    .and_then(|()| std::fs::write(&path, content)),
                Entry::Symlink { .. } => Ok(()),
            };
            written.with_context(|| path.display().to_string())?;
        }
        Ok(())
    }
}

/// `sha256:` and the hexadecimal digest.
pub fn digest(content: &[u8]) -> String {
    let digest = Sha256::digest(content);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn architecture() -> anyhow::Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => bail!("no image architecture for {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(order: &[&str]) -> Image {
        let mut layer = Layer::default();
        for path in order {
            layer.file(path, 0o755, path.as_bytes());
        }
        layer.symlink("bin/sh", "busybox");
        Image {
            name: "windlass.local/x:1".to_owned(),
            layer,
            runtime_config: json!({ "Entrypoint": ["/bin/a"] }),
            epoch: 1_700_000_000,
        }
    }

    fn packed(image: &Image) -> Blobs {
        image.blobs(Compression::default()).expect("an image")
    }

    #[test]
    fn the_order_in_which_files_come_does_not_change_the_digest_and_their_content_does() {
        let one = packed(&image(&["bin/a", "etc/b", "a"]));
        let same = packed(&image(&["a", "etc/b", "bin/a"]));
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), packed(&image(&["a", "etc/b"])).digest());
    }

    #[test]
    fn entries_are_sorted_below_their_directories_and_belong_to_root_at_one_time() {
        let tar = image(&["etc/deep/b", "bin/a"]).layer.tar(42).expect("tar");
        let mut archive = tar::Archive::new(&tar[..]);
        let mut lines = Vec::new();
        for entry in archive.entries().expect("entries") {
            let entry = entry.expect("an entry");
            let header = entry.header();
            assert_eq!(header.mtime().expect("mtime"), 42);
            assert_eq!(
                (header.uid().expect("uid"), header.gid().expect("gid")),
                (0, 0)
            );
            let path = entry.path().expect("path").display().to_string();
            lines.push(format!("{path} {:o}", header.mode().expect("mode")));
        }
        let expected = [
            "bin/ 755",
            "bin/a 755",
            "bin/sh 777",
            "etc/ 755",
            "etc/deep/ 755",
            "etc/deep/b 755",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn what_the_manifest_names_is_what_the_layout_holds() {
        let image = image(&["bin/a"]);
        let blobs = packed(&image);
        let layout = image.layout(&blobs).expect("a layout");
        let files: Vec<&str> = layout.files().collect();
        let manifest: Value = serde_json::from_slice(&blobs.manifest).expect("JSON");
        for named in [
            &manifest["config"]["digest"],
            &manifest["layers"][0]["digest"],
        ] {
            let hex = named.as_str().expect("a digest").replace("sha256:", "");
            assert!(
                files.contains(&format!("blobs/sha256/{hex}").as_str()),
                "{hex}"
            );
        }
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&blobs.layer[..]);
        std::io::Read::read_to_end(&mut reader, &mut unpacked).expect("gzip");
        let config: Value = serde_json::from_slice(&blobs.config).expect("JSON");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&unpacked));
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    }
}
