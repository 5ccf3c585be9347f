//! Service account tokens of pods, cached and renewed before they expire.
//!
//! At most one request is in flight per token. A pod whose token is due for renewal is requeued,
//! which updates its volumes. Tokens are dropped with their pod.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_actors::ObjectsChanged;
use windlass_client::{ApiClient, ApiError, ObjectKey};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::pod_references::TokenSpec;
use windlass_pod_inputs::projection::Token;
use windlass_types::corev1::ServiceAccount;
use windlass_types::mutation::{Mutation, mutated};
use windlass_types::{Clock, Pod, PodExt, PodUid, Retry, SharedPod, Timestamp};

use crate::rejections::Rejections;

mod lifetime;

use lifetime::{Phase, TokenLifetime};

/// How long a pod waits for a token.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// If the last token took longer, the next one is not awaited in a start slot.
const PROMPT_THRESHOLD: Duration = Duration::from_millis(500);
/// Interval between two requests while a pod waits.
const REQUEST_RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Back-off after a failed renewal, while the old token serves.
const RENEWAL_BACKOFF: Duration = Duration::from_secs(30);
/// Interval of the check for tokens that are due.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

/// All tokens of the node's pods. Bounded by the token sources of their volumes.
#[derive(Debug)]
pub(crate) struct TokenCache {
    client: Option<ApiClient>,
    clock: Arc<dyn Clock>,
    /// `None` if due tokens requeue no pods.
    changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    state: Mutex<State>,
    /// The last request returned a token within [`PROMPT_THRESHOLD`].
    prompt: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Key, Entry>,
    ticking: bool,
}

/// The UID is first, so that the tokens of a pod are adjacent.
type Key = (PodUid, TokenSpec);

#[derive(Debug, Default)]
struct Entry {
    cached: Option<CachedToken>,
    /// Time of the last failure.
    failed_at: Option<Instant>,
    /// Rejections since the last token.
    rejections: Rejections,
    /// Locked by the request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct CachedToken {
    token: Token,
    lifetime: TokenLifetime,
    since: Instant,
}

impl CachedToken {
    fn phase(&self, now: Timestamp) -> Phase {
        self.lifetime.phase(now, self.since.elapsed())
    }
}

