//! The actor against a logind of our own, over a socket pair that speaks D-Bus.

mod fake_logind;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use windlass_actors::{
    ActorKind, PodWorkersHandle, ShutdownState, SlotReceiver, UpdatePod, mailbox, slots,
    start_actor,
};
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_metrics::Metrics;
use windlass_status::{PodBoard, PodEntryView};
use windlass_types::view::PodWorkerState;
use windlass_types::{EventRecorder, Pod, PodExt, PodUid, Reason, SharedPod};

use super::drain::{active_pods, drain};
use super::{LogindBus, NodeShutdown, NodeShutdownConfig};
use fake_logind::FakeLogind;

const LIMIT: Duration = Duration::from_secs(60);
const CRITICAL: i32 = 2_000_000_000;

#[derive(Clone, Debug, Default)]
struct Recorder(Arc<std::sync::Mutex<Vec<String>>>);

impl EventRecorder for Recorder {
    fn record(
        &self,
        _: &Pod,
        _: Option<&str>,
        _: windlass_types::view::EventType,
        _: Reason,
        _: &str,
    ) {
    }

    fn record_node(&self, _: windlass_types::view::EventType, reason: Reason, message: &str) {
        let line = format!("{reason}: {message}");
        self.0.lock().expect("lock").push(line);
    }
}

/// Pods on a board, and workers that are only a lane.
struct Bed {
    board: PodBoard,
    workers: PodWorkersHandle,
    kills: SlotReceiver<PodUid, UpdatePod>,
    recorder: Recorder,
}

fn bed(pods: &[(&str, i32)]) -> Bed {
    let metrics = Metrics::new().expect("families");
    let (updates, kills) = slots(ActorKind::PodWorkers, &metrics);
    let (mailbox, _) = mailbox(ActorKind::PodWorkers, &metrics);
    let bed = Bed {
        board: PodBoard::new(),
        workers: PodWorkersHandle { updates, mailbox },
        kills,
        recorder: Recorder::default(),
    };
    for (name, priority) in pods {
        bed.publish(&pod(name, *priority), PodWorkerState::SyncPod, false);
    }
    bed
}

fn pod(name: &str, priority: i32) -> SharedPod {
    let spec = json!({"priority": priority, "terminationGracePeriodSeconds": 30, "containers": []});
    let pod = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
    Arc::new(serde_json::from_value(pod).expect("pod"))
}

fn periods() -> ShutdownPeriods {
    ShutdownPeriods::of_two(Duration::from_secs(25), Duration::from_secs(5))
}

impl Bed {
    fn publish(&self, pod: &SharedPod, worker_state: PodWorkerState, released: bool) {
        self.board.publish(PodEntryView {
            worker_state,
            released,
            looked: true,
            ..PodEntryView::new(Arc::clone(pod))
        });
    }

    /// The next pod that is killed, as `name grace phase reason`.
    async fn killed(&mut self) -> String {
        let next = futures::StreamExt::next(&mut self.kills);
        let killed = tokio::time::timeout(LIMIT, next).await.expect("a kill");
        let (uid, update) = killed.expect("lane");
        let kill = update.kill.expect("kill");
        let verdict = kill.verdict.expect("verdict");
        let grace = kill.grace.expect("grace").as_secs();
        format!("{uid} {grace}s {} {}", verdict.phase, verdict.reason)
    }

    fn config(&self, bus: LogindBus, dir: &std::path::Path) -> NodeShutdownConfig {
        NodeShutdownConfig {
            periods: periods(),
            bus,
            logind_conf_dir: dir.to_owned(),
            workers: self.workers.clone(),
            board: self.board.clone(),
            recorder: Arc::new(self.recorder.clone()),
            record: None,
            state: watch::Sender::new(ShutdownState::default()),
        }
    }

    fn events(&self) -> Vec<String> {
        self.recorder.0.lock().expect("lock").clone()
    }
}

