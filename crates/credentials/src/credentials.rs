//! Registry credentials: docker config files and pull secrets, matched against image names.
//!
//! Mirrors upstream's `credentialprovider`: the patterns of one layer are tried from the last in
//! sort order to the first, so that a longer path comes before its host; the pod's secrets are
//! one layer, the node's files the next. One bad entry is reported and takes no other down.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::cri::ImageAuth;

use windlass_manifests::image_name::ImageName;
use windlass_pod_inputs::projection::SecretContent;

mod config;
mod pattern;
pub mod provider;

pub use config::{CredentialFault, DockerConfigFormat};

use pattern::Pattern;

/// Type of a Secret with a `config.json`.
const TYPE_CONFIG_JSON: &str = "kubernetes.io/dockerconfigjson";
/// Type of a Secret with a `.dockercfg`.
const TYPE_DOCKERCFG: &str = "kubernetes.io/dockercfg";
/// Pattern that stands for Docker Hub whatever its host is called.
const DOCKER_HUB: &str = "index.docker.io";

/// Credentials in the order in which they are tried. Clones share them.
#[derive(Clone, Default, PartialEq)]
pub struct Keyring {
    layers: Vec<Arc<Layer>>,
}

#[derive(Default, PartialEq)]
struct Layer {
    /// By pattern; several for one pattern are tried in the order in which they were found.
    entries: BTreeMap<Pattern, Vec<TrackedAuth>>,
}

/// Credentials, and the object that they come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedAuth {
    /// The credentials.
    pub auth: ImageAuth,
    /// `None` if they belong to the node: every pod may use images that they give access to.
    pub source: Option<CredentialSource>,
}

/// The object that a pod's credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A pull secret.
    Secret(ObjectCoordinates),
    /// The service account whose token a plugin received.
    ServiceAccount(ObjectCoordinates),
}

/// Identifies a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ObjectCoordinates {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} entries)", self.len())
    }
}

/// Credentials and what could not be read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadCredentials {
    /// What could be read.
    pub keyring: Keyring,
    /// What could not, each in one line.
    pub faults: Vec<CredentialFault>,
}

impl Keyring {
    /// Reads a docker config file. `origin` says where it comes from, for the faults.
    pub fn from_file(format: DockerConfigFormat, text: &[u8], origin: &str) -> ReadCredentials {
        let mut layer = Layer::default();
        let mut faults = Vec::new();
        layer.read(format, text, origin, None, &mut faults);
        ReadCredentials {
            keyring: layer.into_keyring(),
            faults,
        }
    }

    /// Reads pull secrets, given by name in the pod's order. A secret of another type or without
    /// the key of its type has no credentials, which is no fault upstream either.
    pub fn from_secrets<'a>(
        namespace: &str,
        secrets: impl IntoIterator<Item = (&'a str, &'a SecretContent)>,
    ) -> ReadCredentials {
        let mut layer = Layer::default();
        let mut faults = Vec::new();
        for (name, secret) in secrets {
            let (format, key) = match secret.secret_type.as_str() {
                TYPE_CONFIG_JSON => (DockerConfigFormat::ConfigJson, ".dockerconfigjson"),
                TYPE_DOCKERCFG => (DockerConfigFormat::Dockercfg, ".dockercfg"),
                _ => continue,
            };
            if let Some(text) = secret.data.get(key).filter(|text| !text.is_empty()) {
                let origin = format!("secret {namespace}/{name}, key {key}");
                let coordinates = ObjectCoordinates {
                    uid: secret.uid.clone(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                };
                layer.read(format, text, &origin, Some(&coordinates), &mut faults);
            }
        }
        ReadCredentials {
            keyring: layer.into_keyring(),
            faults,
        }
    }

    /// This keyring, and after it another.
    #[must_use]
    pub fn then(mut self, other: &Self) -> Self {
        self.layers.extend(other.layers.iter().cloned());
        self
    }

    /// What to try for an image, best match first, each once. Nothing for a name that is no
    /// image reference. Only if there is nothing, the pull is anonymous.
    pub fn lookup(&self, image: &str) -> Vec<ImageAuth> {
        let mut found: Vec<ImageAuth> = Vec::new();
        for tracked in self.lookup_tracked(image) {
            if !found.contains(&tracked.auth) {
                found.push(tracked.auth);
            }
        }
        found
    }

    /// As [`Self::lookup`] with their origins: equal credentials of two Secrets are two entries.
    pub fn lookup_tracked(&self, image: &str) -> Vec<TrackedAuth> {
        let Ok(name) = ImageName::parse(image) else {
            return Vec::new();
        };
        let layers = self.layers.iter();
        layers
            .flat_map(|layer| layer.lookup(&name))
            .cloned()
            .collect()
    }

    /// True if there are no credentials at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        let entries = self.layers.iter().flat_map(|l| l.entries.values());
        entries.map(Vec::len).sum()
    }
}

impl Layer {
    fn read(
        &mut self,
        format: DockerConfigFormat,
        text: &[u8],
        origin: &str,
        secret: Option<&ObjectCoordinates>,
        faults: &mut Vec<CredentialFault>,
    ) {
        for (pattern, auth) in config::read(format, text, origin, faults) {
            let source = secret.cloned().map(CredentialSource::Secret);
            let tracked = TrackedAuth { auth, source };
            self.entries.entry(pattern).or_default().push(tracked);
        }
    }

    fn into_keyring(self) -> Keyring {
        if self.entries.is_empty() {
            return Keyring::default();
        }
        Keyring {
            layers: vec![Arc::new(self)],
        }
    }

    fn lookup(&self, image: &ImageName) -> Vec<&TrackedAuth> {
        let matching = self.entries.iter().rev();
        let found: Vec<_> = matching
            .filter(|(pattern, _)| pattern.matches(&image.registry, &image.repository))
            .flat_map(|(_, auths)| auths)
            .collect();
        // `https://index.docker.io/v1/` is what `docker login` writes for Docker Hub
        if found.is_empty() && image.registry == "docker.io" {
            let hub = self.entries.get(&Pattern::host(DOCKER_HUB));
            return hub.into_iter().flatten().collect();
        }
        found
    }
}

#[cfg(test)]
mod tests;
