//! Certificates of pods: a key and a PodCertificateRequest for each source of a projected volume,
//! the issued certificate, and its renewal.
//!
//! Each source has a task from the first time its pod is resolved until the pod is unregistered;
//! `windlass_credentials::pod_certificate` decides its steps. One watch covers the node's requests,
//! as node authorization requires. Keys exist only in memory and in the volume.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Weak};

use futures::future::join_all;
use k8s_openapi::ByteString;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_certs::{PodKey, PodKeyType, RequestError, UnknownKeyType};
use windlass_client::{ApiClient, ApiClients, ApiError, ObjectKey, Selector};
use windlass_credentials::pod_certificate::{
    CertificateEvent, Issuance, ObservedRequest, RequestOutcome, Step,
};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_metrics::VolumeMetrics;
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::pod_references::{CertificateRef, CertificateSpec, References};
use windlass_pod_inputs::projection::Credential;
use windlass_types::certificatesv1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use windlass_types::corev1::ServiceAccount;
use windlass_types::metav1::{ObjectMeta, OwnerReference};
use windlass_types::view::EventType;
use windlass_types::{Clock, ClockReading, EventRecorder, PodExt, PodUid, SharedPod};

use crate::lookup::RESOLVE_TIMEOUT;
use crate::ordered_watch::OrderedWatch;
use crate::rejections::Rejections;
use crate::shared_reflectors::{CachedObject, CachedSet, Interest, SharedReflectors};

/// The certificates of the node's pods. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PodCertificates(Arc<Shared>);

/// Dependencies of the certificates.
#[derive(Debug)]
pub(crate) struct PodCertificatesDeps {
    pub(crate) clients: ApiClients,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Arc<dyn EventRecorder>,
    pub(crate) changed: SlotSender<PodUid, ObjectsChanged>,
    pub(crate) node_name: String,
    pub(crate) node_seen: watch::Receiver<NodeUpdate>,
    pub(crate) metrics: VolumeMetrics,
}

#[derive(Debug)]
struct Shared {
    main: ApiClient,
    requests: SharedReflectors<RequestOutcome>,
    clock: Arc<dyn Clock>,
    /// Zero of the monotonic clock.
    began: Instant,
    events: Arc<dyn EventRecorder>,
    changed: SlotSender<PodUid, ObjectsChanged>,
    node_name: String,
    node_seen: watch::Receiver<NodeUpdate>,
    metrics: VolumeMetrics,
    /// Bounded by the sources of the node's pods.
    entries: Mutex<BTreeMap<Key, Entry>>,
}

/// The UID is first, so that the sources of a pod are adjacent.
type Key = (PodUid, CertificateRef);

