//! The object cache: register, resolve, unregister pods.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_client::{ApiClients, Selector};
use windlass_credentials::credentials::Keyring;
use windlass_csi::CsiObjects;
use windlass_mailboxes::SlotSender;
use windlass_metrics::VolumeMetrics;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_inputs::pod_references::{BundleRef, ReferenceUse, References, pod_references};
use windlass_pod_inputs::projection::{
    ConfigMapContent, ObjectSnapshot, ProjectionInput, Referent, SecretContent, TrustBundle,
    project_volumes,
};
use windlass_pod_inputs::service_env::{ServiceLink, service_env};
use windlass_runtime_config::port::{InputsError, PodInputs, PodObjects};
use windlass_types::view::EventType;
use windlass_types::{
    Clock, EventRecorder, Pod, PodExt, PodUid, Reason, Retry, SharedPod, Timestamp,
};
use windlass_volume_plan::volume_source::{PodVolume, projected_volumes};

use crate::claims::Claims;
use crate::kept::{KeptObjects, ServingCopy};
use crate::lookup::{NamedObjects, NamedObjectsDeps, Names, RESOLVE_TIMEOUT, all, item, read};
use crate::node_credentials::{CredentialDirs, NodeCredentials};
use crate::pod_certificates::{PodCertificates, PodCertificatesDeps};
use crate::resolve::{
    Handler, Kind, UnresolvedReference, runtime_class_error, unread, unresolved_error,
};
use crate::shared_reflectors::{Interest, ItemKey, SharedReflectors, settled};
use crate::tokens::TokenCache;

mod claimed;
mod keeping;

use claimed::with_claimed;
use keeping::inline_csi;

/// Excludes headless services, as upstream's selector.
const SERVICES: &str = "!service.kubernetes.io/headless";
/// User of the service watch for the whole agent run.
const AGENT: &str = "agent";

/// Dependencies of the cache.
#[derive(Clone, Debug)]
pub struct ObjectCacheDeps {
    /// API clients; `None` in standalone mode, with only the node's credential files and the pods'
    /// own fields.
    pub clients: Option<ApiClients>,
    /// Wall clock, for token expiry.
    pub clock: Arc<dyn Clock>,
    /// Records missing or malformed pull secrets.
    pub events: Arc<dyn EventRecorder>,
    /// Requeues pods in the SyncLoop.
    pub changed: SlotSender<PodUid, ObjectsChanged>,
    /// Facts of the node, for resource fields in volumes.
    pub node: Arc<NodeFacts>,
    /// The Node object, for volumes with node affinity.
    pub node_seen: watch::Receiver<NodeUpdate>,
    /// Metrics of certificates.
    pub metrics: VolumeMetrics,
    /// How ConfigMaps and Secrets are kept current.
    pub change_detection: ChangeDetection,
    /// CSI driver objects; `None` assumes the API's defaults.
    pub csi: Option<Arc<dyn CsiObjects>>,
    /// Directories of the node's docker config files; `None` in simulations.
    pub credential_dirs: Option<CredentialDirs>,
    /// Copy of the objects for a reboot without an API server; `None` keeps nothing.
    pub kept: Option<KeptObjects>,
}

/// References of pods, kept current while they exist.
pub struct ObjectCache {
    config_maps: NamedObjects<ConfigMapContent>,
    secrets: NamedObjects<SecretContent>,
    services: SharedReflectors<ServiceLink>,
    runtime_classes: SharedReflectors<Handler>,
    trust_bundles: SharedReflectors<TrustBundle>,
    claims: Claims,
    tokens: Arc<TokenCache>,
    /// `None` without an API server or with the feature off.
    certificates: Option<PodCertificates>,
    credentials: NodeCredentials,
    pub(crate) node: Arc<NodeFacts>,
    node_seen: watch::Receiver<NodeUpdate>,
    csi: Option<Arc<dyn CsiObjects>>,
    events: Arc<dyn EventRecorder>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) changed: SlotSender<PodUid, ObjectsChanged>,
    pub(crate) kept: Option<KeptObjects>,
    pods: Mutex<BTreeMap<PodUid, Registered>>,
}

/// What a pod refers to, before its volumes are computed.
struct Resolved {
    objects: ObjectSnapshot,
    unresolved: Vec<UnresolvedReference>,
    handler: Result<String, InputsError>,
    services: Result<BTreeMap<String, String>, InputsError>,
    claimed: Result<BTreeMap<String, PodVolume>, InputsError>,
}

