//! A set of objects that is kept current through any failure, with lists and watches.
//!
//! The set is read with a streaming list (a watch that begins with all objects and ends them with
//! a bookmark). After any error of a streaming list, the set is read with a list and a watch.
//! After a watch was closed, failed or was silent for too long, the next watch continues from the
//! last resource version, without a list. Only if the server no longer knows that version (410) is
//! the set read again. Each failed request is reported with the pause that follows it. `plan`
//! decides on the next request, `known_versions` on what has changed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use tokio::time::Instant;

use crate::api::{ApiClient, ApiObject, WatchEvent, WatchStream};
use crate::error::{ApiError, ApiResult};
use crate::query::{List, Selector, Watch};
use known_versions::{Key, KnownVersions};
use plan::{Decision, Plan, ReflectInput, Step, YOUNG};

mod known_versions;
mod lists_only;
mod plan;

pub(crate) use lists_only::ListsOnly;
pub(crate) use plan::fnv1a_64;

/// What a reflected set tells.
#[derive(Clone, Debug)]
pub enum ReflectEvent<K> {
    /// The complete set: objects that are not in it do not exist.
    Synced(Vec<K>),
    /// The object is new or changed.
    Applied(K),
    /// The object is gone, or not in the selected set any more; its last state.
    Deleted(K),
    /// A request failed. What was told before stays true as far as anybody knows.
    Failed {
        /// Why.
        error: ApiError,
        /// The next attempt begins after this time.
        retry_in: Duration,
    },
    /// The watch works again after failures, and nothing has changed. It comes after a set that
    /// was read after a failure, too.
    Resumed,
}

/// A streaming list that says nothing for this long, and has not said that it is complete, is
/// none: the server ignored the request for one.
const BOOKMARK_SILENCE: Duration = Duration::from_secs(30);

/// Lists and watches the set that `selector` names; the stream never ends.
///
/// Nothing is told twice, and no state that is older than one that was told. Objects come
/// without `managedFields`. Dropping the stream ends the watch. Memory: one resource version for
/// each object of the set, and the whole set while it is read.
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
    let of = format!("{} {selector:?}", K::url_path(&(), None));
    let reprobe_at = client.lists_only().until(Instant::now());
    let reflector = Reflector {
        client,
        selector,
        plan: Plan::new(fnv1a_64(seed, of.as_bytes()), reprobe_at),
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
    /// The consumer knows of a failure, and of no watch that works since.
    failing: bool,
    /// Wait before the next request.
    pause: Duration,
    open: Option<Open<K>>,
}

/// A watch that delivers.
struct Open<K> {
    events: WatchStream<K>,
    since: Instant,
}

impl<K: ApiObject> Reflector<K> {
    async fn next(&mut self) -> ReflectEvent<K> {
        loop {
            if let Some(open) = self.open.take() {
                if let Some(event) = self.follow(open).await {
                    return self.passed_on(event);
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
                return self.passed_on(event);
            }
        }
    }

    fn passed_on(&mut self, event: ReflectEvent<K>) -> ReflectEvent<K> {
        self.failing = match event {
            ReflectEvent::Failed { .. } => true,
            // the watch behind it may still fail
            ReflectEvent::Synced(_) => self.failing,
            _ => false,
        };
        event
    }

    async fn list(&mut self) -> Option<ReflectEvent<K>> {
        // the newest state, never that of a cache which may be behind what was told
        let list = List::default();
        match self.client.list::<K>(&self.selector, &list).await {
            Ok((objects, version)) => self.synced(objects, &version),
            Err(error) => self.ended(&ReflectInput::Refused(&error)),
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
                self.open = Some(Open::new(events));
                None
            }
            Err(error) => self.ended(&ReflectInput::Refused(&error)),
        }
    }

    /// A streaming list: gathers the set; the same watch goes on with its changes.
    async fn stream(&mut self) -> Option<ReflectEvent<K>> {
        let watch = Watch {
            resource_version: String::new(),
            initial_events: true,
        };
        let mut open = match self.client.watch::<K>(&self.selector, &watch).await {
            Ok(events) => Open::new(events),
            Err(error) => return self.ended(&ReflectInput::Refused(&error)),
        };
        let mut set: BTreeMap<Key, K> = BTreeMap::new();
        loop {
            let event = tokio::time::timeout(BOOKMARK_SILENCE, open.events.next()).await;
            match event {
                Ok(Some(Ok(WatchEvent::Applied(object)))) => {
                    // now: until the set is complete all of it is held
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
                    // not after a set that was thrown away
                    self.open = event.is_some().then_some(open);
                    return event;
                }
                Ok(Some(Ok(WatchEvent::Bookmark { .. }))) => {}
                Ok(Some(Err(error))) => {
                    let lived = open.since.elapsed();
                    return self.ended(&ReflectInput::Broken {
                        lived,
                        error: &error,
                    });
                }
                Ok(None) | Err(_) => return self.ended(&ReflectInput::NoBookmark),
            }
        }
    }

    /// One step of an open watch.
    async fn follow(&mut self, mut open: Open<K>) -> Option<ReflectEvent<K>> {
        let event = if self.failing {
            // a watch may be accepted and end with an error at once
            match tokio::time::timeout_at(open.since + YOUNG, open.events.next()).await {
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
            let lived = open.since.elapsed();
            return self.ended(&ReflectInput::Closed { lived });
        };
        let event: ApiResult<WatchEvent<K>> = event;
        let told = match event {
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
                let lived = open.since.elapsed();
                return self.ended(&ReflectInput::Broken {
                    lived,
                    error: &error,
                });
            }
        };
        self.open = Some(open);
        told
    }

    /// `None` if the set is older than what was told.
    fn synced(&mut self, objects: Vec<K>, version: &str) -> Option<ReflectEvent<K>> {
        if let Some(decision) = self.plan.read(version) {
            tracing::warn!(path = %self.path(), version, decision = %decision, "the server answered with an old state");
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
            ReflectInput::Refused(error) | ReflectInput::Broken { error, .. } => Some(*error),
            ReflectInput::NoBookmark | ReflectInput::Closed { .. } => None,
        };
        if decision.lists_only && self.client.lists_only().found(now) {
            let error = error.map(tracing::field::display);
            tracing::info!(path = %self.path(), error, retry_in = ?plan::REPROBE, "no streaming lists, using lists");
        }
        let error = error.filter(|_| decision.told)?;
        Some(ReflectEvent::Failed {
            error: error.clone(),
            retry_in: decision.pause,
        })
    }

    fn path(&self) -> String {
        K::url_path(&(), self.selector.namespace.as_deref())
    }
}

impl<K> Open<K> {
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

/// Without `managedFields`, which nobody on a node reads and which often outweigh the rest.
fn slim<K: ApiObject>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

#[cfg(test)]
mod tests;