#[derive(Debug, thiserror::Error)]
enum TokenRequestError {
    #[error("no API server is configured")]
    NoServer,
    #[error("{0}")]
    Api(#[from] ApiError),
    #[error("the API server's response has no token or no expiration")]
    InvalidResponse,
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

    /// Returns a valid token, or an error.
    pub(crate) async fn token(
        self: &Arc<Self>,
        pod: &SharedPod,
        spec: &TokenSpec,
    ) -> Result<Token, String> {
        let key = (pod.uid(), spec.clone());
        if let Some(token) = self.ready(&key) {
            return Ok(token);
        }
        self.state.lock().entries.entry(key.clone()).or_default();
        // a caller that times out does not end the request: the next one gets its result
        let (cache, pod) = (Arc::clone(self), SharedPod::clone(pod));
        let request = spawn_io("request-token", async move { cache.renew(&pod, key).await });
        request
            .await
            .unwrap_or_else(|_| Err("the request was cancelled".to_owned()))
    }

    async fn renew(self: &Arc<Self>, pod: &Pod, key: Key) -> Result<Token, String> {
        let request = self
            .state
            .lock()
            .entries
            .get(&key)
            .map(|e| Arc::clone(&e.request));
        let Some(request) = request else {
            return Err("the pod was deleted".to_owned());
        };
        let _request_lock = request.lock().await;
        // another call may have requested it meanwhile
        if let Some(token) = self.ready(&key) {
            return Ok(token);
        }
        let old = self.valid(&key);
        let refused = |entry: &Entry| entry.failed_at.is_some();
        if mutated(Mutation::TokenRefusalIsFinal)
            && self.state.lock().entries.get(&key).is_some_and(refused)
        {
            return Err("the token was refused".to_owned());
        }
        match self.request_timed(pod, &key, old.is_some()).await {
            Ok((token, lifetime)) => {
                self.put(&key, token.clone(), lifetime);
                Ok(token)
            }
            Err(error) => {
                let mut state = self.state.lock();
                let entry = state.entries.get_mut(&key);
                let had_token = entry.is_some_and(|entry| {
                    entry.failed_at = Some(Instant::now());
                    entry.cached.is_some()
                });
                drop(state);
                match old {
                    Some(token) => {
                        tracing::warn!(uid = %key.0, error, "token not renewed, using the old one");
                        Ok(token)
                    }
                    None if had_token => {
                        let what = "the last one expired and the refresh failed";
                        Err(format!("{what}: {error}"))
                    }
                    None => Err(error),
                }
            }
        }
    }

    /// Returns whether a new token is expected within the time that a sandbox takes.
    pub(crate) fn are_prompt(&self) -> bool {
        self.client.is_some() && self.prompt.load(Ordering::Relaxed)
    }

    /// Returns when a pod's token expires.
    pub(crate) fn expires(&self, uid: &PodUid, spec: &TokenSpec) -> Option<Timestamp> {
        let state = self.state.lock();
        let entry = state.entries.get(&(uid.clone(), spec.clone()))?;
        entry
            .cached
            .as_ref()
            .map(|cached| cached.lifetime.expires_at())
    }

    /// Returns all tokens and when they expire.
    pub(crate) fn all(&self) -> Vec<((PodUid, TokenSpec), Token, Timestamp)> {
        let state = self.state.lock();
        let cached = state.entries.iter().filter_map(|(key, entry)| {
            let cached = entry.cached.as_ref()?;
            Some((
                key.clone(),
                cached.token.clone(),
                cached.lifetime.expires_at(),
            ))
        });
        cached.collect()
    }

    /// Drops expired tokens, for an owner that is not notified of deleted pods.
    pub(crate) fn forget_expired(&self) {
        let now = self.clock.now();
        self.state.lock().entries.retain(|_, entry| {
            match (&entry.cached, entry.failed_at) {
                (Some(cached), _) => cached.phase(now) != Phase::Expired,
                (None, Some(failed)) => failed.elapsed() < RENEWAL_BACKOFF,
                // the first request is in flight
                (None, None) => true,
            }
        });
    }

    /// Drops the tokens of a deleted pod.
    pub(crate) fn forget(&self, uid: &PodUid) {
        self.state.lock().entries.retain(|(of, _), _| of != uid);
    }

    /// Returns a token that is fresh, or due after a recent renewal failure.
    fn ready(&self, key: &Key) -> Option<Token> {
        let now = self.clock.now();
        let state = self.state.lock();
        let entry = state.entries.get(key)?;
        let cached = entry.cached.as_ref()?;
        let failed = entry
            .failed_at
            .is_some_and(|at| at.elapsed() < RENEWAL_BACKOFF);
        let serves = match cached.phase(now) {
            Phase::Fresh => true,
            Phase::Due => failed,
            Phase::Expired => false,
        };
        serves.then(|| cached.token.clone())
    }

    /// Returns a token that has not expired.
    fn valid(&self, key: &Key) -> Option<Token> {
        let now = self.clock.now();
        let state = self.state.lock();
        let cached = state.entries.get(key)?.cached.as_ref()?;
        (cached.phase(now) != Phase::Expired).then(|| cached.token.clone())
    }

    fn put(self: &Arc<Self>, key: &Key, token: Token, lifetime: TokenLifetime) {
        let mut state = self.state.lock();
        // the pod may have been deleted while the request was in flight
        if let Some(entry) = state.entries.get_mut(key) {
            entry.cached = Some(CachedToken {
                token,
                lifetime,
                since: Instant::now(),
            });
            entry.failed_at = None;
            entry.rejections.clear();
        }
        if self.changed.is_some() && !state.ticking && !state.entries.is_empty() {
            state.ticking = true;
            let cache = Arc::downgrade(self);
            drop(spawn_io("renew-tokens", async move {
                loop {
                    tokio::time::sleep(CHECK_INTERVAL).await;
                    match cache.upgrade() {
                        Some(cache) if cache.tick() => {}
                        _ => return,
                    }
                }
            }));
        }
    }

    /// Requeues the pods whose tokens are due. Returns false if there are no tokens left.
    fn tick(&self) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        for ((uid, _), entry) in &state.entries {
            let cached = entry.cached.as_ref();
            let due = cached.is_some_and(|cached| cached.phase(now) != Phase::Fresh);
            if let (true, Some(changed)) = (due, &self.changed) {
                changed.put(uid.clone(), ObjectsChanged);
            }
        }
        state.ticking = !state.entries.is_empty();
        state.ticking
    }

