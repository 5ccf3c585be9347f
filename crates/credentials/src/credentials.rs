//! Registry credentials: docker config files and pull secrets, matched against image names.
//!
//! As upstream's `credentialprovider`: the patterns of one layer are tried in reverse sort order,
//! so that a longer path precedes its host. The pod's Secrets are the first layer, the node's files
//! the next. An invalid entry is reported and does not affect the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::cri::ImageAuth;

use windlass_manifests::image_name::ImageName;
use windlass_pod_inputs::projection::SecretContent;

mod config;
mod pattern;
pub mod provider;

pub use config::{CredentialError, DockerConfigFormat};

use pattern::Pattern;

/// Type of a Secret with a `config.json`.
const TYPE_CONFIG_JSON: &str = "kubernetes.io/dockerconfigjson";
/// Type of a Secret with a `.dockercfg`.
const TYPE_DOCKERCFG: &str = "kubernetes.io/dockercfg";
/// Pattern of Docker Hub for all of its host names.
const DOCKER_HUB: &str = "index.docker.io";

/// Credentials in order of use. Clones share them.
#[derive(Clone, Default, PartialEq)]
pub struct Keyring {
    layers: Vec<Arc<Layer>>,
}

#[derive(Default, PartialEq)]
struct Layer {
    /// By pattern; credentials of one pattern keep the order of the source.
    entries: BTreeMap<Pattern, Vec<TrackedAuth>>,
}

/// Credentials with their source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackedAuth {
    /// The credentials.
    pub auth: ImageAuth,
    /// `None` for credentials of the node: every pod may use the images that they pulled.
    pub source: Option<CredentialSource>,
}

/// Source object of a pod's credentials.
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

/// Credentials and the errors of invalid entries.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadCredentials {
    /// Valid credentials.
    pub keyring: Keyring,
    /// Errors, one line each.
    pub errors: Vec<CredentialError>,
}

impl Keyring {
    /// Reads a docker config file. `origin` is its name in errors.
    pub fn from_file(format: DockerConfigFormat, text: &[u8], origin: &str) -> ReadCredentials {
        let mut layer = Layer::default();
        let mut errors = Vec::new();
        layer.read(format, text, origin, None, &mut errors);
        ReadCredentials {
            keyring: layer.into_keyring(),
            errors,
        }
    }

    /// Reads pull Secrets by name in the pod's order. As upstream, a Secret of another type or
    /// without the key of its type has no credentials and no error.
    pub fn from_secrets<'a>(
        namespace: &str,
        secrets: impl IntoIterator<Item = (&'a str, &'a SecretContent)>,
    ) -> ReadCredentials {
        let mut layer = Layer::default();
        let mut errors = Vec::new();
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
                layer.read(format, text, &origin, Some(&coordinates), &mut errors);
            }
        }
        ReadCredentials {
            keyring: layer.into_keyring(),
            errors,
        }
    }

    /// Appends another keyring.
    #[must_use]
    pub fn then(mut self, other: &Self) -> Self {
        self.layers.extend(other.layers.iter().cloned());
        self
    }

    /// Returns the distinct credentials for an image, best match first. Without any, the pull is
    /// anonymous. An invalid image reference has none.
    pub fn lookup(&self, image: &str) -> Vec<ImageAuth> {
        let mut found: Vec<ImageAuth> = Vec::new();
        for tracked in self.lookup_tracked(image) {
            if !found.contains(&tracked.auth) {
                found.push(tracked.auth);
            }
        }
        found
    }

    /// Like [`Self::lookup`], with sources: equal credentials of two Secrets are two entries.
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

    /// Returns true without credentials.
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
        errors: &mut Vec<CredentialError>,
    ) {
        for (pattern, auth) in config::read(format, text, origin, errors) {
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
