//! The owner of all timelines.
//!
//! *owns* a timeline for each pod on the node, and those of the last [`GONE`] that left it ·
//! *invariant* nothing here waits; the lock is held for a record, never across what is recorded ·
//! *bound* a timeline takes 8 KiB at the most: 110 pods and 32 that are gone 1.1 MiB, 250 pods 2.3
//! MiB; a record of a pod that nobody has shown is dropped · *restart* begins anew: what an earlier
//! agent did is in its log

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass_pod_status::timeline::{Outcome, Timeline, TouchId, What};
use windlass_types::why::PodTimeline;
use windlass_types::{Clock, Pod, PodExt, PodUid, SpanSink, Timestamp};

use crate::context::within;
use crate::trace::{Span, StartTrace, Tracer};

/// Pods that are gone whose timelines are kept: "why did it take so long to go?"
const GONE: usize = 32;

/// A start that takes longer ends its trace: a pod that never becomes ready would make one without
/// end. Its jobs are traces of their own from then on.
const LONGEST_START: Duration = Duration::from_secs(600);
/// What the trace of such a start says.
const ENDLESS: &str = "the pod is not ready after ten minutes";

/// The cloneable handle to all timelines.
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
    /// With the time at which they left; the newest last.
    gone: VecDeque<(Timestamp, PodUid, Entry)>,
}

#[derive(Debug)]
struct Entry {
    namespace: Box<str>,
    name: Box<str>,
    timeline: Timeline,
    /// The trace of its start, while that lasts.
    start: Option<StartTrace>,
}

impl Entry {
    /// Takes the trace of a start that lasts so long that nobody waits for its end.
    fn endless(&mut self, now: Timestamp) -> Option<StartTrace> {
        self.start.take_if(|start| start.lasts(now) > LONGEST_START)
    }
}

impl State {
    /// Those that are gone are told of their last requests, too.
    fn entry(&mut self, uid: &PodUid) -> Option<&mut Entry> {
        let mut gone = self.gone.iter_mut().rev();
        let gone = || gone.find(|(_, of, _)| of == uid).map(|(.., entry)| entry);
        self.pods.get_mut(uid).or_else(gone)
    }

    /// Where a touch began: a pod may have gone and come back since.
    fn entry_of(&mut self, uid: &PodUid, id: TouchId) -> Option<&mut Entry> {
        let left = |(_, of, entry): &(_, PodUid, Entry)| of == uid && entry.timeline.is_open(id);
        if let Some(index) = self.gone.iter().rposition(left) {
            return self.gone.get_mut(index).map(|(.., entry)| entry);
        }
        self.entry(uid)
    }
}

impl Timelines {
    /// Of no pod yet. With a sink every pod's start becomes a trace, if that is sampled; without
    /// one nothing is computed for traces.
    pub fn new(clock: Arc<dyn Clock>, sink: Option<Arc<dyn SpanSink>>) -> Self {
        Self(Arc::new(Inner {
            clock,
            tracer: sink.map(Tracer::new),
            next: AtomicU64::new(1),
            state: Mutex::default(),
        }))
    }

