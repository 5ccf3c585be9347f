//! The reflector: keeps a set of objects current through any failure, with lists and watches.
//!
//! The set is read with a streaming list (a watch that starts with all objects and ends them with
//! a bookmark). After any error of a streaming list, the set is read with a list and a watch.
//! After a watch was closed, failed or was silent for too long, the next watch continues from the
//! last resource version, without a list. The set is read again only if the server no longer knows
//! that version (410). Each failed request is reported with the back-off that follows. `plan`
//! decides on the next request, `known_versions` on what has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::Instant;

use crate::api::{ApiClient, ApiObject, WatchEvent, WatchStream};
use crate::error::{ApiError, ApiResult};
use crate::query::{List, Selector, Watch};
use known_versions::{Key, KnownVersions};
use plan::{Decision, MIN_WATCH_AGE, Plan, ReflectInput, Step};

mod known_versions;
mod plan;

pub(crate) use plan::REPROBE_INTERVAL;
pub(crate) use plan::fnv1a_64;

/// An event of a reflector.
#[derive(Clone, Debug)]
pub enum ReflectEvent<K> {
    /// The complete set.
    Synced(Vec<K>),
    /// The object is new or changed.
    Applied(K),
    /// The object was deleted or left the selected set; its last state.
    Deleted(K),
    /// A request failed. The last known state stays in use.
    Failed {
        /// Why.
        error: ApiError,
        /// Back-off before the next attempt.
        retry_in: Duration,
    },
    /// The watch works again after failures, without changes. It also follows a set that was read
    /// after a failure.
    Resumed,
}

/// Timeout of a streaming list without events before its bookmark: the server ignored the request
/// for one.
const BOOKMARK_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists and watches the set that `selector` names; the stream never ends.
///
/// No state is repeated or older than a delivered one. Objects have no `managedFields`. Dropping
/// the stream ends the watch. Memory: one resource version per object, and the whole set while it
/// is read.
///
/// ```no_run
/// # async fn doc(client: windlass_client::ApiClient) {
/// use futures::StreamExt;
/// use k8s_openapi::api::core::v1::Pod;
/// use windlass_client::{ReflectEvent, Selector, reflect};
///
/// let selector = Selector { fields: Some("spec.nodeName=n1".to_owned()), ..Selector::default() };
/// let mut pods = std::pin::pin!(reflect::<Pod>(client, selector));
/// while let Some(event) = pods.next().await {
///     match event {
///         ReflectEvent::Synced(all) => println!("{} pods", all.len()),
///         ReflectEvent::Applied(pod) => println!("{:?} changed", pod.metadata.name),
///         ReflectEvent::Deleted(pod) => println!("{:?} is gone", pod.metadata.name),
///         ReflectEvent::Failed { error, retry_in } => println!("{error}, again in {retry_in:?}"),
///         ReflectEvent::Resumed => println!("the watch works again"),
///     }
/// }
/// # }
/// ```
pub fn reflect<K: ApiObject>(
    client: ApiClient,
    selector: Selector,
) -> impl Stream<Item = ReflectEvent<K>> + Send {
    let seed = client.seed();
    let path = format!("{} {selector:?}", K::url_path(&(), None));
    let reprobe_at = client.streaming_lists().retry_at(Instant::now());
    let reflector = Reflector {
        client,
        selector,
        plan: Plan::new(fnv1a_64(seed, path.as_bytes()), reprobe_at),
        failing: false,
        known: KnownVersions::default(),
        pause: Duration::ZERO,
        open: None,
    };
    stream::unfold(reflector, async |mut reflector: Reflector<K>| {
        let event = reflector.next().await;
        Some((event, reflector))
    })
}

struct Reflector<K> {
    client: ApiClient,
    selector: Selector,
    plan: Plan,
    known: KnownVersions,
    /// A failure was reported, and no working watch since.
    failing: bool,
    /// Back-off before the next request.
    pause: Duration,
    open: Option<OpenWatch<K>>,
}

struct OpenWatch<K> {
    events: WatchStream<K>,
    since: Instant,
}

impl<K: ApiObject> Reflector<K> {
    async fn next(&mut self) -> ReflectEvent<K> {
        loop {
            if let Some(open) = self.open.take() {
                if let Some(event) = self.follow(open).await {
                    return self.track_failure(event);
                }
                continue;
            }
            let pause = std::mem::take(&mut self.pause);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let event = match self.plan.step() {
                Step::Stream => self.stream().await,
                Step::List => self.list().await,
                Step::Watch { from } => self.watch(from).await,
            };
            if let Some(event) = event {
                return self.track_failure(event);
            }
        }
    }

    fn track_failure(&mut self, event: ReflectEvent<K>) -> ReflectEvent<K> {
        self.failing = match event {
            ReflectEvent::Failed { .. } => true,
            // the following watch may still fail
            ReflectEvent::Synced(_) => self.failing,
            _ => false,
        };
        event
    }

    async fn list(&mut self) -> Option<ReflectEvent<K>> {
        // the newest state: a cache may be older than what was delivered
        let list = List::default();
        match self.client.list::<K>(&self.selector, &list).await {
            Ok((objects, version)) => self.synced(objects, &version),
            Err(error) => self.ended(&ReflectInput::Failed(&error)),
        }
    }

    async fn watch(&mut self, from: String) -> Option<ReflectEvent<K>> {
        let watch = Watch {
            resource_version: from,
            initial_events: false,
        };
        match self.client.watch::<K>(&self.selector, &watch).await {
            Ok(events) => {
                self.plan.opened();
                self.open = Some(OpenWatch::new(events));
                None
            }
            Err(error) => self.ended(&ReflectInput::Failed(&error)),
        }
    }

