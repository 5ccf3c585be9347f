//! The kept objects as they are in the file, before encryption.
//!
//! Each type has its own form here, so that the content of a Secret can be serialized nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use windlass_csi::{CsiDriverSpec, FsGroupPolicy, TokenRequest};
use windlass_pod_inputs::pod_references::{BundleRef, TokenSpec};
use windlass_pod_inputs::projection::{ConfigMapContent, SecretContent, Token, TrustBundle};
use windlass_pod_inputs::service_env::{PortLink, ServiceLink};
use windlass_types::corev1::{PersistentVolume, PersistentVolumeClaim};
use windlass_types::{PodUid, Timestamp};
use windlass_volume_plan::volume_source::{Lookup, PvcState};

use super::table::{Table, TokenRecord};

/// Content of the file.
#[derive(Serialize, Deserialize)]
pub(crate) struct FileContent {
    /// Last time at which the objects were current.
    pub(crate) saved_at: Timestamp,
    pods: BTreeSet<PodUid>,
    config_maps: Vec<ConfigMapForm>,
    secrets: Vec<SecretForm>,
    services: Option<Vec<ServiceForm>>,
    runtime_classes: BTreeMap<String, Option<String>>,
    trust_bundles: Vec<TrustBundleForm>,
    pvcs: Vec<PvcForm>,
    drivers: BTreeMap<String, Option<DriverForm>>,
    tokens: Vec<TokenForm>,
}

/// Bytes as base64.
struct Bytes(Arc<[u8]>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&base64::display::Base64Display::new(&self.0, &STANDARD))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text.as_bytes());
        // the error of the decoder quotes the content
        let bytes = bytes.map_err(|_| serde::de::Error::custom("not base64"))?;
        Ok(Self(bytes.into()))
    }
}

type Data = BTreeMap<String, Bytes>;

fn data(content: &BTreeMap<String, Arc<[u8]>>) -> Data {
    let bytes = |(key, value): (&String, &Arc<[u8]>)| (key.clone(), Bytes(Arc::clone(value)));
    content.iter().map(bytes).collect()
}

fn content(data: Data) -> BTreeMap<String, Arc<[u8]>> {
    data.into_iter()
        .map(|(key, value)| (key, value.0))
        .collect()
}

#[derive(Serialize, Deserialize)]
struct ConfigMapForm {
    namespace: String,
    name: String,
    /// `None` if it does not exist.
    data: Option<(Data, Data)>,
}

#[derive(Serialize, Deserialize)]
struct SecretForm {
    namespace: String,
    name: String,
    /// `None` if it does not exist.
    data: Option<(String, String, Data)>,
}

#[derive(Serialize, Deserialize)]
struct ServiceForm {
    namespace: String,
    name: String,
    cluster_ip: String,
    ports: Vec<(Option<String>, i32, String)>,
}

#[derive(Serialize, Deserialize)]
enum BundleForm {
    Name(String),
    Signer(String),
}

#[derive(Serialize, Deserialize)]
struct TrustBundleForm {
    bundle: BundleForm,
    found: Vec<(BTreeMap<String, String>, Vec<Bytes>)>,
}

#[derive(Serialize, Deserialize)]
struct PvcForm {
    namespace: String,
    name: String,
    pvc: Option<Arc<PersistentVolumeClaim>>,
    volume: Option<Arc<PersistentVolume>>,
}

#[derive(Serialize, Deserialize)]
struct DriverForm {
    attach_required: bool,
    pod_info_on_mount: bool,
    fs_group_policy: String,
    persistent: bool,
    ephemeral: bool,
    token_requests: Vec<(String, Option<i64>)>,
    tokens_in_secrets: bool,
    requires_republish: bool,
    se_linux_mount: bool,
    allocatable_update: Option<Duration>,
}

#[derive(Serialize, Deserialize)]
struct TokenForm {
    pod: PodUid,
    audience: Option<String>,
    expiration_seconds: i64,
    token: String,
    valid_until: Timestamp,
}

