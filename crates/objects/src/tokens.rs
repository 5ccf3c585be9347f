//! Tokens of service accounts for pods, asked for once and renewed before they expire.
//!
//! One request is in flight for each token. A pod whose token is due for renewal is told so,
//! which has its volumes made again; a token goes with its pod.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_actors::ObjectsChanged;
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_client::{ApiClient, ApiError, ObjectKey};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_pod_inputs::projection::Token;
use windlass_types::corev1::ServiceAccount;
use windlass_types::{Clock, Pod, PodExt, PodUid, Retry, SharedPod, Timestamp};

use crate::refusals::Refusals;

mod life;

use life::{Life, Phase};

/// How long a pod waits for a token.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);
/// A token that takes longer is not awaited in a start slot the next time.
const PROMPT: Duration = Duration::from_millis(500);
/// Pause between two requests while a pod waits.
const REQUEST_RETRY: Duration = Duration::from_secs(1);
/// After a renewal that failed, the old token serves this long before the next attempt.
const RENEWAL_RETRY: Duration = Duration::from_secs(30);
/// How often tokens are looked through for those that are due.
const TICK: Duration = Duration::from_secs(60);

/// All tokens of the node's pods. Bounded by the token sources of their volumes.
#[derive(Debug)]
pub(crate) struct TokenCache {
    client: Option<ApiClient>,
    clock: Arc<dyn Clock>,
    /// `None` if nobody wants to hear that a token is due.
    changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    state: Mutex<State>,
    /// The last request for a token was answered with one within [`PROMPT`].
    prompt: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    ticking: bool,
}

/// The UID comes first, so that a pod's tokens stand together.
type Key = (PodUid, TokenSpec);

#[derive(Debug, Default)]
struct Entry {
    held: Option<Held>,
    /// The last request failed then.
    failed_at: Option<Instant>,
    /// Of requests since the last token.
    refusals: Refusals,
    /// Held by the one request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Held {
    token: Token,
    life: Life,
    since: Instant,
}

impl Held {
    fn phase(&self, now: Timestamp) -> Phase {
        self.life.phase(now, self.since.elapsed())
    }
}

#[derive(Debug, thiserror::Error)]
enum AskError {
    #[error("no API server is configured")]
    NoServer,
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("the API server's answer has no token or no expiration")]
    Answer,
}

impl TokenCache {
    pub(crate) fn new(
        client: Option<ApiClient>,
        clock: Arc<dyn Clock>,
        changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    ) -> Self {
        Self {
            client,
            clock,
            changed,
            state: Mutex::default(),
            prompt: AtomicBool::new(true),
        }
    }

    /// A token that is valid now, or why there is none.
    pub(crate) async fn token(
        self: &Arc<Self>,
        pod: &SharedPod,
        spec: &TokenSpec,
    ) -> Result<Token, String> {
        let key = (pod.uid(), spec.clone());
        if let Some(token) = self.ready(&key) {
            return Ok(token);
        }
        self.lock().entries.entry(key.clone()).or_default();
        // a caller that gives up does not end the request: the next one finds its answer
        let (cache, pod) = (Arc::clone(self), SharedPod::clone(pod));
        let request = spawn_io("request-token", async move { cache.renew(&pod, key).await });
        request
            .await
            .unwrap_or_else(|_| Err("the request was given up".to_owned()))
    }

    async fn renew(self: &Arc<Self>, pod: &Pod, key: Key) -> Result<Token, String> {
        let request = self
            .lock()
            .entries
            .get(&key)
            .map(|e| Arc::clone(&e.request));
        let Some(request) = request else {
            return Err("the pod is gone".to_owned());
        };
        let _one_at_a_time = request.lock().await;
        // another call may have brought it meanwhile
        if let Some(token) = self.ready(&key) {
            return Ok(token);
        }
        let old = self.valid(&key);
        match self.ask_noting_time(pod, &key, old.is_some()).await {
            Ok((token, life)) => {
                self.put(&key, token.clone(), life);
                Ok(token)
            }
            Err(error) => {
                let mut state = self.lock();
                let entry = state.entries.get_mut(&key);
                let had_one = entry.is_some_and(|entry| {
                    entry.failed_at = Some(Instant::now());
                    entry.held.is_some()
                });
                drop(state);
                match old {
                    Some(token) => {
                        tracing::warn!(uid = %key.0, error, "token not renewed, the old one serves");
                        Ok(token)
                    }
                    None if had_one => {
                        let what = "the last one expired and the refresh failed";
                        Err(format!("{what}: {error}"))
                    }
                    None => Err(error),
                }
            }
        }
    }

    /// True if a new token is to be expected within the time that a sandbox takes.
    pub(crate) fn are_prompt(&self) -> bool {
        self.client.is_some() && self.prompt.load(Ordering::Relaxed)
    }

    /// Until when a pod's token is worth something.
    pub(crate) fn expires(&self, uid: &PodUid, spec: &TokenSpec) -> Option<Timestamp> {
        let state = self.lock();
        let entry = state.entries.get(&(uid.clone(), spec.clone()))?;
        entry.held.as_ref().map(|held| held.life.expires_at())
    }

    /// Drops what is worth nothing any more, for an owner whom nobody tells that pods are gone.
    pub(crate) fn forget_expired(&self) {
        let now = self.clock.now();
        self.lock().entries.retain(|_, entry| {
            match (&entry.held, entry.failed_at) {
                (Some(held), _) => held.phase(now) != Phase::Expired,
                (None, Some(failed)) => failed.elapsed() < RENEWAL_RETRY,
                // it is being asked for
                (None, None) => true,
            }
        });
    }

