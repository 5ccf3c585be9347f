//! The loop with channels in place of the other actors.

use futures::StreamExt;
use windlass_actors::{MountedVolumeCache, UpdatePod};
use windlass_cri::HungCalls;
use windlass_mailboxes::{MailboxSender, SimClock, SlotSender, mailbox, slots, start_actor};
use windlass_node_rules::admission::SysctlAllowList;
use windlass_node_rules::resize::ResizePolicy;
use windlass_runtime::{MemoryFiles, PodRuntimeDeps, RuntimeOptions};
use windlass_status::PodStatusEntry;
use windlass_store::PodResources;
use windlass_testing::fake_checks::FakeChecks;
use windlass_testing::fake_runtime::FakeRuntime;
use windlass_types::corev1::PodStatus;
use windlass_types::metav1::Time;
use windlass_types::view::EventType;
use windlass_types::{Phase, PhaseOverride, Pod, PodOp, PodUpdate, Reason, Timestamp};

use super::*;

/// Longer than any wait of a test; the clock is paused.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct NoEvents;

impl EventRecorder for NoEvents {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, _: Reason, _: &str) {}
    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

/// The other ends of a loop that runs.
struct TestEnv {
    config: MailboxSender<ConfigChanged>,
    terminations: SlotSender<PodUid, TerminatePod>,
    updates: SlotReceiver<PodUid, UpdatePod>,
    status_store: PodStatusStore,
}

impl TestEnv {
    fn start() -> Self {
        let metrics = Metrics::new().expect("families");
        let kind = crate::SYNC_LOOP;
        let clock: Arc<dyn Clock> = Arc::new(SimClock::starting_at(start()));
        let (config, config_end) = mailbox(kind, &metrics.mailboxes);
        let (terminations, terminations_end) = slots(kind, &metrics.mailboxes);
        let (updates_end, updates) = slots(kind, &metrics.mailboxes);
        let streams = SyncLoopStreams {
            config: config_end,
            pleg: slots(kind, &metrics.mailboxes).1,
            objects: slots(kind, &metrics.mailboxes).1,
            volumes: slots(kind, &metrics.mailboxes).1,
            probes: slots(kind, &metrics.mailboxes).1,
            terminations: terminations_end,
            allocations: slots(kind, &metrics.mailboxes).1,
        };
        let workers = PodWorkersHandle {
            updates: updates_end,
            mailbox: mailbox(kind, &metrics.mailboxes).0,
        };
        let deps = deps(workers, Arc::clone(&clock), metrics);
        let status_store = deps.status_store.clone();
        start_actor(SyncLoop::new(deps, streams));
        Self {
            config,
            terminations,
            updates,
            status_store,
        }
    }

    /// The next update of a worker, as `uid run` or `uid kill grace phase reason`.
    async fn update(&mut self) -> String {
        let update = tokio::time::timeout(LIMIT, self.updates.next()).await;
        let (uid, update) = update.expect("an update").expect("channel");
        let Some(kill) = update.kill else {
            let kind = update.run.map_or("sync", |_| "run");
            return format!("{uid} {kind}");
        };
        let cause = kill.phase_override.map_or_else(String::new, |cause| {
            format!(" {} {}: {}", cause.phase, cause.reason, kill.reason)
        });
        format!("{uid} kill {:?}{cause}", kill.grace)
    }

    async fn add(&self, pod: SharedPod) {
        let update = PodUpdate {
            op: PodOp::Add,
            source: PodSource::File,
            pods: vec![pod],
        };
        self.config.send(ConfigChanged(update)).await.expect("sent");
    }
}

