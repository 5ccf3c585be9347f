//! Whether a pod may use a present image (`imagePullCredentialsVerificationPolicy`).
//!
//! The agent records the credentials of each pull. A pod that uses the same image must have
//! credentials that pulled it before, or pull it again. The records are upstream's
//! (`ImagePulledRecord`, `ImagePullIntent`), so the Go kubelet and this agent can exchange them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use windlass_types::Timestamp;
use windlass_types::cri::{ImageAuth, ImageInfo};

use crate::credentials::{CredentialSource, ObjectCoordinates, TrackedAuth};
use windlass_manifests::image_name::ImageName;
use windlass_units::hash::go_json_string;

/// Max number of Secrets in a record up to which more are added without a pull (upstream's).
const MAX_ADDED_SECRETS: usize = 100;

/// Which images need verification. Upstream's names and semantics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerificationPolicy {
    /// No image.
    NeverVerify,
    /// Images that the agent pulled. Every pod may use preloaded images.
    #[default]
    NeverVerifyPreloadedImages,
    /// All images that the list does not match.
    NeverVerifyAllowlistedImages(Vec<AllowlistPattern>),
    /// All images.
    AlwaysVerify,
}

/// An entry of `preloadedImagesVerificationAllowlist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowlistPattern {
    /// One repository with its registry.
    Repository(String),
    /// All repositories whose names start with this prefix, which ends with a slash.
    Prefix(String),
}

/// Error of an allowlist entry, with upstream's text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowlistError {
    /// Leading or trailing white space.
    #[error("leading/trailing spaces are not allowed: {0}")]
    Spaces(String),
    /// Empty.
    #[error("the supplied pattern is too short: {0}")]
    Short(String),
    /// An asterisk that is not the last component.
    #[error("not a valid wildcard pattern, only patterns ending with '/*' are allowed: {0}")]
    Wildcard(String),
    /// No registry before the wildcard.
    #[error("at least registry hostname is required")]
    NoRegistry,
    /// Not an image name.
    #[error("failed to parse as an image name: {0}")]
    Name(String),
    /// A tag, a digest, or no registry.
    #[error("neither tag nor digest is accepted in an image reference: {0}")]
    Tagged(String),
}

impl AllowlistPattern {
    /// Reads an entry.
    ///
    /// # Errors
    /// The entry is neither a repository with its registry nor a prefix with `/*`.
    pub fn parse(text: &str) -> Result<Self, AllowlistError> {
        let text_owned = || text.to_owned();
        if text != text.trim() {
            return Err(AllowlistError::Spaces(text_owned()));
        }
        if text.is_empty() {
            return Err(AllowlistError::Short(text_owned()));
        }
        let prefix = text.strip_suffix('*').filter(|rest| rest.ends_with('/'));
        if prefix.unwrap_or(text).contains('*') {
            return Err(AllowlistError::Wildcard(text_owned()));
        }
        match prefix {
            Some("/") => Err(AllowlistError::NoRegistry),
            Some(prefix) => Ok(Self::Prefix(prefix.to_owned())),
            None => {
                let name = ImageName::parse(text)
                    .map_err(|error| AllowlistError::Name(error.kind.to_string()))?;
                if name.name() != text {
                    return Err(AllowlistError::Tagged(text_owned()));
                }
                Ok(Self::Repository(text_owned()))
            }
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Repository(repository) => repository == name,
            Self::Prefix(prefix) => name.starts_with(prefix),
        }
    }
}

impl VerificationPolicy {
    /// Reads the two fields of the configuration.
    ///
    /// # Errors
    /// An entry of the list is invalid. An unknown policy is the default, because the validation of
    /// the configuration rejects it.
    pub fn from_config(policy: &str, allowlist: &[String]) -> Result<Self, AllowlistError> {
        Ok(match policy {
            "NeverVerify" => Self::NeverVerify,
            "AlwaysVerify" => Self::AlwaysVerify,
            "NeverVerifyAllowlistedImages" => {
                let patterns = allowlist.iter();
                let patterns = patterns.map(|text| AllowlistPattern::parse(text));
                Self::NeverVerifyAllowlistedImages(patterns.collect::<Result<_, _>>()?)
            }
            _ => Self::NeverVerifyPreloadedImages,
        })
    }

    fn needs_verification(&self, image: &ImageName, pulled_by_agent: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => pulled_by_agent,
            Self::NeverVerifyAllowlistedImages(patterns) => {
                let name = image.name();
                !patterns.iter().any(|pattern| pattern.matches(&name))
            }
            Self::AlwaysVerify => true,
        }
    }
}

/// A pull that was started and may have succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePullIntent {
    /// Image reference of the pod spec.
    pub image: String,
}

