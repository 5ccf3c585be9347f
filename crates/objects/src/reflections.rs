//! Watches of sets of objects, each shared by all pods that need it and ended when none does.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use tokio::task::AbortHandle;
use windlass_actors::ObjectsChanged;
use windlass_mailboxes::{SlotSender, spawn_io};
use windlass_client::{ApiClient, ApiError, ApiObject, ReflectEvent, Selector, reflect};
use windlass_pod_inputs::cache_lag::PodRequest;
use windlass_types::PodUid;

use crate::announced::Announced;
use crate::refusals::Refusals;

/// How long a watch goes on after its last pod: one that is replaced at once needs it again.
const GRACE: Duration = Duration::from_secs(30);

/// What is kept of an object.
pub(crate) trait Kept: PartialEq + Debug + Send + Sync + Sized + 'static {
    /// The object.
    type Object: ApiObject;

    /// `None` for an object that counts as absent.
    fn keep(object: Self::Object) -> Option<Self>;

    /// True if the object can never change.
    fn is_final(_: &Self::Object) -> bool {
        false
    }
}

/// What a pod wants to hear about a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Nothing.
    Quiet,
    /// That the object of this name exists now.
    Appearing(String),
    /// Each change of the object of this name, its end included.
    Live(String),
    /// Each change of the set.
    Set,
}

/// Namespace, empty for cluster-scoped types, and name.
pub(crate) type ItemKey = (String, String);

/// What is known of a set.
#[derive(Debug)]
pub(crate) struct Known<T> {
    /// The set was read once: what is not in `items` does not exist.
    pub(crate) synced: bool,
    /// Why the last request failed, if it did.
    pub(crate) error: Option<ApiError>,
    /// The objects.
    pub(crate) items: BTreeMap<ItemKey, Arc<T>>,
    /// Nobody holds the set any more, and nothing more will be known.
    over: bool,
    /// Somebody waited for its first state and is not waiting any more.
    missed: bool,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self {
            synced: false,
            error: None,
            items: BTreeMap::new(),
            over: false,
            missed: false,
        }
    }
}

/// All watched sets of one type. Clones share them.
#[derive(Debug)]
pub(crate) struct Reflections<T: Kept>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    /// Without an API server nothing exists.
    client: Option<ApiClient>,
    /// `None` if nobody wants to hear of changes.
    changed: Option<SlotSender<PodUid, ObjectsChanged>>,
    /// Bounded by the references of the node's pods.
    entries: Mutex<BTreeMap<Selector, Entry<T>>>,
}

#[derive(Debug)]
struct Entry<T> {
    users: BTreeMap<PodUid, Interest>,
    known: Announced<Known<T>>,
    /// Grows with each use, so that a grace period of the past ends nothing.
    uses: u64,
    task: Option<AbortHandle>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        self.known.modify(|known| known.over = true);
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Appeared,
    Changed,
    Gone,
}

impl<T: Kept> Reflections<T> {
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

    /// The pod needs this set from now on; the first one begins the watch.
    pub(crate) fn hold(&self, selector: &Selector, uid: &PodUid, interest: Interest) {
        let mut entries = self.0.lock();
        let entry = entries
            .entry(selector.clone())
            .or_insert_with(|| self.begin(selector));
        entry.uses += 1;
        entry.users.insert(uid.clone(), interest);
    }

    /// The pod does not need this set any more.
    pub(crate) fn release(&self, selector: &Selector, uid: &PodUid) {
        let mut entries = self.0.lock();
        let Some(entry) = entries.get_mut(selector) else {
            return;
        };
        if entry.users.remove(uid).is_none() || !entry.users.is_empty() {
            return;
        }
        let (uses, selector, shared) = (entry.uses, selector.clone(), Arc::downgrade(&self.0));
        drop(spawn_io("end-watch", async move {
            tokio::time::sleep(GRACE).await;
            if let Some(shared) = shared.upgrade() {
                shared.end(&selector, uses);
            }
        }));
    }

