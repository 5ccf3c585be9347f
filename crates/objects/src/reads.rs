//! ConfigMaps and Secrets that are read when pods are synced (the strategies `Cache` and `Get`).
//!
//! Nobody is told of a change: pods are synced every `syncFrequency`, and one that waits for an
//! object more often. Whoever asks for an object gets an answer to a request that began after he
//! asked; all who ask while one is under way share the next, so that a hundred pods that are synced
//! together cost two requests for each object.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use windlass_actors::NodeUpdate;
use windlass_client::{ApiClient, ApiErrorKind, ApiObject, ObjectKey};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_pod_inputs::object_reads::{
    Answer, Look, Reading, Remembered, Worth, look, object_ttl, worth,
};
use windlass_types::PodUid;

use crate::reflections::{ItemKey, Kept};
use crate::refusals::Refusals;

/// An object, `None` if it does not exist, or what the API server said last, if anything.
pub(crate) type Found<T> = Result<Option<Arc<T>>, Option<Arc<str>>>;

/// All objects of one type that pods refer to. Clones share them.
#[derive(Debug)]
pub(crate) struct Reads<T: Kept> {
    client: Option<ApiClient>,
    reading: Reading,
    /// Says how long an answer serves.
    node: watch::Receiver<NodeUpdate>,
    /// Bounded by the references of the node's pods.
    entries: Mutex<BTreeMap<ItemKey, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    users: BTreeSet<PodUid>,
    /// Held by the one request in flight.
    request: Arc<tokio::sync::Mutex<()>>,
    /// Requests so far.
    begun: u64,
    /// The request that was answered last, and its answer.
    answered: Option<(u64, Found<T>)>,
    memory: Option<Memory<T>>,
    /// Only requests after this one are remembered.
    forgotten: u64,
    refusals: Refusals,
}

/// What serves for a while.
#[derive(Debug)]
struct Memory<T> {
    content: Option<Arc<T>>,
    version: Option<u64>,
    read: Instant,
}

impl<T> Default for Entry<T> {
    fn default() -> Self {
        Self {
            users: BTreeSet::new(),
            request: Arc::default(),
            begun: 0,
            answered: None,
            memory: None,
            forgotten: 0,
            refusals: Refusals::default(),
        }
    }
}

impl<T> Memory<T> {
    fn remembered(&self) -> Remembered {
        Remembered {
            version: self.version,
            age: self.read.elapsed(),
        }
    }
}

impl<T: Kept> Reads<T> {
    pub(crate) fn new(
        client: Option<ApiClient>,
        reading: Reading,
        node: watch::Receiver<NodeUpdate>,
    ) -> Self {
        Self {
            client,
            reading,
            node,
            entries: Mutex::default(),
        }
    }

    /// The pod refers to this object from now on. One that is new to it is to see what there is now:
    /// what was read before serves nobody any more.
    pub(crate) fn hold(&self, key: &ItemKey, uid: &PodUid) {
        let mut entries = self.lock();
        let entry = entries.entry(key.clone()).or_default();
        if entry.users.insert(uid.clone()) {
            entry.memory = None;
            entry.forgotten = entry.begun;
        }
    }

    /// The pod does not refer to this object any more.
    pub(crate) fn release(&self, key: &ItemKey, uid: &PodUid) {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(key) else {
            return;
        };
        entry.users.remove(uid);
        if entry.users.is_empty() {
            entries.remove(key);
        }
    }