impl fmt::Debug for ObjectCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectCache").finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Registered {
    namespace: String,
    is_static: bool,
    references: References,
    /// Last recorded errors of its pull secrets, to record only changes.
    recorded_errors: BTreeSet<String>,
    /// Last ready volumes of its PVCs, by volume name: a PVC that is being deleted stays usable for
    /// its pods.
    claimed: BTreeMap<String, PodVolume>,
    /// Drivers and Secrets of its inline CSI volumes.
    inline_csi: Vec<(String, Option<ItemKey>)>,
}

impl ObjectCache {
    /// Creates a cache without pods. Watches run in the tokio runtime of the caller.
    pub fn new(deps: ObjectCacheDeps) -> Self {
        let certificates = deps.clients.clone().filter(|_| deps.node.pod_certificates);
        let certificates = certificates.map(|clients| {
            PodCertificates::new(PodCertificatesDeps {
                clients,
                clock: Arc::clone(&deps.clock),
                events: Arc::clone(&deps.events),
                changed: deps.changed.clone(),
                node_name: deps.node.node_name.clone(),
                node_seen: deps.node_seen.clone(),
                metrics: deps.metrics,
            })
        });
        let watch = deps.clients.as_ref().map(|clients| clients.watch.clone());
        let main = deps.clients.map(|clients| clients.main);
        let changed = || Some(deps.changed.clone());
        let named = NamedObjectsDeps {
            detection: deps.change_detection,
            watch: watch.clone(),
            main: main.clone(),
            changed: deps.changed.clone(),
            node: deps.node_seen.clone(),
        };
        Self {
            config_maps: NamedObjects::new(named.clone()),
            secrets: NamedObjects::new(named),
            services: SharedReflectors::new(watch.clone(), changed()),
            runtime_classes: SharedReflectors::new(watch.clone(), changed()),
            trust_bundles: SharedReflectors::new(watch, changed()),
            claims: Claims::new(main.clone(), deps.changed.clone()),
            tokens: Arc::new(TokenCache::new(main, Arc::clone(&deps.clock), changed())),
            certificates,
            credentials: NodeCredentials::new(deps.credential_dirs),
            node: deps.node,
            node_seen: deps.node_seen,
            csi: deps.csi,
            events: deps.events,
            clock: deps.clock,
            changed: deps.changed,
            kept: deps.kept,
            pods: Mutex::default(),
        }
    }

    /// Resolves everything that a pod refers to.
    async fn resolve(&self, pod: &SharedPod, references: &References) -> Resolved {
        let (snapshot, handler, services, claimed) = futures::join!(
            self.snapshot(pod, references),
            self.runtime_handler(references),
            self.service_variables(pod, references),
            self.claimed_volumes(pod, references, None),
        );
        let (objects, unresolved) = snapshot;
        Resolved {
            objects,
            unresolved,
            handler,
            services,
            claimed,
        }
    }

    /// The same from the copy, without a request.
    async fn resolve_kept(
        &self,
        pod: &SharedPod,
        references: &References,
        copy: &ServingCopy,
    ) -> Resolved {
        let (table, now) = (&copy.table, copy.now(self.clock.now()));
        let (objects, unresolved) = table.snapshot(pod, references, now);
        Resolved {
            objects,
            unresolved,
            handler: table.runtime_handler(references),
            services: table.service_variables(pod, references),
            claimed: self.claimed_volumes(pod, references, Some(copy)).await,
        }
    }

