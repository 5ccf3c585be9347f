//! What is kept of pods, and the spans of it.

use std::time::Duration;

use windlass_actors::SimClock;
use windlass_types::why::{PodTimeline, RecordKind};
use windlass_types::{FinishedSpan, TraceId};

use super::*;
use crate::traceparent;

#[derive(Debug, Default)]
struct Kept(Mutex<Vec<FinishedSpan>>);

impl SpanSink for Kept {
    fn samples(&self, _: TraceId) -> bool {
        true
    }

    fn ended(&self, span: FinishedSpan) {
        self.0.lock().expect("lock").push(span);
    }
}

fn pod(uid: &str, name: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.uid = Some(uid.to_owned());
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod
}

fn timelines(sink: Option<Arc<Kept>>) -> Timelines {
    let sink = sink.map(|sink| sink as Arc<dyn SpanSink>);
    Timelines::new(Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH)), sink)
}

fn what(kind: RecordKind, name: &'static str) -> What {
    What::new(kind, name)
}

fn lines(timeline: Option<PodTimeline>) -> Vec<String> {
    let touches = timeline.expect("a timeline").records;
    touches.iter().map(ToString::to_string).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_dropped_before_its_end_was_cancelled() {
    let timelines = timelines(None);
    timelines.seen(&pod("u", "web"));
    let uid = "u".into();
    let call = timelines.begin(&uid, what(RecordKind::RuntimeCall, "RunPodSandbox"));
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    tokio::time::advance(Duration::from_millis(1500)).await;
    call.end(Outcome::failed("no network"));
    drop(job);
    let expected = [
        "runtime RunPodSandbox 1.500s failed: no network",
        "sync syncPod 1.500s cancelled",
    ];
    assert_eq!(lines(timelines.of(&uid)), expected);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_gone_is_found_by_name_until_many_others_went() {
    let timelines = timelines(None);
    for number in 0..40 {
        let uid = PodUid::from(number.to_string());
        timelines.seen(&pod(uid.as_str(), &format!("web-{number}")));
        timelines.instant(&uid, what(RecordKind::Source, "ADD"), Outcome::Done);
        timelines.forget(&uid);
        // the API server is told after the worker has finished
        timelines.instant(&uid, what(RecordKind::ApiRequest, "delete"), Outcome::Done);
    }
    let found = timelines.find("default", "web-39");
    assert_eq!(
        found.as_ref().and_then(|it| it.removed_at),
        Some(Timestamp::UNIX_EPOCH)
    );
    assert_eq!(lines(found), ["source ADD", "api delete"]);
    assert!(timelines.find("default", "web-8").is_some());
    assert!(timelines.find("default", "web-7").is_none());
    assert!(timelines.of(&"39".into()).is_none());
    assert!(timelines.find("other", "web-39").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_comes_back_has_a_timeline_of_its_own() {
    let timelines = timelines(None);
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    timelines.instant(&uid, what(RecordKind::Source, "REMOVE"), Outcome::Done);
    timelines.forget(&uid);
    timelines.seen(&pod("u", "web"));
    timelines.instant(&uid, what(RecordKind::Source, "ADD"), Outcome::Done);
    assert_eq!(lines(timelines.find("default", "web")), ["source ADD"]);
}

#[tokio::test(start_paused = true)]
async fn a_touch_that_outlives_its_pod_ends_where_it_began() {
    let timelines = timelines(None);
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    let delete = timelines.begin(&uid, what(RecordKind::ApiRequest, "delete"));
    timelines.forget(&uid);
    timelines.seen(&pod("u", "web"));
    delete.end(Outcome::Done);
    assert!(lines(timelines.of(&uid)).is_empty());
    timelines.forget(&uid);
    let state = timelines.lock();
    let gone = state
        .gone
        .iter()
        .map(|(.., entry)| entry.timeline.touches(Timestamp::UNIX_EPOCH));
    let kept: Vec<Vec<String>> = gone
        .map(|touches| touches.iter().map(ToString::to_string).collect())
        .collect();
    assert_eq!(kept, [vec!["api delete 0.000s"], vec![]]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_adopted_has_no_trace_of_a_start_and_an_endless_start_ends_its_trace() {
    let kept = Arc::new(Kept::default());
    let clock = Arc::new(SimClock::starting_at(Timestamp::UNIX_EPOCH));
    let sink = Arc::clone(&kept) as Arc<dyn SpanSink>;
    let timelines = Timelines::new(Arc::clone(&clock) as Arc<dyn Clock>, Some(sink));
    let (adopted, stuck) = ("adopted".into(), "stuck".into());
    timelines.seen(&pod("adopted", "web"));
    timelines.adopted(&adopted);
    timelines.started(&adopted, Ok(()));
    timelines.seen(&pod("stuck", "bad"));
    let job = || timelines.begin(&stuck, what(RecordKind::Sync, "syncPod"));
    job().end(Outcome::failed("no image"));
    tokio::time::advance(LONGEST_START + Duration::from_secs(1)).await;
    job().end(Outcome::failed("no image"));
    let spans = ["syncPod of podStart", "podStart of -", "syncPod of -"];
    assert_eq!(shape(&kept), spans);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_a_pod_that_nobody_has_shown() {
    let timelines = timelines(None);
    let uid = "orphan".into();
    timelines.instant(&uid, what(RecordKind::RuntimeCall, "StopPodSandbox"), Outcome::Done);
    timelines
        .begin(&uid, what(RecordKind::Sync, "syncTerminatingPod"))
        .end(Outcome::Done);
    assert!(timelines.of(&uid).is_none());
}

/// `<name> <index of the parent, or ->` in the order in which they ended.
fn shape(kept: &Kept) -> Vec<String> {
    let spans = kept.0.lock().expect("lock");
    let name = |id| spans.iter().find(|span| Some(span.id.span) == id);
    let line = |span: &FinishedSpan| {
        let parent = name(span.parent).map_or("-", |parent| &parent.name);
        format!("{} of {parent}", span.name)
    };
    spans.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_start_is_one_trace_and_each_later_job_one_of_its_own() {
    let kept = Arc::new(Kept::default());
    let timelines = timelines(Some(Arc::clone(&kept)));
    let uid = "u".into();
    timelines.seen(&pod("u", "web"));
    timelines.instant(&uid, what(RecordKind::Source, "ADD"), Outcome::Done);
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    job.within(async {
        let call = timelines.begin(&uid, what(RecordKind::RuntimeCall, "RunPodSandbox"));
        let asked = call.within(async { traceparent() }).await.expect("traced");
        call.end(Outcome::failed("no network"));
        let spans = kept.0.lock().expect("lock");
        assert_eq!(spans.last().map(|span| span.id), Some(asked));
    })
    .await;
    job.end(Outcome::Done);
    tokio::time::advance(Duration::from_secs(2)).await;
    timelines.started(&uid, Ok(()));
    timelines.started(&uid, Ok(()));
    assert_eq!(
        shape(&kept),
        [
            "ADD of podStart",
            "RunPodSandbox of syncPod",
            "syncPod of podStart",
            "podStart of -",
        ]
    );
    {
        let spans = kept.0.lock().expect("lock");
        assert!(spans.iter().all(|span| span.id.trace == spans[0].id.trace));
        assert_eq!(spans[1].error.as_deref(), Some("no network"));
        let took = spans[3].end.duration_since(spans[3].begin);
        assert_eq!(took.as_secs(), 2);
        let named = ("k8s.pod.name", "web".to_owned());
        assert!(spans[3].attributes.contains(&named));
    }
    // a call that no job asked for is in no trace
    timelines
        .begin(&uid, what(RecordKind::RuntimeCall, "PodSandboxStatus"))
        .end(Outcome::Done);
    let job = timelines.begin(&uid, what(RecordKind::Sync, "syncPod"));
    job.end(Outcome::Done);
    assert_eq!(shape(&kept)[4..], ["syncPod of -"]);
    let spans = kept.0.lock().expect("lock");
    assert_ne!(spans[4].id.trace, spans[0].id.trace);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_goes_before_it_is_ready_ends_its_trace() {
    let kept = Arc::new(Kept::default());
    let timelines = timelines(Some(Arc::clone(&kept)));
    timelines.seen(&pod("u", "web"));
    timelines.forget(&"u".into());
    let spans = kept.0.lock().expect("lock");
    let error = spans[0].error.as_deref();
    assert_eq!(error, Some("the pod went before it was ready"));
}

#[tokio::test(start_paused = true)]
async fn without_a_sink_no_work_is_part_of_a_trace() {
    let timelines = timelines(None);
    timelines.seen(&pod("u", "web"));
    let job = timelines.begin(&"u".into(), what(RecordKind::Sync, "syncPod"));
    assert!(job.within(async { traceparent() }).await.is_none());
    job.end(Outcome::Done);
}
