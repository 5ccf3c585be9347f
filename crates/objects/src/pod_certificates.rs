//! Certificates of pods: a key and a request for each source of a projected volume, the signer's
//! answer, and a new one in time.
//!
//! Each source has a task of its own from the first time its pod is resolved until the pod is
//! gone, and `core::pod_certificate` says what it does next. The node's requests are one watch
//! while there is such a pod: node authorization lets a node watch no less. Keys are in memory
//! and in the volume, nowhere else.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures::future::join_all;
use k8s_openapi::ByteString;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_certs::{PodKey, PodKeyType, RequestError, UnknownKeyType};
use windlass_client::{ApiClient, ApiClients, ApiError, ObjectKey, Selector};
use windlass_credentials::pod_certificate::{Issuance, Moment, Notice, Outcome, Seen, Step};
use windlass_metrics::VolumeMetrics;
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::pod_references::{CertificateRef, CertificateSpec, References};
use windlass_pod_inputs::projection::Credential;
use windlass_types::certificatesv1beta1::{PodCertificateRequest, PodCertificateRequestSpec};
use windlass_types::corev1::ServiceAccount;
use windlass_types::metav1::{ObjectMeta, OwnerReference};
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, PodExt, PodUid, SharedPod};

use crate::announced::Announced;
use crate::lookup::ANSWER_DEADLINE;
use crate::reflections::{Interest, Kept, Known, Reflections};
use crate::refusals::Refusals;

/// The certificates of all pods of the node. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct PodCertificates(Arc<Shared>);

/// What certificates are got with.
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
    requests: Reflections<Outcome>,
    clock: Arc<dyn Clock>,
    /// When the steady clock was zero.
    began: Instant,
    events: Arc<dyn EventRecorder>,
    changed: SlotSender<PodUid, ObjectsChanged>,
    node_name: String,
    node_seen: watch::Receiver<NodeUpdate>,
    metrics: VolumeMetrics,
    /// Bounded by the sources of the node's pods.
    entries: Mutex<BTreeMap<Key, Entry>>,
}

/// The UID comes first, so that a pod's sources stand together.
type Key = (PodUid, CertificateRef);

