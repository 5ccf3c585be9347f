//! The owner of all timelines.
//!
//! *owns* the timelines of all pods on the node and of the last [`REMOVED_PODS`] removed pods ·
//! *invariant* nothing here waits; the lock is held for a record, not for the operation · *bound* a
//! timeline takes at most 8 KiB: 1.1 MiB for 110 pods and 32 removed ones, 2.3 MiB for 250 pods; a
//! record of an unknown pod is dropped · *restart* starts empty

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_pod_status::timeline::{RecordId, RecordKey, RecordOutcome, Timeline};
use windlass_types::explain::PodTimeline;
use windlass_types::{Clock, Pod, PodExt, PodUid, SpanSink, Timestamp};

use crate::context::within;
use crate::trace::{Span, StartTrace, Tracer};

/// Number of removed pods whose timelines are kept.
const REMOVED_PODS: usize = 32;

/// Maximum duration of the trace of a start; later syncs have their own traces.
const MAX_START_DURATION: Duration = Duration::from_secs(600);
/// Error of a trace over that duration.
const START_TIMED_OUT: &str = "pod not ready after 10 minutes";

/// Cloneable handle to all timelines.
#[derive(Clone, Debug)]
pub struct Timelines(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    tracer: Option<Tracer>,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: HashMap<PodUid, Entry>,
    /// Removed pods with the time of their removal, newest last.
    removed: VecDeque<(Timestamp, PodUid, Entry)>,
}

#[derive(Debug)]
struct Entry {
    namespace: Box<str>,
    name: Box<str>,
    timeline: Timeline,
    /// Trace of its start, until that ends.
    start: Option<StartTrace>,
}

impl Entry {
    /// Takes the trace of a start over its maximum duration.
    fn take_timed_out(&mut self, now: Timestamp) -> Option<StartTrace> {
        self.start
            .take_if(|start| start.duration(now) > MAX_START_DURATION)
    }
}

impl State {
    /// Returns the entry of a pod; removed pods still get records of their last requests.
    fn entry(&mut self, uid: &PodUid) -> Option<&mut Entry> {
        let mut removed = self.removed.iter_mut().rev();
        let removed = || {
            removed
                .find(|(_, of, _)| of == uid)
                .map(|(.., entry)| entry)
        };
        self.pods.get_mut(uid).or_else(removed)
    }

    /// Returns the entry with an open record: the pod may have been removed and added since.
    fn entry_with_open(&mut self, uid: &PodUid, id: RecordId) -> Option<&mut Entry> {
        let has_open =
            |(_, of, entry): &(_, PodUid, Entry)| of == uid && entry.timeline.is_open(id);
        if let Some(index) = self.removed.iter().rposition(has_open) {
            return self.removed.get_mut(index).map(|(.., entry)| entry);
        }
        self.entry(uid)
    }
}

impl Timelines {
    /// Creates an empty set. With a sink, sampled starts become traces.
    pub fn new(clock: Arc<dyn Clock>, sink: Option<Arc<dyn SpanSink>>) -> Self {
        Self(Arc::new(Inner {
            clock,
            tracer: sink.map(Tracer::new),
            next: AtomicU64::new(1),
            state: Mutex::default(),
        }))
    }

    /// Creates the timeline of a pod, unless it exists.
    pub fn seen(&self, pod: &Pod) {
        let uid = pod.uid();
        let mut state = self.0.state.lock();
        if state.pods.contains_key(&uid) {
            return;
        }
        let tracer = self.0.tracer.as_ref();
        let start = tracer.and_then(|tracer| tracer.start(pod, self.0.clock.now()));
        let entry = Entry {
            namespace: pod.namespace().into(),
            name: pod.name().into(),
            timeline: Timeline::default(),
            start,
        };
        state.pods.insert(uid, entry);
    }

    /// Adds a record without a duration.
    pub fn record_instant(&self, uid: &PodUid, what: RecordKey, outcome: RecordOutcome) {
        let now = self.0.clock.now();
        let mut state = self.0.state.lock();
        let Some(entry) = state.entry(uid) else {
            return;
        };
        let timed_out = entry.take_timed_out(now);
        let traced = self.span(entry, &what, uid, self.next_id(), now);
        entry
            .timeline
            .record_instant(what.clone(), outcome.clone(), now);
        drop(state);
        self.close(timed_out, Some(START_TIMED_OUT));
        if let (Some(tracer), Some(span)) = (&self.0.tracer, traced) {
            tracer.ended(span, &what, &outcome, (now, now));
        }
    }

    /// Opens a record, which the guard closes.
    pub fn begin(&self, uid: &PodUid, what: RecordKey) -> RecordGuard {
        let began = self.0.clock.now();
        let id = self.next_id();
        let mut state = self.0.state.lock();
        let Some(entry) = state.entry(uid) else {
            return RecordGuard(None);
        };
        let timed_out = entry.take_timed_out(began);
        let span = self.span(entry, &what, uid, id, began);
        entry.timeline.begin(id, what.clone(), began);
        drop(state);
        self.close(timed_out, Some(START_TIMED_OUT));
        RecordGuard(Some(RunningRecord {
            timelines: self.clone(),
            uid: uid.clone(),
            id,
            what,
            began,
            at: Instant::now(),
            span,
        }))
    }

