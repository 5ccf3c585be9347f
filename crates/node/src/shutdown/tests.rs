//! The actor against a fake logind, over a socket pair that speaks D-Bus.

mod fake_logind;

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;
use windlass_actors::{ShutdownState, TerminatePod};
use windlass_mailboxes::{ActorKind, SlotReceiver, SlotSender, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_status::{PodStatusEntry, PodStatusStore};
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

/// A pod status store, and a SyncLoop that is only a channel.
struct TestEnv {
    status_store: PodStatusStore,
    terminations: SlotSender<PodUid, TerminatePod>,
    kills: SlotReceiver<PodUid, TerminatePod>,
    recorder: Recorder,
}

fn test_env(pods: &[(&str, i32)]) -> TestEnv {
    let metrics = Metrics::new().expect("families");
    let (terminations, kills) = slots(ActorKind::new("SyncLoop", 50), &metrics.mailboxes);
    let env = TestEnv {
        status_store: PodStatusStore::new(),
        terminations,
        kills,
        recorder: Recorder::default(),
    };
    for (name, priority) in pods {
        env.publish(&pod(name, *priority), PodWorkerState::SyncPod, false);
    }
    env
}

fn pod(name: &str, priority: i32) -> SharedPod {
    let spec = json!({"priority": priority, "terminationGracePeriodSeconds": 30, "containers": []});
    let pod = json!({"metadata": {"name": name, "uid": name}, "spec": spec});
    Arc::new(serde_json::from_value(pod).expect("pod"))
}

fn periods() -> ShutdownPeriods {
    ShutdownPeriods::from_totals(Duration::from_secs(25), Duration::from_secs(5))
}

impl TestEnv {
    fn publish(&self, pod: &SharedPod, worker_state: PodWorkerState, released: bool) {
        self.status_store.publish(PodStatusEntry {
            worker_state,
            released,
            observed: true,
            ..PodStatusEntry::new(Arc::clone(pod))
        });
    }

    /// Sets the pods that have no terminal phase at the API server.
    fn unfinished(&self, names: &[&str]) {
        let uids = names.iter().map(|name| PodUid::from(*name)).collect();
        self.status_store.set_unfinished(&uids);
    }

    /// The next pod that is killed, as `name grace phase reason`.
    async fn killed(&mut self) -> String {
        let next = futures::StreamExt::next(&mut self.kills);
        let killed = tokio::time::timeout(LIMIT, next).await.expect("a kill");
        let (uid, kill) = killed.expect("channel");
        let phase_override = kill.phase_override;
        let grace = kill.grace.expect("grace").as_secs();
        format!(
            "{uid} {grace}s {} {}",
            phase_override.phase, phase_override.reason
        )
    }

    fn config(&self, bus: LogindBus, dir: &std::path::Path) -> NodeShutdownConfig {
        NodeShutdownConfig {
            periods: periods(),
            bus,
            logind_conf_dir: dir.to_owned(),
            terminations: self.terminations.clone(),
            status_store: self.status_store.clone(),
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
async fn shutdown_stops_groups_in_order_before_release() {
    on_actor_thread(async {
        let mut env = test_env(&[("web", 0), ("system", CRITICAL)]);
        env.publish(&pod("done", 0), PodWorkerState::TerminatedPod, true);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        let config = env.config(logind.bus(), dir.path());
        let mut state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        logind.until_delayed(true).await;

        logind.prepare(true).await;
        state.wait_for(|s| s.shutting_down).await.expect("state");
        assert_eq!(env.killed().await, "web 20s Failed Terminated");
        assert!(logind.is_delayed());
        // stopped, but its volumes are still there
        env.publish(&pod("web", 0), PodWorkerState::TerminatedPod, false);
        env.publish(&pod("web", 0), PodWorkerState::TerminatedPod, true);
        assert_eq!(env.killed().await, "system 5s Failed Terminated");
        assert!(logind.is_delayed());
        env.status_store.remove(&"system".into());
        logind.until_delayed(false).await;
        let events = env.events();
        assert_eq!(
            events,
            ["Shutdown: Shutdown manager detected shutdown event"]
        );
        // the delay of logind is long enough: no drop-in
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
    })
    .await;
}

#[tokio::test]
async fn short_inhibit_delay_is_raised_by_drop_in() {
    on_actor_thread(async {
        let env = test_env(&[]);
        let dir = tempfile::tempdir().expect("dir");
        let conf_dir = dir.path().join("logind.conf.d");
        let logind = FakeLogind::reading(&conf_dir, Duration::from_secs(5));
        start_actor(NodeShutdown::new(env.config(logind.bus(), &conf_dir)));
        logind.until_delayed(true).await;
        let text = std::fs::read_to_string(conf_dir.join("99-kubelet.conf")).expect("drop-in");
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=25\n"), "{text}");
    })
    .await;
}

#[tokio::test]
async fn cancelled_shutdown_spares_later_groups_and_rearms() {
    on_actor_thread(async {
        let mut env = test_env(&[("web", 0), ("system", CRITICAL)]);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        let config = env.config(logind.bus(), dir.path());
        let mut state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        logind.until_delayed(true).await;

        logind.prepare(true).await;
        assert_eq!(env.killed().await, "web 20s Failed Terminated");
        logind.prepare(false).await;
        state.wait_for(|s| !s.shutting_down).await.expect("state");
        logind.until_taken(2).await;
        env.status_store.remove(&"web".into());

        logind.prepare(true).await;
        // not killed by the first shutdown, whose group is now empty
        assert_eq!(env.killed().await, "system 5s Failed Terminated");
        env.status_store.remove(&"system".into());
        logind.until_delayed(false).await;
        let words: Vec<String> = env.events();
        assert_eq!(words.len(), 3);
        assert!(words[1].ends_with("shutdown cancellation"), "{words:?}");
    })
    .await;
}

#[tokio::test]
async fn lost_logind_connection_is_replaced_and_inhibitor_renewed() {
    on_actor_thread(async {
        let mut env = test_env(&[("web", 0)]);
        let logind = FakeLogind::new(Duration::from_secs(60));
        let dir = tempfile::tempdir().expect("dir");
        start_actor(NodeShutdown::new(env.config(logind.bus(), dir.path())));
        logind.until_taken(1).await;
        logind.break_connection().await;
        logind.until_taken(2).await;
        logind.prepare(true).await;
        assert_eq!(env.killed().await, "web 20s Failed Terminated");
    })
    .await;
}

#[tokio::test]
async fn shutdown_manager_without_dbus_stays_inactive() {
    on_actor_thread(async {
        let env = test_env(&[("web", 0)]);
        let dir = tempfile::tempdir().expect("dir");
        let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = Arc::clone(&tries);
        let bus = LogindBus::with(move || {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(Err(zbus::Error::Failure("no bus".into())))
        });
        let config = env.config(bus, dir.path());
        let state = config.state.subscribe();
        start_actor(NodeShutdown::new(config));
        tokio::time::pause();
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(tries.load(std::sync::atomic::Ordering::SeqCst), 1);
        assert!(!state.borrow().shutting_down && env.events().is_empty());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn stuck_shutdown_group_ends_at_its_deadline() {
    let mut env = test_env(&[("web", 0), ("stuck", 0), ("system", CRITICAL)]);
    let plan = periods().plan(active_pods(&env.status_store));
    let start = tokio::time::Instant::now();
    let draining = tokio::spawn(drain(
        plan,
        env.terminations.clone(),
        env.status_store.clone(),
    ));
    let first = [env.killed().await, env.killed().await];
    assert_eq!(
        first,
        ["stuck 20s Failed Terminated", "web 20s Failed Terminated"]
    );
    env.status_store.remove(&"web".into());
    assert_eq!(env.killed().await, "system 5s Failed Terminated");
    assert_eq!(start.elapsed().as_secs(), 20);
    draining.await.expect("drain");
    assert_eq!(start.elapsed().as_secs(), 25);
}

#[tokio::test(start_paused = true)]
async fn shutdown_group_ends_when_its_statuses_are_sent() {
    for reported_after in [Some(2), None] {
        let mut env = test_env(&[("web", 0), ("system", CRITICAL)]);
        env.unfinished(&["web", "system"]);
        let plan = periods().plan(active_pods(&env.status_store));
        let start = tokio::time::Instant::now();
        let draining = tokio::spawn(drain(
            plan,
            env.terminations.clone(),
            env.status_store.clone(),
        ));
        assert_eq!(env.killed().await, "web 20s Failed Terminated");
        env.status_store.remove(&"web".into());
        if let Some(seconds) = reported_after {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            env.unfinished(&["system"]);
        }
        assert_eq!(env.killed().await, "system 5s Failed Terminated");
        // an unreachable API server delays each group by the timeout
        assert_eq!(start.elapsed().as_secs(), reported_after.unwrap_or(5));
        env.status_store.remove(&"system".into());
        env.unfinished(&[]);
        draining.await.expect("drain");
        assert_eq!(start.elapsed().as_secs(), reported_after.unwrap_or(5));
    }
}

#[test]
fn terminating_pods_are_part_of_shutdown() {
    let env = test_env(&[("running", 0)]);
    env.publish(&pod("stopping", 0), PodWorkerState::TerminatingPod, false);
    env.publish(&pod("stopped", 0), PodWorkerState::TerminatedPod, false);
    let names: Vec<String> = active_pods(&env.status_store)
        .map(|pod| pod.name().to_owned())
        .collect();
    assert_eq!(names, ["running", "stopping"]);
}