/// An image that the agent pulled, and with which credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImagePulledRecord {
    /// Time of the last change, in whole seconds.
    pub last_updated_time: Option<Timestamp>,
    /// The runtime's ID of the image.
    pub image_ref: String,
    /// By image name without tag and digest. An absent name was not pulled, or its credentials are
    /// unknown.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

/// Credentials that pulled an image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImagePullCredentials {
    /// Pods' Secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_secrets: Vec<ImagePullSecret>,
    /// Pods' service accounts, whose tokens credential provider plugins received.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<ImagePullServiceAccount>,
    /// True for a pull without credentials or with the node's: every pod may use the image.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

/// A Secret that pulled an image.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImagePullSecret {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// SHA-256 of the credentials.
    #[serde(default)]
    pub credential_hash: String,
}

/// A service account that pulled an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImagePullServiceAccount {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

impl ImagePullSecret {
    fn from_auth(tracked: &TrackedAuth) -> Option<Self> {
        let Some(CredentialSource::Secret(secret)) = &tracked.source else {
            return None;
        };
        Some(Self {
            uid: secret.uid.clone(),
            namespace: secret.namespace.clone(),
            name: secret.name.clone(),
            credential_hash: credential_hash(&tracked.auth),
        })
    }

    fn same_object(&self, other: &Self) -> bool {
        self.uid == other.uid && self.namespace == other.namespace && self.name == other.name
    }
}

impl ImagePullServiceAccount {
    fn from_auth(tracked: &TrackedAuth) -> Option<Self> {
        let Some(CredentialSource::ServiceAccount(account)) = &tracked.source else {
            return None;
        };
        let ObjectCoordinates {
            uid,
            namespace,
            name,
        } = account.clone();
        Some(Self {
            uid,
            namespace,
            name,
        })
    }
}

impl ImagePullCredentials {
    /// Returns the record of a pull with these credentials; `None` was anonymous.
    pub fn for_pull(used: Option<&TrackedAuth>) -> Self {
        let secret = used.and_then(ImagePullSecret::from_auth);
        let account = used.and_then(ImagePullServiceAccount::from_auth);
        Self {
            node_pods_accessible: secret.is_none() && account.is_none(),
            kubernetes_secrets: secret.into_iter().collect(),
            kubernetes_service_accounts: account.into_iter().collect(),
        }
    }

    /// Returns the record of one Secret.
    pub fn secret(secret: ImagePullSecret) -> Self {
        Self {
            kubernetes_secrets: vec![secret],
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the credentials of `new`; returns false if nothing changes.
    fn merge(&mut self, new: Self) -> bool {
        if self.node_pods_accessible {
            return false;
        }
        if new.node_pods_accessible {
            *self = Self {
                node_pods_accessible: true,
                ..Self::default()
            };
            return true;
        }
        let before = self.clone();
        for secret in new.kubernetes_secrets {
            let secrets = &mut self.kubernetes_secrets;
            secrets.retain(|known| !known.same_object(&secret));
            secrets.push(secret);
        }
        // upstream's order: namespace, name, UID
        self.kubernetes_secrets
            .sort_by(|a, b| (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid)));
        let accounts = &mut self.kubernetes_service_accounts;
        for account in new.kubernetes_service_accounts {
            if !accounts.contains(&account) {
                accounts.push(account);
                accounts.sort_by(|a, b| {
                    (&a.namespace, &a.name, &a.uid).cmp(&(&b.namespace, &b.name, &b.uid))
                });
            }
        }
        *self != before
    }
}

impl ImagePulledRecord {
    /// Returns the record after a pull, or `None` if it does not change. `credentials` of `None`
    /// are unknown: the image counts as pulled, and every pod must verify.
    pub fn after_pull(
        before: Option<Self>,
        image: &ImageName,
        image_ref: &str,
        credentials: Option<ImagePullCredentials>,
        now: Timestamp,
    ) -> Option<Self> {
        let credentials = credentials.filter(|credentials| !credentials.is_empty());
        let (mut record, new) = match before {
            Some(record) => (record, false),
            None => (
                Self {
                    last_updated_time: None,
                    image_ref: image_ref.to_owned(),
                    credential_mapping: BTreeMap::new(),
                },
                true,
            ),
        };
        let changed = credentials.is_some_and(|credentials| {
            let mapping = record.credential_mapping.entry(image.name());
            mapping.or_default().merge(credentials)
        });
        if !new && !changed {
            return None;
        }
        // whole seconds, as in the API
        record.last_updated_time = Timestamp::from_second(now.as_second()).ok();
        Some(record)
    }

