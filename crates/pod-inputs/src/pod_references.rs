//! References of a pod: ConfigMaps, Secrets, PVCs, its RuntimeClass, tokens, certificates.
//!
//! A reference includes its use, because the effect of a missing object differs: a volume blocks
//! the whole pod, a variable its container, and a pull secret nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use windlass_types::corev1::{
    ClusterTrustBundleProjection, EnvFromSource, EnvVar, PodCertificateProjection,
    ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
};
use windlass_types::{Pod, PodExt};

/// Default lifetime of a token, as in the API server.
const DEFAULT_TOKEN_SECONDS: i64 = 3600;

/// Everything a pod refers to; objects are of its own namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// ConfigMaps by name.
    pub config_maps: BTreeMap<String, ReferenceUse>,
    /// Secrets by name.
    pub secrets: BTreeMap<String, ReferenceUse>,
    /// `spec.imagePullSecrets`, in order.
    pub pull_secrets: Vec<String>,
    /// Name of its RuntimeClass.
    pub runtime_class: Option<String>,
    /// Service account tokens in volumes.
    pub tokens: BTreeSet<TokenSpec>,
    /// Names of PVCs of volumes that a container uses.
    pub pvcs: BTreeSet<String>,
    /// ClusterTrustBundles in volumes.
    pub trust_bundles: BTreeSet<BundleRef>,
    /// Pod certificates in volumes.
    pub certificates: BTreeMap<CertificateRef, CertificateSpec>,
}

/// `podCertificate` source of a projected volume; each has its own certificate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CertificateRef {
    /// Name of the volume.
    pub volume: String,
    /// Index in its sources.
    pub index: usize,
}

/// Parameters of a pod certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSpec {
    /// Name of the signer.
    pub signer: String,
    /// `RSA3072`, `RSA4096`, `ECDSAP256`, `ECDSAP384`, `ECDSAP521` or `ED25519`.
    pub key_type: String,
    /// Max lifetime in seconds; the default of the API server is 86400.
    pub max_expiration_seconds: Option<i32>,
    /// Annotations for the signer.
    pub user_annotations: Option<BTreeMap<String, String>>,
}

impl CertificateSpec {
    fn from_projection(projection: &PodCertificateProjection) -> Self {
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

/// Reference of a volume to ClusterTrustBundles.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BundleRef {
    /// The bundle with this name.
    Name(String),
    /// All bundles of this signer; the volume selects among them by label.
    Signer(String),
}

impl BundleRef {
    /// Returns the reference of a projection; the name takes precedence over the signer.
    pub(crate) fn from_projection(projection: &ClusterTrustBundleProjection) -> Option<Self> {
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

/// How a pod uses an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReferenceUse {
    /// By variables.
    pub env: Requirement,
    /// By volumes.
    pub volume: Requirement,
    /// As a pull secret, which is optional.
    pub pull: bool,
}

/// Whether an object is required; of several uses, the strongest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Requirement {
    /// Not used.
    #[default]
    None,
    /// May be missing.
    Optional,
    /// Must exist.
    Required,
}

/// Parameters of a token of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenSpec {
    /// Audience; `None` is the API server.
    pub audience: Option<String>,
    /// Requested lifetime in seconds.
    pub expiration_seconds: i64,
    /// UID of the service account, verified by the API server; `None` for any.
    pub account_uid: Option<String>,
}

impl TokenSpec {
    pub(crate) fn from_projection(projection: &ServiceAccountTokenProjection) -> Self {
        let audience = projection.audience.as_deref().unwrap_or_default();
        Self::new(audience, projection.expiration_seconds)
    }

    /// Creates parameters; an empty audience is the API server, the default lifetime 3600 s.
    pub fn new(audience: &str, expiration_seconds: Option<i64>) -> Self {
        Self {
            audience: (!audience.is_empty()).then(|| audience.to_owned()),
            expiration_seconds: expiration_seconds.unwrap_or(DEFAULT_TOKEN_SECONDS),
            account_uid: None,
        }
    }

    /// Restricts the token to the service account with this UID.
    #[must_use]
    pub fn for_account(mut self, uid: &str) -> Self {
        self.account_uid = Some(uid.to_owned());
        self
    }
}

impl fmt::Display for References {
    /// `configMap a (env, volume optional); secret b (pull); runtimeClass c; token api 3600s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (kind, objects) in [("configMap", &self.config_maps), ("secret", &self.secrets)] {
            for (name, usage) in objects {
                parts.push(format!("{kind} {name} ({usage})"));
            }
        }
        if let Some(name) = &self.runtime_class {
            parts.push(format!("runtimeClass {name}"));
        }
        for token in &self.tokens {
            let audience = token.audience.as_deref().unwrap_or("api");
            parts.push(format!("token {audience} {}s", token.expiration_seconds));
        }
        parts.extend(
            self.pvcs
                .iter()
                .map(|name| format!("persistentVolumeClaim {name}")),
        );
        let bundles = self.trust_bundles.iter();
        parts.extend(bundles.map(|bundle| format!("clusterTrustBundle {bundle}")));
        for (reference, spec) in &self.certificates {
            let CertificateSpec {
                signer, key_type, ..
            } = spec;
            parts.push(format!("podCertificate {reference} {key_type} of {signer}"));
        }
        f.write_str(&parts.join("; "))
    }
}