impl FileContent {
    pub(crate) fn new(table: &Table, saved_at: Timestamp) -> Self {
        let config_maps = table.config_maps.iter();
        let config_maps = config_maps.map(|((namespace, name), map)| ConfigMapForm {
            namespace: namespace.clone(),
            name: name.clone(),
            data: map.as_deref().map(|map| {
                let text = map.data.iter();
                let text = text.map(|(key, text)| (key.clone(), Bytes(text.as_bytes().into())));
                (text.collect(), data(&map.binary_data))
            }),
        });
        let secrets = table.secrets.iter();
        let secrets = secrets.map(|((namespace, name), secret)| SecretForm {
            namespace: namespace.clone(),
            name: name.clone(),
            data: secret.as_deref().map(|secret| {
                let (uid, secret_type) = (secret.uid.clone(), secret.secret_type.clone());
                (uid, secret_type, data(&secret.data))
            }),
        });
        let bundles = table.trust_bundles.iter();
        let pvcs = table.pvcs.iter();
        let drivers = table.drivers.iter();
        let tokens = table.tokens.iter();
        Self {
            saved_at,
            pods: table.pods.clone(),
            config_maps: config_maps.collect(),
            secrets: secrets.collect(),
            services: table.services.as_ref().map(|services| {
                let services = services.iter().map(|service| ServiceForm::new(service));
                services.collect()
            }),
            runtime_classes: table.runtime_classes.clone(),
            trust_bundles: bundles
                .map(|(of, found)| TrustBundleForm::new(of, found))
                .collect(),
            pvcs: pvcs.map(|(key, state)| PvcForm::new(key, state)).collect(),
            drivers: drivers
                .map(|(name, driver)| (name.clone(), driver.as_ref().map(DriverForm::new)))
                .collect(),
            tokens: tokens
                .map(|((pod, spec), record)| TokenForm {
                    pod: pod.clone(),
                    audience: spec.audience.clone(),
                    expiration_seconds: spec.expiration_seconds,
                    token: record.token.0.clone(),
                    valid_until: record.valid_until,
                })
                .collect(),
        }
    }

    pub(crate) fn into_table(self) -> Table {
        let config_maps = self.config_maps.into_iter().map(|form| {
            let found = form.data.map(|(text, binary)| {
                // ConfigMaps have text, so that nothing is replaced
                let text = text.into_iter().map(|(key, value)| {
                    let text = String::from_utf8_lossy(&value.0);
                    (key, Arc::from(&*text))
                });
                Arc::new(ConfigMapContent {
                    data: text.collect(),
                    binary_data: content(binary),
                })
            });
            ((form.namespace, form.name), found)
        });
        let secrets = self.secrets.into_iter().map(|form| {
            let found = form.data.map(|(uid, secret_type, data)| {
                Arc::new(SecretContent {
                    uid,
                    secret_type,
                    data: content(data),
                })
            });
            ((form.namespace, form.name), found)
        });
        let services = self.services.map(|services| {
            let services = services.into_iter().map(|form| Arc::new(form.service()));
            services.collect()
        });
        let drivers = self.drivers.into_iter();
        Table {
            pods: self.pods,
            config_maps: config_maps.collect(),
            secrets: secrets.collect(),
            services,
            runtime_classes: self.runtime_classes,
            trust_bundles: self
                .trust_bundles
                .into_iter()
                .map(TrustBundleForm::entry)
                .collect(),
            pvcs: self.pvcs.into_iter().map(PvcForm::entry).collect(),
            drivers: drivers
                .map(|(name, form)| (name, form.map(DriverForm::spec)))
                .collect(),
            tokens: self.tokens.into_iter().map(TokenForm::entry).collect(),
        }
    }
}

impl ServiceForm {
    fn new(link: &ServiceLink) -> Self {
        let ports = link.ports.iter();
        Self {
            namespace: link.namespace.clone(),
            name: link.name.clone(),
            cluster_ip: link.cluster_ip.clone(),
            ports: ports
                .map(|port| (port.name.clone(), port.port, port.protocol.clone()))
                .collect(),
        }
    }

    fn service(self) -> ServiceLink {
        let ports = self.ports.into_iter();
        ServiceLink {
            namespace: self.namespace,
            name: self.name,
            cluster_ip: self.cluster_ip,
            ports: ports
                .map(|(name, port, protocol)| PortLink {
                    name,
                    port,
                    protocol,
                })
                .collect(),
        }
    }
}

