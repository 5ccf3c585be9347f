//! Plugins that return credentials when an image is pulled: their configuration
//! (`CredentialProviderConfig`), requests and responses.
//!
//! As upstream's `credentialprovider/plugin`. Errors contain nothing of a response.

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
/// Cache key for all images.
const GLOBAL: &str = "<global>";

/// A configured plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialProvider {
    /// Name of the plugin and its program.
    pub name: String,
    /// Arguments of its program.
    pub args: Vec<String>,
    /// Environment variables, in addition to those of the agent.
    pub env: Vec<(String, String)>,
    images: Vec<Pattern>,
    cache: Duration,
    version: &'static str,
    token: Option<TokenAttributes>,
}

/// Error of a field of a `CredentialProviderConfig`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{what}")]
pub struct ProviderError {
    /// Path of the field with `: `, or empty.
    field: String,
    /// Cause, and what to write.
    what: String,
}

/// Content of a `CredentialProviderConfig`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadProviders {
    /// Plugins in the order of the file.
    pub providers: Vec<CredentialProvider>,
    /// Ignored fields, one line each.
    pub warnings: Vec<String>,
}

/// A response of a plugin.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderResponse {
    /// The credentials.
    pub keyring: Keyring,
    /// Cache key, one of [`CredentialProvider::cache_keys`].
    pub key: String,
    /// Cache duration; zero disables caching.
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

/// Reads a `CredentialProviderConfig`. `names` has the plugins of earlier files and is extended.
/// `tokens` is the feature gate `KubeletServiceAccountTokenForCredentialProviders`.
///
/// # Errors
/// All errors of the file.
pub fn read_providers(
    text: &[u8],
    names: &mut BTreeSet<String>,
    tokens: bool,
) -> Result<ReadProviders, Vec<ProviderError>> {
    let (file, unknown) = yaml::from_slice::<ConfigFile>(text)
        .map_err(|error| vec![invalid_field("", error.to_string())])?;
    let mut errors = Vec::new();
    if file.kind != CONFIG_KIND || !CONFIG_VERSIONS.contains(&file.api_version.as_str()) {
        let what = format!(
            "unexpected kind {:?} of {:?}; write kind {CONFIG_KIND} and apiVersion {}",
            file.kind, file.api_version, CONFIG_VERSIONS[0]
        );
        errors.push(invalid_field("", what));
    }
    let entries = file.providers.unwrap_or_default();
    if entries.is_empty() {
        errors.push(invalid_field(
            "providers",
            "at least one is required".to_owned(),
        ));
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
            let what = format!("duplicate name {:?}", entry.name);
            errors.push(invalid_field(&format!("{path}.name"), what));
        }
        read.providers
            .extend(provider(entry, &path, tokens, &mut errors));
    }
    if errors.is_empty() {
        Ok(read)
    } else {
        Err(errors)
    }
}

fn provider(
    entry: Entry,
    path: &str,
    tokens: bool,
    errors: &mut Vec<ProviderError>,
) -> Option<CredentialProvider> {
    let before = errors.len();
    let mut reject =
        |field: &str, what: String| errors.push(invalid_field(&format!("{path}.{field}"), what));
    let odd = |c: char| c == '/' || c.is_whitespace();
    if ["", ".", ".."].contains(&entry.name.as_str()) || entry.name.contains(odd) {
        let what = format!(
            "{:?} must be a program name without path and spaces",
            entry.name
        );
        reject("name", what);
    }
    let version = PLUGIN_VERSIONS.iter().find(|v| **v == entry.api_version);
    if version.is_none() {
        let what = format!(
            "unknown version {:?}; write {}",
            entry.api_version, PLUGIN_VERSIONS[0]
        );
        reject("apiVersion", what);
    }
    if entry.match_images.is_empty() {
        reject(
            "matchImages",
            "at least one is required, such as registry.io or *.registry.io/path".into(),
        );
    }
    let mut images = Vec::new();
    for (i, text) in entry.match_images.iter().enumerate() {
        match Pattern::parse(text) {
            Some(pattern) => images.push(pattern),
            None => {
                let what = format!("{text:?} must be a host with optional port and path");
                reject(&format!("matchImages[{i}]"), what);
            }
        }
    }
    let cache = entry.default_cache_duration;
    if cache.is_none_or(|cache| cache < GoDuration::ZERO) {
        let what = "missing or negative; write a duration, 0s to disable caching".to_owned();
        reject("defaultCacheDuration", what);
    }
    let attributes = entry.token_attributes.map(|attributes| {
        let path = format!("{path}.tokenAttributes");
        if !tokens {
            errors.push(invalid_field(&path, token::GATE_OFF.to_owned()));
        }
        if version != Some(&PLUGIN_VERSIONS[0]) {
            let what = format!(
                "Forbidden: tokenAttributes is only supported for {} API version",
                PLUGIN_VERSIONS[0]
            );
            errors.push(invalid_field(&path, what));
        }
        attributes.check(&path, errors)
    });
    if errors.len() > before {
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

fn invalid_field(field: &str, what: String) -> ProviderError {
    let field = match field {
        "" => String::new(),
        field => format!("{field}: "),
    };
    ProviderError { field, what }
}

impl CredentialProvider {
    /// Returns true if the plugin is executed for this image.
    pub fn is_for(&self, image: &ImageName) -> bool {
        let mut images = self.images.iter();
        images.any(|pattern| pattern.matches(&image.registry, &image.repository))
    }

    /// Returns `tokenAttributes`.
    pub fn token_attributes(&self) -> Option<&TokenAttributes> {
        self.token.as_ref()
    }

    /// Returns the standard input of its program.
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
    /// registry, and of all images. Credentials for a service account have separate keys.
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

    /// Parses the standard output of its program.
    ///
    /// # Errors
    /// The output is invalid. The text contains none of its values.
    pub fn read_response(
        &self,
        image: &ImageName,
        account: Option<&PluginAccount>,
        output: &[u8],
    ) -> Result<ProviderResponse, String> {
        let response: ResponseBody = serde_json::from_slice(output).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("not a CredentialProviderResponse in JSON (line {line}, column {column})")
        })?;
        if response.kind != "CredentialProviderResponse" || response.api_version != self.version {
            let (kind, version) = (response.kind, response.api_version);
            let expected = self.version;
            return Err(format!(
                "{kind:?} of {version:?}, not CredentialProviderResponse of {expected:?}"
            ));
        }
        self.check_echo(image, account, &response)?;
        let [by_image, by_registry, by_all] = self.cache_keys(image, account);
        let key = match response.cache_key_type.as_str() {
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
        for (pattern, login) in response.auth.unwrap_or_default() {
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
        let lifetime = response.cache_duration.map(GoDuration::to_std);
        Ok(ProviderResponse {
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
        response: &ResponseBody,
    ) -> Result<(), String> {
        let shared = self.token.as_ref().map(|token| token.cache_type);
        let (Some(account), Some(CacheType::ServiceAccount)) = (account, shared) else {
            return Ok(());
        };
        let mut logins = response.auth.iter().flat_map(BTreeMap::values);
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

/// Returns the image without tag and digest, as plugins receive it.
fn repository(image: &ImageName) -> String {
    format!("{}/{}", image.registry, image.repository)
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResponseBody {
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