fn deps(workers: PodWorkersHandle, clock: Arc<dyn Clock>, metrics: Metrics) -> SyncLoopDeps {
    let cri = Arc::new(FakeRuntime::new(Arc::clone(&clock), 1));
    let events: Arc<dyn EventRecorder> = Arc::new(NoEvents);
    let runtime = PodRuntime::new(PodRuntimeDeps {
        runtime: cri.clone(),
        images: cri.clone(),
        credentials: None,
        assigned: None,
        checks: Arc::new(FakeChecks::default()),
        files: Arc::new(MemoryFiles::default()),
        cgroups: None,
        events: Arc::clone(&events),
        clock: Arc::clone(&clock),
        node: Arc::default(),
        metrics: metrics.clone(),
        hung: HungCalls::new(Arc::clone(&clock)).operations(),
        options: RuntimeOptions::default(),
    });
    SyncLoopDeps {
        sources: BTreeSet::from([PodSource::File]),
        workers,
        cache: StatusCache::new(),
        cri,
        pleg_health: PlegHealth::default(),
        volumes: VolumesHandle {
            mailbox: mailbox(crate::SYNC_LOOP, &metrics.mailboxes).0,
            mounted: MountedVolumeCache::default(),
        },
        orphan_grace: Duration::from_secs(1),
        runtime,
        backoff_file: None,
        runtime_state: watch::Sender::new(RuntimeState::unknown()),
        sources_ready: watch::Sender::new(SourcesReady::default()),
        admission: AdmissionDeps {
            node: watch::Sender::new(NodeUpdate::default()).subscribe(),
            initial_node: Arc::new(node_with_room()),
            admission_policy: Arc::new(AdmissionPolicy {
                sysctls: SysctlAllowList::default(),
                app_armor: false,
                pod_level_resources: true,
                declared_features: None,
                resize: ResizePolicy::default(),
            }),
            shutdown: watch::Sender::new(ShutdownState::default()).subscribe(),
            pressure: watch::Sender::new(NodePressure::default()).subscribe(),
            checkpoint: None,
            resource_files: None,
            restored: PodResources::new(),
            events,
            allocations: AllocationsHandle {
                requests: slots(crate::SYNC_LOOP, &metrics.mailboxes).0,
                scope: watch::Sender::new(Arc::default()).subscribe(),
            },
        },
        timelines: Timelines::new(Arc::clone(&clock), None),
        clock,
        metrics,
        status_store: PodStatusStore::new(),
        health: SyncLoopHealth::default(),
    }
}

fn terminate(seconds: u64, reason: &str) -> TerminatePod {
    TerminatePod {
        grace: Some(Duration::from_secs(seconds)),
        reason: format!("because of {reason}"),
        phase_override: PhaseOverride {
            phase: Phase::Failed,
            reason: reason.to_owned(),
            message: String::new(),
            disruption: None,
        },
    }
}

fn pod_with_deadline(seconds: i64) -> SharedPod {
    let mut pod = Pod::default();
    pod.metadata.name = Some("web".to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.uid = Some("web".to_owned());
    pod.spec.get_or_insert_default().active_deadline_seconds = Some(seconds);
    SharedPod::new(pod)
}

/// The status of a pod that started at [`start`].
fn started(pod: &SharedPod) -> PodStatusEntry {
    PodStatusEntry {
        status: Arc::new(PodStatus {
            start_time: Some(Time(start())),
            ..PodStatus::default()
        }),
        ..PodStatusEntry::new(Arc::clone(pod))
    }
}

fn node_with_room() -> Node {
    let room = serde_json::json!({"cpu": "8", "memory": "8Gi", "pods": "110"});
    serde_json::from_value(serde_json::json!({"status": {"allocatable": room}})).expect("a node")
}

fn start() -> Timestamp {
    Timestamp::from_second(1_700_000_000).expect("in range")
}

async fn on_actor_thread<F: Future>(test: F) {
    tokio::task::LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn terminations_reach_workers_in_order_with_cause() {
    on_actor_thread(async {
        let mut env = TestEnv::start();
        env.terminations
            .put("b".into(), terminate(20, "Terminated"));
        env.terminations.put("a".into(), terminate(5, "Terminated"));
        // merged: the shorter grace period, the first cause
        env.terminations.put("b".into(), terminate(3, "Evicted"));
        assert_eq!(
            [env.update().await, env.update().await],
            [
                "b kill Some(3s) Failed Terminated: because of Terminated",
                "a kill Some(5s) Failed Terminated: because of Terminated"
            ]
        );
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pod_past_its_deadline_is_synced_at_a_tick() {
    on_actor_thread(async {
        let mut env = TestEnv::start();
        let pod = pod_with_deadline(30);
        env.status_store.publish(started(&pod));
        env.add(pod).await;
        assert_eq!(env.update().await, "web run");
        let begun = tokio::time::Instant::now();
        assert_eq!(env.update().await, "web sync");
        let seconds = begun.elapsed().as_secs();
        assert!((29..=31).contains(&seconds), "{seconds}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn closed_config_channel_ends_the_loop() {
    on_actor_thread(async {
        let mut env = TestEnv::start();
        let closed = env.terminations.clone();
        drop(env.config);
        // the channel to the workers closes with the loop
        let ended = tokio::time::timeout(LIMIT, env.updates.next()).await;
        assert!(ended.expect("the loop ends").is_none());
        drop(closed);
    })
    .await;
}
