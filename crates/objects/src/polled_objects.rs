//! ConfigMaps and Secrets that are read when pods are synced (the strategies `Cache` and `Get`).
//!
//! Changes do not requeue pods: pods are synced every `syncFrequency`, and more often while they
//! wait for an object. A caller gets the result of a request that started after its call.
//! Concurrent callers share the next request, so that pods that are synced together cost two
//! requests per object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use windlass_actors::NodeUpdate;
use windlass_client::{ApiClient, ApiErrorKind, ApiObject, ObjectKey};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::object_polling::{
    CacheDecision, CachedVersion, PollStrategy, ReadResult, ReadSource, cache_decision, object_ttl,
    read_source,
};
use windlass_types::PodUid;

use crate::rejections::Rejections;
use crate::shared_reflectors::{CachedObject, ItemKey};

/// An object, `None` if it does not exist, or the last error of the API server, if any.
pub(crate) type ReadOutcome<T> = Result<Option<Arc<T>>, Option<Arc<str>>>;

/// All objects of one type that pods refer to. Clones share them.
#[derive(Debug)]
pub(crate) struct PolledObjects<T: CachedObject> {
    client: Option<ApiClient>,
    strategy: PollStrategy,
    /// The Node object, which has the lifetime of a read.
    node: watch::Receiver<NodeUpdate>,
    /// Bounded by the references of the node's pods.
    entries: Mutex<BTreeMap<ItemKey, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    users: BTreeSet<PodUid>,
    /// Locked by the request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
    /// Number of requests.
    requests: u64,
    /// Number and result of the last completed request.
    last: Option<(u64, ReadOutcome<T>)>,
    /// Result of the last successful request.
    known: Option<Option<Arc<T>>>,
    cached: Option<CachedRead<T>>,
    /// Results up to this request are not cached.
    cached_after: u64,
    rejections: Rejections,
}

/// A cached object.
#[derive(Debug)]
struct CachedRead<T> {
    content: Option<Arc<T>>,
    version: Option<u64>,
    read: Instant,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self {
            users: BTreeSet::new(),
            request: Arc::default(),
            requests: 0,
            last: None,
            known: None,
            cached: None,
            cached_after: 0,
            rejections: Rejections::default(),
        }
    }
}

impl<T> CachedRead<T> {
    fn version_and_age(&self) -> CachedVersion {
        CachedVersion {
            version: self.version,
            age: self.read.elapsed(),
        }
    }
}

impl<T: CachedObject> PolledObjects<T> {
    pub(crate) fn new(
        client: Option<ApiClient>,
        strategy: PollStrategy,
        node: watch::Receiver<NodeUpdate>,
    ) -> Self {
        Self {
            client,
            strategy,
            node,
            entries: Mutex::default(),
        }
    }

    /// Adds a reference of the pod. A new pod gets the current object: the cached one is dropped.
    pub(crate) fn acquire(&self, key: &ItemKey, uid: &PodUid) {
        let mut entries = self.entries.lock();
        let entry = entries.entry(key.clone()).or_default();
        if entry.users.insert(uid.clone()) {
            entry.cached = None;
            entry.cached_after = entry.requests;
        }
    }