#[derive(Debug)]
struct Entry {
    signer: String,
    issuance: OrderedWatch<Issuance>,
    /// Until then the pod waits for its first certificate; later it is requeued.
    deadline: Instant,
    task: AbortHandle,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One source of a pod.
#[derive(Debug)]
struct Source {
    pod: SharedPod,
    place: CertificateRef,
    spec: CertificateSpec,
    /// A key for which no request was accepted yet.
    key: Option<PodKey>,
}

#[derive(Debug, thiserror::Error)]
enum CertificateRequestError {
    #[error("while fetching service account: {0}")]
    Account(#[source] ApiError),
    #[error("while creating PodCertificateRequest: while generating keypair: {0}")]
    KeyType(#[from] UnknownKeyType),
    #[error("while creating PodCertificateRequest: while generating keypair: {0}")]
    Key(#[from] RequestError),
    #[error("while creating PodCertificateRequest: while creating on API: {0}")]
    Create(#[source] ApiError),
    #[error("the API server's response has no name")]
    InvalidResponse,
}

impl CertificateRequestError {
    /// Returns the API error, if any.
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Account(error) | Self::Create(error) => Some(error),
            Self::KeyType(_) | Self::Key(_) | Self::InvalidResponse => None,
        }
    }
}

impl CachedObject for RequestOutcome {
    type Object = PodCertificateRequest;

    fn keep(object: PodCertificateRequest) -> Option<Self> {
        Some(Self::from_request(&object))
    }
}

impl PodCertificates {
    pub(crate) fn new(deps: PodCertificatesDeps) -> Self {
        Self(Arc::new(Shared {
            main: deps.clients.main,
            // the tasks subscribe themselves
            requests: SharedReflectors::new(Some(deps.clients.watch), None),
            clock: deps.clock,
            began: Instant::now(),
            events: deps.events,
            changed: deps.changed,
            node_name: deps.node_name,
            node_seen: deps.node_seen,
            metrics: deps.metrics,
            entries: Mutex::default(),
        }))
    }

    /// Returns the credentials of the pod's sources. Waits ten seconds from the first call; a
    /// source that is issued later requeues the pod.
    pub(crate) async fn credentials(
        &self,
        pod: &SharedPod,
        references: &References,
    ) -> BTreeMap<CertificateRef, Result<Credential, String>> {
        let all = references.certificates.iter().map(|(place, spec)| async {
            let (issuance, deadline) = self.acquire(pod, place, spec);
            let settled = issuance.wait_for(Issuance::is_settled);
            // the result is in `issuance`
            let _ = tokio::time::timeout_at(deadline, settled).await;
            let credential = issuance.borrow().credential();
            (place.clone(), credential)
        });
        join_all(all).await.into_iter().collect()
    }

    /// Drops the keys of a deleted pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut entries = self.0.entries.lock();
        let before = entries.len();
        entries.retain(|(of, _), _| of != uid);
        if entries.len() < before {
            self.0.count(&entries);
            self.0.requests.release(&self.0.selector(), uid);
        }
    }

    fn acquire(
        &self,
        pod: &SharedPod,
        place: &CertificateRef,
        spec: &CertificateSpec,
    ) -> (OrderedWatch<Issuance>, Instant) {
        let key = (pod.uid(), place.clone());
        let mut entries = self.0.entries.lock();
        let entry = entries.entry(key).or_insert_with_key(|key| {
            let (uid, _) = key;
            self.0
                .requests
                .acquire(&self.0.selector(), uid, Interest::Quiet);
            let issuance = OrderedWatch::new(Issuance::new(format!("{uid}/{place}")));
            let source = Source {
                pod: SharedPod::clone(pod),
                place: place.clone(),
                spec: spec.clone(),
                key: None,
            };
            let run = run(Arc::downgrade(&self.0), source, issuance.clone());
            Entry {
                signer: spec.signer.clone(),
                issuance,
                deadline: Instant::now() + RESOLVE_TIMEOUT,
                task: spawn_io("pod-certificate", run).abort_handle(),
            }
        });
        (entry.issuance.clone(), entry.deadline)
    }
}

/// Runs the steps of one source until its pod is unregistered or its request is rejected.
async fn run(shared: Weak<Shared>, mut source: Source, issuance: OrderedWatch<Issuance>) {
    let uid = source.pod.uid();
    let mut rejections = Rejections::default();
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(known) = shared.requests.subscribe(&shared.selector()) else {
            return;
        };
        let name = issuance.borrow().pending().map(str::to_owned);
        let observe = |known: &CachedSet<RequestOutcome>| match &name {
            Some(name) => observed(known, source.pod.namespace(), name),
            None => ObservedRequest::NotRead,
        };
        let seen = observe(&known.borrow());
        let step = issuance.modify(|it| it.step(shared.now(), &seen));
        tracing::debug!(%uid, source = %source.place, %step, "pod certificate step");
        shared.count(&shared.entries.lock());
        match step {
            Step::Request => {
                let result = shared.request(&mut source).await;
                let now = shared.now();
                match result {
                    Ok((name, key)) => {
                        rejections.clear();
                        issuance.modify(|it| it.requested(now, name, key));
                    }
                    Err(error) => {
                        let source = &source.place;
                        let retry = error.api().and_then(|error| {
                            // the delay is that of `issuance`
                            rejections.retry_delay(PodRequest::Certificate, error)
                        });
                        if retry.is_none() {
                            tracing::warn!(%uid, %source, %error, "certificate not requested");
                        }
                        let retry_after = error.api().and_then(|error| error.retry_after);
                        issuance.modify(|it| it.failed(now, error.to_string(), retry_after));
                    }
                }
            }
            Step::Issued => shared.changed.put(uid.clone(), ObjectsChanged),
            Step::Rejected(event) => {
                shared.record_event(&source, &event);
                shared.changed.put(uid.clone(), ObjectsChanged);
            }
            Step::Notify(event) => shared.record_event(&source, &event),
            Step::Wait(left) => {
                drop(shared);
                let changed = async {
                    match &name {
                        Some(_) => known.wait_for(|known| observe(known) != seen).await,
                        None => pending().await,
                    }
                };
                // timeout or change: the next step handles both
                let _ = tokio::time::timeout(left, changed).await;
            }
            Step::Finished => return,
        }
    }
}

/// Returns the observed state of a request; `name` includes the namespace.
fn observed(known: &CachedSet<RequestOutcome>, namespace: &str, name: &str) -> ObservedRequest {
    if !known.synced {
        return ObservedRequest::NotRead;
    }
    let name = name.strip_prefix(namespace).unwrap_or(name);
    let name = name.strip_prefix('/').unwrap_or(name);
    let found = known.items.get(&(namespace.to_owned(), name.to_owned()));
    found.map_or(ObservedRequest::Absent, |outcome| {
        ObservedRequest::Found(Arc::clone(outcome))
    })
}

impl Shared {
    fn now(&self) -> ClockReading {
        ClockReading {
            wall: self.clock.now(),
            monotonic: self.began.elapsed(),
        }
    }

