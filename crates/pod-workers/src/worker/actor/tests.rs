//! Jobs, kills and timers of a worker.

use std::time::Duration;

use tokio_stream::StreamExt;
use windlass_actors::{PhaseOverride, UpdateKind};
use windlass_mailboxes::{slots, start_actor};
use windlass_status::PodStatusEntry;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_types::{Phase, Pod, PodExt};

use super::super::tests::{Node, builder, no_inputs, pod, usable};
use super::*;

/// Longer than any wait of a test; the clock is paused.
const LIMIT: Duration = Duration::from_secs(600);

/// A worker that runs, and the ends of PodWorkers.
struct Worker {
    node: Node,
    uid: PodUid,
    updates: SlotSender<(), WorkerUpdate>,
    states: SlotReceiver<PodUid, WorkerStateChanged>,
}

impl Worker {
    fn start(node: Node, pod: &SharedPod) -> Self {
        let mailboxes = &node.deps.metrics.mailboxes;
        let (updates, updates_end) = slots(crate::POD_WORKER, mailboxes);
        let (states_end, states) = slots(crate::POD_WORKERS, mailboxes);
        let begin = InitialState::Run(Arc::clone(pod), BackoffTable::default());
        let deps = Arc::clone(&node.deps);
        let uid = pod.uid();
        let worker = PodWorkerActor::new(uid.clone(), deps, begin, updates_end, states_end);
        start_actor(worker);
        Self {
            node,
            uid,
            updates,
            states,
        }
    }

    fn update(&self, kind: UpdateKind) {
        let update = Some(UpdatePod::new(kind));
        let runtime = None;
        self.updates.put((), WorkerUpdate { update, runtime });
    }

    fn kill(&self, grace: u64, cause: Option<PhaseOverride>) {
        self.update(UpdateKind::Kill(KillPod {
            grace: Some(Duration::from_secs(grace)),
            reason: format!("grace {grace}"),
            removed: false,
            orphan: None,
            phase_override: cause,
        }));
    }

    fn runtime(&self, runtime_error: Option<&str>) {
        let runtime = RuntimeState {
            runtime_error: runtime_error.map(str::to_owned),
            ..usable()
        };
        let update = WorkerUpdate {
            update: None,
            runtime: Some(runtime),
        };
        self.updates.put((), update);
    }

    fn entry(&self) -> PodStatusEntry {
        let entry = self.node.deps.status_store.get(&self.uid);
        entry.expect("published")
    }

    /// `Reason: message` of the blocker.
    fn blocker(&self) -> String {
        let blocker = self.entry().blocker;
        blocker.map_or_else(String::new, |it| format!("{}: {}", it.reason, it.message))
    }

    /// Waits until the published entry is as wanted.
    async fn until(&self, wanted: impl Fn(&PodStatusEntry) -> bool) {
        let mut changes = self.node.deps.status_store.changes();
        let waited = async {
            let get = || self.node.deps.status_store.get(&self.uid);
            while !get().as_ref().is_some_and(&wanted) {
                changes.changed().await.expect("store");
            }
        };
        let waited = tokio::time::timeout(LIMIT, waited).await;
        waited.expect("the entry");
    }

    async fn until_running(&self) {
        let running = |it: &PodStatusEntry| it.status.phase.as_deref() == Some("Running");
        self.until(running).await;
    }

    /// The next state that PodWorkers learn; its entry is published before.
    async fn state(&mut self) -> (PodWorkerState, bool) {
        let next = tokio::time::timeout(LIMIT, self.states.next()).await;
        let (_, changed) = next.expect("a state").expect("channel");
        assert_eq!(self.entry().worker_state, changed.state);
        assert_eq!(self.entry().released, changed.finished);
        (changed.state, changed.finished)
    }

    async fn finished(&mut self) {
        while !self.state().await.1 {}
    }
}

async fn on_actor_thread<F: Future>(test: F) {
    tokio::task::LocalSet::new().run_until(test).await;
}

/// Waits until nothing happens without a timer.
async fn settled() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn evicted() -> PhaseOverride {
    PhaseOverride {
        phase: Phase::Failed,
        reason: "Evicted".to_owned(),
        message: "low on memory".to_owned(),
        disruption: None,
    }
}

