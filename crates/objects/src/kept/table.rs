//! The kept objects: which are wanted, which fit, and what a pod gets of them. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use windlass_csi::CsiDriverSpec;
use windlass_pod_inputs::pod_references::{BundleRef, References, TokenSpec};
use windlass_pod_inputs::projection::{
    ConfigMapContent, ObjectSnapshot, Referent, SecretContent, Token, TrustBundle,
};
use windlass_pod_inputs::service_env::{ServiceLink, service_env};
use windlass_runtime_config::port::InputsError;
use windlass_store::MAX_CONTENT_BYTES;
use windlass_types::{Pod, PodExt, PodUid, Timestamp};
use windlass_volume_plan::volume_source::{Lookup, PvcState};

use crate::resolve::{Kind, UnresolvedReference, runtime_class_error, unread, unresolved_error};
use crate::shared_reflectors::ItemKey;

/// Maximum size of all ConfigMaps and Secrets, in bytes. The rest of the file is left to services,
/// PVCs and tokens, which have a few KiB each.
pub(crate) const MAX_OBJECT_BYTES: usize = MAX_CONTENT_BYTES / 4 * 3;

/// Cause of a reference that is not in the table.
const NOT_KEPT: &str = "not kept on this node, and the API server is unreachable";

/// A token and the end of its validity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenRecord {
    pub(crate) token: Token,
    pub(crate) valid_until: Timestamp,
}

impl TokenRecord {
    /// A token is valid until the time that it has itself: the API server reports an earlier one to
    /// let tokens with its own audience be renewed early (its `--service-account-extend-token-expiration`).
    pub(crate) fn new(token: Token, expires_at: Timestamp) -> Self {
        let valid_until = expiry_of_jwt(&token.0).map_or(expires_at, |at| at.max(expires_at));
        Self { token, valid_until }
    }
}

/// Returns the claim `exp` of a JSON web token, whose signature is not verified.
fn expiry_of_jwt(token: &str) -> Option<Timestamp> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    Timestamp::from_second(claims["exp"].as_i64()?).ok()
}

/// Objects by type and key. `None` is an object that does not exist; an object without an entry is
/// unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Table {
    /// The pods whose objects these are.
    pub(crate) pods: BTreeSet<PodUid>,
    pub(crate) config_maps: BTreeMap<ItemKey, Option<Arc<ConfigMapContent>>>,
    pub(crate) secrets: BTreeMap<ItemKey, Option<Arc<SecretContent>>>,
    /// Those with variables for the pods; `None` if they were not read.
    pub(crate) services: Option<Vec<Arc<ServiceLink>>>,
    /// Handlers of RuntimeClasses.
    pub(crate) runtime_classes: BTreeMap<String, Option<String>>,
    pub(crate) trust_bundles: BTreeMap<BundleRef, Vec<Arc<TrustBundle>>>,
    pub(crate) pvcs: BTreeMap<ItemKey, Arc<PvcState>>,
    pub(crate) drivers: BTreeMap<String, Option<CsiDriverSpec>>,
    pub(crate) tokens: BTreeMap<(PodUid, TokenSpec), TokenRecord>,
}

/// Keys of the objects that the node's pods use. Tokens are wanted with their pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedObjects {
    pub(crate) pods: BTreeSet<PodUid>,
    pub(crate) config_maps: BTreeSet<ItemKey>,
    pub(crate) secrets: BTreeSet<ItemKey>,
    pub(crate) runtime_classes: BTreeSet<String>,
    pub(crate) trust_bundles: BTreeSet<BundleRef>,
    pub(crate) pvcs: BTreeSet<ItemKey>,
    pub(crate) drivers: BTreeSet<String>,
}

impl WantedObjects {
    /// Adds what a pod refers to.
    pub(crate) fn add(&mut self, uid: &PodUid, namespace: &str, references: &References) {
        let key = |name: &String| (namespace.to_owned(), name.clone());
        self.pods.insert(uid.clone());
        self.config_maps
            .extend(references.config_maps.keys().map(key));
        self.secrets.extend(references.secrets.keys().map(key));
        self.runtime_classes
            .extend(references.runtime_class.clone());
        self.trust_bundles
            .extend(references.trust_bundles.iter().cloned());
        self.pvcs.extend(references.pvcs.iter().map(key));
    }

