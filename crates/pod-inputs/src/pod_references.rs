//! What a pod refers to outside itself: ConfigMaps, Secrets, claims, its RuntimeClass, tokens.
//!
//! A reference is kept with what needs it, because a missing object means something different
//! to each: a volume holds the whole pod up, a variable its container, a pull secret nobody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_types::corev1::{
    ClusterTrustBundleProjection, EnvFromSource, EnvVar, PodCertificateProjection,
    ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
};
use windlass_types::{Pod, PodExt};

/// Lifetime of a token that asks for none, as the API server fills it in.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// Everything a pod refers to; objects are of its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMaps by name.
    pub config_maps: BTreeMap<String, Need>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, Need>,
    /// `spec.imagePullSecrets` in the order in which they are tried.
    pub pull_secrets: Vec<String>,
    /// Its RuntimeClass, if it names one.
    pub runtime_class: Option<String>,
    /// Tokens of its service account that volumes show.
    pub tokens: BTreeSet<TokenSpec>,
    /// PersistentVolumeClaims behind volumes that some container uses.
    pub claims: BTreeSet<String>,
    /// Trust anchors that volumes show.
    pub trust_bundles: BTreeSet<BundleRef>,
    /// Certificates that volumes show.
    pub certificates: BTreeMap<CertificateRef, CertificateSpec>,
}

/// A source of a projected volume that shows a certificate; each has its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateRef {
    /// Name of the volume.
    pub volume: String,
    /// Place among its sources, from 0.
    pub index: usize,
}

/// A certificate as its source asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Who is to sign it.
    pub signer: String,
    /// `RSA3072`, `RSA4096`, `ECDSAP256`, `ECDSAP384`, `ECDSAP521` or `ED25519`.
    pub key_type: String,
    /// The longest life that is wanted, in seconds; the API server takes 86400 if none is named.
    pub max_expiration_seconds: Option<i32>,
    /// For the signer.
    pub user_annotations: Option<BTreeMap<String, String>>,
}

impl CertificateSpec {
    fn of(projection: &PodCertificateProjection) -> Self {
        Self {
            signer: projection.signer_name.clone(),
            key_type: projection.key_type.clone(),
            max_expiration_seconds: projection.max_expiration_seconds,
            user_annotations: projection.user_annotations.clone(),
        }
    }
}

impl fmt::Display for CertificateRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.volume, self.index)
    }
}

/// By what a volume names ClusterTrustBundles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleRef {
    /// The one of this name.
    Name(String),
    /// All of this signer; the volume may choose among them by label.
    Signer(String),
}

impl BundleRef {
    /// What a projection names; the name counts if both are given.
    pub fn of(projection: &ClusterTrustBundleProjection) -> Option<Self> {
        let set = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let name = set(&projection.name).map(Self::Name);
        name.or_else(|| set(&projection.signer_name).map(Self::Signer))
    }
}

impl fmt::Display for BundleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "{name}"),
            Self::Signer(signer) => write!(f, "of {signer}"),
        }
    }
}

/// What needs an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Variables.
    pub env: Use,
    /// Volumes.
    pub volume: Use,
    /// The pull of an image, which goes on without it.
    pub pull: bool,
}

/// How much something is needed; of several, the strongest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// Not at all.
    #[default]
    None,
    /// Shown if it exists.
    Optional,
    /// Nothing goes on without it.
    Required,
}

/// A token of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSpec {
    /// Whom it is for; `None` is the API server.
    pub audience: Option<String>,
    /// Lifetime asked for, in seconds.
    pub expiration_seconds: i64,
    /// UID of the service account, which the API server compares; `None` for any.
    pub account_uid: Option<String>,
}

impl TokenSpec {
    /// What a projection asks for.
    pub fn of(projection: &ServiceAccountTokenProjection) -> Self {
        let audience = projection.audience.as_deref().unwrap_or_default();
        Self::new(audience, projection.expiration_seconds)
    }

