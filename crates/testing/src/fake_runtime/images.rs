//! Images of the fake runtime.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};
use windlass_types::cri::ImageInfo;

use super::behavior::Pull;

/// Present images and results of pulls.
#[derive(Debug, Default)]
pub(super) struct ImageStore {
    present: BTreeMap<String, ImageInfo>,
    pulls: BTreeMap<String, Pull>,
    /// Size of their file system.
    pub(super) capacity: u64,
    /// Bytes of other files on it.
    pub(super) other_bytes: u64,
    /// Image of sandboxes, by any of its names.
    pub(super) sandbox_image: Option<String>,
}

impl ImageStore {
    /// Adds an image and returns its ID.
    pub(super) fn add(&mut self, reference: &str) -> String {
        let info = describe(reference);
        let id = info.id.clone();
        self.present.insert(id.clone(), info);
        id
    }

    pub(super) fn change(&mut self, reference: &str, change: impl FnOnce(&mut ImageInfo)) {
        let id = self.add(reference);
        if let Some(info) = self.present.get_mut(&id) {
            change(info);
        }
    }

    /// Removes an image by any of its names.
    pub(super) fn remove(&mut self, reference: &str) {
        if let Some(id) = self.resolve(reference).map(|info| info.id.clone()) {
            self.present.remove(&id);
        }
    }

    /// Returns an image by ID, tag or digest, short or full.
    pub(super) fn resolve(&self, reference: &str) -> Option<&ImageInfo> {
        let full = normalize(reference);
        self.present.get(reference).or_else(|| {
            self.present.values().find(|info| {
                info.id.strip_prefix("sha256:") == Some(reference)
                    || info.repo_tags.contains(&full)
                    || info.repo_digests.contains(&full)
            })
        })
    }

    pub(super) fn list(&self) -> Vec<ImageInfo> {
        self.present.values().cloned().collect()
    }

    /// Returns size and free bytes of the file system.
    pub(super) fn space(&self) -> (u64, u64) {
        let images: u64 = self.present.values().map(|info| info.size).sum();
        let used = images + self.other_bytes;
        (self.capacity, self.capacity.saturating_sub(used))
    }

    pub(super) fn set_pull(&mut self, reference: &str, pull: Pull) {
        self.pulls.insert(normalize(reference), pull);
    }

    pub(super) fn pull(&self, reference: &str) -> Pull {
        self.pulls
            .get(&normalize(reference))
            .cloned()
            .unwrap_or_default()
    }
}

fn describe(reference: &str) -> ImageInfo {
    let full = normalize(reference);
    let id = format!("sha256:{}", hex_digest(&format!("config of {full}")));
    let (repo_tags, repo_digests) = match full.split_once('@') {
        Some(_) => (Vec::new(), vec![full.clone()]),
        None => {
            let repository = full
                .rsplit_once(':')
                .map_or(full.as_str(), |(name, _)| name);
            let digest = hex_digest(&format!("manifest of {full}"));
            (
                vec![full.clone()],
                vec![format!("{repository}@sha256:{digest}")],
            )
        }
    };
    ImageInfo {
        id,
        repo_tags,
        repo_digests,
        size: 1 << 20,
        ..ImageInfo::default()
    }
}

/// Normalizes a reference by the rules of Docker.
fn normalize(reference: &str) -> String {
    if reference.starts_with("sha256:") {
        return reference.to_owned();
    }
    let has_registry = reference.split_once('/').is_some_and(|(first, _)| {
        first.contains('.') || first.contains(':') || first == "localhost"
    });
    let name = match (has_registry, reference.contains('/')) {
        (true, _) => reference.to_owned(),
        (false, true) => format!("docker.io/{reference}"),
        (false, false) => format!("docker.io/library/{reference}"),
    };
    let last = name.rsplit('/').next().unwrap_or_default();
    match last.contains(':') || last.contains('@') {
        true => name,
        false => format!("{name}:latest"),
    }
}

fn hex_digest(text: &str) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{ImageStore, normalize};

    #[test]
    fn short_references_are_filled_in() {
        assert_eq!(normalize("nginx"), "docker.io/library/nginx:latest");
        assert_eq!(normalize("bitnami/redis:7"), "docker.io/bitnami/redis:7");
        assert_eq!(normalize("quay.io/a/b"), "quay.io/a/b:latest");
        assert_eq!(normalize("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(normalize("a@sha256:1"), "docker.io/library/a@sha256:1");
    }

    #[test]
    fn an_image_is_found_by_each_of_its_names() {
        let mut store = ImageStore::default();
        let id = store.add("nginx:1");
        let digest = store.list()[0].repo_digests[0].clone();
        for name in [
            "nginx:1",
            "docker.io/library/nginx:1",
            &id,
            &id[7..],
            &digest,
        ] {
            assert!(store.resolve(name).is_some(), "{name}");
        }
        assert!(store.resolve("nginx").is_none());
        store.remove(&digest);
        assert!(store.resolve("nginx:1").is_none());
    }
}