    /// Adds the drivers and Secrets of the CSI volumes of PVCs.
    pub(crate) fn add_csi(&mut self, pvcs: &BTreeMap<ItemKey, Arc<PvcState>>) {
        let volumes = self
            .pvcs
            .iter()
            .filter_map(|key| match &pvcs.get(key)?.volume {
                Lookup::Found(volume) => volume.spec.as_ref()?.csi.as_ref(),
                Lookup::Missing | Lookup::Unread(_) => None,
            });
        for csi in volumes {
            self.drivers.insert(csi.driver.clone());
            let secrets = [&csi.node_stage_secret_ref, &csi.node_publish_secret_ref];
            for secret in secrets.into_iter().flatten() {
                let part = |text: &Option<String>| text.clone().unwrap_or_default();
                self.secrets
                    .insert((part(&secret.namespace), part(&secret.name)));
            }
        }
    }
}

impl Table {
    /// Returns the wanted objects: as they were read in this agent run, else as they were kept.
    pub(crate) fn next(&self, read: &Self, wanted: &WantedObjects) -> Self {
        let tokens = self.tokens.iter().chain(&read.tokens);
        let tokens = tokens.filter(|((uid, _), _)| wanted.pods.contains(uid));
        Self {
            pods: wanted.pods.clone(),
            config_maps: pick(&wanted.config_maps, &read.config_maps, &self.config_maps),
            secrets: pick(&wanted.secrets, &read.secrets, &self.secrets),
            services: read.services.clone().or_else(|| self.services.clone()),
            runtime_classes: pick(
                &wanted.runtime_classes,
                &read.runtime_classes,
                &self.runtime_classes,
            ),
            trust_bundles: pick(
                &wanted.trust_bundles,
                &read.trust_bundles,
                &self.trust_bundles,
            ),
            pvcs: pick(&wanted.pvcs, &read.pvcs, &self.pvcs),
            drivers: pick(&wanted.drivers, &read.drivers, &self.drivers),
            tokens: tokens
                .map(|(key, token)| (key.clone(), token.clone()))
                .collect(),
        }
    }

    /// Removes the largest ConfigMaps and Secrets until the rest has at most `max` bytes; returns
    /// their names.
    pub(crate) fn shrink(&mut self, max: usize) -> Vec<String> {
        let config_maps = self.config_maps.iter().map(|(key, content)| {
            let bytes = content.as_deref().map_or(0, config_map_bytes);
            (bytes, Kind::ConfigMap, key.clone())
        });
        let secrets = self.secrets.iter().map(|(key, content)| {
            let bytes = content.as_deref().map_or(0, secret_bytes);
            (bytes, Kind::Secret, key.clone())
        });
        let mut sizes: Vec<_> = config_maps.chain(secrets).collect();
        sizes.sort();
        let mut total: usize = sizes.iter().map(|(bytes, ..)| bytes).sum();
        let mut removed = Vec::new();
        while total > max
            && let Some((bytes, kind, key)) = sizes.pop()
        {
            total -= bytes;
            let (namespace, name) = &key;
            let text = match kind {
                Kind::Secret => "secret",
                _ => "configmap",
            };
            removed.push(format!("{text} {namespace}/{name}"));
            match kind {
                Kind::Secret => drop(self.secrets.remove(&key)),
                _ => drop(self.config_maps.remove(&key)),
            }
        }
        removed
    }

    /// Returns the objects that a pod refers to, and those that are not kept.
    pub(crate) fn snapshot(
        &self,
        pod: &Pod,
        references: &References,
        now: Timestamp,
    ) -> (ObjectSnapshot, Vec<UnresolvedReference>) {
        let mut found = ObjectSnapshot::default();
        let mut unresolved = Vec::new();
        let mut lacks = |kind, name: &String| unresolved.push(not_kept(kind, name));
        let key = |name: &String| (pod.namespace().to_owned(), name.clone());
        for name in references.config_maps.keys() {
            match self.config_maps.get(&key(name)) {
                Some(Some(content)) => {
                    let content = Arc::clone(content);
                    found.config_maps.insert(name.clone(), content);
                }
                Some(None) => {}
                None => lacks(Kind::ConfigMap, name),
            }
        }
        for name in references.secrets.keys() {
            match self.secrets.get(&key(name)) {
                Some(Some(content)) => {
                    let content = Arc::clone(content);
                    found.secrets.insert(name.clone(), content);
                }
                Some(None) => {}
                None => lacks(Kind::Secret, name),
            }
        }
        for bundle in &references.trust_bundles {
            match self.trust_bundles.get(bundle) {
                Some(bundles) => drop(found.trust_bundles.insert(bundle.clone(), bundles.clone())),
                None => {
                    let object = Referent::TrustBundles(bundle.clone());
                    found.unread.insert(object, unread(Some(NOT_KEPT)));
                }
            }
        }
        for spec in &references.tokens {
            let token = self.token(&pod.uid(), spec, now).map(|it| it.token.clone());
            found.tokens.insert(spec.clone(), token);
        }
        for certificate in references.certificates.keys() {
            let error = format!("its key is {NOT_KEPT}");
            found.certificates.insert(certificate.clone(), Err(error));
        }
        let of_volumes = unresolved
            .iter()
            .filter_map(UnresolvedReference::for_volumes);
        found.unread.extend(of_volumes);
        (found, unresolved)
    }