async fn on_actor_thread<F: Future>(test: F) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test]
async fn pods_end_in_order_with_their_grace_before_the_machine_may_go() {
    on_actor_thread(async {
        let mut bed = bed(&[("web", 0), ("system", CRITICAL)]);
        bed.publish(&pod("done", 0), PodWorkerState::TerminatedPod, true);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        let config = bed.config(logind.bus(), dir.path());
        let mut state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        logind.until_delayed(true).await;

        logind.prepare(true).await;
        state.wait_for(|s| s.shutting_down).await.expect("state");
        assert_eq!(bed.killed().await, "web 20s Failed Terminated");
        assert!(logind.is_delayed());
        // stopped, but its volumes are still there
        bed.publish(&pod("web", 0), PodWorkerState::TerminatedPod, false);
        bed.publish(&pod("web", 0), PodWorkerState::TerminatedPod, true);
        assert_eq!(bed.killed().await, "system 5s Failed Terminated");
        assert!(logind.is_delayed());
        bed.board.remove(&"system".into());
        logind.until_delayed(false).await;
        let events = bed.events();
        assert_eq!(
            events,
            ["Shutdown: Shutdown manager detected shutdown event"]
        );
        // logind allowed enough: nothing was written
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_delay_that_is_too_short_is_raised_by_a_drop_in() {
    on_actor_thread(async {
        let bed = bed(&[]);
        let dir = tempfile::tempdir().expect("dir");
        let conf_dir = dir.path().join("logind.conf.d");
        let logind = FakeLogind::reading(&conf_dir, Duration::from_secs(5));
        start_actor(NodeShutdown::new(bed.config(logind.bus(), &conf_dir)));
        logind.until_delayed(true).await;
        let text = std::fs::read_to_string(conf_dir.join("99-kubelet.conf")).expect("drop-in");
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=25\n"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn a_cancelled_shutdown_spares_the_groups_whose_turn_has_not_come_and_delays_the_next() {
    on_actor_thread(async {
        let mut bed = bed(&[("web", 0), ("system", CRITICAL)]);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        let config = bed.config(logind.bus(), dir.path());
        let mut state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        logind.until_delayed(true).await;

        logind.prepare(true).await;
        assert_eq!(bed.killed().await, "web 20s Failed Terminated");
        logind.prepare(false).await;
        state.wait_for(|s| !s.shutting_down).await.expect("state");
        logind.until_taken(2).await;
        bed.board.remove(&"web".into());

        logind.prepare(true).await;
        // not killed by the first shutdown, whose group is now empty
        assert_eq!(bed.killed().await, "system 5s Failed Terminated");
        bed.board.remove(&"system".into());
        logind.until_delayed(false).await;
        let words: Vec<String> = bed.events();
        assert_eq!(words.len(), 3);
        assert!(words[1].ends_with("shutdown cancellation"), "{words:?}");
    })
    .await;
}

#[tokio::test]
async fn a_lost_connection_is_replaced_and_the_shutdown_delayed_again() {
    on_actor_thread(async {
        let mut bed = bed(&[("web", 0)]);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        start_actor(NodeShutdown::new(bed.config(logind.bus(), dir.path())));
        logind.until_taken(1).await;
        logind.break_connection().await;
        logind.until_taken(2).await;
        logind.prepare(true).await;
        assert_eq!(bed.killed().await, "web 20s Failed Terminated");
    })
    .await;
}

#[tokio::test]
async fn without_a_bus_nothing_happens() {
    on_actor_thread(async {
        let bed = bed(&[("web", 0)]);
        let dir = tempfile::tempdir().expect("dir");
        let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let bus = LogindBus::with(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(Err(zbus::Error::Failure("no bus".into())))
        });
        let config = bed.config(bus, dir.path());
        let state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(!state.borrow().shutting_down && bed.events().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_does_not_end_has_its_time_and_no_more() {
    let mut bed = bed(&[("web", 0), ("stuck", 0), ("system", CRITICAL)]);
    let plan = periods().plan(active_pods(&bed.board));
    let start = tokio::time::Instant::now();
    let draining = tokio::spawn(drain(plan, bed.workers.clone(), bed.board.clone()));
    let first = [bed.killed().await, bed.killed().await];
    assert_eq!(
        first,
        ["stuck 20s Failed Terminated", "web 20s Failed Terminated"]
    );
    bed.board.remove(&"web".into());
    assert_eq!(bed.killed().await, "system 5s Failed Terminated");
    assert_eq!(start.elapsed().as_secs(), 20);
    draining.await.expect("drain");
    assert_eq!(start.elapsed().as_secs(), 25);
}

#[test]
fn pods_that_are_already_being_stopped_are_part_of_a_shutdown() {
    let bed = bed(&[("running", 0)]);
    bed.publish(&pod("stopping", 0), PodWorkerState::TerminatingPod, false);
    bed.publish(&pod("stopped", 0), PodWorkerState::TerminatedPod, false);
    let names: Vec<String> = active_pods(&bed.board)
        .map(|pod| pod.name().to_owned())
        .collect();
    assert_eq!(names, ["running", "stopping"]);
}