#[derive(Debug)]
struct Entry {
    signer: String,
    issuance: Announced<Issuance>,
    /// A pod waits this long for its first certificate, then it is told when there is one.
    patience: Instant,
    task: AbortHandle,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One source and its pod.
#[derive(Debug)]
struct Source {
    pod: SharedPod,
    place: CertificateRef,
    spec: CertificateSpec,
    /// A key for which no request was accepted yet.
    key: Option<PodKey>,
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("while fetching service account: {0}")]
    Account(#[source] ApiError),
    #[error("while creating PodCertificateRequest: while generating keypair: {0}")]
    KeyType(#[from] UnknownKeyType),
    #[error("while creating PodCertificateRequest: while generating keypair: {0}")]
    Key(#[from] RequestError),
    #[error("while creating PodCertificateRequest: while creating on API: {0}")]
    Create(#[source] ApiError),
    #[error("the API server's answer has no name")]
    Answer,
}

impl AskError {
    /// The API server's error, if it is one.
    fn api(&self) -> Option<&ApiError> {
        match self {
            Self::Account(error) | Self::Create(error) => Some(error),
            Self::KeyType(_) | Self::Key(_) | Self::Answer => None,
        }
    }
}

impl Kept for Outcome {
    type Object = PodCertificateRequest;

    fn keep(object: PodCertificateRequest) -> Option<Self> {
        Some(Self::of(&object))
    }
}

impl PodCertificates {
    pub(crate) fn new(deps: PodCertificatesDeps) -> Self {
        Self(Arc::new(Shared {
            main: deps.clients.main,
            // the tasks look for themselves
            requests: Reflections::new(Some(deps.clients.watch), None),
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

    /// What the pod's sources show, each once it is there; one that is not within ten seconds of
    /// the first question is told when it is.
    pub(crate) async fn credentials(
        &self,
        pod: &SharedPod,
        references: &References,
    ) -> BTreeMap<CertificateRef, Result<Credential, String>> {
        let all = references.certificates.iter().map(|(place, spec)| async {
            let (issuance, patience) = self.hold(pod, place, spec);
            let settled = issuance.wait_for(Issuance::is_settled);
            // what came of it is in `issuance`
            let _ = tokio::time::timeout_at(patience, settled).await;
            let credential = issuance.borrow().credential();
            (place.clone(), credential)
        });
        join_all(all).await.into_iter().collect()
    }

    /// The pod is gone, and its keys with it.
    pub(crate) fn forget(&self, uid: &PodUid) {
        let mut entries = self.0.lock();
        let before = entries.len();
        entries.retain(|(of, _), _| of != uid);
        if entries.len() < before {
            self.0.count(&entries);
            self.0.requests.release(&self.0.selector(), uid);
        }
    }

    fn hold(
        &self,
        pod: &SharedPod,
        place: &CertificateRef,
        spec: &CertificateSpec,
    ) -> (Announced<Issuance>, Instant) {
        let key = (pod.uid(), place.clone());
        let mut entries = self.0.lock();
        let entry = entries.entry(key).or_insert_with_key(|key| {
            let (uid, _) = key;
            self.0
                .requests
                .hold(&self.0.selector(), uid, Interest::Quiet);
            let issuance = Announced::new(Issuance::new(format!("{uid}/{place}")));
            let source = Source {
                pod: SharedPod::clone(pod),
                place: place.clone(),
                spec: spec.clone(),
                key: None,
            };
            let keep = keep(Arc::downgrade(&self.0), source, issuance.clone());
            Entry {
                signer: spec.signer.clone(),
                issuance,
                patience: Instant::now() + ANSWER_DEADLINE,
                task: spawn_io("pod-certificate", keep).abort_handle(),
            }
        });
        (entry.issuance.clone(), entry.patience)
    }
}

/// Does what is due for one source until its pod is gone or its request was refused.
async fn keep(shared: Weak<Shared>, mut source: Source, issuance: Announced<Issuance>) {
    let uid = source.pod.uid();
    let mut refusals = Refusals::default();
    loop {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        let Some(known) = shared.requests.subscribe(&shared.selector()) else {
            return;
        };
        let name = issuance.borrow().pending().map(str::to_owned);
        let look = |known: &Known<Outcome>| match &name {
            Some(name) => seen(known, source.pod.namespace(), name),
            None => Seen::NotRead,
        };
        let seen = look(&known.borrow());
        let step = issuance.modify(|it| it.step(shared.now(), &seen));
        tracing::debug!(%uid, source = %source.place, %step, "certificate of a pod");
        shared.count(&shared.lock());
        match step {
            Step::Ask => {
                let asked = shared.ask(&mut source).await;
                let now = shared.now();
                match asked {
                    Ok((name, key)) => {
                        refusals.clear();
                        issuance.modify(|it| it.asked(now, name, key));
                    }
                    Err(error) => {
                        let source = &source.place;
                        let refused = error.api().and_then(|error| {
                            // the delay is that of `issuance`
                            refusals.retry_delay(PodRequest::Certificate, error)
                        });
                        if refused.is_none() {
                            tracing::warn!(%uid, %source, %error, "certificate not requested");
                        }
                        let retry_after = error.api().and_then(|error| error.retry_after);
                        issuance.modify(|it| it.failed(now, error.to_string(), retry_after));
                    }
                }
            }
            Step::Issued => shared.changed.put(uid.clone(), ObjectsChanged),
            Step::Refused(notice) => {
                shared.tell(&source, &notice);
                shared.changed.put(uid.clone(), ObjectsChanged);
            }
            Step::Tell(notice) => shared.tell(&source, &notice),
            Step::Wait(left) => {
                drop(shared);
                let changed = async {
                    match &name {
                        Some(_) => known.wait_for(|known| look(known) != seen).await,
                        None => pending().await,
                    }
                };
                // whatever it was, the next step says what follows
                let _ = tokio::time::timeout(left, changed).await;
            }
            Step::Over => return,
        }
    }
}

/// What is known of a request; the name has its namespace before it.
fn seen(known: &Known<Outcome>, namespace: &str, name: &str) -> Seen {
    if !known.synced {
        return Seen::NotRead;
    }
    let name = name.strip_prefix(namespace).unwrap_or(name);
    let name = name.strip_prefix('/').unwrap_or(name);
    let found = known.items.get(&(namespace.to_owned(), name.to_owned()));
    found.map_or(Seen::Absent, |outcome| Seen::Found(Arc::clone(outcome)))
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Moment {
        Moment {
            wall: self.clock.now(),
            steady: self.began.elapsed(),
        }
    }

    fn selector(&self) -> Selector {
        Selector {
            fields: Some(format!("spec.nodeName={}", self.node_name)),
            ..Selector::default()
        }
    }

    fn tell(&self, source: &Source, notice: &Notice) {
        let (pod, reason) = (&source.pod, notice.reason());
        let message = notice.to_string();
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

    /// Makes a request; its name with its namespace, and the key.
    async fn ask(&self, source: &mut Source) -> Result<(String, Arc<[u8]>), AskError> {
        let pod = SharedPod::clone(&source.pod);
        let namespace = pod.namespace();
        let account = PodExt::spec(&*pod).service_account_name.as_deref();
        let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
        let read = self.main.get(ObjectKey::namespaced(namespace, account));
        let object: ServiceAccount = read.await.map_err(AskError::Account)?;
        let node_uid = self.node_uid().await;
        // one that nobody has seen serves for the next attempt: making it may take seconds
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
                return Err(AskError::Create(error));
            }
        };
        let name = created.metadata.name.ok_or(AskError::Answer)?;
        tracing::info!(pod = %pod.uid(), source = %source.place, name, "certificate asked for");
        Ok((format!("{namespace}/{name}"), key.key.into_bytes().into()))
    }

    /// UID of this node's object, as soon as there is one.
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
                // the agent is about to end
                None => return pending().await,
            }
        }
    }
}