    /// A token for an audience, empty for the API server, that lives this long or as long as one
    /// does of which nobody says.
    pub fn new(audience: &str, expiration_seconds: Option<i64>) -> Self {
        Self {
            audience: (!audience.is_empty()).then(|| audience.to_owned()),
            expiration_seconds: expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS),
            account_uid: None,
        }
    }

    /// Returns the token of the service account with this UID only.
    #[must_use]
    pub fn of_account(mut self, uid: &str) -> Self {
        self.account_uid = Some(uid.to_owned());
        self
    }
}

impl fmt::Display for References {
    /// `configMap a (env, volume optional); secret b (pull); runtimeClass c; token api 3600s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (kind, objects) in [("configMap", &self.config_maps), ("secret", &self.secrets)] {
            for (name, need) in objects {
                parts.push(format!("{kind} {name} ({need})"));
            }
        }
        if let Some(name) = &self.runtime_class {
            parts.push(format!("runtimeClass {name}"));
        }
        for token in &self.tokens {
            let audience = token.audience.as_deref().unwrap_or("api");
            parts.push(format!("token {audience} {}s", token.expiration_seconds));
        }
        parts.extend(self.claims.iter().map(|name| format!("claim {name}")));
        let bundles = self.trust_bundles.iter();
        parts.extend(bundles.map(|bundle| format!("clusterTrustBundle {bundle}")));
        for (place, spec) in &self.certificates {
            let CertificateSpec {
                signer, key_type, ..
            } = spec;
            parts.push(format!("podCertificate {place} {key_type} of {signer}"));
        }
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (what, needed) in [("env", self.env), ("volume", self.volume)] {
            match needed {
                Use::None => {}
                Use::Optional => parts.push(format!("{what} optional")),
                Use::Required => parts.push(what.to_owned()),
            }
        }
        if self.pull {
            parts.push("pull".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

/// Everything a pod refers to, over all kinds of its containers and all its volumes.
pub fn pod_references(pod: &Pod) -> References {
    let spec = PodExt::spec(pod);
    let mut found = References::default();
    for container in pod.init_containers().iter().chain(pod.containers()) {
        found.in_environment(container.env.as_deref(), container.env_from.as_deref());
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        found.in_environment(container.env.as_deref(), container.env_from.as_deref());
    }
    for volume in spec.volumes.iter().flatten() {
        found.in_volume(volume);
        // as upstream, which leaves alone what no container uses
        if let Some(claim) = claim_name(pod, volume).filter(|_| is_used(pod, &volume.name)) {
            found.claims.insert(claim);
        }
    }
    for reference in spec.image_pull_secrets.iter().flatten() {
        // an empty name is what an unset reference in a template leaves behind
        if let Some(need) = entry(&mut found.secrets, &reference.name) {
            need.pull = true;
            if !found.pull_secrets.contains(&reference.name) {
                found.pull_secrets.push(reference.name.clone());
            }
        }
    }
    found.runtime_class = spec
        .runtime_class_name
        .clone()
        .filter(|name| !name.is_empty());
    found
}

impl References {
    fn in_environment(&mut self, env: Option<&[EnvVar]>, env_from: Option<&[EnvFromSource]>) {
        for source in env_from.into_iter().flatten() {
            if let Some(r) = &source.config_map_ref {
                add_env(&mut self.config_maps, &r.name, r.optional);
            }
            if let Some(r) = &source.secret_ref {
                add_env(&mut self.secrets, &r.name, r.optional);
            }
        }
        let sources = env
            .into_iter()
            .flatten()
            .filter_map(|v| v.value_from.as_ref());
        for source in sources {
            if let Some(r) = &source.config_map_key_ref {
                add_env(&mut self.config_maps, &r.name, r.optional);
            }
            if let Some(r) = &source.secret_key_ref {
                add_env(&mut self.secrets, &r.name, r.optional);
            }
        }
    }

    fn in_volume(&mut self, volume: &Volume) {
        if let Some(source) = &volume.config_map {
            add_volume(&mut self.config_maps, &source.name, source.optional);
        }
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            add_volume(&mut self.secrets, name, source.optional);
        }
        if let Some(projected) = &volume.projected {
            self.in_projected(&volume.name, projected);
        }
    }

    fn in_projected(&mut self, volume: &str, projected: &ProjectedVolumeSource) {
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            if let Some(source) = &source.config_map {
                add_volume(&mut self.config_maps, &source.name, source.optional);
            }
            if let Some(source) = &source.secret {
                add_volume(&mut self.secrets, &source.name, source.optional);
            }
            if let Some(source) = &source.service_account_token {
                self.tokens.insert(TokenSpec::of(source));
            }
            let bundle = source.cluster_trust_bundle.as_ref();
            self.trust_bundles.extend(bundle.and_then(BundleRef::of));
            if let Some(source) = &source.pod_certificate {
                let place = CertificateRef {
                    volume: volume.to_owned(),
                    index,
                };
                self.certificates.insert(place, CertificateSpec::of(source));
            }
        }
    }
}