    /// Resolves the pod's references, waiting for missing ones until the timeout.
    async fn snapshot(
        &self,
        pod: &SharedPod,
        references: &References,
    ) -> (ObjectSnapshot, Vec<UnresolvedReference>) {
        let names = |objects: &BTreeMap<String, ReferenceUse>| -> Names {
            let names = objects.keys().cloned().collect();
            (pod.namespace().to_owned(), names)
        };
        let tokens = references.tokens.iter().map(|spec| async {
            let token = self.tokens.token(pod, spec).await;
            (spec.clone(), token)
        });
        let bundles = references.trust_bundles.iter().map(|named| async {
            let found = self.trust_bundles(named).await;
            (named.clone(), found)
        });
        let certificates = async {
            match &self.certificates {
                Some(certificates) => certificates.credentials(pod, references).await,
                None => BTreeMap::new(),
            }
        };
        let (config_maps, secrets, tokens, bundles, certificates) = futures::join!(
            read(
                &self.config_maps,
                Kind::ConfigMap,
                names(&references.config_maps)
            ),
            read(&self.secrets, Kind::Secret, names(&references.secrets)),
            join_all(tokens),
            join_all(bundles),
            certificates,
        );
        let mut unresolved = config_maps.1;
        unresolved.extend(secrets.1);
        let volume_references = unresolved
            .iter()
            .filter_map(UnresolvedReference::for_volumes);
        let mut unread_by_volumes: BTreeMap<_, _> = volume_references.collect();
        let mut trust_bundles = BTreeMap::new();
        for (named, found) in bundles {
            match found {
                Ok(found) => {
                    trust_bundles.insert(named, found);
                }
                Err(error) => {
                    let object = Referent::TrustBundles(named);
                    unread_by_volumes.insert(object, unread(error.as_deref()));
                }
            }
        }
        let objects = ObjectSnapshot {
            config_maps: config_maps.0,
            secrets: secrets.0,
            tokens: tokens.into_iter().collect(),
            trust_bundles,
            certificates,
            unread: unread_by_volumes,
        };
        (objects, unresolved)
    }

    /// Returns all bundles of a reference.
    async fn trust_bundles(
        &self,
        named: &BundleRef,
    ) -> Result<Vec<Arc<TrustBundle>>, Option<Arc<str>>> {
        let Some(known) = self.trust_bundles.subscribe(&bundles(named)) else {
            return Err(None);
        };
        // the result is in `known`
        let _ = tokio::time::timeout(RESOLVE_TIMEOUT, settled(&known)).await;
        let known = known.borrow();
        if known.synced {
            return Ok(known.items.values().cloned().collect());
        }
        Err(known.error.as_ref().map(|e| e.to_string().into()))
    }

    async fn runtime_handler(&self, references: &References) -> Result<String, InputsError> {
        let Some(name) = &references.runtime_class else {
            return Ok(String::new());
        };
        let deadline = Instant::now() + RESOLVE_TIMEOUT;
        let found = item(&self.runtime_classes, &all(), "", name, deadline).await;
        match found {
            Ok(Some(handler)) => Ok(handler.0.clone()),
            Ok(None) => Err(runtime_class_error(name)),
            Err(error) => {
                let unresolved = UnresolvedReference {
                    kind: Kind::RuntimeClass,
                    name: name.clone(),
                    error,
                };
                Err(unresolved_error(references, &[unresolved])
                    .unwrap_or_else(|| runtime_class_error(name)))
            }
        }
    }

    /// Returns the service variables. A static pod does not wait for the services.
    async fn service_variables(
        &self,
        pod: &Pod,
        references: &References,
    ) -> Result<BTreeMap<String, String>, InputsError> {
        let Some(known) = self.services.subscribe(&services()) else {
            return Ok(BTreeMap::new());
        };
        if !pod.is_static() {
            let deadline = Instant::now() + RESOLVE_TIMEOUT;
            // the result is in `known`
            let _ = tokio::time::timeout_at(deadline, settled(&known)).await;
            if !known.borrow().synced {
                let error = known.borrow().error.as_ref().map(|e| e.to_string().into());
                let unresolved = UnresolvedReference {
                    kind: Kind::Services,
                    name: String::new(),
                    error,
                };
                if let Some(error) = unresolved_error(references, &[unresolved]) {
                    return Err(error);
                }
            }
        }
        let links = PodExt::spec(pod).enable_service_links.unwrap_or(true);
        let known = known.borrow();
        let services = known.items.values().map(Arc::as_ref);
        Ok(service_env(services, pod.namespace(), links))
    }

    /// Returns the pod's pull secrets, then the node's files.
    async fn keyring(
        &self,
        pod: &Pod,
        references: &References,
        objects: &ObjectSnapshot,
    ) -> Keyring {
        let mut missing = Vec::new();
        let mut secrets = Vec::new();
        for name in &references.pull_secrets {
            match objects.secrets.get(name) {
                Some(secret) => secrets.push((name.as_str(), secret.as_ref())),
                None => missing.push(name.as_str()),
            }
        }
        let read = Keyring::from_secrets(pod.namespace(), secrets);
        let mut errors: BTreeSet<_> = read.errors.iter().map(ToString::to_string).collect();
        if !missing.is_empty() {
            let missing = missing.join(", ");
            errors.insert(format!(
                "Unable to retrieve some image pull secrets ({missing}); attempting to pull the \
                 image may not succeed."
            ));
        }
        self.record_pull_errors(pod, errors);
        read.keyring.then(&self.credentials.keyring().await)
    }