    /// Collects the set of a streaming list; the same watch continues with its changes.
    async fn stream(&mut self) -> Option<ReflectEvent<K>> {
        let watch = Watch {
            resource_version: String::new(),
            initial_events: true,
        };
        let mut open = match self.client.watch::<K>(&self.selector, &watch).await {
            Ok(events) => OpenWatch::new(events),
            Err(error) => return self.ended(&ReflectInput::Failed(&error)),
        };
        let mut set: BTreeMap<Key, K> = BTreeMap::new();
        loop {
            let event = tokio::time::timeout(BOOKMARK_TIMEOUT, open.events.next()).await;
            match event {
                Ok(Some(Ok(WatchEvent::Applied(object)))) => {
                    // now, because the whole set is held until it is complete
                    set.insert(key(&object), slim(object));
                }
                Ok(Some(Ok(WatchEvent::Deleted(object)))) => {
                    set.remove(&key(&object));
                }
                Ok(Some(Ok(WatchEvent::Bookmark {
                    resource_version,
                    initial_end: true,
                }))) => {
                    let event = self.synced(set.into_values().collect(), &resource_version);
                    // not after a discarded set
                    self.open = event.is_some().then_some(open);
                    return event;
                }
                Ok(Some(Ok(WatchEvent::Bookmark { .. }))) => {}
                Ok(Some(Err(error))) => {
                    let age = open.since.elapsed();
                    return self.ended(&ReflectInput::Broken { age, error: &error });
                }
                Ok(None) | Err(_) => return self.ended(&ReflectInput::NoBookmark),
            }
        }
    }

    async fn follow(&mut self, mut open: OpenWatch<K>) -> Option<ReflectEvent<K>> {
        let event = if self.failing {
            // an accepted watch may end with an error at once
            match tokio::time::timeout_at(open.since + MIN_WATCH_AGE, open.events.next()).await {
                Ok(event) => event,
                Err(_) => {
                    self.open = Some(open);
                    return Some(ReflectEvent::Resumed);
                }
            }
        } else {
            open.events.next().await
        };
        let Some(event) = event else {
            let age = open.since.elapsed();
            return self.ended(&ReflectInput::Closed { age });
        };
        let event: ApiResult<WatchEvent<K>> = event;
        let output = match event {
            Ok(WatchEvent::Applied(object)) => {
                let (key, version) = (key(&object), version(&object));
                let news = self.known.applied(&key, &version);
                self.plan.passed(&version);
                news.then(|| ReflectEvent::Applied(slim(object)))
            }
            Ok(WatchEvent::Deleted(object)) => {
                let (key, version) = (key(&object), version(&object));
                let news = self.known.removed(&key, &version);
                self.plan.passed(&version);
                news.then(|| ReflectEvent::Deleted(slim(object)))
            }
            Ok(WatchEvent::Bookmark {
                resource_version, ..
            }) => {
                self.plan.passed(&resource_version);
                self.failing.then_some(ReflectEvent::Resumed)
            }
            Err(error) => {
                let age = open.since.elapsed();
                return self.ended(&ReflectInput::Broken { age, error: &error });
            }
        };
        self.open = Some(open);
        output
    }

    /// Returns `None` if the set is older than what was delivered.
    fn synced(&mut self, objects: Vec<K>, version: &str) -> Option<ReflectEvent<K>> {
        if let Some(decision) = self.plan.read(version) {
            tracing::warn!(path = %self.path(), version, %decision, "outdated list ignored");
            self.pause = decision.pause;
            return None;
        }
        let objects: Vec<K> = objects.into_iter().map(slim).collect();
        let versions = objects
            .iter()
            .map(|object| (key(object), self::version(object)));
        self.known.replace(versions);
        Some(ReflectEvent::Synced(objects))
    }

    fn ended(&mut self, input: &ReflectInput<'_>) -> Option<ReflectEvent<K>> {
        let now = Instant::now();
        let decision: Decision = self.plan.after(input, now);
        tracing::debug!(path = %self.path(), decision = %decision, "watch");
        self.pause = decision.pause;
        let error = match input {
            ReflectInput::Failed(error) | ReflectInput::Broken { error, .. } => Some(*error),
            ReflectInput::NoBookmark | ReflectInput::Closed { .. } => None,
        };
        if decision.lists_only && self.client.streaming_lists().record(now) {
            let error = error.map(tracing::field::display);
            let retry_in = plan::REPROBE_INTERVAL;
            tracing::info!(path = %self.path(), error, ?retry_in, "streaming lists not available");
        }
        let error = error.filter(|_| decision.reported)?;
        Some(ReflectEvent::Failed {
            error: error.clone(),
            retry_in: decision.pause,
        })
    }

    fn path(&self) -> String {
        K::url_path(&(), self.selector.namespace.as_deref())
    }
}

impl<K> OpenWatch<K> {
    fn new(events: WatchStream<K>) -> Self {
        Self {
            events,
            since: Instant::now(),
        }
    }
}

fn key<K: ApiObject>(object: &K) -> Key {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

fn version<K: ApiObject>(object: &K) -> String {
    object.meta().resource_version.clone().unwrap_or_default()
}

/// Removes `managedFields`, which are not used on a node and often large.
fn slim<K: ApiObject>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

#[cfg(test)]
mod tests;