fn add_env(objects: &mut BTreeMap<String, Need>, name: &str, optional: Option<bool>) {
    if let Some(need) = entry(objects, name) {
        need.env = need.env.max(Use::of(optional));
    }
}

fn add_volume(objects: &mut BTreeMap<String, Need>, name: &str, optional: Option<bool>) {
    if let Some(need) = entry(objects, name) {
        need.volume = need.volume.max(Use::of(optional));
    }
}

/// Nothing can have an empty name, so nothing is looked up for one.
fn entry<'a>(objects: &'a mut BTreeMap<String, Need>, name: &str) -> Option<&'a mut Need> {
    (!name.is_empty()).then(|| objects.entry(name.to_owned()).or_default())
}

impl Use {
    fn of(optional: Option<bool>) -> Self {
        match optional {
            Some(true) => Self::Optional,
            _ => Self::Required,
        }
    }
}

/// Name of the claim that a volume stands for; `None` if it stands for none.
pub fn claim_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let ephemeral = volume.ephemeral.is_some();
    ephemeral.then(|| format!("{}-{}", pod.name(), volume.name))
}

/// How containers use a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uses {
    /// In `volumeMounts` of some container, of whatever kind.
    pub mounts: bool,
    /// In `volumeDevices`.
    pub devices: bool,
}

/// How the containers of a pod use the volume of this name.
pub fn uses(pod: &Pod, name: &str) -> Uses {
    let ephemeral = PodExt::spec(pod).ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|c| (&c.volume_mounts, &c.volume_devices));
    let others = pod.init_containers().iter().chain(pod.containers());
    let all = others
        .map(|c| (&c.volume_mounts, &c.volume_devices))
        .chain(ephemeral);
    all.fold(Uses::default(), |uses, (mounts, devices)| Uses {
        mounts: uses.mounts || mounts.iter().flatten().any(|m| m.name == name),
        devices: uses.devices || devices.iter().flatten().any(|d| d.name == name),
    })
}