    /// A pod is on this node: its timeline begins, unless it has one.
    pub fn seen(&self, pod: &Pod) {
        let uid = pod.uid();
        let mut state = self.lock();
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

    /// Something happened to a pod that takes no time.
    pub fn instant(&self, uid: &PodUid, what: What, outcome: Outcome) {
        let now = self.0.clock.now();
        let mut state = self.lock();
        let Some(entry) = state.entry(uid) else {
            return;
        };
        let endless = entry.endless(now);
        let traced = self.span(entry, &what, uid, self.next_id(), now);
        entry.timeline.instant(what.clone(), outcome.clone(), now);
        drop(state);
        self.close(endless, Some(ENDLESS));
        if let (Some(tracer), Some(span)) = (&self.0.tracer, traced) {
            tracer.ended(span, &what, &outcome, (now, now));
        }
    }

    /// Something begins to be done to a pod. It is over when the guard says so, or is dropped.
    pub fn begin(&self, uid: &PodUid, what: What) -> Touch {
        let began = self.0.clock.now();
        let id = self.next_id();
        let mut state = self.lock();
        let Some(entry) = state.entry(uid) else {
            return Touch(None);
        };
        let endless = entry.endless(began);
        let span = self.span(entry, &what, uid, id, began);
        entry.timeline.begin(id, what.clone(), began);
        drop(state);
        self.close(endless, Some(ENDLESS));
        Touch(Some(UnderWay {
            timelines: self.clone(),
            uid: uid.clone(),
            id,
            what,
            began,
            at: Instant::now(),
            span,
        }))
    }

    /// The pod is ready or over, an error says why it failed: its start is over, and so is the trace
    /// of it. Later calls change nothing.
    pub fn started(&self, uid: &PodUid, end: Result<(), &str>) {
        let start = self.take_start(uid);
        self.close(start, end.err());
    }

    /// The pod was ready, or over, before this agent saw it: what it found was no start, and there
    /// is no trace of one.
    pub fn adopted(&self, uid: &PodUid) {
        self.take_start(uid);
    }

    fn take_start(&self, uid: &PodUid) -> Option<StartTrace> {
        let mut state = self.lock();
        let entry = state.entry(uid)?;
        entry.timeline.started();
        entry.start.take()
    }

    /// The pod has left the node.
    pub fn forget(&self, uid: &PodUid) {
        let mut state = self.lock();
        let Some(mut entry) = state.pods.remove(uid) else {
            return;
        };
        let start = entry.start.take();
        let gone = (self.0.clock.now(), uid.clone(), entry);
        state.gone.push_back(gone);
        if state.gone.len() > GONE {
            state.gone.pop_front();
        }
        drop(state);
        self.close(start, Some("the pod went before it was ready"));
    }

    /// What touched a pod.
    pub fn of(&self, uid: &PodUid) -> Option<PodTimeline> {
        let state = self.lock();
        let entry = state.pods.get(uid);
        entry.map(|entry| self.view(uid, entry, None))
    }

    /// What touched the pod of this name: of several the one that is there and was touched last,
    /// else the one that left last.
    pub fn find(&self, namespace: &str, name: &str) -> Option<PodTimeline> {
        let state = self.lock();
        let named = |entry: &Entry| (&*entry.namespace, &*entry.name) == (namespace, name);
        let here = state.pods.iter().filter(|(_, entry)| named(entry));
        let here = here.map(|(uid, entry)| self.view(uid, entry, None));
        let last = |timeline: &PodTimeline| timeline.records.last().map(|record| record.started_at);
        here.max_by_key(last).or_else(|| {
            let mut gone = state.gone.iter().rev();
            let (at, uid, entry) = gone.find(|(.., entry)| named(entry))?;
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
            dropped_records: entry.timeline.forgotten(),
            records: entry.timeline.touches(now),
        }
    }

    fn span(
        &self,
        entry: &Entry,
        what: &What,
        uid: &PodUid,
        id: TouchId,
        now: Timestamp,
    ) -> Option<Span> {
        let tracer = self.0.tracer.as_ref()?;
        let pod = (uid, &*entry.namespace, &*entry.name);
        tracer.span(entry.start.as_ref(), what, pod, id, now)
    }

    fn close(&self, start: Option<StartTrace>, error: Option<&str>) {
        if let (Some(tracer), Some(start)) = (&self.0.tracer, start) {
            tracer.start_is_over(start, error, self.0.clock.now());
        }
    }

    fn next_id(&self) -> TouchId {
        TouchId(self.0.next.fetch_add(1, Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Something that is being done to a pod. Dropped before its end it counts as cancelled.
#[must_use]
pub struct Touch(Option<UnderWay>);

struct UnderWay {
    timelines: Timelines,
    uid: PodUid,
    id: TouchId,
    what: What,
    began: Timestamp,
    /// The same on a clock that nobody sets.
    at: Instant,
    span: Option<Span>,
}

impl Touch {
    /// Does `work` as this piece of its trace, if that is sampled: what it asks of others says so.
    pub async fn within<T>(&self, work: impl Future<Output = T>) -> T {
        // on the heap: else its state would be part of this one three times
        let work = Box::pin(work);
        let touch = self.0.as_ref();
        match touch.and_then(|touch| touch.span.as_ref()) {
            Some(span) => within(span.id, work).await,
            None => work.await,
        }
    }

    /// It is over.
    pub fn end(mut self, outcome: Outcome) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Outcome) {
        let Some(touch) = self.0.take() else { return };
        let took = touch.at.elapsed();
        if let (Some(tracer), Some(span)) = (&touch.timelines.0.tracer, touch.span) {
            let end = windlass_types::later(touch.began, took);
            tracer.ended(span, &touch.what, &outcome, (touch.began, end));
        }
        let mut state = touch.timelines.lock();
        if let Some(entry) = state.entry_of(&touch.uid, touch.id) {
            let times = (touch.began, took);
            entry.timeline.end(touch.id, touch.what, outcome, times);
        }
    }
}

impl Drop for Touch {
    fn drop(&mut self) {
        self.finish(Outcome::Cancelled);
    }
}

impl fmt::Debug for Touch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(touch) => write!(f, "Touch({} {})", touch.uid, touch.what),
            None => f.write_str("Touch(none)"),
        }
    }
}

#[cfg(test)]
mod tests;
