//! Lookup of objects with a deadline, independent of the change detection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_client::{ApiClient, Selector};
use windlass_mailboxes::SlotSender;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_inputs::pod_references::{ReferenceUse, Requirement};
use windlass_types::PodUid;

use crate::polled_objects::{PolledObjects, ReadOutcome};
use crate::resolve::{Kind, UnresolvedReference};
use crate::shared_reflectors::{CachedObject, Interest, ItemKey, SharedReflectors, settled};

/// How long a pod waits for each of its references.
pub(crate) const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Selects all objects of a cluster-scoped type.
pub(crate) fn all() -> Selector {
    Selector::default()
}

/// ConfigMaps or Secrets, to which pods refer by name.
#[derive(Debug)]
pub(crate) enum NamedObjects<T: CachedObject> {
    /// Each object has a watch.
    Watched(SharedReflectors<T>),
    /// Each object is read when a pod is synced.
    Polled(Box<PolledObjects<T>>),
}

/// Dependencies of [`NamedObjects`].
#[derive(Clone, Debug)]
pub(crate) struct NamedObjectsDeps {
    pub(crate) detection: ChangeDetection,
    pub(crate) watch: Option<ApiClient>,
    pub(crate) main: Option<ApiClient>,
    pub(crate) changed: SlotSender<PodUid, ObjectsChanged>,
    pub(crate) node: watch::Receiver<NodeUpdate>,
}

impl<T: CachedObject> NamedObjects<T> {
    pub(crate) fn new(deps: NamedObjectsDeps) -> Self {
        match deps.detection {
            ChangeDetection::Watch => {
                Self::Watched(SharedReflectors::new(deps.watch, Some(deps.changed)))
            }
            ChangeDetection::Poll(strategy) => {
                Self::Polled(Box::new(PolledObjects::new(deps.main, strategy, deps.node)))
            }
        }
    }

    /// Adds a reference of the pod.
    pub(crate) fn acquire(&self, namespace: &str, name: &str, uid: &PodUid, need: ReferenceUse) {
        match self {
            Self::Watched(sets) => {
                let interest = interest(name, need);
                sets.acquire(&by_name(namespace, name), uid, interest);
            }
            Self::Polled(polled) => polled.acquire(&(namespace.to_owned(), name.to_owned()), uid),
        }
    }

    /// Removes a reference of the pod.
    pub(crate) fn release(&self, namespace: &str, name: &str, uid: &PodUid) {
        match self {
            Self::Watched(sets) => sets.release(&by_name(namespace, name), uid),
            Self::Polled(polled) => polled.release(&(namespace.to_owned(), name.to_owned()), uid),
        }
    }

    /// Returns whether the object was read, exists and is current.
    pub(crate) fn is_present(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::Watched(sets) => sets
                .subscribe(&by_name(namespace, name))
                .is_some_and(|known| {
                    let key = (namespace.to_owned(), name.to_owned());
                    let known = known.borrow();
                    known.synced && known.items.contains_key(&key)
                }),
            // each sync reads
            Self::Polled(_) => false,
        }
    }

    /// Returns an object as it was last read, without a request; `Some(None)` if it does not exist.
    pub(crate) fn known(&self, key: &ItemKey) -> Option<Option<Arc<T>>> {
        let (namespace, name) = key;
        match self {
            Self::Watched(sets) => {
                let known = sets.subscribe(&by_name(namespace, name))?;
                let known = known.borrow();
                known.synced.then(|| known.items.get(key).cloned())
            }
            Self::Polled(polled) => polled.known(key),
        }
    }

    async fn item(&self, namespace: &str, name: &str, deadline: Instant) -> ReadOutcome<T> {
        match self {
            Self::Watched(sets) => {
                let selector = by_name(namespace, name);
                item(sets, &selector, namespace, name, deadline).await
            }
            Self::Polled(polled) => {
                let key = (namespace.to_owned(), name.to_owned());
                polled.item(&key, deadline).await
            }
        }
    }
}

/// Returns the interest of a pod: only volumes follow changes; other uses wait for the object to
/// appear.
fn interest(name: &str, need: ReferenceUse) -> Interest {
    if need.volume == Requirement::None {
        Interest::Appearing(name.to_owned())
    } else {
        Interest::Live(name.to_owned())
    }
}

/// Selects the object of this name.
fn by_name(namespace: &str, name: &str) -> Selector {
    Selector {
        namespace: Some(namespace.to_owned()),
        fields: Some(format!("metadata.name={name}")),
        labels: None,
    }
}

/// Namespace, and names in it.
pub(crate) type Names = (String, Vec<String>);

/// Returns the existing objects by name, and those that were not resolved by the deadline.
pub(crate) async fn read<T: CachedObject>(
    objects: &NamedObjects<T>,
    kind: Kind,
    (namespace, names): Names,
) -> (BTreeMap<String, Arc<T>>, Vec<UnresolvedReference>) {
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    let results = names
        .iter()
        .map(|name| objects.item(&namespace, name, deadline));
    let results = join_all(results).await;
    let mut found = BTreeMap::new();
    let mut unresolved = Vec::new();
    for (name, result) in names.into_iter().zip(results) {
        match result {
            Ok(Some(content)) => {
                found.insert(name, content);
            }
            Ok(None) => {}
            Err(error) => unresolved.push(UnresolvedReference { kind, name, error }),
        }
    }
    (found, unresolved)
}

/// Returns one object of a set when the set was read; the last error at the deadline.
pub(crate) async fn item<T: CachedObject>(
    sets: &SharedReflectors<T>,
    selector: &Selector,
    namespace: &str,
    name: &str,
    deadline: Instant,
) -> ReadOutcome<T> {
    // the pod was unregistered meanwhile
    let Some(known) = sets.subscribe(selector) else {
        return Err(None);
    };
    // the result is in `known`
    let _ = tokio::time::timeout_at(deadline, settled(&known)).await;
    let known = known.borrow();
    if known.synced {
        let key = (namespace.to_owned(), name.to_owned());
        return Ok(known.items.get(&key).cloned());
    }
    Err(known.error.as_ref().map(|e| e.to_string().into()))
}
