//! Builder of OCI images: layer, JSON documents, layout directory and archive.
//!
//! Builds are reproducible: entries are sorted, belong to root and have one time.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::platform::Platform;

/// Media type of a manifest.
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an index.
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// A layer under construction, by path without leading `/`.
#[derive(Clone, Debug, Default)]
pub struct Layer(BTreeMap<String, Entry>);

#[derive(Clone, Debug)]
enum Entry {
    Directory { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: String },
}

impl Layer {
    /// Adds a directory and its parents.
    pub fn directory(&mut self, path: &str, mode: u32) {
        self.insert(path, Entry::Directory { mode });
    }

    /// Adds a file and its parent directories.
    pub fn file(&mut self, path: &str, mode: u32, content: impl Into<Vec<u8>>) {
        let content = content.into();
        self.insert(path, Entry::File { mode, content });
    }

    /// Adds a symbolic link and its parent directories.
    pub fn symlink(&mut self, path: &str, target: &str) {
        let target = target.to_owned();
        self.insert(path, Entry::Symlink { target });
    }

    /// Returns the paths of all regular files.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        let files = self.0.iter();
        files.filter_map(|(path, entry)| {
            matches!(entry, Entry::File { .. }).then_some(path.as_str())
        })
    }

    /// Returns the content of a file.
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

    /// Returns the layer as a tar stream; all entries have the time `epoch` (Unix time).
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
    /// Name with tag.
    pub name: String,
    /// Its files.
    pub layer: Layer,
    /// `config` of its configuration: entry point, environment.
    pub runtime_config: Value,
    /// Unix time of the image and its entries.
    pub epoch: u64,
    /// Platform.
    pub platform: Platform,
}

/// Stored parts of an image.
#[derive(Clone, Debug)]
pub struct Blobs {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    /// Compressed with gzip.
    pub(crate) layer: Vec<u8>,
    unpacked: usize,
    platform: Platform,
}

impl Blobs {
    /// Returns the digest of the manifest.
    pub fn digest(&self) -> String {
        digest(&self.manifest)
    }

    /// Returns the compressed size in bytes.
    pub fn packed_bytes(&self) -> usize {
        self.manifest.len() + self.config.len() + self.layer.len()
    }

    /// Returns the uncompressed size in bytes.
    pub fn unpacked_bytes(&self) -> usize {
        self.unpacked
    }

    /// Returns the platform.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// Returns the descriptor of the manifest in an index.
    fn descriptor(&self) -> Value {
        json!({
            "mediaType": MANIFEST,
            "digest": self.digest(),
            "size": self.manifest.len(),
            "platform": platform_json(self.platform),
        })
    }
}

impl Image {
    /// Builds the blobs.
    ///
    /// # Errors
    /// An entry's name or target does not fit into a tar header.
    pub fn blobs(&self, compression: Compression) -> anyhow::Result<Blobs> {
        let tar = self.layer.tar(self.epoch)?;
        // the gzip header has no name and no time
        let mut packer = GzEncoder::new(Vec::new(), compression);
        packer.write_all(&tar)?;
        let layer = packer.finish()?;
        let created = jiff::Timestamp::from_second(i64::try_from(self.epoch)?)?;
        let mut config = platform_json(self.platform);
        config["created"] = json!(created.to_string());
        config["config"] = self.runtime_config.clone();
        config["rootfs"] = json!({ "type": "layers", "diff_ids": [digest(&tar)] });
        let config = serde_json::to_vec(&config)?;
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
            platform: self.platform,
        })
    }

    /// Writes an archive of this image alone, which `ctr images import` reads.
    ///
    /// # Errors
    /// As [`Image::blobs`], or the file cannot be written.
    pub fn write_archive(&self, path: &Path, compression: Compression) -> anyhow::Result<()> {
        let blobs = self.blobs(compression)?;
        PackedImage::new(&self.name, self.epoch, vec![blobs])?.write_archive(path)
    }
}

/// An image under its name, for one platform or several. With several an index lists their manifests.
#[derive(Clone, Debug)]
pub struct PackedImage {
    name: String,
    epoch: u64,
    platforms: Vec<Blobs>,
    /// The index; `None` for a single platform.
    index: Option<Vec<u8>>,
}

