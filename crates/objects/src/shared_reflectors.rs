//! Watches of sets of objects, shared by the pods that need them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use windlass_actors::ObjectsChanged;
use windlass_client::{ApiClient, ApiError, ApiObject, ReflectEvent, Selector, reflect};
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_types::PodUid;

use crate::ordered_watch::OrderedWatch;
use crate::rejections::Rejections;

/// Grace period of a watch after its last pod, for pods that are replaced.
const GRACE_PERIOD: Duration = Duration::from_secs(30);

/// The cached part of an object.
pub(crate) trait CachedObject: PartialEq + Debug + Send + Sync + Sized + 'static {
    /// API type of the object.
    type Object: ApiObject;

    /// Converts the object; `None` if it counts as absent.
    fn keep(object: Self::Object) -> Option<Self>;

    /// Returns whether the object can never change.
    fn is_final(_: &Self::Object) -> bool {
        false
    }
}

/// Changes of a set that requeue a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Nothing.
    Quiet,
    /// The object of this name appears.
    Appearing(String),
    /// The object of this name changes or is deleted.
    Live(String),
    /// The set changes.
    Set,
}

/// Namespace (empty for cluster-scoped types) and name.
pub(crate) type ItemKey = (String, String);

/// Cached state of a set.
#[derive(Debug)]
pub(crate) struct CachedSet<T> {
    /// The set was read: objects that are not in `items` do not exist.
    pub(crate) synced: bool,
    /// Error of the last request, if it failed.
    pub(crate) error: Option<ApiError>,
    /// The objects.
    pub(crate) items: BTreeMap<ItemKey, Arc<T>>,
    /// The set was released; its state does not change any more.
    released: bool,
    /// A waiter for the first state timed out.
    wait_abandoned: bool,
}

impl<T> Default for CachedSet<T> {
    fn default() -> Self {
        Self {
            synced: false,
            error: None,
            items: BTreeMap::new(),
            released: false,
            wait_abandoned: false,
        }
    }
}

/// All watched sets of one type. Clones share them.
#[derive(Debug)]
pub(crate) struct SharedReflectors<T: CachedObject>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// `None` without an API server: no objects exist.
    client: Option<ApiClient>,
    /// `None` if changes requeue no pods.
    changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    /// Bounded by the references of the node's pods.
    entries: Mutex<BTreeMap<Selector, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    users: BTreeMap<PodUid, Interest>,
    known: OrderedWatch<CachedSet<T>>,
    /// Grows with each use, so that an old grace period ends nothing.
    uses: u64,
    task: Option<AbortHandle>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        self.known.modify(|known| known.released = true);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// Change of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Appeared,
    Changed,
    Deleted,
}

impl<T: CachedObject> SharedReflectors<T> {
    pub(crate) fn new(
        client: Option<ApiClient>,
        changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    ) -> Self {
        Self(Arc::new(Shared {
            client,
            changed,
            entries: Mutex::default(),
        }))
    }

    /// Adds a user of the set; the first one starts the watch.
    pub(crate) fn acquire(&self, selector: &Selector, uid: &PodUid, interest: Interest) {
        let mut entries = self.0.entries.lock();
        let entry = entries
            .entry(selector.clone())
            .or_insert_with(|| self.begin(selector));
        entry.uses += 1;
        entry.users.insert(uid.clone(), interest);
    }

    /// Removes a user of the set.
    pub(crate) fn release(&self, selector: &Selector, uid: &PodUid) {
        let mut entries = self.0.entries.lock();
        let Some(entry) = entries.get_mut(selector) else {
            return;
        };
        if entry.users.remove(uid).is_none() || !entry.users.is_empty() {
            return;
        }
        let (uses, selector, shared) = (entry.uses, selector.clone(), Arc::downgrade(&self.0));
        drop(spawn_io("end-watch", async move {
            tokio::time::sleep(GRACE_PERIOD).await;
            if let Some(shared) = shared.upgrade() {
                shared.end(&selector, uses);
            }
        }));
    }

    /// Returns the state of a set that has users.
    pub(crate) fn subscribe(&self, selector: &Selector) -> Option<OrderedWatch<CachedSet<T>>> {
        let entries = self.0.entries.lock();
        entries.get(selector).map(|entry| entry.known.clone())
    }

    fn begin(&self, selector: &Selector) -> Entry<T> {
        let known = CachedSet {
            synced: self.0.client.is_none(),
            ..CachedSet::default()
        };
        let task = self.0.client.clone().map(|client| {
            let follow = follow(Arc::downgrade(&self.0), client, selector.clone());
            spawn_io("watch-objects", follow).abort_handle()
        });
        Entry {
            users: BTreeMap::new(),
            known: OrderedWatch::new(known),
            uses: 0,
            task,
        }
    }
}