    /// Ends the start of a pod and its trace; an error is the reason of the failure. Later calls
    /// have no effect.
    pub fn started(&self, uid: &PodUid, end: Result<(), &str>) {
        let start = self.take_start(uid);
        self.close(start, end.err());
    }

    /// Drops the start trace of a pod that was ready or finished before this agent run.
    pub fn skip_start_trace(&self, uid: &PodUid) {
        self.take_start(uid);
    }

    fn take_start(&self, uid: &PodUid) -> Option<StartTrace> {
        let mut state = self.0.state.lock();
        let entry = state.entry(uid)?;
        entry.timeline.started();
        entry.start.take()
    }

    /// Moves the timeline of a pod to the removed ones.
    pub fn forget(&self, uid: &PodUid) {
        let mut state = self.0.state.lock();
        let Some(mut entry) = state.pods.remove(uid) else {
            return;
        };
        let start = entry.start.take();
        let removed = (self.0.clock.now(), uid.clone(), entry);
        state.removed.push_back(removed);
        if state.removed.len() > REMOVED_PODS {
            state.removed.pop_front();
        }
        drop(state);
        self.close(start, Some("pod removed before it was ready"));
    }

    /// Returns the timeline of a pod on the node.
    pub fn get(&self, uid: &PodUid) -> Option<PodTimeline> {
        let state = self.0.state.lock();
        let entry = state.pods.get(uid);
        entry.map(|entry| self.view(uid, entry, None))
    }

    /// Returns the timeline of the pod with this name: the one on the node with the newest record,
    /// else the last removed one.
    pub fn find(&self, namespace: &str, name: &str) -> Option<PodTimeline> {
        let state = self.0.state.lock();
        let named = |entry: &Entry| (&*entry.namespace, &*entry.name) == (namespace, name);
        let here = state.pods.iter().filter(|(_, entry)| named(entry));
        let here = here.map(|(uid, entry)| self.view(uid, entry, None));
        let last = |timeline: &PodTimeline| timeline.records.last().map(|record| record.started_at);
        here.max_by_key(last).or_else(|| {
            let mut removed = state.removed.iter().rev();
            let (at, uid, entry) = removed.find(|(.., entry)| named(entry))?;
            Some(self.view(uid, entry, Some(*at)))
        })
    }

    fn view(&self, uid: &PodUid, entry: &Entry, removed: Option<Timestamp>) -> PodTimeline {
        let now = self.0.clock.now();
        PodTimeline {
            namespace: entry.namespace.to_string(),
            pod: entry.name.to_string(),
            uid: uid.to_string(),
            removed_at: removed,
            generated_at: now,
            dropped_records: entry.timeline.dropped(),
            records: entry.timeline.records(now),
        }
    }

    fn span(
        &self,
        entry: &Entry,
        what: &RecordKey,
        uid: &PodUid,
        id: RecordId,
        now: Timestamp,
    ) -> Option<Span> {
        let tracer = self.0.tracer.as_ref()?;
        let pod = (uid, &*entry.namespace, &*entry.name);
        tracer.span(entry.start.as_ref(), what, pod, id, now)
    }

    fn close(&self, start: Option<StartTrace>, error: Option<&str>) {
        if let (Some(tracer), Some(start)) = (&self.0.tracer, start) {
            tracer.end_start(start, error, self.0.clock.now());
        }
    }

    fn next_id(&self) -> RecordId {
        RecordId(self.0.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// Guard of an open record. Dropping it records a cancellation.
#[must_use]
pub struct RecordGuard(Option<RunningRecord>);

struct RunningRecord {
    timelines: Timelines,
    uid: PodUid,
    id: RecordId,
    what: RecordKey,
    began: Timestamp,
    /// Start on the monotonic clock.
    at: Instant,
    span: Option<Span>,
}

impl RecordGuard {
    /// Runs `work` in the span of this record, if its trace is sampled.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        // boxed: the state of `work` would be three times in this future
        let work = Box::pin(work);
        let record = self.0.as_ref();
        match record.and_then(|record| record.span.as_ref()) {
            Some(span) => within(span.id, work).await,
            None => work.await,
        }
    }

    /// Closes the record.
    pub fn end(mut self, outcome: RecordOutcome) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: RecordOutcome) {
        let Some(record) = self.0.take() else { return };
        let took = record.at.elapsed();
        if let (Some(tracer), Some(span)) = (&record.timelines.0.tracer, record.span) {
            let end = windlass_types::later(record.began, took);
            tracer.ended(span, &record.what, &outcome, (record.began, end));
        }
        let mut state = record.timelines.0.state.lock();
        if let Some(entry) = state.entry_with_open(&record.uid, record.id) {
            let times = (record.began, took);
            entry.timeline.end(record.id, record.what, outcome, times);
        }
    }
}

impl Drop for RecordGuard {
    fn drop(&mut self) {
        self.finish(RecordOutcome::Cancelled);
    }
}

impl fmt::Debug for RecordGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(record) => write!(f, "RecordGuard({} {})", record.uid, record.what),
            None => f.write_str("RecordGuard(none)"),
        }
    }
}

#[cfg(test)]
mod tests;