impl PackedImage {
    /// Returns the image `name` for these platforms.
    ///
    /// # Errors
    /// There is no platform, or one is there twice.
    pub fn new(name: &str, epoch: u64, mut platforms: Vec<Blobs>) -> anyhow::Result<Self> {
        platforms.sort_by_key(|blobs| blobs.platform);
        let twice = platforms
            .windows(2)
            .find(|pair| pair[0].platform == pair[1].platform);
        if let Some(pair) = twice {
            bail!("{name}: two images for {}", pair[0].platform);
        }
        let index = match platforms.len() {
            0 => bail!("{name}: no platform"),
            1 => None,
            _ => Some(serde_json::to_vec(&json!({
                "schemaVersion": 2,
                "mediaType": INDEX,
                "manifests": platforms.iter().map(Blobs::descriptor).collect::<Vec<_>>(),
            }))?),
        };
        Ok(Self {
            name: name.to_owned(),
            epoch,
            platforms,
            index,
        })
    }

    /// Returns the name, with its tag.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the digest of the index, else of the only manifest.
    pub fn digest(&self) -> String {
        match &self.index {
            Some(index) => digest(index),
            None => self.platforms[0].digest(),
        }
    }

    /// Returns the image of each platform, ordered.
    pub fn platforms(&self) -> &[Blobs] {
        &self.platforms
    }

