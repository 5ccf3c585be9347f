//! What is known of an object by a deadline, however it is kept current.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::watch;
use tokio::time::Instant;
use windlass_actors::{NodeUpdate, ObjectsChanged};
use windlass_mailboxes::SlotSender;
use windlass_client::{ApiClient, Selector};
use windlass_pod_inputs::object_reads::ChangeDetection;
use windlass_pod_inputs::pod_references::{Need, Use};
use windlass_types::PodUid;

use crate::reads::{Found, Reads};
use crate::reflections::{Interest, Kept, Reflections, settled};
use crate::resolve::{Kind, Unanswered};

/// How long a pod waits until each of its references was answered once.
pub(crate) const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// All objects of a cluster-scoped type.
pub(crate) fn all() -> Selector {
    Selector::default()
}

/// Objects that pods refer to by name: ConfigMaps, or Secrets.
#[derive(Debug)]
pub(crate) enum Named<T: Kept> {
    /// Each has a watch.
    Watched(Reflections<T>),
    /// Each is read when a pod is synced.
    Read(Box<Reads<T>>),
}

/// What [`Named`] works with.
#[derive(Clone, Debug)]
pub(crate) struct NamedDeps {
    pub(crate) detection: ChangeDetection,
    pub(crate) watch: Option<ApiClient>,
    pub(crate) main: Option<ApiClient>,
    pub(crate) changed: SlotSender<PodUid, ObjectsChanged>,
    pub(crate) node: watch::Receiver<NodeUpdate>,
}

impl<T: Kept> Named<T> {
    pub(crate) fn new(deps: NamedDeps) -> Self {
        match deps.detection {
            ChangeDetection::Watch => {
                Self::Watched(Reflections::new(deps.watch, Some(deps.changed)))
            }
            ChangeDetection::Read(reading) => {
                Self::Read(Box::new(Reads::new(deps.main, reading, deps.node)))
            }
        }
    }

    /// The pod refers to this object from now on.
    pub(crate) fn hold(&self, namespace: &str, name: &str, uid: &PodUid, need: Need) {
        match self {
            Self::Watched(sets) => {
                let interest = interest(name, need);
                sets.hold(&by_name(namespace, name), uid, interest);
            }
            Self::Read(reads) => reads.hold(&(namespace.to_owned(), name.to_owned()), uid),
        }
    }

    /// The pod does not refer to this object any more.
    pub(crate) fn release(&self, namespace: &str, name: &str, uid: &PodUid) {
        match self {
            Self::Watched(sets) => sets.release(&by_name(namespace, name), uid),
            Self::Read(reads) => reads.release(&(namespace.to_owned(), name.to_owned()), uid),
        }
    }

    /// True if the object was read and exists, and what is known of it is current.
    pub(crate) fn is_present(&self, namespace: &str, name: &str) -> bool {
        match self {
            Self::Watched(sets) => sets
                .subscribe(&by_name(namespace, name))
                .is_some_and(|known| {
                    let key = (namespace.to_owned(), name.to_owned());
                    let known = known.borrow();
                    known.synced && known.items.contains_key(&key)
                }),
            // each sync asks
            Self::Read(_) => false,
        }
    }

    async fn item(&self, namespace: &str, name: &str, deadline: Instant) -> Found<T> {
        match self {
            Self::Watched(sets) => {
                let selector = by_name(namespace, name);
                item(sets, &selector, namespace, name, deadline).await
            }
            Self::Read(reads) => {
                let key = (namespace.to_owned(), name.to_owned());
                reads.item(&key, deadline).await
            }
        }
    }
}

/// Only a volume follows its object; anything else is told that it can go on.
fn interest(name: &str, need: Need) -> Interest {
    if need.volume == Use::None {
        Interest::Appearing(name.to_owned())
    } else {
        Interest::Live(name.to_owned())
    }
}

/// The one object of this name.
fn by_name(namespace: &str, name: &str) -> Selector {
    Selector {
        namespace: Some(namespace.to_owned()),
        fields: Some(format!("metadata.name={name}")),
        labels: None,
    }
}

/// Namespace, and names in it.
pub(crate) type Names = (String, Vec<String>);

/// Objects that exist, by name, and those of which nothing is known until the deadline.
pub(crate) async fn read<T: Kept>(
    objects: &Named<T>,
    kind: Kind,
    (namespace, names): Names,
) -> (BTreeMap<String, Arc<T>>, Vec<Unanswered>) {
    let deadline = Instant::now() + ANSWER_DEADLINE;
    let answers = names
        .iter()
        .map(|name| objects.item(&namespace, name, deadline));
    let answers = join_all(answers).await;
    let mut found = BTreeMap::new();
    let mut unanswered = Vec::new();
    for (name, answer) in names.into_iter().zip(answers) {
        match answer {
            Ok(Some(content)) => {
                found.insert(name, content);
            }
            Ok(None) => {}
            Err(error) => unanswered.push(Unanswered { kind, name, error }),
        }
    }
    (found, unanswered)
}

/// One object of a set, once the set was read; the last error if it is not until the deadline.
pub(crate) async fn item<T: Kept>(
    sets: &Reflections<T>,
    selector: &Selector,
    namespace: &str,
    name: &str,
    deadline: Instant,
) -> Found<T> {
    // the pod went while it was being resolved
    let Some(known) = sets.subscribe(selector) else {
        return Err(None);
    };
    // what came of it is in `known`
    let _ = tokio::time::timeout_at(deadline, settled(&known)).await;
    let known = known.borrow();
    if known.synced {
        let key = (namespace.to_owned(), name.to_owned());
        return Ok(known.items.get(&key).cloned());
    }
    Err(known.error.as_ref().map(|e| e.to_string().into()))
}
