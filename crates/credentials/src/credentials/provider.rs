//! Plugins that return credentials when an image is pulled: their configuration
//! (`CredentialProviderConfig`), requests and responses.
//!
//! Upstream's `credentialprovider/plugin`. Error texts repeat nothing of an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use windlass_types::cri::ImageAuth;

use super::pattern::Pattern;
use super::{CredentialSource, Keyring, Layer, ObjectCoordinates, TrackedAuth};
use windlass_manifests::image_name::ImageName;
use windlass_manifests::yaml;
use windlass_pod_inputs::projection::Token;
use windlass_units::duration::GoDuration;

mod token;

pub use token::{AccountPlan, CacheType, MissingAnnotation, TokenAttributes};

use token::TokenAttributesEntry;

const CONFIG_KIND: &str = "CredentialProviderConfig";
const CONFIG_VERSIONS: [&str; 3] = [
    "kubelet.config.k8s.io/v1",
    "kubelet.config.k8s.io/v1beta1",
    "kubelet.config.k8s.io/v1alpha1",
];
const PLUGIN_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
/// Key of what is good for every image.
const GLOBAL: &str = "<global>";

/// One plugin, as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialProvider {
    /// Name, and that of its program.
    pub name: String,
    /// Arguments of its program.
    pub args: Vec<String>,
    /// Variables of its program besides the agent's own.
    pub env: Vec<(String, String)>,
    images: Vec<Pattern>,
    cache: Duration,
    version: &'static str,
    token: Option<TokenAttributes>,
}

/// A setting of a `CredentialProviderConfig` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{what}")]
pub struct ProviderFault {
    /// Path of the field with `: `, or nothing.
    field: String,
    /// What is wrong with it, and what it should be.
    what: String,
}

/// What a file of plugins says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadProviders {
    /// Plugins in the file's order.
    pub providers: Vec<CredentialProvider>,
    /// What is accepted and has no effect, each in one line.
    pub warnings: Vec<String>,
}

