//! Timelines and their spans.

use std::time::Duration;

use windlass_mailboxes::SimClock;
use windlass_types::explain::{PodTimeline, RecordKind};
use windlass_types::{FinishedSpan, TraceId};

use super::*;
use crate::traceparent;

#[derive(Debug, Default)]
struct FakeSink(Mutex<Vec<FinishedSpan>>);

impl SpanSink for FakeSink {
    fn samples(&self, _: TraceId) -> bool {
        true
    }

    fn ended(&self, span: FinishedSpan) {
        self.0.lock().push(span);
    }
}

fn pod(uid: &str, name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod
}

fn timelines(sink: Option<Arc<FakeSink>>) -> Timelines {
    let sink = sink.map(|sink| sink as Arc<dyn SpanSink>);
    Timelines::new(Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH)), sink)
}

fn what(kind: RecordKind, name: &'static str) -> RecordKey {
    RecordKey::new(kind, name)
}

fn lines(timeline: Option<PodTimeline>) -> Vec<String> {
    let records = timeline.expect("a timeline").records;
    records.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn dropped_guard_records_cancellation() {
    let timelines = timelines(None);
    timelines.seen(&pod("u", "web"));
    let uid = "u".into();
    let call = timelines.begin(&uid, what(RecordKind::RuntimeCall, "RunPodSandbox"));
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    tokio::time::advance(Duration::from_millis(1500)).await;
    call.end(RecordOutcome::failed("no network"));
    drop(job);
    let expected = [
        "runtime RunPodSandbox 1.500s failed: no network",
        "sync syncPod 1.500s cancelled",
    ];
    assert_eq!(lines(timelines.get(&uid)), expected);
}

#[tokio::test(start_paused = true)]
async fn removed_pod_is_found_by_name_until_evicted() {
    let timelines = timelines(None);
    for number in 0..40 {
        let uid = PodUid::from(number.to_string());
        timelines.seen(&pod(uid.as_str(), &format!("web-{number}")));
        timelines.record_instant(&uid, what(RecordKind::Source, "ADD"), RecordOutcome::Done);
        timelines.forget(&uid);
        // the API request follows after the worker has finished
        timelines.record_instant(
            &uid,
            what(RecordKind::ApiRequest, "delete"),
            RecordOutcome::Done,
        );
    }
    let found = timelines.find("default", "web-39");
    assert_eq!(
        found.as_ref().and_then(|it| it.removed_at),
        Some(Timestamp::UNIX_EPOCH)
    );
    assert_eq!(lines(found), ["source ADD", "api delete"]);
    assert!(timelines.find("default", "web-8").is_some());
    assert!(timelines.find("default", "web-7").is_none());
    assert!(timelines.get(&"39".into()).is_none());
    assert!(timelines.find("other", "web-39").is_none());
}

#[tokio::test(start_paused = true)]
async fn readded_pod_has_new_timeline() {
    let timelines = timelines(None);
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    timelines.record_instant(
        &uid,
        what(RecordKind::Source, "REMOVE"),
        RecordOutcome::Done,
    );
    timelines.forget(&uid);
    timelines.seen(&pod("u", "web"));
    timelines.record_instant(&uid, what(RecordKind::Source, "ADD"), RecordOutcome::Done);
    assert_eq!(lines(timelines.find("default", "web")), ["source ADD"]);
}

#[tokio::test(start_paused = true)]
async fn record_after_pod_removal_ends_in_old_timeline() {
    let timelines = timelines(None);
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    let delete = timelines.begin(&uid, what(RecordKind::ApiRequest, "delete"));
    timelines.forget(&uid);
    timelines.seen(&pod("u", "web"));
    delete.end(RecordOutcome::Done);
    assert!(lines(timelines.get(&uid)).is_empty());
    timelines.forget(&uid);
    let state = timelines.0.state.lock();
    let removed = state
        .removed
        .iter()
        .map(|(.., entry)| entry.timeline.records(Timestamp::UNIX_EPOCH));
    let lines: Vec<Vec<String>> = removed
        .map(|records| records.iter().map(ToString::to_string).collect())
        .collect();
    assert_eq!(lines, [vec!["api delete 0.000s"], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn adopted_pod_has_no_start_trace_and_long_start_times_out() {
    let sink = Arc::new(FakeSink::default());
    let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let span_sink = Arc::clone(&sink) as Arc<dyn SpanSink>;
    let timelines = Timelines::new(Arc::clone(&clock) as Arc<dyn Clock>, Some(span_sink));
    let (adopted, stuck) = ("adopted".into(), "stuck".into());
    timelines.seen(&pod("adopted", "web"));
    timelines.skip_start_trace(&adopted);
    timelines.started(&adopted, Ok(()));
    timelines.seen(&pod("stuck", "bad"));
    let job = || timelines.begin(&stuck, what(RecordKind::Sync, "syncPod"));
    job().end(RecordOutcome::failed("no image"));
    tokio::time::advance(MAX_START_DURATION + Duration::from_secs(1)).await;
    job().end(RecordOutcome::failed("no image"));
    let spans = ["syncPod of podStart", "podStart of -", "syncPod of -"];
    assert_eq!(shape(&sink), spans);
}

#[tokio::test(start_paused = true)]
async fn unknown_pod_has_no_timeline() {
    let timelines = timelines(None);
    let uid = "orphan".into();
    timelines.record_instant(
        &uid,
        what(RecordKind::RuntimeCall, "StopPodSandbox"),
        RecordOutcome::Done,
    );
    timelines
        .begin(&uid, what(RecordKind::Sync, "syncTerminatingPod"))
        .end(RecordOutcome::Done);
    assert!(timelines.get(&uid).is_none());
}

/// `<name> <index of the parent, or ->` in the order in which they ended.
fn shape(sink: &FakeSink) -> Vec<String> {
    let spans = sink.0.lock();
    let name = |id| spans.iter().find(|span| Some(span.id.span) == id);
    let line = |span: &FinishedSpan| {
        let parent = name(span.parent).map_or("-", |parent| &parent.name);
        format!("{} of {parent}", span.name)
    };
    spans.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn start_is_one_trace_and_each_later_sync_another() {
    let sink = Arc::new(FakeSink::default());
    let timelines = timelines(Some(Arc::clone(&sink)));
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    timelines.record_instant(&uid, what(RecordKind::Source, "ADD"), RecordOutcome::Done);
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    job.within(async {
        let call = timelines.begin(&uid, what(RecordKind::RuntimeCall, "RunPodSandbox"));
        let asked = call.within(async { traceparent() }).await.expect("traced");
        call.end(RecordOutcome::failed("no network"));
        let spans = sink.0.lock();
        assert_eq!(spans.last().map(|span| span.id), Some(asked));
    })
    .await;
    job.end(RecordOutcome::Done);
    tokio::time::advance(Duration::from_secs(2)).await;
    timelines.started(&uid, Ok(()));
    timelines.started(&uid, Ok(()));
    assert_eq!(
        shape(&sink),
        [
            "ADD of podStart",
            "RunPodSandbox of syncPod",
            "syncPod of podStart",
            "podStart of -",
        ]
    );
    {
        let spans = sink.0.lock();
        assert!(spans.iter().all(|span| span.id.trace == spans[0].id.trace));
        assert_eq!(spans[1].error.as_deref(), Some("no network"));
        let took = spans[3].end.duration_since(spans[3].begin);
        assert_eq!(took.as_secs(), 2);
        let named = ("k8s.pod.name", "web".to_owned());
        assert!(spans[3].attributes.contains(&named));
    }
    // a runtime call outside of a sync has no trace
    timelines
        .begin(&uid, what(RecordKind::RuntimeCall, "PodSandboxStatus"))
        .end(RecordOutcome::Done);
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    job.end(RecordOutcome::Done);
    assert_eq!(shape(&sink)[4..], ["syncPod of -"]);
    let spans = sink.0.lock();
    assert_ne!(spans[4].id.trace, spans[0].id.trace);
}

#[tokio::test(start_paused = true)]
async fn pod_removed_before_ready_ends_start_trace() {
    let sink = Arc::new(FakeSink::default());
    let timelines = timelines(Some(Arc::clone(&sink)));
    timelines.seen(&pod("u", "web"));
    timelines.forget(&"u".into());
    let spans = sink.0.lock();
    let error = spans[0].error.as_deref();
    assert_eq!(error, Some("pod removed before it was ready"));
}

#[tokio::test(start_paused = true)]
async fn no_sink_means_no_trace_context() {
    let timelines = timelines(None);
    timelines.seen(&pod("u", "web"));
    let job = timelines.begin(&"u".into(), what(RecordKind::Sync, "syncPod"));
    assert!(job.within(async { traceparent() }).await.is_none());
    job.end(RecordOutcome::Done);
}
