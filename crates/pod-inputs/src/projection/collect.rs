//! Collects the files of a volume from its sources, in order.

use std::collections::BTreeMap;
use std::sync::Arc;

use windlass_types::PodExt;
use windlass_types::corev1::{
    ClusterTrustBundleProjection, Container, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    PodCertificateProjection, ProjectedVolumeSource, ResourceFieldSelector,
    ServiceAccountTokenProjection, VolumeProjection,
};

use super::{
    PayloadFile, ProjectionError, ProjectionInput, Referent, TrustBundle, path, quote, trust,
};
use crate::env::{EnvError, EnvFiles, EnvInput, EnvSources, pod_field, resource_field};
use crate::pod_references::{BundleRef, CertificateRef, TokenSpec};

const DEFAULT_MODE: i32 = 0o644;
/// Mode of a private file if all containers have one user, or the pod has an `fsGroup`.
const PRIVATE_MODE: i32 = 0o600;

/// Collected files and errors.
pub(super) struct Collector<'a> {
    input: ProjectionInput<'a>,
    default_mode: i32,
    pub(super) files: BTreeMap<String, PayloadFile>,
    pub(super) errors: Vec<ProjectionError>,
}

/// Reference of a volume to a ConfigMap or Secret.
#[derive(Clone, Copy)]
pub(super) struct ObjectSource<'a> {
    pub(super) name: &'a str,
    pub(super) items: Option<&'a [KeyToPath]>,
    pub(super) optional: Option<bool>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(input: ProjectionInput<'a>, default_mode: Option<i32>) -> Self {
        Self {
            input,
            default_mode: default_mode.unwrap_or(DEFAULT_MODE),
            files: BTreeMap::new(),
            errors: Vec::new(),
        }
    }

    pub(super) fn config_map(&mut self, source: ObjectSource<'_>) {
        let input = self.input;
        let Some(content) = input.objects.config_maps.get(source.name) else {
            let object = Referent::ConfigMap(source.name.to_owned());
            return self.missing("configmap", object, source);
        };
        let text = content.data.iter().map(|(k, v)| (k, v.clone().into()));
        let binary = content.binary_data.iter().map(|(k, v)| (k, v.clone()));
        // a key is never in both
        let all = binary.chain(text).map(|(k, v)| (k.as_str(), v)).collect();
        self.keys("configmap references non-existent config", source, &all);
    }

    pub(super) fn secret(&mut self, source: ObjectSource<'_>) {
        let input = self.input;
        let Some(content) = input.objects.secrets.get(source.name) else {
            let object = Referent::Secret(source.name.to_owned());
            return self.missing("secret", object, source);
        };
        let data = content.data.iter();
        let all = data.map(|(k, v)| (k.as_str(), v.clone())).collect();
        self.keys("references non-existent secret", source, &all);
    }

    pub(super) fn downward_api(&mut self, items: Option<&[DownwardAPIVolumeFile]>) {
        for item in items.into_iter().flatten() {
            let field = format!("downwardAPI[{}]", item.path);
            let value = if let Some(selector) = &item.field_ref {
                self.field(selector, &format!("{field}.fieldRef"))
            } else if let Some(selector) = &item.resource_field_ref {
                self.resource(selector, &format!("{field}.resourceFieldRef"))
            } else {
                Ok(String::new())
            };
            match value {
                Ok(value) => self.file(&item.path, value.into_bytes().into(), item.mode, None),
                Err(error) => self.errors.push(ProjectionError::Field(error)),
            }
        }
    }

    pub(super) fn projected(&mut self, volume: &str, projected: &ProjectedVolumeSource) {
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            self.projection(source, || CertificateRef {
                volume: volume.to_owned(),
                index,
            });
        }
    }

    fn projection(
        &mut self,
        source: &VolumeProjection,
        reference: impl FnOnce() -> CertificateRef,
    ) {
        if let Some(source) = &source.secret {
            self.secret(ObjectSource {
                name: &source.name,
                items: source.items.as_deref(),
                optional: source.optional,
            });
        } else if let Some(source) = &source.config_map {
            self.config_map(ObjectSource {
                name: &source.name,
                items: source.items.as_deref(),
                optional: source.optional,
            });
        } else if let Some(source) = &source.downward_api {
            self.downward_api(source.items.as_deref());
        } else if let Some(source) = &source.service_account_token {
            self.token(source);
        } else if let Some(source) = &source.cluster_trust_bundle {
            match self.trust_anchors(source) {
                Ok(anchors) => self.private_file(&source.path, anchors),
                Err(error) => self.errors.push(error),
            }
        } else if let Some(source) = &source.pod_certificate {
            self.certificate(source, &reference());
        }
    }

    /// Adds the files of a pod certificate; the credential bundle has key and chain.
    fn certificate(&mut self, source: &PodCertificateProjection, reference: &CertificateRef) {
        let input = self.input;
        let error = |why: &str| ProjectionError::Certificate(why.to_owned());
        if !input.node.pod_certificates {
            return self.errors.push(error("unimplemented"));
        }
        let credential = match input.objects.certificates.get(reference) {
            Some(Ok(credential)) => credential,
            Some(Err(why)) => return self.errors.push(error(why)),
            None => return self.errors.push(error("no credentials yet")),
        };
        let bundle = [&*credential.key, &*credential.chain].concat();
        for (path, data) in [
            (&source.credential_bundle_path, bundle.into()),
            (&source.key_path, Arc::clone(&credential.key)),
            (
                &source.certificate_chain_path,
                Arc::clone(&credential.chain),
            ),
        ] {
            if let Some(path) = path.as_deref().filter(|path| !path.is_empty()) {
                self.private_file(path, data);
            }
        }
    }

    /// Adds the file of a token.
    fn token(&mut self, source: &ServiceAccountTokenProjection) {
        let spec = TokenSpec::from_projection(source);
        let input = self.input;
        let token = match input.objects.tokens.get(&spec) {
            Some(Ok(token)) => token.0.clone(),
            Some(Err(why)) => return self.errors.push(ProjectionError::Token(why.clone())),
            None => {
                return self
                    .errors
                    .push(ProjectionError::Token("it was not requested".to_owned()));
            }
        };
        self.private_file(&source.path, token.into_bytes().into());
    }

    /// Returns the file of a ClusterTrustBundle source; errors have the text of upstream.
    fn trust_anchors(
        &self,
        source: &ClusterTrustBundleProjection,
    ) -> Result<Arc<[u8]>, ProjectionError> {
        let input = self.input;
        if !input.node.trust_bundles {
            let why = "ClusterTrustBundle projection is not supported in static kubelet mode";
            return Err(ProjectionError::TrustBundle(why.to_owned()));
        }
        let Some(named) = BundleRef::from_projection(source) else {
            let why = "ClusterTrustBundle projection requires either name or signerName to be set";
            return Err(ProjectionError::TrustBundle(why.to_owned()));
        };
        if let Some(error) = self.unread(Referent::TrustBundles(named.clone())) {
            return Err(error);
        }
        let found = input.objects.trust_bundles.get(&named);
        let found = found.map(Vec::as_slice).unwrap_or_default();
        let selector = source.label_selector.as_ref();
        let is_selected = |bundle: &TrustBundle| trust::matches(selector, &bundle.labels);
        let selected: Vec<&TrustBundle> = match &named {
            BundleRef::Name(_) => found.iter().map(Arc::as_ref).collect(),
            BundleRef::Signer(_) => {
                let all = found.iter().map(Arc::as_ref);
                all.filter(|bundle| is_selected(bundle)).collect()
            }
        };
        if !selected.is_empty() || source.optional == Some(true) {
            return Ok(trust::file(selected.into_iter()));
        }
        Err(ProjectionError::TrustBundle(match named {
            BundleRef::Name(name) => format!(
                "while getting ClusterTrustBundle: \
                 clustertrustbundle.certificates.k8s.io {name:?} not found"
            ),
            BundleRef::Signer(_) => {
                "combination of signerName and labelSelector matched zero ClusterTrustBundles"
                    .to_owned()
            }
        }))
    }

    /// Adds a file that only the user of the containers or the `fsGroup` may read, if there is one.
    fn private_file(&mut self, path: &str, data: Arc<[u8]>) {
        let owner = fs_user(self.input);
        let fs_group = PodExt::spec(self.input.pod)
            .security_context
            .as_ref()
            .and_then(|s| s.fs_group);
        let private = owner.is_some() || fs_group.is_some();
        let mode = private.then_some(PRIVATE_MODE);
        self.file(path, data, mode, owner);
    }

    fn keys(
        &mut self,
        subject: &'static str,
        source: ObjectSource<'_>,
        all: &BTreeMap<&str, Arc<[u8]>>,
    ) {
        let Some(items) = source.items.filter(|items| !items.is_empty()) else {
            for (key, value) in all {
                self.file(key, Arc::clone(value), None, None);
            }
            return;
        };
        for item in items {
            match all.get(item.key.as_str()) {
                Some(value) => self.file(&item.path, Arc::clone(value), item.mode, None),
                None if source.optional == Some(true) => {}
                None => self.errors.push(ProjectionError::MissingKey {
                    subject,
                    key: item.key.clone(),
                }),
            }
        }
    }

    /// An optional object may be missing, but not unread.
    fn missing(&mut self, kind: &'static str, object: Referent, source: ObjectSource<'_>) {
        if let Some(error) = self.unread(object) {
            self.errors.push(error);
        } else if source.optional != Some(true) {
            self.errors.push(ProjectionError::MissingObject {
                kind,
                name: source.name.to_owned(),
            });
        }
    }

    fn unread(&self, object: Referent) -> Option<ProjectionError> {
        let why = self.input.objects.unread.get(&object)?.clone();
        Some(ProjectionError::Unread { object, why })
    }

    /// Adds a file; the last file with a path wins.
    fn file(&mut self, path: &str, data: Arc<[u8]>, mode: Option<i32>, owner: Option<u32>) {
        let path = match path::clean(path) {
            Ok(path) => path,
            Err(error) => return self.errors.push(ProjectionError::Path(error)),
        };
        let mode = mode.unwrap_or(self.default_mode);
        let file = PayloadFile {
            data,
            mode: u32::try_from(mode & 0o7777).unwrap_or_default(),
            owner,
        };
        self.files.insert(path, file);
    }

    /// Returns a field; volumes support metadata fields only.
    fn field(&self, selector: &ObjectFieldSelector, field: &str) -> Result<String, EnvError> {
        let metadata = &self.input.pod.metadata;
        match selector.field_path.as_str() {
            "metadata.labels" => Ok(quote::entries(metadata.labels.as_ref())),
            "metadata.annotations" => Ok(quote::entries(metadata.annotations.as_ref())),
            path if path.starts_with("metadata.") => {
                self.with_env(|input| pod_field(input, selector, field))
            }
            path => Err(EnvError::UnsupportedField {
                field: field.to_owned(),
                path: path.to_owned(),
            }),
        }
    }

    fn resource(&self, selector: &ResourceFieldSelector, field: &str) -> Result<String, EnvError> {
        // a volume has no default container
        if selector
            .container_name
            .as_deref()
            .unwrap_or_default()
            .is_empty()
        {
            return Err(EnvError::UnknownContainer {
                field: field.to_owned(),
                container: "\"\"".to_owned(),
            });
        }
        self.with_env(|input| resource_field(input, selector, field))
    }

    fn with_env<R>(&self, read: impl FnOnce(EnvInput<'_>) -> R) -> R {
        read(EnvInput {
            pod: self.input.pod,
            container: &Container::default(),
            pod_ips: &[],
            node: self.input.node,
            sources: &EnvSources::default(),
            files: &EnvFiles::default(),
        })
    }
}

/// Returns the user of all containers, if it is the same (upstream `FsUserFrom`).
fn fs_user(input: ProjectionInput<'_>) -> Option<u32> {
    let pod = input.pod;
    let of_pod = PodExt::spec(pod)
        .security_context
        .as_ref()
        .and_then(|s| s.run_as_user);
    let mut users = pod
        .init_containers()
        .iter()
        .chain(pod.containers())
        .map(|c| {
            let own = c.security_context.as_ref().and_then(|s| s.run_as_user);
            own.or(of_pod)
        });
    let first = users.next()??;
    users
        .all(|user| user == Some(first))
        .then(|| u32::try_from(first).ok())?
}