    /// Removes a reference of the pod.
    pub(crate) fn release(&self, key: &ItemKey, uid: &PodUid) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.users.remove(uid);
        if entry.users.is_empty() {
            entries.remove(key);
        }
    }

    /// Returns the result of the last successful request, if there was one.
    pub(crate) fn known(&self, key: &ItemKey) -> Option<Option<Arc<T>>> {
        self.with(key, |entry| entry.known.clone()).flatten()
    }

    /// Returns one object, by the strategy.
    pub(crate) async fn item(&self, key: &ItemKey, deadline: Instant) -> ReadOutcome<T> {
        let Some(client) = &self.client else {
            return Ok(None);
        };
        let entry = self.with(key, |entry| (Arc::clone(&entry.request), entry.requests));
        // the pod was unregistered meanwhile
        let Some((request, before)) = entry else {
            return Err(None);
        };
        let Ok(_request_lock) = timeout_at(deadline, request.lock()).await else {
            return Err(None);
        };
        let ttl = object_ttl(self.node.borrow().0.as_deref());
        let begun = self.with(key, |entry| self.begin(entry, before, ttl));
        let (number, source) = match begun {
            None => return Err(None),
            Some(Err(known)) => return known,
            Some(Ok(begun)) => begun,
        };
        let request = self.request(client, key, source);
        let answer = timeout_at(deadline, request).await.unwrap_or(Err(None));
        let found = self.with(key, |entry| self.complete(entry, number, answer));
        found.unwrap_or(Err(None))
    }

    /// Sends requests until the result is not a transient rejection.
    async fn request(
        &self,
        client: &ApiClient,
        key: &ItemKey,
        source: ReadSource,
    ) -> Result<Option<T::Object>, Option<Arc<str>>> {
        let (namespace, name) = key;
        loop {
            let at = ObjectKey::namespaced(namespace, name);
            let answer = match source {
                ReadSource::ApiServerCache => client.get_cached::<T::Object>(at).await,
                _ => client.get::<T::Object>(at).await,
            };
            let error = match answer {
                Err(error) if error.kind != ApiErrorKind::NotFound => error,
                answer => {
                    self.with(key, |entry| entry.rejections.clear());
                    return Ok(answer.ok());
                }
            };
            let delay = self.with(key, |entry| {
                entry.rejections.retry_delay(PodRequest::Object, &error)
            });
            match delay.flatten() {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(Some(error.to_string().into())),
            }
        }
    }

    fn with<R>(&self, key: &ItemKey, work: impl FnOnce(&mut Entry<T>) -> R) -> Option<R> {
        self.entries.lock().get_mut(key).map(work)
    }

    /// Returns the result for a caller that called after `before` requests, or the next request.
    fn begin(
        &self,
        entry: &mut Entry<T>,
        before: u64,
        ttl: std::time::Duration,
    ) -> Result<(u64, ReadSource), ReadOutcome<T>> {
        if let Some((number, found)) = &entry.last
            && *number > before
        {
            return Err(found.clone());
        }
        let cached = entry.cached.as_ref().map(CachedRead::version_and_age);
        match (read_source(self.strategy, cached, ttl), &entry.cached) {
            (ReadSource::Cached, Some(cached)) => Err(Ok(cached.content.clone())),
            (source, _) => {
                entry.requests += 1;
                Ok((entry.requests, source))
            }
        }
    }

    fn complete(
        &self,
        entry: &mut Entry<T>,
        number: u64,
        answer: Result<Option<T::Object>, Option<Arc<str>>>,
    ) -> ReadOutcome<T> {
        let cached = entry.cached.as_ref().map(CachedRead::version_and_age);
        let summary = match &answer {
            Ok(Some(object)) => ReadResult::Found(version(object)),
            Ok(None) => ReadResult::Missing,
            Err(_) => ReadResult::Failed,
        };
        let found = match (cache_decision(cached, summary), answer, &entry.cached) {
            (CacheDecision::Keep, _, Some(cached)) => Ok(cached.content.clone()),
            (_, Err(error), _) => Err(error),
            (_, Ok(object), _) => {
                let version = object.as_ref().map(version);
                let content = object
                    .and_then(T::keep)
                    .map(|new| entry.reuse_allocation(new));
                if self.strategy == PollStrategy::Cache && number > entry.cached_after {
                    entry.cached = Some(CachedRead {
                        content: content.clone(),
                        version,
                        read: Instant::now(),
                    });
                }
                Ok(content)
            }
        };
        if let Ok(object) = &found {
            entry.known = Some(object.clone());
        }
        entry.last = Some((number, found.clone()));
        found
    }
}

fn version<K: ApiObject>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|v| v.parse().ok()).unwrap_or_default()
}

impl<T: PartialEq> Entry<T> {
    /// Reuses the allocation of equal content.
    fn reuse_allocation(&self, new: T) -> Arc<T> {
        match &self.last {
            Some((_, Ok(Some(old)))) if **old == new => Arc::clone(old),
            _ => Arc::new(new),
        }
    }
}