    fn selector(&self) -> Selector {
        Selector {
            fields: Some(format!("spec.nodeName={}", self.node_name)),
            ..Selector::default()
        }
    }

    fn record_event(&self, source: &Source, event: &CertificateEvent) {
        let (pod, reason) = (&source.pod, event.reason());
        let message = event.to_string();
        self.events
            .record(pod, None, EventType::Warning, reason, &message);
    }

    fn count(&self, entries: &BTreeMap<Key, Entry>) {
        let now = self.now();
        let states = entries.values().map(|entry| {
            let state = entry.issuance.borrow().state(now);
            (entry.signer.as_str(), state)
        });
        self.metrics.set_pod_certificates(states);
    }

    /// Creates a request; returns its name with namespace, and the key.
    async fn request(
        &self,
        source: &mut Source,
    ) -> Result<(String, Arc<[u8]>), CertificateRequestError> {
        let pod = SharedPod::clone(&source.pod);
        let namespace = pod.namespace();
        let account = PodExt::spec(&*pod).service_account_name.as_deref();
        let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
        let read = self.main.get(ObjectKey::namespaced(namespace, account));
        let object: ServiceAccount = read.await.map_err(CertificateRequestError::Account)?;
        let node_uid = self.node_uid().await;
        // an unused key serves for the next attempt: generating one may take seconds
        let key = match source.key.take() {
            Some(key) => key,
            None => PodKey::generate(source.spec.key_type.parse::<PodKeyType>()?).await?,
        };
        let request = PodCertificateRequest {
            metadata: ObjectMeta {
                namespace: Some(namespace.to_owned()),
                generate_name: Some("req-".to_owned()),
                owner_references: Some(vec![OwnerReference {
                    api_version: "v1".to_owned(),
                    kind: "Pod".to_owned(),
                    name: pod.name().to_owned(),
                    uid: pod.uid().to_string(),
                    ..OwnerReference::default()
                }]),
                ..ObjectMeta::default()
            },
            spec: PodCertificateRequestSpec {
                signer_name: source.spec.signer.clone(),
                pod_name: pod.name().to_owned(),
                pod_uid: pod.uid().to_string(),
                service_account_name: account.to_owned(),
                service_account_uid: object.metadata.uid.unwrap_or_default(),
                node_name: self.node_name.clone(),
                node_uid,
                max_expiration_seconds: source.spec.max_expiration_seconds,
                stub_pkc_s10_request: ByteString(key.request.clone()),
                unverified_user_annotations: source.spec.user_annotations.clone(),
                ..PodCertificateRequestSpec::default()
            },
            status: None,
        };
        let created = match self.main.create(Some(namespace), &request).await {
            Ok(created) => created,
            Err(error) => {
                source.key = Some(key);
                return Err(CertificateRequestError::Create(error));
            }
        };
        let name = created
            .metadata
            .name
            .ok_or(CertificateRequestError::InvalidResponse)?;
        tracing::info!(pod = %pod.uid(), source = %source.place, name, "certificate requested");
        Ok((format!("{namespace}/{name}"), key.key.into_bytes().into()))
    }

    /// Waits for the UID of the node.
    async fn node_uid(&self) -> String {
        let mut node = self.node_seen.clone();
        loop {
            let uid = node
                .borrow_and_update()
                .0
                .as_ref()
                .and_then(|node| node.metadata.uid.clone());
            match uid {
                Some(uid) => return uid,
                None if node.changed().await.is_ok() => {}
                // the agent is shutting down
                None => return pending().await,
            }
        }
    }
}