    /// The pod is gone, and its tokens with it.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.lock().entries.retain(|(of, _), _| of != uid);
    }

    /// A token that need not be renewed, or that just could not be.
    fn ready(&self, key: &Key) -> Option<Token> {
        let now = self.clock.now();
        let state = self.lock();
        let entry = state.entries.get(key)?;
        let held = entry.held.as_ref()?;
        let failed = entry
            .failed_at
            .is_some_and(|at| at.elapsed() < RENEWAL_RETRY);
        let serves = match held.phase(now) {
            Phase::Fresh => true,
            Phase::Due => failed,
            Phase::Expired => false,
        };
        serves.then(|| held.token.clone())
    }

    /// A token that has not expired.
    fn valid(&self, key: &Key) -> Option<Token> {
        let now = self.clock.now();
        let state = self.lock();
        let held = state.entries.get(key)?.held.as_ref()?;
        (held.phase(now) != Phase::Expired).then(|| held.token.clone())
    }

    fn put(self: &Arc<Self>, key: &Key, token: Token, life: Life) {
        let mut state = self.lock();
        // the pod may have gone while the request was under way
        if let Some(entry) = state.entries.get_mut(key) {
            entry.held = Some(Held {
                token,
                life,
                since: Instant::now(),
            });
            entry.failed_at = None;
            entry.refusals.clear();
        }
        if self.changed.is_some() && !state.ticking && !state.entries.is_empty() {
            state.ticking = true;
            let cache = Arc::downgrade(self);
            drop(spawn_io("renew-tokens", async move {
                loop {
                    tokio::time::sleep(TICK).await;
                    match cache.upgrade() {
                        Some(cache) if cache.tick() => {}
                        _ => return,
                    }
                }
            }));
        }
    }

    /// Tells the pods whose tokens are due. False if there are no tokens left.
    fn tick(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.lock();
        for ((uid, _), entry) in &state.entries {
            let held = entry.held.as_ref();
            let due = held.is_some_and(|held| held.phase(now) != Phase::Fresh);
            if let (true, Some(changed)) = (due, &self.changed) {
                changed.put(uid.clone(), ObjectsChanged);
            }
        }
        state.ticking = !state.entries.is_empty();
        state.ticking
    }

    /// [`Self::ask_until`], and whether the answer was prompt.
    async fn ask_noting_time(
        &self,
        pod: &Pod,
        key: &Key,
        once: bool,
    ) -> Result<(Token, Life), String> {
        let mut asked = pin!(self.ask_until(pod, key, once));
        match tokio::time::timeout(PROMPT, &mut asked).await {
            Ok(answer) => {
                self.prompt.store(answer.is_ok(), Ordering::Relaxed);
                answer
            }
            Err(_) => {
                self.prompt.store(false, Ordering::Relaxed);
                asked.await
            }
        }
    }

    /// Requests until the deadline; once, if there is a token that is still valid.
    async fn ask_until(&self, pod: &Pod, key: &Key, once: bool) -> Result<(Token, Life), String> {
        let mut last = "the API server did not answer in time".to_owned();
        let ask = async {
            loop {
                let error = match self.ask(pod, &key.1).await {
                    Err(AskError::Api(error)) if !once => error,
                    answer => return answer.map_err(|error| error.to_string()),
                };
                last = error.to_string();
                match self.retry_delay(key, &error) {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return Err(last.clone()),
                }
            }
        };
        let answer = tokio::time::timeout(REQUEST_DEADLINE, ask).await;
        answer.unwrap_or(Err(last))
    }

    /// Delay before the request is sent again; `None` if its error is to be reported.
    fn retry_delay(&self, key: &Key, error: &ApiError) -> Option<Duration> {
        if error.retry() == Retry::Soon {
            return Some(error.retry_after.unwrap_or(REQUEST_RETRY));
        }
        let mut state = self.lock();
        let entry = state.entries.get_mut(key)?;
        entry.refusals.retry_delay(PodRequest::Token, error)
    }

    async fn ask(&self, pod: &Pod, spec: &TokenSpec) -> Result<(Token, Life), AskError> {
        let client = self.client.as_ref().ok_or(AskError::NoServer)?;
        let account = PodExt::spec(pod).service_account_name.as_deref();
        let account = account.filter(|name| !name.is_empty()).unwrap_or("default");
        let at = ObjectKey::namespaced(pod.namespace(), account);
        let metadata = match &spec.account_uid {
            Some(uid) => json!({ "uid": uid }),
            None => json!({}),
        };
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": metadata,
            "spec": {
                "audiences": spec.audience.iter().collect::<Vec<_>>(),
                "expirationSeconds": spec.expiration_seconds,
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": pod.name(),
                    "uid": pod.uid().as_str(),
                },
            },
        });
        let answer = client.post::<ServiceAccount, Value>(at, "token", &body);
        let answer = answer.await?;
        let token = answer["status"]["token"].as_str().unwrap_or_default();
        let expires = answer["status"]["expirationTimestamp"].as_str();
        let expires: Option<Timestamp> = expires.and_then(|text| text.parse().ok());
        let (Some(expires_at), false) = (expires, token.is_empty()) else {
            return Err(AskError::Answer);
        };
        // the server may grant another lifetime than the one asked for
        let seconds = answer["spec"]["expirationSeconds"].as_i64();
        let seconds = seconds.unwrap_or(spec.expiration_seconds);
        let seed = format!("{}/{spec:?}", pod.uid());
        let life = Life::new(expires_at, seconds, &seed);
        Ok((Token(token.to_owned()), life))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