impl fmt::Display for ReferenceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for (what, requirement) in [("env", self.env), ("volume", self.volume)] {
            match requirement {
                Requirement::None => {}
                Requirement::Optional => parts.push(format!("{what} optional")),
                Requirement::Required => parts.push(what.to_owned()),
            }
        }
        if self.pull {
            parts.push("pull".to_owned());
        }
        f.write_str(&parts.join(", "))
    }
}

/// Returns all references of a pod, of all its containers and volumes.
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
        // as upstream, which ignores a PVC that no container uses
        if let Some(pvc) = pvc_name(pod, volume).filter(|_| is_used(pod, &volume.name)) {
            found.pvcs.insert(pvc);
        }
    }
    for reference in spec.image_pull_secrets.iter().flatten() {
        // an unset value in a template leaves an empty name
        if let Some(usage) = entry(&mut found.secrets, &reference.name) {
            usage.pull = true;
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
                self.tokens.insert(TokenSpec::from_projection(source));
            }
            let bundle = source.cluster_trust_bundle.as_ref();
            self.trust_bundles
                .extend(bundle.and_then(BundleRef::from_projection));
            if let Some(source) = &source.pod_certificate {
                let reference = CertificateRef {
                    volume: volume.to_owned(),
                    index,
                };
                self.certificates
                    .insert(reference, CertificateSpec::from_projection(source));
            }
        }
    }
}

fn add_env(objects: &mut BTreeMap<String, ReferenceUse>, name: &str, optional: Option<bool>) {
    if let Some(usage) = entry(objects, name) {
        usage.env = usage.env.max(Requirement::new(optional));
    }
}

fn add_volume(objects: &mut BTreeMap<String, ReferenceUse>, name: &str, optional: Option<bool>) {
    if let Some(usage) = entry(objects, name) {
        usage.volume = usage.volume.max(Requirement::new(optional));
    }
}

/// Returns no entry for an empty name, which no object has.
fn entry<'a>(
    objects: &'a mut BTreeMap<String, ReferenceUse>,
    name: &str,
) -> Option<&'a mut ReferenceUse> {
    (!name.is_empty()).then(|| objects.entry(name.to_owned()).or_default())
}

impl Requirement {
    fn new(optional: Option<bool>) -> Self {
        match optional {
            Some(true) => Self::Optional,
            _ => Self::Required,
        }
    }
}

/// Returns the name of the PVC of a volume; `None` for a volume of another kind.
pub fn pvc_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let ephemeral = volume.ephemeral.is_some();
    ephemeral.then(|| format!("{}-{}", pod.name(), volume.name))
}

/// How containers use a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeUse {
    /// In `volumeMounts` of a container of any kind.
    pub mounts: bool,
    /// In `volumeDevices` of a container.
    pub devices: bool,
}

/// Returns how the containers of a pod use the volume with this name.
pub fn volume_use(pod: &Pod, name: &str) -> VolumeUse {
    let ephemeral = PodExt::spec(pod).ephemeral_containers.iter().flatten();
    let ephemeral = ephemeral.map(|c| (&c.volume_mounts, &c.volume_devices));
    let others = pod.init_containers().iter().chain(pod.containers());
    let all = others
        .map(|c| (&c.volume_mounts, &c.volume_devices))
        .chain(ephemeral);
    all.fold(VolumeUse::default(), |used, (mounts, devices)| VolumeUse {
        mounts: used.mounts || mounts.iter().flatten().any(|m| m.name == name),
        devices: used.devices || devices.iter().flatten().any(|d| d.name == name),
    })
}

/// Returns whether a container uses the volume with this name.
pub fn is_used(pod: &Pod, name: &str) -> bool {
    let used = volume_use(pod, name);
    used.mounts || used.devices
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
    fn pod_without_references_has_none() {
        check(json!({"containers": [{"name": "c"}]}), "");
    }

    #[test]
    fn references_of_all_container_kinds_are_found() {
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
    fn strongest_use_of_an_object_counts() {
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
    fn pull_secrets_are_ordered_and_unique() {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "containers": [],
            "imagePullSecrets": [{"name": "z"}, {"name": "a"}, {"name": "z"}],
        }}))
        .expect("pod");
        assert_eq!(pod_references(&pod).pull_secrets, ["z", "a"]);
    }

    #[test]
    fn tokens_differ_by_audience_and_lifetime() {
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
    fn pvcs_are_found_if_a_container_uses_them() {
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
            "persistentVolumeClaim data; persistentVolumeClaim web-b",
        );
    }

    #[test]
    fn trust_bundles_are_referenced_by_name_or_signer() {
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
    fn each_certificate_source_is_a_reference() {
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
