//! Snapshots of the objects for volumes and variables; `Debug` omits their content.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use windlass_types::corev1::{ConfigMap, Secret};

use crate::env::EnvSources;
use crate::pod_references::{
    BundleRef, CertificateRef, ReferenceUse, References, Requirement, TokenSpec,
};

use super::trust::TrustBundle;

/// Resolved references of a pod; objects are in its namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSnapshot {
    /// ConfigMaps that exist, by name.
    pub config_maps: BTreeMap<String, Arc<ConfigMapContent>>,
    /// Secrets that exist, by name.
    pub secrets: BTreeMap<String, Arc<SecretContent>>,
    /// Tokens, or the error.
    pub tokens: BTreeMap<TokenSpec, Result<Token, String>>,
    /// ClusterTrustBundles that exist, by reference.
    pub trust_bundles: BTreeMap<BundleRef, Vec<Arc<TrustBundle>>>,
    /// Certificates of the pod, or the error.
    pub certificates: BTreeMap<CertificateRef, Result<Credential, String>>,
    /// Objects that could not be read, with the cause.
    pub unread: BTreeMap<Referent, String>,
}

/// An object of a volume, or a set of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Referent {
    /// The ConfigMap with this name.
    ConfigMap(String),
    /// The Secret with this name.
    Secret(String),
    /// ClusterTrustBundles.
    TrustBundles(BundleRef),
}

impl fmt::Display for Referent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConfigMap(name) => write!(f, "configmap {name:?}"),
            Self::Secret(name) => write!(f, "secret {name:?}"),
            Self::TrustBundles(named) => {
                write!(f, "clustertrustbundle {:?}", named.to_string())
            }
        }
    }
}

/// Content of a ConfigMap, shared by its pods.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ConfigMapContent {
    /// `data`.
    pub data: BTreeMap<String, Arc<str>>,
    /// `binaryData`, decoded.
    pub binary_data: BTreeMap<String, Arc<[u8]>>,
}

/// Content of a Secret, shared by its pods.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SecretContent {
    /// `metadata.uid`.
    pub uid: String,
    /// `type`.
    pub secret_type: String,
    /// `data`, decoded.
    pub data: BTreeMap<String, Arc<[u8]>>,
}

/// A bearer token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

/// A private key and its certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    /// The key, PKCS #8 as PEM.
    pub key: Arc<[u8]>,
    /// The certificates, leaf first, PEM.
    pub chain: Arc<[u8]>,
}

impl fmt::Debug for ConfigMapContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keys", self.data.len() + self.binary_data.len())
    }
}

impl fmt::Debug for SecretContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} keys", self.secret_type, self.data.len())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("token")
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credential with {} bytes of chain", self.chain.len())
    }
}

impl From<ConfigMap> for ConfigMapContent {
    fn from(object: ConfigMap) -> Self {
        let binary = object.binary_data.unwrap_or_default();
        let text = object.data.unwrap_or_default().into_iter();
        Self {
            data: text.map(|(k, v)| (k, v.into())).collect(),
            binary_data: binary.into_iter().map(|(k, v)| (k, v.0.into())).collect(),
        }
    }
}

impl From<Secret> for SecretContent {
    fn from(object: Secret) -> Self {
        let data = object.data.unwrap_or_default();
        Self {
            uid: object.metadata.uid.unwrap_or_default(),
            secret_type: object.type_.unwrap_or_default(),
            data: data.into_iter().map(|(k, v)| (k, v.0.into())).collect(),
        }
    }
}

impl ObjectSnapshot {
    /// Returns the objects that variables refer to, and service variables.
    pub fn env_sources(
        &self,
        references: &References,
        services: BTreeMap<String, String>,
    ) -> EnvSources {
        let of_env = |objects: &BTreeMap<String, ReferenceUse>, name: &String| {
            objects
                .get(name)
                .is_some_and(|usage| usage.env != Requirement::None)
        };
        let config_maps = self.config_maps.iter();
        let config_maps = config_maps.filter(|(name, _)| of_env(&references.config_maps, name));
        let secrets = self.secrets.iter();
        let secrets = secrets.filter(|(name, _)| of_env(&references.secrets, name));
        EnvSources {
            config_maps: config_maps
                .map(|(name, content)| (name.clone(), Arc::clone(content)))
                .collect(),
            secrets: secrets
                .map(|(name, content)| (name.clone(), Arc::clone(content)))
                .collect(),
            services,
        }
    }
}
