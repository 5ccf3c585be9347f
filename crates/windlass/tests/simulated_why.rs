//! Timeline records of a pod start and of an idle pod, and blockers of pods that are not in their
//! desired state, on a virtual clock.

#![allow(missing_docs, clippy::expect_used)]

use std::time::Duration;

use windlass_cri::CriCode;
use windlass_pod_status::status::waiting_for;
use windlass_status::PodStatusEntry;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::explain::TimelineRecord;
use windlass_types::view::PodWorkerState;
use windlass_types::{PodExt, Timestamp};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Time that a pod may be without a blocker: one sync.
const MAX_UNEXPLAINED: Duration = SECOND;

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

fn prepare(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    for (operation, milliseconds) in [
        (Operation::RunPodSandbox, 80),
        (Operation::CreateContainer, 20),
        (Operation::StartContainer, 40),
        (Operation::StopPodSandbox, 50),
    ] {
        let latency = Duration::from_millis(milliseconds);
        sim.runtime.set_latency(operation, latency);
    }
}

fn touches(sim: &NodeSim, name: &str) -> Vec<TimelineRecord> {
    let timelines = sim.agent().map(|agent| &agent.timelines);
    let timeline = timelines.and_then(|it| it.find("default", name));
    timeline.map(|it| it.records).unwrap_or_default()
}

fn lines(sim: &NodeSim, name: &str) -> Vec<String> {
    touches(sim, name).iter().map(ToString::to_string).collect()
}

#[test]
fn pod_start_has_ordered_records_and_idle_hour_adds_none() {
    simulate(1, async |sim| {
        prepare(sim);
        sim.desire([pod("web").build()]).await;
        sim.until("web runs", SECOND, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(SECOND).await;
        let start = lines(sim, "web");
        // records with the same start time are ordered by end time
        let expected = [
            "source ADD file",
            "admission admit",
            "wait references 0.000s",
            "wait volumes 0.000s",
            "wait start slot 0.000s",
            "runtime RunPodSandbox 0.080s",
            "sync syncPod 0.140s: sandbox#0 start(app#?)",
            "runtime ImageStatus busybox:1 0.000s",
            "runtime CreateContainer app 0.020s",
            "runtime StartContainer app 0.040s",
            "runtime ListPodSandbox 0.000s",
            "runtime ListContainers 0.000s",
            "runtime PodSandboxStatus x2 0.000s",
            "runtime ContainerStatus app 0.000s",
            "sync syncPod 0.000s: nothing",
        ];
        assert_eq!(start, expected);
        sim.pass(HOUR).await;
        let rested = lines(sim, "web");
        let (last, before) = rested.split_last().expect("records");
        assert_eq!(before, &start[..start.len() - 1]);
        // an hour of syncs, once a minute
        assert_eq!(last, "sync syncPod x59 0.000s: nothing");
        sim.desire([]).await;
        sim.until("web is gone", MINUTE, |sim| sim.view("web").is_none())
            .await;
        let gone = sim
            .agent()
            .and_then(|it| it.timelines.find("default", "web"));
        assert!(gone.is_some_and(|it| it.removed_at.is_some()));
        let end = lines(sim, "web");
        let jobs = end.iter().filter(|line| line.starts_with("sync "));
        let names: Vec<_> = jobs.filter_map(|line| line.split(' ').nth(1)).collect();
        assert_eq!(
            names[1..],
            ["syncPod", "syncTerminatingPod", "syncTerminatedPod"]
        );
    });
}

/// Returns an inconsistency of a status entry.
fn inconsistency(view: &PodStatusEntry) -> Option<&'static str> {
    let phase = view.status.phase.as_deref();
    let conditions = view.status.conditions.iter().flatten();
    let ready = conditions
        .into_iter()
        .any(|it| it.type_ == "Ready" && it.status == "True");
    let is_desired =
        phase == Some("Succeeded") || view.worker_state == PodWorkerState::SyncPod && ready;
    match &view.blocker {
        None if is_desired || view.released => None,
        None => Some("not in its desired state and without a blocker"),
        Some(blocker) if blocker.message.is_empty() => Some("blocker without a message"),
        Some(blocker) if blocker.next_retry.is_none() && waiting_for(blocker).is_empty() => {
            Some("blocker without next retry and waiting_for")
        }
        Some(_) => None,
    }
}