    /// Returns a token that is still valid.
    ///
    /// # Errors
    /// It expired, or is not kept.
    pub(crate) fn token(
        &self,
        uid: &PodUid,
        spec: &TokenSpec,
        now: Timestamp,
    ) -> Result<&TokenRecord, String> {
        match self.tokens.get(&(uid.clone(), spec.clone())) {
            Some(record) if now < record.valid_until => Ok(record),
            Some(record) => Err(format!(
                "the kept token expired at {}, and the API server is unreachable",
                record.valid_until
            )),
            None => Err(format!("it is {NOT_KEPT}")),
        }
    }

    /// Returns a PVC and its PersistentVolume.
    pub(crate) fn pvc(&self, key: &ItemKey) -> Arc<PvcState> {
        let unread = || PvcState {
            pvc: Lookup::Unread(NOT_KEPT.to_owned()),
            volume: Lookup::Missing,
        };
        let known = self.pvcs.get(key).map(Arc::clone);
        known.unwrap_or_else(|| Arc::new(unread()))
    }

    /// Returns the handler of the pod's RuntimeClass.
    pub(crate) fn runtime_handler(&self, references: &References) -> Result<String, InputsError> {
        let Some(name) = &references.runtime_class else {
            return Ok(String::new());
        };
        match self.runtime_classes.get(name) {
            Some(Some(handler)) => Ok(handler.clone()),
            Some(None) => Err(runtime_class_error(name)),
            None => Err(error_of(references, &not_kept(Kind::RuntimeClass, name))),
        }
    }

    /// Returns the service variables of a pod.
    pub(crate) fn service_variables(
        &self,
        pod: &Pod,
        references: &References,
    ) -> Result<BTreeMap<String, String>, InputsError> {
        let Some(services) = &self.services else {
            return Err(error_of(references, &not_kept(Kind::Services, "")));
        };
        let links = PodExt::spec(pod).enable_service_links.unwrap_or(true);
        let services = services.iter().map(Arc::as_ref);
        Ok(service_env(services, pod.namespace(), links))
    }
}

/// Returns the wanted entries: the newer ones, else the older ones.
fn pick<K: Ord + Clone, V: Clone>(
    wanted: &BTreeSet<K>,
    newer: &BTreeMap<K, V>,
    older: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    let found = wanted.iter().filter_map(|key| {
        let value = newer.get(key).or_else(|| older.get(key))?;
        Some((key.clone(), value.clone()))
    });
    found.collect()
}

fn not_kept(kind: Kind, name: &str) -> UnresolvedReference {
    UnresolvedReference {
        kind,
        name: name.to_owned(),
        error: Some(NOT_KEPT.into()),
    }
}

fn error_of(references: &References, unresolved: &UnresolvedReference) -> InputsError {
    let error = unresolved_error(references, std::slice::from_ref(unresolved));
    error.unwrap_or_else(|| runtime_class_error(&unresolved.name))
}

/// Size of a key and its value in the file, which has values as base64.
fn entry_bytes(key: &str, value: usize) -> usize {
    key.len() + value.div_ceil(3) * 4 + 8
}

fn config_map_bytes(content: &ConfigMapContent) -> usize {
    let text = content.data.iter();
    let text = text.map(|(key, value)| entry_bytes(key, value.len()));
    let binary = content.binary_data.iter();
    let binary = binary.map(|(key, value)| entry_bytes(key, value.len()));
    text.chain(binary).sum()
}

fn secret_bytes(content: &SecretContent) -> usize {
    let data = content.data.iter();
    data.map(|(key, value)| entry_bytes(key, value.len())).sum()
}

#[cfg(test)]
mod tests;