/// A response of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderAnswer {
    /// The credentials.
    pub keyring: Keyring,
    /// The one of [`CredentialProvider::cache_keys`] under which they are cached.
    pub key: String,
    /// For how long; zero is not at all.
    pub lifetime: Duration,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ConfigFile {
    api_version: String,
    kind: String,
    providers: Option<Vec<Entry>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Entry {
    name: String,
    match_images: Vec<String>,
    default_cache_duration: Option<GoDuration>,
    api_version: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    token_attributes: Option<TokenAttributesEntry>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Variable {
    name: String,
    value: String,
}

/// A pod's service account, for a plugin with `tokenAttributes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginAccount {
    /// The service account.
    pub object: ObjectCoordinates,
    /// Its annotations with the configured keys.
    pub annotations: BTreeMap<String, String>,
    /// Token that is bound to the pod.
    pub token: Token,
}

/// Reads a file of plugins. `names` are those of earlier files, and get its own. `tokens` is the
/// gate `KubeletServiceAccountTokenForCredentialProviders`.
///
/// # Errors
/// Every fault of the file.
pub fn read_providers(
    text: &[u8],
    names: &mut BTreeSet<String>,
    tokens: bool,
) -> Result<ReadProviders, Vec<ProviderFault>> {
    let (file, unknown) =
        yaml::from_slice::<ConfigFile>(text).map_err(|error| vec![fault("", error.to_string())])?;
    let mut faults = Vec::new();
    if file.kind != CONFIG_KIND || !CONFIG_VERSIONS.contains(&file.api_version.as_str()) {
        let what = format!(
            "this is {:?} of {:?}: write kind {CONFIG_KIND} and apiVersion {}",
            file.kind, file.api_version, CONFIG_VERSIONS[0]
        );
        faults.push(fault("", what));
    }
    let entries = file.providers.unwrap_or_default();
    if entries.is_empty() {
        faults.push(fault("providers", "none: name at least one".to_owned()));
    }
    let mut read = ReadProviders {
        warnings: unknown
            .iter()
            .map(|field| format!("{field}: unknown field, ignored"))
            .collect(),
        ..ReadProviders::default()
    };
    for (i, entry) in entries.into_iter().enumerate() {
        let path = format!("providers[{i}]");
        if !names.insert(entry.name.clone()) {
            let what = format!("{:?} is there twice: a name is for one plugin", entry.name);
            faults.push(fault(&format!("{path}.name"), what));
        }
        read.providers
            .extend(provider(entry, &path, tokens, &mut faults));
    }
    if faults.is_empty() {
        Ok(read)
    } else {
        Err(faults)
    }
}

fn provider(
    entry: Entry,
    path: &str,
    tokens: bool,
    faults: &mut Vec<ProviderFault>,
) -> Option<CredentialProvider> {
    let before = faults.len();
    let mut refuse =
        |field: &str, what: String| faults.push(fault(&format!("{path}.{field}"), what));
    let odd = |c: char| c == '/' || c.is_whitespace();
    if ["", ".", ".."].contains(&entry.name.as_str()) || entry.name.contains(odd) {
        let what = format!(
            "{:?} is no name of a program: no path, no space",
            entry.name
        );
        refuse("name", what);
    }
    let version = PLUGIN_VERSIONS.iter().find(|v| **v == entry.api_version);
    if version.is_none() {
        let what = format!(
            "{:?} is unknown: write {}",
            entry.api_version, PLUGIN_VERSIONS[0]
        );
        refuse("apiVersion", what);
    }
    if entry.match_images.is_empty() {
        refuse(
            "matchImages",
            "none: name images, as registry.io or *.registry.io/path".into(),
        );
    }
    let mut images = Vec::new();
    for (i, text) in entry.match_images.iter().enumerate() {
        match Pattern::parse(text) {
            Some(pattern) => images.push(pattern),
            None => {
                let what = format!("{text:?} is none: write a host, perhaps with port and path");
                refuse(&format!("matchImages[{i}]"), what);
            }
        }
    }
    let cache = entry.default_cache_duration;
    if cache.is_none_or(|cache| cache < GoDuration::ZERO) {
        let what = "missing or negative: write a duration, 0s to keep nothing".to_owned();
        refuse("defaultCacheDuration", what);
    }
    let attributes = entry.token_attributes.map(|attributes| {
        let path = format!("{path}.tokenAttributes");
        if !tokens {
            faults.push(fault(&path, token::GATE_OFF.to_owned()));
        }
        if version != Some(&PLUGIN_VERSIONS[0]) {
            let what = format!(
                "Forbidden: tokenAttributes is only supported for {} API version",
                PLUGIN_VERSIONS[0]
            );
            faults.push(fault(&path, what));
        }
        attributes.check(&path, faults)
    });
    if faults.len() > before {
        return None;
    }
    let env = entry.env.unwrap_or_default().into_iter();
    Some(CredentialProvider {
        name: entry.name,
        args: entry.args.unwrap_or_default(),
        env: env.map(|v| (v.name, v.value)).collect(),
        images,
        cache: cache?.to_std(),
        version: version?,
        token: attributes.flatten(),
    })
}

fn fault(field: &str, what: String) -> ProviderFault {
    let field = match field {
        "" => String::new(),
        field => format!("{field}: "),
    };
    ProviderFault { field, what }
}

impl CredentialProvider {
    /// True if the plugin is executed for this image.
    pub fn is_for(&self, image: &ImageName) -> bool {
        let mut images = self.images.iter();
        images.any(|pattern| pattern.matches(&image.registry, &image.repository))
    }

    /// Returns `tokenAttributes`.
    pub fn token_attributes(&self) -> Option<&TokenAttributes> {
        self.token.as_ref()
    }

    /// Returns the text for the standard input of its program.
    pub fn request(&self, image: &ImageName, account: Option<&PluginAccount>) -> String {
        let mut request = json!({
            "kind": "CredentialProviderRequest",
            "apiVersion": self.version,
            "image": repository(image),
        });
        if let Some(account) = account {
            request["serviceAccountToken"] = json!(account.token.0);
            if !account.annotations.is_empty() {
                request["serviceAccountAnnotations"] = json!(account.annotations);
            }
        }
        request.to_string()
    }

    /// Returns the keys under which credentials for an image may be cached: of the image, of its
    /// registry, and of all images. Credentials for a service account have keys of their own.
    pub fn cache_keys(&self, image: &ImageName, account: Option<&PluginAccount>) -> [String; 3] {
        let keys = [repository(image), image.registry.clone(), GLOBAL.to_owned()];
        let Some((account, token)) = account.zip(self.token.as_ref()) else {
            return keys;
        };
        let token_hash = match token.cache_type {
            CacheType::ServiceAccount => None,
            CacheType::Token => Some(hex(&Sha256::digest(account.token.0.as_bytes()))),
        };
        let ObjectCoordinates {
            uid,
            namespace,
            name,
        } = &account.object;
        let suffix = json!([namespace, name, uid, account.annotations, token_hash]);
        keys.map(|key| format!("{key} {suffix}"))
    }

    /// Reads the standard output of its program.
    ///
    /// # Errors
    /// What is wrong with the output. The text has nothing of the output's values.
    pub fn answer(
        &self,
        image: &ImageName,
        account: Option<&PluginAccount>,
        output: &[u8],
    ) -> Result<ProviderAnswer, String> {
        let answer: Answer = serde_json::from_slice(output).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("no CredentialProviderResponse in JSON (line {line}, column {column})")
        })?;
        if answer.kind != "CredentialProviderResponse" || answer.api_version != self.version {
            let (kind, version) = (answer.kind, answer.api_version);
            let asked = self.version;
            return Err(format!(
                "{kind:?} of {version:?}, not CredentialProviderResponse of {asked:?}"
            ));
        }
        self.check_echo(image, account, &answer)?;
        let [by_image, by_registry, by_all] = self.cache_keys(image, account);
        let key = match answer.cache_key_type.as_str() {
            "Image" => by_image,
            "Registry" => by_registry,
            "Global" => by_all,
            other => {
                return Err(format!(
                    "cacheKeyType is {other:?}, not Image, Registry or Global"
                ));
            }
        };
        let mut layer = Layer::default();
        for (pattern, login) in answer.auth.unwrap_or_default() {
            // as upstream, an invalid pattern is ignored
            if let Some(pattern) = Pattern::parse(&pattern) {
                let auth = ImageAuth {
                    username: login.username,
                    password: login.password,
                    ..ImageAuth::default()
                };
                layer.entries.entry(pattern).or_default().push(TrackedAuth {
                    auth,
                    source: account
                        .map(|account| CredentialSource::ServiceAccount(account.object.clone())),
                });
            }
        }
        let lifetime = answer.cache_duration.map(GoDuration::to_std);
        Ok(ProviderAnswer {
            keyring: layer.into_keyring(),
            key,
            lifetime: lifetime.unwrap_or(self.cache),
        })
    }

    /// As upstream, a token that is the password itself must not serve other pods.
    fn check_echo(
        &self,
        image: &ImageName,
        account: Option<&PluginAccount>,
        answer: &Answer,
    ) -> Result<(), String> {
        let shared = self.token.as_ref().map(|token| token.cache_type);
        let (Some(account), Some(CacheType::ServiceAccount)) = (account, shared) else {
            return Ok(());
        };
        let mut logins = answer.auth.iter().flat_map(BTreeMap::values);
        if logins.any(|login| login.password == account.token.0) {
            return Err(format!(
                "Credential provider plugin returned the service account token as the password \
                 for image {:?}, which is not allowed when service account cache type is not set \
                 to 'Token'",
                repository(image)
            ));
        }
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The image without its tag and digest, as plugins get it.
fn repository(image: &ImageName) -> String {
    format!("{}/{}", image.registry, image.repository)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    kind: String,
    api_version: String,
    cache_key_type: String,
    cache_duration: Option<GoDuration>,
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Login {
    username: String,
    password: String,
}

#[cfg(test)]
mod tests;