async fn follow<T: CachedObject>(shared: Weak<Shared<T>>, client: ApiClient, selector: Selector) {
    let reflected = || reflect::<T::Object>(client.clone(), selector.clone());
    let mut events = reflected().boxed();
    let mut rejections = Rejections::default();
    let mut synced = false;
    while let Some(event) = events.next().await {
        // before the first state a restart loses nothing, and avoids the reflector's back-off
        if let (ReflectEvent::Failed { error, .. }, false) = (&event, synced)
            && let Some(delay) = rejections.retry_delay(PodRequest::Object, error)
        {
            events = reflected().boxed();
            tokio::time::sleep(delay).await;
            continue;
        }
        synced |= matches!(event, ReflectEvent::Synced(_));
        match shared.upgrade() {
            Some(shared) if !shared.apply(&selector, event) => {}
            // the set was released, or cannot change any more
            _ => return,
        }
    }
}

impl<T: CachedObject> Shared<T> {
    fn end(&self, selector: &Selector, uses: u64) {
        let mut entries = self.entries.lock();
        let released = |entry: &Entry<T>| entry.users.is_empty() && entry.uses == uses;
        if entries.get(selector).is_some_and(released) {
            entries.remove(selector);
        }
    }

    /// Applies an event and requeues the affected pods. Returns true if the watch may end, because
    /// its only object can never change.
    fn apply(&self, selector: &Selector, event: ReflectEvent<T::Object>) -> bool {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(selector) else {
            return true;
        };
        let one = selector.fields.is_some();
        let (done, changes) = entry.known.modify(|known| known.apply(event, one));
        for (uid, interest) in &entry.users {
            let affected = changes.iter().any(|((_, name), change)| match interest {
                Interest::Quiet => false,
                Interest::Appearing(expected) => expected == name && *change == Change::Appeared,
                Interest::Live(expected) => expected == name,
                Interest::Set => true,
            });
            if let (true, Some(changed)) = (affected, &self.changed) {
                changed.put(uid.clone(), ObjectsChanged);
            }
        }
        done
    }
}

impl<T> CachedSet<T> {
    /// Returns whether waiting is over.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.released
    }
}

/// Waits until the set is settled. If the future is dropped before, the first state requeues pods
/// like a change.
pub(crate) async fn settled<T>(known: &OrderedWatch<CachedSet<T>>) {
    let guard = WaitGuard(known);
    known.wait_for(CachedSet::is_settled).await;
    drop(guard);
}

/// A waiter for the first state of a set.
struct WaitGuard<'a, T>(&'a OrderedWatch<CachedSet<T>>);

impl<T> Drop for WaitGuard<'_, T> {
    fn drop(&mut self) {
        let mut known = self.0.borrow();
        known.wait_abandoned |= !known.is_settled();
    }
}

impl<T: CachedObject> CachedSet<T> {
    /// Returns whether the set is a single object (`one`) that can never change, and the changes.
    fn apply(
        &mut self,
        event: ReflectEvent<T::Object>,
        one: bool,
    ) -> (bool, Vec<(ItemKey, Change)>) {
        let mut done = false;
        let mut changes = Vec::new();
        let before = self.synced;
        match event {
            ReflectEvent::Failed { error, .. } => {
                tracing::debug!(%error, "objects not read");
                self.error = Some(error);
                return (false, changes);
            }
            ReflectEvent::Resumed => {}
            ReflectEvent::Synced(objects) => {
                let old = std::mem::take(&mut self.items);
                for object in objects {
                    let key = key(&object);
                    done |= one && T::is_final(&object);
                    self.put(old.get(&key), key, object, &mut changes);
                }
                let deleted = old.into_keys().filter(|key| !self.items.contains_key(key));
                changes.extend(deleted.map(|key| (key, Change::Deleted)));
                self.synced = true;
            }
            ReflectEvent::Applied(object) => {
                let key = key(&object);
                done = one && T::is_final(&object);
                let old = self.items.remove(&key);
                self.put(old.as_ref(), key, object, &mut changes);
            }
            ReflectEvent::Deleted(object) => {
                let key = key(&object);
                if self.items.remove(&key).is_some() {
                    changes.push((key, Change::Deleted));
                }
            }
        }
        self.error = None;
        if !before && !std::mem::take(&mut self.wait_abandoned) {
            // pods wait for the first state without being requeued
            changes.clear();
        }
        (done && self.synced, changes)
    }

    fn put(
        &mut self,
        old: Option<&Arc<T>>,
        key: ItemKey,
        object: T::Object,
        changes: &mut Vec<(ItemKey, Change)>,
    ) {
        let Some(new) = T::keep(object) else {
            return;
        };
        match old {
            // equal content keeps its allocation
            Some(old) if **old == new => {
                self.items.insert(key, Arc::clone(old));
                return;
            }
            Some(_) => changes.push((key.clone(), Change::Changed)),
            None => changes.push((key.clone(), Change::Appeared)),
        }
        self.items.insert(key, Arc::new(new));
    }
}

fn key<K: ApiObject>(object: &K) -> ItemKey {
    let metadata = object.meta();
    (
        metadata.namespace.clone().unwrap_or_default(),
        metadata.name.clone().unwrap_or_default(),
    )
}