impl TrustBundleForm {
    fn new(bundle: &BundleRef, found: &[Arc<TrustBundle>]) -> Self {
        let found = found.iter().map(|bundle| {
            let anchors = bundle.anchors.iter();
            let anchors = anchors.map(|anchor| Bytes(anchor.as_slice().into()));
            (bundle.labels.clone(), anchors.collect())
        });
        Self {
            bundle: match bundle {
                BundleRef::Name(name) => BundleForm::Name(name.clone()),
                BundleRef::Signer(signer) => BundleForm::Signer(signer.clone()),
            },
            found: found.collect(),
        }
    }

    fn entry(self) -> (BundleRef, Vec<Arc<TrustBundle>>) {
        let bundle = match self.bundle {
            BundleForm::Name(name) => BundleRef::Name(name),
            BundleForm::Signer(signer) => BundleRef::Signer(signer),
        };
        let found = self.found.into_iter().map(|(labels, anchors)| {
            let anchors = anchors.into_iter().map(|anchor| anchor.0.to_vec());
            Arc::new(TrustBundle {
                labels,
                anchors: anchors.collect(),
            })
        });
        (bundle, found.collect())
    }
}

impl PvcForm {
    fn new((namespace, name): &(String, String), state: &PvcState) -> Self {
        Self {
            namespace: namespace.clone(),
            name: name.clone(),
            pvc: found(&state.pvc),
            volume: found(&state.volume),
        }
    }

    fn entry(self) -> ((String, String), Arc<PvcState>) {
        let state = PvcState {
            pvc: self.pvc.map_or(Lookup::Missing, Lookup::Found),
            volume: self.volume.map_or(Lookup::Missing, Lookup::Found),
        };
        ((self.namespace, self.name), Arc::new(state))
    }
}

/// Only states without unread objects are kept.
fn found<T>(lookup: &Lookup<T>) -> Option<Arc<T>> {
    match lookup {
        Lookup::Found(object) => Some(Arc::clone(object)),
        Lookup::Missing | Lookup::Unread(_) => None,
    }
}

impl DriverForm {
    fn new(spec: &CsiDriverSpec) -> Self {
        let policy = match spec.fs_group_policy {
            FsGroupPolicy::ReadWriteOnceWithFsType => "ReadWriteOnceWithFSType",
            FsGroupPolicy::File => "File",
            FsGroupPolicy::None => "None",
        };
        let requests = spec.token_requests.iter();
        Self {
            attach_required: spec.attach_required,
            pod_info_on_mount: spec.pod_info_on_mount,
            fs_group_policy: policy.to_owned(),
            persistent: spec.persistent,
            ephemeral: spec.ephemeral,
            token_requests: requests
                .map(|it| (it.audience.clone(), it.expiration_seconds))
                .collect(),
            tokens_in_secrets: spec.tokens_in_secrets,
            requires_republish: spec.requires_republish,
            se_linux_mount: spec.se_linux_mount,
            allocatable_update: spec.allocatable_update,
        }
    }

    fn spec(self) -> CsiDriverSpec {
        let requests = self.token_requests.into_iter();
        CsiDriverSpec {
            attach_required: self.attach_required,
            pod_info_on_mount: self.pod_info_on_mount,
            fs_group_policy: match self.fs_group_policy.as_str() {
                "File" => FsGroupPolicy::File,
                "None" => FsGroupPolicy::None,
                _ => FsGroupPolicy::ReadWriteOnceWithFsType,
            },
            persistent: self.persistent,
            ephemeral: self.ephemeral,
            token_requests: requests
                .map(|(audience, expiration_seconds)| TokenRequest {
                    audience,
                    expiration_seconds,
                })
                .collect(),
            tokens_in_secrets: self.tokens_in_secrets,
            requires_republish: self.requires_republish,
            se_linux_mount: self.se_linux_mount,
            allocatable_update: self.allocatable_update,
        }
    }
}

impl TokenForm {
    fn entry(self) -> ((PodUid, TokenSpec), TokenRecord) {
        let audience = self.audience.unwrap_or_default();
        let spec = TokenSpec::new(&audience, Some(self.expiration_seconds));
        let record = TokenRecord {
            token: Token(self.token),
            valid_until: self.valid_until,
        };
        ((self.pod, spec), record)
    }
}