#[tokio::test(start_paused = true)]
async fn pod_workers_learn_each_state_after_its_status() {
    on_actor_thread(async {
        let slow = Behavior {
            stops_after: Duration::from_secs(5),
            ..Behavior::default()
        };
        let node = Node::new(1);
        node.cri.set_behavior("app", slow);
        let mut worker = Worker::start(node, &pod("web"));
        worker.until_running().await;
        worker.kill(30, Some(evicted()));
        let (state, _) = worker.state().await;
        assert_eq!(state, PodWorkerState::TerminatingPod);
        let text = "Terminating: grace 30; terminating the pod (grace period 30 s)";
        assert_eq!(worker.blocker(), text);
        worker.finished().await;
        let entry = worker.entry();
        assert_eq!(entry.status.phase.as_deref(), Some("Failed"));
        assert_eq!(entry.status.reason.as_deref(), Some("Evicted"));
        // the exit code was read after the stop
        let containers = entry.status.container_statuses.as_deref();
        let state = containers.and_then(|it| it[0].state.as_ref());
        let end = state.and_then(|it| it.terminated.as_ref());
        assert_eq!(end.map(|it| it.exit_code), Some(143));
        assert!(worker.node.files.pod_dirs().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn kill_replaces_a_sync_in_progress() {
    on_actor_thread(async {
        let node = Node::new(1);
        node.cri.inject(Fault::hang(Operation::PullImage));
        let mut worker = Worker::start(node, &pod("web"));
        settled().await;
        let pulls = worker.node.cri.calls_of(Operation::PullImage, "");
        assert_eq!(pulls.len(), 1);
        let begin = tokio::time::Instant::now();
        worker.kill(5, None);
        worker.finished().await;
        assert_eq!(begin.elapsed(), Duration::ZERO);
        let cri = &worker.node.cri;
        assert_eq!(cri.starts(&worker.uid, "app"), 0);
        assert!(cri.sandboxes().iter().all(|(_, _, _, ready)| !ready));
        let syncs = &worker.node.deps.metrics.workers.sync_duration;
        let cancelled = syncs.with_label_values(&["cancelled"]);
        assert_eq!(cancelled.get_sample_count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn grace_period_of_a_termination_only_shrinks() {
    for (first, second, expected) in [(30, 50, 30), (30, 5, 7), (30, 30, 30)] {
        on_actor_thread(async {
            let node = Node::new(1);
            node.cri.set_behavior("app", Behavior::stubborn());
            let mut worker = Worker::start(node, &pod("web"));
            worker.until_running().await;
            let begin = tokio::time::Instant::now();
            worker.kill(first, None);
            tokio::time::sleep(Duration::from_secs(2)).await;
            worker.kill(second, None);
            worker.finished().await;
            assert_eq!(begin.elapsed().as_secs(), expected, "{first} then {second}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_fails_a_pod_even_while_its_job_waits() {
    on_actor_thread(async {
        let node = Node::new(1);
        node.peers.delay_inputs(Duration::from_secs(3600));
        let limit = |pod: &mut Pod| {
            pod.spec.get_or_insert_default().active_deadline_seconds = Some(30);
        };
        let mut worker = Worker::start(node, &Arc::new(builder("web").with(limit).build()));
        worker.until(|entry| entry.observed).await;
        // the SyncLoop resyncs it at its deadline
        for (pause, syncs) in [(29, true), (1, false)] {
            tokio::time::sleep(Duration::from_secs(pause)).await;
            worker.update(UpdateKind::Sync);
            settled().await;
            let state = worker.entry().worker_state;
            assert_eq!(state == PodWorkerState::SyncPod, syncs, "{state:?}");
        }
        worker.finished().await;
        let status = worker.entry().status;
        assert_eq!(status.phase.as_deref(), Some("Failed"));
        assert_eq!(status.reason.as_deref(), Some("DeadlineExceeded"));
        let text = format!("DeadlineExceeded: {}", deadline::MESSAGE);
        let events = worker.node.peers.events();
        assert_eq!(events.iter().filter(|it| **it == text).count(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn blocked_start_is_retried_and_names_its_blocker() {
    on_actor_thread(async {
        let node = Node::new(1);
        let retry = windlass_types::Retry::Soon;
        node.peers.fail_inputs(Some(no_inputs(retry)));
        let worker = Worker::start(node, &pod("web"));
        settled().await;
        assert_eq!(worker.blocker(), "FailedMount: configmap \"c\" not found");
        let retries = || {
            let log = worker.node.log.take();
            log.iter().filter(|it| it.contains("references")).count()
        };
        assert_eq!(retries(), 1);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(retries(), 3);
        worker.node.peers.fail_inputs(None);
        worker.until_running().await;
        assert_eq!(worker.blocker(), "");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn failed_release_keeps_the_worker_until_it_succeeds() {
    on_actor_thread(async {
        let mut worker = Worker::start(Node::new(1), &pod("web"));
        worker.until_running().await;
        let files = worker.node.files.clone();
        files.mount(&worker.uid, true);
        worker.kill(1, None);
        let terminated = |it: &PodStatusEntry| it.worker_state == PodWorkerState::TerminatedPod;
        worker.until(terminated).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!worker.entry().released);
        let failed = |it: &String| it.starts_with("FailedSync: ");
        assert!(worker.node.peers.events().iter().any(failed));
        files.mount(&worker.uid, false);
        worker.finished().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn jobs_wait_while_the_runtime_cannot_be_used() {
    on_actor_thread(async {
        let node = Node::new(1);
        node.cri.set_behavior("app", Behavior::stubborn());
        let mut worker = Worker::start(node, &pod("web"));
        worker.until_running().await;
        worker.runtime(Some("no socket"));
        worker.kill(1, None);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(worker.entry().worker_state, PodWorkerState::TerminatingPod);
        assert_eq!(worker.blocker(), "RuntimeNotReady: no socket");
        assert!(worker.node.cri.running(&worker.uid, "app").is_some());
        worker.runtime(None);
        worker.finished().await;
        assert!(worker.node.cri.running(&worker.uid, "app").is_none());
    })
    .await;
}
