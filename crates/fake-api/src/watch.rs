//! Watches: streams that read the store's log of changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::defaults::kind_of;
use crate::path::Target;
use crate::query::Query;
use crate::select::Selection;
use crate::server::{Shared, State};
use crate::status_error::StatusError;
use crate::store::Change;

/// Interval of bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Default timeout of a watch; the real server uses 30 to 60 minutes.
const LASTS: Duration = Duration::from_secs(30 * 60);

/// One watch, between its request and its end.
#[derive(Debug)]
pub(crate) struct Watching {
    shared: Arc<Shared>,
    target: Target,
    selection: Selection,
    /// Changes up to this version are sent or skipped.
    version: u64,
    bookmarks: bool,
    next_bookmark: Instant,
    ends_at: Instant,
    /// Faults up to these numbers precede this watch.
    closed: u64,
    muted: u64,
    silent: bool,
    ready: VecDeque<Bytes>,
    over: bool,
}

impl Watching {
    /// Starts a watch; its initial set, if any, is read immediately.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        state: &State,
        target: &Target,
        selection: Selection,
        query: &Query,
    ) -> Result<Self, StatusError> {
        let asked = query.version()?;
        let initial = query.flag("sendInitialEvents");
        check_options(state, query, initial)?;
        let now = Instant::now();
        let lasts = query.get("timeoutSeconds").and_then(|s| s.parse().ok());
        let mut watching = Self {
            shared: shared.clone(),
            target: target.clone(),
            selection,
            version: state.store.version(),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            next_bookmark: now + BOOKMARK_EVERY,
            ends_at: now + lasts.filter(|s| *s > 0).map_or(LASTS, Duration::from_secs),
            closed: state.faults.closed,
            muted: state.faults.muted,
            silent: state.faults.silent_from_start,
            ready: VecDeque::new(),
            over: false,
        };
        if state.faults.failing_watches {
            watching.end_with(&StatusError::failing_watch());
            return Ok(watching);
        }
        match (initial, asked) {
            (Some(true), _) if state.faults.no_watch_progress => {
                watching.end_with(&StatusError::no_watch_progress());
            }
            (Some(true), asked) => {
                let stale = state.faults.stale.filter(|_| asked == Some(0));
                let version = stale.unwrap_or(watching.version);
                if let Some(asked) = asked.filter(|asked| *asked > version) {
                    return Err(StatusError::too_new(asked, version));
                }
                watching.send_set(state, version);
                watching.bookmark(version, true);
            }
            (Some(false), None | Some(0)) => {}
            // no version, or any: the set first, then changes
            (None, None | Some(0)) => {
                let version = watching.version;
                watching.send_set(state, version);
            }
            (_, Some(from)) => watching.version = from,
        }
        Ok(watching)
    }

    /// Returns the response body.
    pub(crate) fn into_stream(self) -> impl Stream<Item = Bytes> + Send {
        stream::unfold(self, |mut watching| async move {
            let line = watching.next().await?;
            Some((line, watching))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.silent
                && let Some(line) = self.ready.pop_front()
            {
                return Some(line);
            }
            if self.over {
                return None;
            }
            let shared = self.shared.clone();
            let changed = shared.changed.notified();
            tokio::pin!(changed);
            // registered before the log is read, so that no change is missed
            changed.as_mut().enable();
            self.read();
            if self.over || (!self.silent && !self.ready.is_empty()) {
                continue;
            }
            if self.silent {
                changed.await;
                continue;
            }
            let wake_at = match self.bookmarks {
                true => self.ends_at.min(self.next_bookmark),
                false => self.ends_at,
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = tokio::time::sleep_until(wake_at) => self.on_time(),
            }
        }
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        if self.bookmarks && now >= self.next_bookmark {
            self.next_bookmark = now + BOOKMARK_EVERY;
            self.bookmark(self.version, false);
        }
        if now >= self.ends_at {
            self.over = true;
        }
    }

    /// Reads new changes.
    fn read(&mut self) {
        let shared = self.shared.clone();
        let state = shared.lock();
        if state.faults.closed > self.closed {
            self.over = true;
            self.ready.clear();
            return;
        }
        self.silent |= state.faults.muted > self.muted;
        if self.silent {
            return;
        }
        let Some(changes) = state.store.since(self.version) else {
            return self.end_with(&StatusError::expired(self.version, state.store.oldest()));
        };
        let mut events: Vec<(&Change, &'static str, Value)> = changes
            .filter_map(|change| {
                self.event(change)
                    .map(|(kind, object)| (change, kind, object))
            })
            .collect();
        if state.faults.reorder {
            reorder(&mut events);
        }
        for (_, kind, object) in &events {
            self.push(kind, object);
            if state.faults.repeat {
                self.push(kind, object);
            }
        }
        self.version = self.version.max(state.store.version());
    }

    /// Returns the change as seen in a selection.
    fn event(&self, change: &Change) -> Option<(&'static str, Value)> {
        if !change.key.is(&self.target.group, &self.target.resource) {
            return None;
        }
        let selects = |object| self.selection.matches(&change.key, object);
        let was = change.before.as_deref().is_some_and(selects);
        let is = !change.deleted && selects(&change.after);
        match (was, is) {
            (false, false) => None,
            (false, true) => Some(("ADDED", (*change.after).clone())),
            (true, true) => Some(("MODIFIED", (*change.after).clone())),
            // an object that leaves the selection is sent in its old state with the new version
            (true, false) => {
                let before = change.before.as_deref().unwrap_or(&change.after);
                let mut last = match change.deleted {
                    true => (*change.after).clone(),
                    false => before.clone(),
                };
                last["metadata"]["resourceVersion"] = json!(change.version.to_string());
                Some(("DELETED", last))
            }
        }
    }

    fn send_set(&mut self, state: &State, version: u64) {
        let (group, resource) = (&self.target.group, &self.target.resource);
        let set = state.store.list_at(group, resource, version);
        for (key, object) in set {
            if self.selection.matches(&key, &object) {
                self.push("ADDED", &object);
            }
        }
        self.version = version;
    }

    fn bookmark(&mut self, version: u64, ends_initial: bool) {
        let mut object = json!({
            "kind": kind_of(&self.target.resource).unwrap_or_default(),
            "apiVersion": self.target.api_version(),
            "metadata": { "resourceVersion": version.to_string(), "creationTimestamp": null },
        });
        if self.target.resource == "pods" {
            // Go writes the empty object: not even a valid pod
            object["spec"] = json!({ "containers": null });
            object["status"] = json!({});
        }
        if ends_initial {
            object["metadata"]["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        self.push("BOOKMARK", &object);
    }

    fn end_with(&mut self, error: &StatusError) {
        self.push("ERROR", &error.status());
        self.over = true;
    }

    fn push(&mut self, kind: &str, object: &Value) {
        let mut line = json!({ "type": kind, "object": object }).to_string();
        line.push('\n');
        self.ready.push_back(Bytes::from(line));
    }
}

fn check_options(state: &State, query: &Query, initial: Option<bool>) -> Result<(), StatusError> {
    let matching = query.get("resourceVersionMatch").unwrap_or_default();
    let why = match (initial, matching) {
        (None, "") => return Ok(()),
        (Some(_), _) if state.faults.no_streaming_lists => {
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the \
             WatchList feature gate is enabled"
        }
        (Some(_), "NotOlderThan") => return Ok(()),
        (Some(_), _) => {
            "resourceVersionMatch: Forbidden: sendInitialEvents requires setting \
             resourceVersionMatch to NotOlderThan"
        }
        (None, _) => {
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless \
             sendInitialEvents is provided"
        }
    };
    Err(StatusError::invalid(format!(
        "ListOptions.meta.k8s.io \"\" is invalid: {why}"
    )))
}

/// Sorts objects in reverse order of their first change, the changes of each in order.
fn reorder(events: &mut Vec<(&Change, &'static str, Value)>) {
    let mut groups: Vec<Vec<(&Change, &'static str, Value)>> = Vec::new();
    for event in events.drain(..) {
        match groups
            .iter_mut()
            .find(|group| group[0].0.key == event.0.key)
        {
            Some(group) => group.push(event),
            None => groups.push(vec![event]),
        }
    }
    events.extend(groups.into_iter().rev().flatten());
}