    /// Calls [`Self::request_until`] and records whether the response was prompt.
    async fn request_timed(
        &self,
        pod: &Pod,
        key: &Key,
        once: bool,
    ) -> Result<(Token, TokenLifetime), String> {
        let mut request = pin!(self.request_until(pod, key, once));
        match tokio::time::timeout(PROMPT_THRESHOLD, &mut request).await {
            Ok(response) => {
                self.prompt.store(response.is_ok(), Ordering::Relaxed);
                response
            }
            Err(_) => {
                self.prompt.store(false, Ordering::Relaxed);
                request.await
            }
        }
    }

    /// Requests until the deadline; only once if a valid token exists.
    async fn request_until(
        &self,
        pod: &Pod,
        key: &Key,
        once: bool,
    ) -> Result<(Token, TokenLifetime), String> {
        let mut last = "the API server did not respond in time".to_owned();
        let attempts = async {
            loop {
                let error = match self.request(pod, &key.1).await {
                    Err(TokenRequestError::Api(error)) if !once => error,
                    response => return response.map_err(|error| error.to_string()),
                };
                last = error.to_string();
                match self.retry_delay(key, &error) {
                    Some(delay) => tokio::time::sleep(delay).await,
                    None => return Err(last.clone()),
                }
            }
        };
        let response = tokio::time::timeout(REQUEST_TIMEOUT, attempts).await;
        response.unwrap_or(Err(last))
    }

    /// Returns the delay before the next request; `None` to report the error.
    fn retry_delay(&self, key: &Key, error: &ApiError) -> Option<Duration> {
        if error.retry() == Retry::Soon {
            return Some(error.retry_after.unwrap_or(REQUEST_RETRY_INTERVAL));
        }
        let mut state = self.state.lock();
        let entry = state.entries.get_mut(key)?;
        entry.rejections.retry_delay(PodRequest::Token, error)
    }

    async fn request(
        &self,
        pod: &Pod,
        spec: &TokenSpec,
    ) -> Result<(Token, TokenLifetime), TokenRequestError> {
        let client = self.client.as_ref().ok_or(TokenRequestError::NoServer)?;
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
        let response = client.post::<ServiceAccount, Value>(at, "token", &body);
        let response = response.await?;
        let token = response["status"]["token"].as_str().unwrap_or_default();
        let expires = response["status"]["expirationTimestamp"].as_str();
        let expires: Option<Timestamp> = expires.and_then(|text| text.parse().ok());
        let (Some(expires_at), false) = (expires, token.is_empty()) else {
            return Err(TokenRequestError::InvalidResponse);
        };
        // the server may grant another lifetime than requested
        let seconds = response["spec"]["expirationSeconds"].as_i64();
        let seconds = seconds.unwrap_or(spec.expiration_seconds);
        let seed = format!("{}/{spec:?}", pod.uid());
        let lifetime = TokenLifetime::new(expires_at, seconds, &seed);
        Ok((Token(token.to_owned()), lifetime))
    }
}