    /// True if the image was removed: the list of images that was requested at `listed` lacks it.
    pub fn is_stale(&self, images: &[ImageInfo], listed: Timestamp) -> bool {
        let older = self.last_updated_time.is_none_or(|at| at < listed);
        older && !images.iter().any(|image| image.id == self.image_ref)
    }
}

/// SHA-256 of credentials in upstream's serialization, in hexadecimal.
pub(crate) fn credential_hash(auth: &ImageAuth) -> String {
    let mut json = String::from("{");
    // the order of upstream's fields
    for (name, value) in [
        ("username", &auth.username),
        ("password", &auth.password),
        ("auth", &auth.auth),
        ("serveraddress", &auth.server_address),
        ("identitytoken", &auth.identity_token),
        ("registrytoken", &auth.registry_token),
    ] {
        if !value.is_empty() {
            let comma = if json.len() > 1 { "," } else { "" };
            let _ = write!(json, "{comma}\"{name}\":{}", go_json_string(value));
        }
    }
    json.push('}');
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(json.as_bytes()) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// True if an intent refers to one of an image's tags or digests.
pub fn intent_is_for(intent: &ImagePullIntent, image: &ImageInfo) -> bool {
    let Ok(intended) = ImageName::parse(&intent.image) else {
        return false;
    };
    let key = |name: &ImageName| match &name.digest {
        // a tag is ignored if there is a digest
        Some(digest) => (name.name(), None, Some(digest.clone())),
        None => (name.name(), name.tag.clone(), None),
    };
    let intended = key(&intended);
    let names = image.repo_tags.iter().chain(&image.repo_digests);
    names
        .filter_map(|name| ImageName::parse(name).ok())
        .any(|name| key(&name) == intended)
}

/// Pull records of a present image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullHistory {
    /// No record: the agent did not pull it.
    None,
    /// A pull was started; its result is unknown.
    Intent,
    /// The agent pulled it.
    Pulled(ImagePulledRecord),
    /// The records cannot be read.
    Unreadable,
}

/// Whether a pod may use a present image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAccess {
    /// The policy requires no credentials.
    PolicyAllows,
    /// The pod's credentials pulled the image before, or every pod may use it.
    Recorded {
        /// A Secret of the pod, to be added to the record.
        add: Option<ImagePullSecret>,
    },
    /// The image must be pulled with the pod's credentials.
    MustAuthenticate,
    /// As `MustAuthenticate`, because the records cannot be read.
    Error,
}

impl ImageAccess {
    /// True if the image is used without a pull.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::PolicyAllows | Self::Recorded { .. })
    }
}

/// Upstream's value of the metric's label `result`.
impl fmt::Display for ImageAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PolicyAllows => "credentialPolicyAllowed",
            Self::Recorded { .. } => "credentialRecordFound",
            Self::MustAuthenticate => "mustAuthenticate",
            Self::Error => "error",
        })
    }
}

/// Decides whether a pod with these credentials may use a present image.
pub fn image_access(
    policy: &VerificationPolicy,
    image: &ImageName,
    history: &PullHistory,
    credentials: &[TrackedAuth],
) -> ImageAccess {
    if *history == PullHistory::Unreadable {
        return ImageAccess::Error;
    }
    let pulled_by_agent = *history != PullHistory::None;
    if !policy.needs_verification(image, pulled_by_agent) {
        return ImageAccess::PolicyAllows;
    }
    let PullHistory::Pulled(record) = history else {
        return ImageAccess::MustAuthenticate;
    };
    let Some(known) = record.credential_mapping.get(&image.name()) else {
        return ImageAccess::MustAuthenticate;
    };
    if known.node_pods_accessible {
        return ImageAccess::Recorded { add: None };
    }
    let room = known.kubernetes_secrets.len() < MAX_ADDED_SECRETS;
    for secret in credentials.iter().filter_map(ImagePullSecret::from_auth) {
        for recorded in &known.kubernetes_secrets {
            let same_object = recorded.same_object(&secret);
            // the Go kubelet may have failed to compute a hash
            let same_hash = !recorded.credential_hash.is_empty()
                && recorded.credential_hash == secret.credential_hash;
            if same_hash {
                let add = (!same_object && room).then_some(secret);
                return ImageAccess::Recorded { add };
            }
            if same_object && room {
                return ImageAccess::Recorded { add: Some(secret) };
            }
        }
    }
    let mut accounts = credentials
        .iter()
        .filter_map(ImagePullServiceAccount::from_auth);
    if accounts.any(|account| known.kubernetes_service_accounts.contains(&account)) {
        return ImageAccess::Recorded { add: None };
    }
    ImageAccess::MustAuthenticate
}

impl PullHistory {
    /// True if a service account pulled the image: a pod may have access by credentials that a
    /// plugin returns for its own.
    pub fn has_service_accounts(&self, image: &ImageName) -> bool {
        let Self::Pulled(record) = self else {
            return false;
        };
        let known = record.credential_mapping.get(&image.name());
        known.is_some_and(|known| !known.kubernetes_service_accounts.is_empty())
    }
}

#[cfg(test)]
mod tests;