    /// What is known of a set that somebody holds, and will be.
    pub(crate) fn subscribe(&self, selector: &Selector) -> Option<Announced<Known<T>>> {
        let entries = self.0.lock();
        entries.get(selector).map(|entry| entry.known.clone())
    }

    fn begin(&self, selector: &Selector) -> Entry<T> {
        let known = Known {
            synced: self.0.client.is_none(),
            ..Known::default()
        };
        let task = self.0.client.clone().map(|client| {
            let follow = follow(Arc::downgrade(&self.0), client, selector.clone());
            spawn_io("watch-objects", follow).abort_handle()
        });
        Entry {
            users: BTreeMap::new(),
            known: Announced::new(known),
            uses: 0,
            task,
        }
    }
}

async fn follow<T: Kept>(shared: Weak<Shared<T>>, client: ApiClient, selector: Selector) {
    let reflected = || reflect::<T::Object>(client.clone(), selector.clone());
    let mut events = reflected().boxed();
    let mut refusals = Refusals::default();
    let mut synced = false;
    while let Some(event) = events.next().await {
        // before the first state nothing is lost by beginning again, without the reflector's back-off
        if let (ReflectEvent::Failed { error, .. }, false) = (&event, synced)
            && let Some(delay) = refusals.retry_delay(PodRequest::Object, error)
        {
            events = reflected().boxed();
            tokio::time::sleep(delay).await;
            continue;
        }
        synced |= matches!(event, ReflectEvent::Synced(_));
        match shared.upgrade() {
            Some(shared) if !shared.take(&selector, event) => {}
            // nobody is left to tell, or nothing more will happen
            _ => return,
        }
    }
}

impl<T: Kept> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Selector, Entry<T>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, selector: &Selector, uses: u64) {
        let mut entries = self.lock();
        let over = |entry: &Entry<T>| entry.users.is_empty() && entry.uses == uses;
        if entries.get(selector).is_some_and(over) {
            entries.remove(selector);
        }
    }

    /// Takes an event in and tells the pods it concerns. True if the watch may end, because the
    /// one object it is about can never change.
    fn take(&self, selector: &Selector, event: ReflectEvent<T::Object>) -> bool {
        let mut entries = self.lock();
        let Some(entry) = entries.get_mut(selector) else {
            return true;
        };
        let one = selector.fields.is_some();
        let (done, changes) = entry.known.modify(|known| known.take(event, one));
        for (uid, interest) in &entry.users {
            let concerned = changes.iter().any(|((_, name), change)| match interest {
                Interest::Quiet => false,
                Interest::Appearing(wanted) => wanted == name && *change == Change::Appeared,
                Interest::Live(wanted) => wanted == name,
                Interest::Set => true,
            });
            if let (true, Some(changed)) = (concerned, &self.changed) {
                changed.put(uid.clone(), ObjectsChanged);
            }
        }
        done
    }
}

impl<T> Known<T> {
    /// There is nothing to wait for.
    pub(crate) fn is_settled(&self) -> bool {
        self.synced || self.over
    }
}

/// Waits until there is nothing to wait for. Whoever gives that up, by dropping the future, is told
/// of the first state as of a change.
pub(crate) async fn settled<T>(known: &Announced<Known<T>>) {
    let waits = Waits(known);
    known.wait_for(Known::is_settled).await;
    drop(waits);
}

/// Somebody who waits for the first state of a set.
struct Waits<'a, T>(&'a Announced<Known<T>>);

impl<T> Drop for Waits<'_, T> {
    fn drop(&mut self) {
        let mut known = self.0.borrow();
        known.missed |= !known.is_settled();
    }
}

impl<T: Kept> Known<T> {
    /// True if the set is one object (`one`) that can never change; and what became different.
    fn take(
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
                let gone = old.into_keys().filter(|key| !self.items.contains_key(key));
                changes.extend(gone.map(|key| (key, Change::Gone)));
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
                    changes.push((key, Change::Gone));
                }
            }
        }
        self.error = None;
        if !before && !std::mem::take(&mut self.missed) {
            // who needs the set waits for its first state without being told
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
            // the same content keeps its place in memory
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