    fn record_pull_errors(&self, pod: &Pod, errors: BTreeSet<String>) {
        let mut pods = self.pods.lock();
        let Some(registered) = pods.get_mut(&pod.uid()) else {
            return;
        };
        let old = std::mem::replace(&mut registered.recorded_errors, errors.clone());
        drop(pods);
        for message in errors.difference(&old) {
            let reason = Reason::FailedToRetrieveImagePullSecret;
            self.events
                .record(pod, None, EventType::Warning, reason, message);
        }
    }

    fn acquire(&self, uid: &PodUid, namespace: &str, references: &References) {
        for (name, need) in &references.config_maps {
            self.config_maps.acquire(namespace, name, uid, *need);
        }
        for (name, need) in &references.secrets {
            self.secrets.acquire(namespace, name, uid, *need);
        }
        if let Some(name) = &references.runtime_class {
            let interest = Interest::Appearing(name.clone());
            self.runtime_classes.acquire(&all(), uid, interest);
        }
        for named in &references.trust_bundles {
            self.trust_bundles
                .acquire(&bundles(named), uid, Interest::Set);
        }
        for claim in &references.pvcs {
            self.claims
                .acquire(&(namespace.to_owned(), claim.clone()), uid);
        }
    }

    /// Releases references that `kept` does not contain.
    fn release(&self, uid: &PodUid, old: &Registered, kept: &References) {
        let is_unused =
            |name: &&String, kept: &BTreeMap<String, ReferenceUse>| !kept.contains_key(*name);
        let config_maps = old.references.config_maps.keys();
        for name in config_maps.filter(|name| is_unused(name, &kept.config_maps)) {
            self.config_maps.release(&old.namespace, name, uid);
        }
        let secrets = old.references.secrets.keys();
        for name in secrets.filter(|name| is_unused(name, &kept.secrets)) {
            self.secrets.release(&old.namespace, name, uid);
        }
        if old.references.runtime_class.is_some() && kept.runtime_class.is_none() {
            self.runtime_classes.release(&all(), uid);
        }
        let old_bundles = &old.references.trust_bundles;
        for named in old_bundles.difference(&kept.trust_bundles) {
            self.trust_bundles.release(&bundles(named), uid);
        }
        for claim in old.references.pvcs.difference(&kept.pvcs) {
            let key = (old.namespace.clone(), claim.clone());
            self.claims.release(&key, uid);
        }
    }

    /// Returns whether all ConfigMaps, Secrets and services of a pod were read and exist.
    fn are_present(&self, namespace: &str, references: &References) -> bool {
        let services = self.services.subscribe(&services());
        let mut config_maps = references.config_maps.keys();
        let mut secrets = references.secrets.keys();
        services.is_some_and(|known| known.borrow().synced)
            && config_maps.all(|name| self.config_maps.is_present(namespace, name))
            && secrets.all(|name| self.secrets.is_present(namespace, name))
    }

    /// Returns the effective references: only the RuntimeClass for a static pod, and none of
    /// disabled features.
    fn references(&self, pod: &Pod) -> References {
        let mut references = pod_references(pod);
        if pod.is_static() {
            return References {
                runtime_class: references.runtime_class,
                ..References::default()
            };
        }
        if !self.node.trust_bundles {
            references.trust_bundles.clear();
        }
        references
    }
}

#[async_trait]
impl PodObjects for ObjectCache {
    fn register(&self, pod: &SharedPod) {
        self.record_contact(pod);
        let (uid, references) = (pod.uid(), self.references(pod));
        let mut pods = self.pods.lock();
        if pods.get(&uid).is_some_and(|r| r.references == references) {
            return;
        }
        if !pod.is_static() {
            let agent = PodUid::new(AGENT);
            self.services.acquire(&services(), &agent, Interest::Quiet);
        }
        self.acquire(&uid, pod.namespace(), &references);
        let registered = Registered {
            namespace: pod.namespace().to_owned(),
            is_static: pod.is_static(),
            references: references.clone(),
            recorded_errors: BTreeSet::new(),
            claimed: BTreeMap::new(),
            inline_csi: inline_csi(pod),
        };
        if let Some(old) = pods.insert(uid.clone(), registered) {
            self.release(&uid, &old, &references);
            if let Some(registered) = pods.get_mut(&uid) {
                registered.claimed = old.claimed;
            }
        }
    }