/// Checks all pods for `time`; an inconsistency longer than [`MAX_UNEXPLAINED`] fails the test.
async fn watch(sim: &NodeSim, time: Duration) {
    let mut wrong: Vec<(String, &'static str, Timestamp)> = Vec::new();
    let step = Duration::from_millis(250);
    for _ in 0..time.as_millis() / step.as_millis() {
        sim.pass(step).await;
        let now = sim.now();
        let status_store = sim.agent().map(|agent| agent.status_store.snapshot());
        let found: Vec<(String, &'static str)> = status_store
            .into_iter()
            .flatten()
            .filter_map(|view| Some((view.pod.name().to_owned(), inconsistency(&view)?)))
            .collect();
        wrong.retain(|(name, what, _)| found.contains(&(name.clone(), *what)));
        for (name, what) in found {
            match wrong
                .iter()
                .find(|(of, why, _)| (of, *why) == (&name, what))
            {
                None => wrong.push((name, what, now)),
                Some((.., since)) => {
                    let lasted = now.duration_since(*since);
                    let lines = lines(sim, &name);
                    assert!(
                        lasted.unsigned_abs() <= MAX_UNEXPLAINED,
                        "{name}: {what} for {lasted:?}: {lines:#?}"
                    );
                }
            }
        }
    }
}

#[test]
fn undesired_state_has_blocker_with_waiting_for() {
    let fails = |operation, code| Fault::fail(operation, 20, code, "broken");
    let faults = [
        fails(Operation::RunPodSandbox, CriCode::Other),
        fails(Operation::CreateContainer, CriCode::Other),
        fails(Operation::StartContainer, CriCode::Unavailable),
        fails(Operation::StopPodSandbox, CriCode::DeadlineExceeded),
        Fault::lose_reply(Operation::RunPodSandbox, 3),
        Fault::hang(Operation::PodSandboxStatus),
        Fault::hang(Operation::StopContainer),
    ];
    for (seed, fault) in faults.into_iter().enumerate() {
        simulate(seed as u64, async |sim| {
            prepare(sim);
            sim.runtime
                .set_behavior("crash", Behavior::exits(SECOND, 1));
            sim.runtime.inject(fault);
            let crash = pod("crash").container("crash", "busybox:1").build();
            let missing = PodBuilder::new("missing").container("app", "nope:1");
            sim.desire([pod("web").build(), crash, missing.build()])
                .await;
            watch(sim, 3 * MINUTE).await;
            sim.desire([]).await;
            watch(sim, MINUTE).await;
        });
    }
}

#[test]
fn timeline_is_bounded_and_kept_for_32_removed_pods() {
    simulate(20, async |sim| {
        prepare(sim);
        // each restart of four containers with different behavior has several records
        let mut busy = PodBuilder::new("busy");
        for (name, seconds) in [("a", 1), ("b", 7), ("c", 40), ("d", 700)] {
            let behavior = Behavior::exits(seconds * SECOND, 1);
            sim.runtime.set_behavior(name, behavior);
            busy = busy.container(name, "busybox:1");
        }
        sim.desire([busy.build()]).await;
        sim.pass(6 * HOUR).await;
        let timeline = sim
            .agent()
            .expect("an agent")
            .timelines
            .find("default", "busy");
        let timeline = timeline.expect("a timeline");
        assert!(timeline.dropped_records > 0, "there is more than it keeps");
        // a record takes 120 bytes and its texts
        let texts = timeline.records.iter().map(|record| {
            let subject = record.subject.as_deref().unwrap_or_default();
            let message = record.message.as_deref().unwrap_or_default();
            120 + subject.len() + message.len()
        });
        let bytes: usize = texts.sum();
        assert!(bytes <= 8 << 10, "{bytes}");
        let repeated = timeline.records.iter().any(|record| record.count > 1);
        assert!(repeated, "{:#?}", lines(sim, "busy"));

        let names: Vec<String> = (0..40).map(|i| format!("p{i}")).collect();
        for name in &names {
            sim.desire([pod(name).build()]).await;
            sim.pass(30 * SECOND).await;
        }
        sim.desire([]).await;
        sim.pass(MINUTE).await;
        let timelines = &sim.agent().expect("an agent").timelines;
        let kept = names
            .iter()
            .map(|name| timelines.find("default", name).is_some());
        let kept: Vec<bool> = kept.collect();
        assert!(kept[..8].iter().all(|kept| !kept), "{kept:?}");
        assert!(kept[8..].iter().all(|kept| *kept), "{kept:?}");
    });
}