/// True if some container uses the volume of this name.
pub fn is_used(pod: &Pod, name: &str) -> bool {
    let uses = uses(pod, name);
    uses.mounts || uses.devices
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value, expected: &str) {
        let pod = json!({"metadata": {"name": "web"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("pod");
        assert_eq!(pod_references(&pod).to_string(), expected);
    }

    #[test]
    fn a_pod_without_references_has_none() {
        check(json!({"containers": [{"name": "c"}]}), "");
    }

    #[test]
    fn every_kind_of_container_counts() {
        let env = |name: &str| json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": name, "key": "k"}}}]);
        let from = |name: &str| json!([{"secretRef": {"name": name}}]);
        check(
            json!({
                "initContainers": [{"name": "i", "env": env("init"), "envFrom": from("init-s")}],
                "containers": [{"name": "c", "env": env("app"), "envFrom": from("app-s")}],
                "ephemeralContainers": [{"name": "e", "env": env("debug"), "envFrom": from("debug-s")}],
            }),
            "configMap app (env); configMap debug (env); configMap init (env); \
             secret app-s (env); secret debug-s (env); secret init-s (env)",
        );
    }

    #[test]
    fn the_strongest_need_of_an_object_counts() {
        check(
            json!({
                "imagePullSecrets": [{"name": "s"}, {"name": ""}, {"name": "regcred"}],
                "volumes": [
                    {"name": "a", "configMap": {"name": "m", "optional": true}},
                    {"name": "b", "secret": {"secretName": "s", "optional": true}},
                    {"name": "c", "projected": {"sources": [
                        {"configMap": {"name": "m"}},
                        {"secret": {"name": "p", "optional": true}},
                    ]}},
                ],
                "containers": [{"name": "c", "envFrom": [
                    {"configMapRef": {"name": "m", "optional": true}},
                    {"secretRef": {"name": "s"}},
                ]}],
            }),
            "configMap m (env optional, volume); secret p (volume optional); \
             secret regcred (pull); secret s (env, volume optional, pull)",
        );
    }

    #[test]
    fn pull_secrets_keep_their_order_and_come_once() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [],
            "imagePullSecrets": [{"name": "z"}, {"name": "a"}, {"name": "z"}],
        }}))
        .expect("pod");
        assert_eq!(pod_references(&pod).pull_secrets, ["z", "a"]);
    }

    #[test]
    fn tokens_are_told_apart_by_audience_and_lifetime() {
        check(
            json!({
                "runtimeClassName": "kata",
                "containers": [],
                "volumes": [{"name": "t", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "a"}},
                    {"serviceAccountToken": {"path": "b", "audience": ""}},
                    {"serviceAccountToken": {"path": "c", "audience": "vault", "expirationSeconds": 7200}},
                ]}}],
            }),
            "runtimeClass kata; token api 3600s; token vault 7200s",
        );
    }

    #[test]
    fn claims_count_if_a_container_uses_them() {
        check(
            json!({
                "containers": [{"name": "c", "volumeDevices": [{"name": "a", "devicePath": "/d"}]}],
                "initContainers": [{"name": "i", "volumeMounts": [
                    {"name": "b", "mountPath": "/b"}, {"name": "c", "mountPath": "/c"},
                ]}],
                "volumes": [
                    {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "b", "ephemeral": {}},
                    {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "unused", "persistentVolumeClaim": {"claimName": "other"}},
                ],
            }),
            "claim data; claim web-b",
        );
    }

    #[test]
    fn trust_bundles_are_named_or_a_signers() {
        let source = |bundle: Value| json!({"clusterTrustBundle": bundle});
        check(
            json!({
                "containers": [],
                "volumes": [{"name": "t", "projected": {"sources": [
                    source(json!({"path": "a", "name": "roots"})),
                    source(json!({"path": "b", "signerName": "example.com/ca"})),
                    source(json!({"path": "c"})),
                ]}}],
            }),
            "clusterTrustBundle roots; clusterTrustBundle of example.com/ca",
        );
    }

    #[test]
    fn each_source_of_a_certificate_counts_by_its_place() {
        let source = json!({"podCertificate": {
            "signerName": "example.com/ca", "keyType": "ED25519", "credentialBundlePath": "b",
        }});
        check(
            json!({
                "containers": [],
                "volumes": [
                    {"name": "a", "projected": {"sources": [source, {"configMap": {}}, source]}},
                    {"name": "b", "projected": {"sources": [source]}},
                ],
            }),
            "podCertificate a[0] ED25519 of example.com/ca; \
             podCertificate a[2] ED25519 of example.com/ca; \
             podCertificate b[0] ED25519 of example.com/ca",
        );
    }
}