    fn sandbox_inputs(&self, pod: &SharedPod) -> Option<PodInputs> {
        let references = self.references(pod);
        let ready = only_tokens_missing(pod, &references)
            && self.tokens.are_prompt()
            && self.are_present(pod.namespace(), &references);
        ready.then(|| PodInputs {
            runtime_handler: Some(String::new()),
            ..PodInputs::default()
        })
    }

    fn unregister(&self, uid: &PodUid) {
        if let Some(old) = self.pods.lock().remove(uid) {
            self.release(uid, &old, &References::default());
        }
        self.tokens.forget(uid);
        if let Some(certificates) = &self.certificates {
            certificates.forget(uid);
        }
    }

    fn kept_since(&self, uid: &PodUid) -> Option<Timestamp> {
        let copy = self.kept.as_ref()?.serving()?;
        copy.table.pods.contains(uid).then_some(copy.saved_at)
    }

    async fn inputs(&self, pod: &SharedPod) -> Result<PodInputs, InputsError> {
        self.register(pod);
        let references = self.references(pod);
        let kept = self.kept.as_ref().filter(|_| !pod.is_static());
        let copy = kept.and_then(KeptObjects::serving);
        let Resolved {
            objects,
            unresolved,
            handler,
            services,
            claimed,
        } = match &copy {
            Some(copy) => self.resolve_kept(pod, &references, copy).await,
            None => self.resolve(pod, &references).await,
        };
        // requests of retries would have the same result: a response requeues the pod
        let retry_later = |error: InputsError| match copy {
            Some(_) => InputsError {
                retry: Retry::Later,
                ..error
            },
            None => error,
        };
        let claimed = claimed.map_err(retry_later)?;
        let projection = project_volumes(ProjectionInput {
            pod,
            node: &self.node,
            objects: &objects,
        });
        let mut volumes = with_claimed(pod, projected_volumes(pod, &projection), claimed);
        self.complete_csi_volumes(&mut volumes).await?;
        let mut missing = unresolved_error(&references, &unresolved);
        let runtime_handler = keep_first_error(handler, &mut missing);
        let services = keep_first_error(services, &mut missing).unwrap_or_default();
        Ok(PodInputs {
            env: objects.env_sources(&references, services),
            keyring: self.keyring(pod, &references, &objects).await,
            runtime_handler,
            volumes: Arc::new(volumes),
            missing: missing.map(retry_later),
            ..PodInputs::default()
        })
    }
}

/// Returns whether a pod refers to tokens and otherwise only to objects by name, and the set-up of
/// its volumes waits only for their content.
fn only_tokens_missing(pod: &Pod, references: &References) -> bool {
    let mut volumes = PodExt::spec(pod).volumes.iter().flatten();
    !references.tokens.is_empty()
        && references.runtime_class.is_none()
        && references.pvcs.is_empty()
        && references.certificates.is_empty()
        && references.trust_bundles.is_empty()
        && volumes.all(|volume| {
            volume.projected.is_some()
                || volume.config_map.is_some()
                || volume.secret.is_some()
                || volume.downward_api.is_some()
                || volume.empty_dir.is_some()
        })
}

/// Keeps the first of several errors.
fn keep_first_error<T>(
    result: Result<T, InputsError>,
    first: &mut Option<InputsError>,
) -> Option<T> {
    result.map_err(|error| first.get_or_insert(error)).ok()
}

fn bundles(named: &BundleRef) -> Selector {
    let fields = match named {
        BundleRef::Name(name) => format!("metadata.name={name}"),
        BundleRef::Signer(signer) => format!("spec.signerName={signer}"),
    };
    Selector {
        fields: Some(fields),
        ..Selector::default()
    }
}

fn services() -> Selector {
    Selector {
        labels: Some(SERVICES.to_owned()),
        ..Selector::default()
    }
}