    /// One object, as the strategy has it.
    pub(crate) async fn item(&self, key: &ItemKey, deadline: Instant) -> Found<T> {
        let Some(client) = &self.client else {
            return Ok(None);
        };
        let asked = self.with(key, |entry| (Arc::clone(&entry.request), entry.begun));
        // the pod went while it was being resolved
        let Some((request, before)) = asked else {
            return Err(None);
        };
        let Ok(_one_at_a_time) = timeout_at(deadline, request.lock()).await else {
            return Err(None);
        };
        let ttl = object_ttl(self.node.borrow().0.as_deref());
        let begun = self.with(key, |entry| self.begin(entry, before, ttl));
        let (number, look) = match begun {
            None => return Err(None),
            Some(Err(known)) => return known,
            Some(Ok(begun)) => begun,
        };
        let request = self.request(client, key, look);
        let answer = timeout_at(deadline, request).await.unwrap_or(Err(None));
        let found = self.with(key, |entry| self.take(entry, number, answer));
        found.unwrap_or(Err(None))
    }

    /// Asks until the answer is not a refusal that a retry may end.
    async fn request(
        &self,
        client: &ApiClient,
        key: &ItemKey,
        look: Look,
    ) -> Result<Option<T::Object>, Option<Arc<str>>> {
        let (namespace, name) = key;
        loop {
            let at = ObjectKey::namespaced(namespace, name);
            let answer = match look {
                Look::AskCache => client.get_cached::<T::Object>(at).await,
                _ => client.get::<T::Object>(at).await,
            };
            let error = match answer {
                Err(error) if error.kind != ApiErrorKind::NotFound => error,
                answer => {
                    self.with(key, |entry| entry.refusals.clear());
                    return Ok(answer.ok());
                }
            };
            let delay = self.with(key, |entry| {
                entry.refusals.retry_delay(PodRequest::Object, &error)
            });
            match delay.flatten() {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(Some(error.to_string().into())),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ItemKey, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<R>(&self, key: &ItemKey, work: impl FnOnce(&mut Entry<T>) -> R) -> Option<R> {
        self.lock().get_mut(key).map(work)
    }

    /// What is known to one who asked when `before` requests had begun, or the next request.
    fn begin(
        &self,
        entry: &mut Entry<T>,
        before: u64,
        ttl: std::time::Duration,
    ) -> Result<(u64, Look), Found<T>> {
        if let Some((number, found)) = &entry.answered
            && *number > before
        {
            return Err(found.clone());
        }
        let remembered = entry.memory.as_ref().map(Memory::remembered);
        match (look(self.reading, remembered, ttl), &entry.memory) {
            (Look::Remember, Some(memory)) => Err(Ok(memory.content.clone())),
            (look, _) => {
                entry.begun += 1;
                Ok((entry.begun, look))
            }
        }
    }

    fn take(
        &self,
        entry: &mut Entry<T>,
        number: u64,
        answer: Result<Option<T::Object>, Option<Arc<str>>>,
    ) -> Found<T> {
        let remembered = entry.memory.as_ref().map(Memory::remembered);
        let summary = match &answer {
            Ok(Some(object)) => Answer::Found(version(object)),
            Ok(None) => Answer::Missing,
            Err(_) => Answer::Failed,
        };
        let found = match (worth(remembered, summary), answer, &entry.memory) {
            (Worth::Ignored, _, Some(memory)) => Ok(memory.content.clone()),
            (_, Err(error), _) => Err(error),
            (_, Ok(object), _) => {
                let version = object.as_ref().map(version);
                let content = object.and_then(T::keep).map(|new| entry.in_place(new));
                if self.reading == Reading::Cache && number > entry.forgotten {
                    entry.memory = Some(Memory {
                        content: content.clone(),
                        version,
                        read: Instant::now(),
                    });
                }
                Ok(content)
            }
        };
        entry.answered = Some((number, found.clone()));
        found
    }
}

fn version<K: ApiObject>(object: &K) -> u64 {
    let version = object.meta().resource_version.as_deref();
    version.and_then(|v| v.parse().ok()).unwrap_or_default()
}

impl<T: PartialEq> Entry<T> {
    /// The same content keeps its place in memory.
    fn in_place(&self, new: T) -> Arc<T> {
        match &self.answered {
            Some((_, Ok(Some(old)))) if **old == new => Arc::clone(old),
            _ => Arc::new(new),
        }
    }
}