    /// Returns the files of an OCI image layout with this image in it.
    ///
    /// # Errors
    /// JSON cannot be written.
    pub fn layout(&self) -> anyhow::Result<Layer> {
        let (_, tag) = self.name.rsplit_once(':').unwrap_or(("", "latest"));
        let mut descriptor = match &self.index {
            Some(index) => json!({
                "mediaType": INDEX,
                "digest": digest(index),
                "size": index.len(),
            }),
            None => self.platforms[0].descriptor(),
        };
        descriptor["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        let root = serde_json::to_vec(&json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [descriptor],
        }))?;
        let mut layout = Layer::default();
        let version: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
        layout.file("oci-layout", 0o644, version);
        layout.file("index.json", 0o644, root);
        let blobs = self.platforms.iter();
        let blobs = blobs.flat_map(|it| [&it.manifest, &it.config, &it.layer]);
        for blob in blobs.chain(&self.index) {
            let hex = digest(blob).replace("sha256:", "");
            layout.file(&format!("blobs/sha256/{hex}"), 0o644, blob.as_slice());
        }
        Ok(layout)
    }

    /// Writes the layout as an archive that `ctr images import` reads.
    ///
    /// # Errors
    /// A path does not fit into a tar header, or the file cannot be written.
    pub fn write_archive(&self, path: &Path) -> anyhow::Result<()> {
        let archive = self.layout()?.tar(self.epoch)?;
        std::fs::write(path, archive).with_context(|| path.display().to_string())
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

/// A platform as configurations and indexes write it.
fn platform_json(platform: Platform) -> Value {
    let mut json = json!({ "architecture": platform.architecture(), "os": "linux" });
    if let Some(variant) = platform.variant() {
        json["variant"] = json!(variant);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(order: &[&str]) -> Image {
        image_for(Platform::Amd64, order)
    }

    fn image_for(platform: Platform, order: &[&str]) -> Image {
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
            platform,
        }
    }

    fn packed(image: &Image) -> Blobs {
        image.blobs(Compression::default()).expect("an image")
    }

    #[test]
    fn digest_depends_on_content_not_on_order() {
        let one = packed(&image(&["bin/a", "etc/b", "a"]));
        let same = packed(&image(&["a", "etc/b", "bin/a"]));
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), packed(&image(&["a", "etc/b"])).digest());
    }

    #[test]
    fn entries_are_sorted_owned_by_root_with_one_time() {
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

    /// The blob of a layout that a descriptor refers to, with its digest and size checked.
    fn resolve<'a>(layout: &'a Layer, descriptor: &Value) -> &'a [u8] {
        let named = descriptor["digest"].as_str().expect("a digest");
        let path = format!("blobs/sha256/{}", named.trim_start_matches("sha256:"));
        let blob = layout.content(&path).expect("a blob");
        assert_eq!(digest(blob), named);
        assert_eq!(descriptor["size"], blob.len());
        blob
    }

    fn json(text: &[u8]) -> Value {
        serde_json::from_slice(text).expect("JSON")
    }

    fn root(layout: &Layer) -> Value {
        json(layout.content("index.json").expect("an index"))
    }

    #[test]
    fn layout_of_one_platform_resolves_to_its_layer() {
        let image = image(&["bin/a"]);
        let packed = PackedImage::new(&image.name, image.epoch, vec![packed(&image)]);
        let packed = packed.expect("an image");
        let layout = packed.layout().expect("a layout");
        let root = root(&layout);
        let descriptor = &root["manifests"][0];
        assert_eq!(descriptor["mediaType"], MANIFEST);
        assert_eq!(descriptor["digest"], packed.digest());
        assert_eq!(
            descriptor["annotations"]["org.opencontainers.image.ref.name"],
            "1"
        );
        let manifest = json(resolve(&layout, descriptor));
        let config = json(resolve(&layout, &manifest["config"]));
        let mut unpacked = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(resolve(&layout, &manifest["layers"][0]));
        std::io::Read::read_to_end(&mut reader, &mut unpacked).expect("gzip");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&unpacked));
        assert_eq!(config["created"], "2023-11-14T22:13:20Z");
        assert_eq!(config["architecture"], "amd64");
        assert_eq!(config["variant"], Value::Null);
    }

    #[test]
    fn layout_of_two_platforms_resolves_through_an_index() {
        let images = [Platform::Arm64, Platform::Amd64].map(|platform| {
            let architecture = platform.architecture();
            packed(&image_for(platform, &["bin/a", architecture]))
        });
        let packed = PackedImage::new("windlass.local/x:1", 0, images.to_vec());
        let packed = packed.expect("an image");
        let layout = packed.layout().expect("a layout");
        let root = root(&layout);
        assert_eq!(root["mediaType"], INDEX);
        assert_eq!(root["manifests"].as_array().map(Vec::len), Some(1));
        let descriptor = &root["manifests"][0];
        assert_eq!(descriptor["mediaType"], INDEX);
        assert_eq!(descriptor["digest"], packed.digest());
        assert_eq!(
            descriptor["annotations"]["io.containerd.image.name"],
            "windlass.local/x:1"
        );
        let index = json(resolve(&layout, descriptor));
        assert_eq!(index["schemaVersion"], 2);
        assert_eq!(index["mediaType"], INDEX);
        let expected = [
            json!({ "architecture": "amd64", "os": "linux" }),
            json!({ "architecture": "arm64", "os": "linux", "variant": "v8" }),
        ];
        let manifests = index["manifests"].as_array().expect("manifests");
        assert_eq!(manifests.len(), expected.len());
        for (descriptor, platform) in manifests.iter().zip(expected) {
            assert_eq!(descriptor["platform"], platform);
            assert_eq!(descriptor["mediaType"], MANIFEST);
            let manifest = json(resolve(&layout, descriptor));
            let config = json(resolve(&layout, &manifest["config"]));
            for key in ["architecture", "os", "variant"] {
                assert_eq!(config[key], platform[key], "{key}");
            }
            resolve(&layout, &manifest["layers"][0]);
        }
    }

    #[test]
    fn packed_image_digest_is_independent_of_platform_order() {
        let [amd64, arm64] = Platform::ALL.map(|platform| packed(&image_for(platform, &["a"])));
        let pack = |platforms| PackedImage::new("x:1", 0, platforms);
        let one = pack(vec![amd64.clone(), arm64.clone()]).expect("an image");
        let other = pack(vec![arm64, amd64.clone()]).expect("an image");
        assert_eq!(one.digest(), other.digest());
        assert_ne!(one.digest(), amd64.digest());
    }

    #[test]
    fn packed_image_rejects_no_platform_and_duplicates() {
        let blobs = packed(&image(&["a"]));
        let error = |platforms| {
            let packed = PackedImage::new("x:1", 0, platforms);
            packed.expect_err("rejected").to_string()
        };
        assert_eq!(error(vec![]), "x:1: no platform");
        let twice = error(vec![blobs.clone(), blobs]);
        assert_eq!(twice, "x:1: two images for linux/amd64");
    }
}
