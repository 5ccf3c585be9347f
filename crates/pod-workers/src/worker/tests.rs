//! A node for tests of the workers: a fake runtime, and ports that log their calls.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use windlass_actors::{
    InspectError, MountedVolumeCache, PlegMessage, ProbeResults, StatusCache, VolumeManagerMessage,
};
use windlass_cri::{CriResult, RuntimeService};
use windlass_mailboxes::{ActorKind, Mailbox, SimClock, mailbox, slots};
use windlass_pod_lifecycle::pleg::observe;
use windlass_runtime::{MemoryFiles, PodRuntimeDeps, RuntimeOptions};
use windlass_runtime_config::port::{InputsError, PodInputs};
use windlass_testing::PodBuilder;
use windlass_testing::fake_checks::FakeChecks;
use windlass_testing::fake_runtime::FakeRuntime;
use windlass_types::cri::ListFilter;
use windlass_types::view::EventType;
use windlass_types::{
    PodExt, PodUid, ReadyVolumes, Reason, Retry, SharedPod, Timestamp, VolumesNotReady,
};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};

use super::jobs::{Progress, SyncCancellation, SyncJob, SyncReport, sync_pod};
use super::*;

/// Bound of the mailboxes of the other actors.
const PEER: ActorKind = ActorKind::new("Peer", 16);

/// Calls of the ports, with the seconds since the start.
#[derive(Clone, Debug)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>, Instant);

impl Log {
    fn push(&self, uid: &PodUid, what: &str) {
        let line = format!("{uid} {what} @{}", self.1.elapsed().as_secs());
        lock(&self.0).push(line);
    }

    /// The lines since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the ports respond.
#[derive(Debug, Default)]
struct Responses {
    inputs: Option<InputsError>,
    missing: Option<InputsError>,
    inputs_take: Duration,
    sandbox_first: bool,
    kept: Vec<String>,
    kept_since: Option<Timestamp>,
    set_up: Option<VolumesNotReady>,
    tear_down: Option<VolumesNotReady>,
    /// Results of the next inspections.
    inspections: Vec<Result<ObservedPod, InspectError>>,
    events: Vec<String>,
}

/// The other actors and the API server.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    answers: Arc<Mutex<Responses>>,
    log: Log,
    cri: FakeRuntime,
    clock: SimClock,
    cache: StatusCache,
}

impl Peers {
    pub(super) fn fail_inputs(&self, error: Option<InputsError>) {
        lock(&self.answers).inputs = error;
    }

    pub(super) fn miss(&self, error: InputsError) {
        lock(&self.answers).missing = Some(error);
    }

    /// References are resolved after this time.
    pub(super) fn delay_inputs(&self, delay: Duration) {
        lock(&self.answers).inputs_take = delay;
    }

    /// The references of the sandbox are known.
    pub(super) fn know_sandbox(&self) {
        lock(&self.answers).sandbox_first = true;
    }

    /// The API server is unreachable, and objects of all pods are kept since this time.
    pub(super) fn keep_objects(&self, since: Timestamp) {
        lock(&self.answers).kept_since = Some(since);
    }

    /// Volumes keep an older payload.
    pub(super) fn keep_payload(&self, issue: &str) {
        lock(&self.answers).kept = vec![issue.to_owned()];
    }

    pub(super) fn fail_set_up(&self, error: Option<VolumesNotReady>) {
        lock(&self.answers).set_up = error;
    }

    pub(super) fn fail_tear_down(&self, error: Option<VolumesNotReady>) {
        lock(&self.answers).tear_down = error;
    }

    /// The results of the next inspections, in order.
    pub(super) fn inspect(&self, results: Vec<Result<ObservedPod, InspectError>>) {
        lock(&self.answers).inspections = results;
    }

    /// The recorded events, as `Reason: text`.
    pub(super) fn events(&self) -> Vec<String> {
        lock(&self.answers).events.clone()
    }

    /// Observes the pod as the PLEG does.
    pub(super) async fn observed(&self, uid: &PodUid) -> CriResult<ObservedPod> {
        let filter = ListFilter::of_pod(uid);
        let (mut sandboxes, mut containers) = (Vec::new(), Vec::new());
        for row in self.cri.list_pod_sandboxes(&filter).await? {
            sandboxes.push(self.cri.pod_sandbox_status(&row.id).await?);
        }
        for row in self.cri.list_containers(&filter).await? {
            let mut detail = self.cri.container_status(&row.id).await?;
            detail.observed.sandbox_id = row.sandbox_id;
            containers.push(detail);
        }
        Ok(observe(uid, sandboxes, containers, self.clock.now()))
    }

    async fn pleg(self, mut requests: Mailbox<PlegMessage>) {
        while let Some(request) = requests.next().await {
            let (uid, reply) = match request.open(|it| it) {
                PlegMessage::Inspect(it) => {
                    self.log.push(&it.uid, "inspected");
                    (it.uid, it.reply)
                }
                PlegMessage::Observed(it) => (it.uid, it.reply),
            };
            let next = {
                let planned = &mut lock(&self.answers).inspections;
                (!planned.is_empty()).then(|| planned.remove(0))
            };
            let result = match next {
                Some(result) => result,
                None => Ok(self.observed(&uid).await.expect("observed")),
            };
            let result = result.map(Arc::new);
            if let Ok(observed) = &result {
                self.cache.record(Arc::clone(observed));
            }
            let _ = reply.send(result);
        }
    }

    async fn volume_manager(self, mut requests: Mailbox<VolumeManagerMessage>) {
        while let Some(request) = requests.next().await {
            match request.open(|it| it) {
                VolumeManagerMessage::SetUp(it) => {
                    self.log.push(&it.pod.uid(), "volumes");
                    let answers = lock(&self.answers);
                    let ready = ReadyVolumes {
                        kept: answers.kept.clone(),
                        ..ReadyVolumes::default()
                    };
                    let _ = it.reply.send(answers.set_up.clone().map_or(Ok(ready), Err));
                }
                VolumeManagerMessage::TearDown(it) => {
                    self.log.push(&it.uid, "torn down");
                    let error = lock(&self.answers).tear_down.clone();
                    let _ = it.reply.send(error.map_or(Ok(()), Err));
                }
            }
        }
    }
}

#[async_trait]
impl PodObjects for Peers {
    fn register(&self, _: &SharedPod) {}

    fn sandbox_inputs(&self, _: &SharedPod) -> Option<PodInputs> {
        let known = lock(&self.answers).sandbox_first;
        known.then(PodInputs::default)
    }

    fn kept_since(&self, _: &PodUid) -> Option<Timestamp> {
        lock(&self.answers).kept_since
    }

    fn unregister(&self, _: &PodUid) {}

    async fn inputs(&self, pod: &SharedPod) -> Result<PodInputs, InputsError> {
        self.log.push(&pod.uid(), "references");
        let delay = lock(&self.answers).inputs_take;
        tokio::time::sleep(delay).await;
        let answers = lock(&self.answers);
        let volume = PodVolume {
            name: "data".to_owned(),
            source: VolumeSource::EmptyDir(Default::default()),
            read_only: false,
            mount_options: Vec::new(),
            pvc: None,
        };
        match &answers.inputs {
            Some(error) => Err(error.clone()),
            None => Ok(PodInputs {
                volumes: Arc::new(vec![volume]),
                missing: answers.missing.clone(),
                ..PodInputs::default()
            }),
        }
    }
}

impl EventRecorder for Peers {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, text: &str) {
        lock(&self.answers).events.push(format!("{reason}: {text}"));
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

/// A node with the dependencies of workers.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) deps: Arc<WorkerDeps>,
    pub(super) cri: FakeRuntime,
    pub(super) files: MemoryFiles,
    pub(super) peers: Peers,
    pub(super) log: Log,
}

impl Node {
    /// A node with this number of start slots. Needs tokio's clock, paused.
    pub(super) fn new(slots_count: usize) -> Self {
        let metrics = Metrics::new().expect("families");
        let start = Timestamp::from_second(1_700_000_000).expect("in range");
        let sim = SimClock::starting_at(start);
        let clock: Arc<dyn Clock> = Arc::new(sim);
        let cri = FakeRuntime::new(Arc::clone(&clock), 1);
        let log = Log(Arc::default(), Instant::now());
        let peers = Peers {
            answers: Arc::default(),
            log: log.clone(),
            cri: cri.clone(),
            clock: sim,
            cache: StatusCache::new(),
        };
        let files = MemoryFiles::default();
        let hung = HungCalls::new(Arc::clone(&clock));
        let (pleg, pleg_end) = mailbox(PEER, &metrics.mailboxes);
        let (volumes, volumes_end) = mailbox(PEER, &metrics.mailboxes);
        tokio::spawn(peers.clone().pleg(pleg_end));
        tokio::spawn(peers.clone().volume_manager(volumes_end));
        let deps = WorkerDeps {
            runtime: runtime(&cri, &files, &peers, &clock, &metrics),
            pleg: PlegHandle {
                mailbox: pleg,
                cache: peers.cache.clone(),
            },
            claims: None,
            start_limiter: StartLimiter::new(slots_count, hung.load(), metrics.clone()),
            hung,
            probes: ProbesHandle {
                managers: std::array::from_fn(|_| slots(PEER, &metrics.mailboxes).0),
                results: ProbeResults::default(),
            },
            volumes: VolumesHandle {
                mailbox: volumes,
                mounted: MountedVolumeCache::default(),
            },
            objects: Arc::new(peers.clone()),
            status_store: PodStatusStore::new(),
            timelines: Timelines::new(Arc::clone(&clock), None),
            events: Arc::new(peers.clone()),
            clock: Arc::clone(&clock),
            metrics,
            runtime_state: watch::Sender::new(usable()).subscribe(),
            backoff_file: None,
            actuated_file: None,
            settings: WorkerSettings {
                sync_frequency: Duration::from_secs(60),
                restart_policy: RuntimeOptions::default().restart_backoff,
                agent_started: clock.now(),
                host_ips: Vec::new(),
                stop_signals: false,
                resize_pod_level: false,
                runtime_name: RuntimeName::default(),
            },
        };
        Self {
            deps: Arc::new(deps),
            cri,
            files,
            peers,
            log,
        }
    }

    /// The time in `seconds` from now.
    pub(super) fn after(&self, seconds: u64) -> Option<Timestamp> {
        let now = self.deps.clock.now();
        now.checked_add(Duration::from_secs(seconds)).ok()
    }

    /// Number of sandboxes.
    pub(super) fn sandboxes(&self) -> usize {
        self.cri.sandboxes().len()
    }

    /// Begins a sync; its progress is in the log.
    pub(super) fn begin(&self, job: SyncJob) -> tokio::task::JoinHandle<SyncReport> {
        let node = self.clone();
        let cancel = SyncCancellation::new(CancellationToken::new());
        tokio::spawn(async move {
            let uid = job.pod.uid();
            let progress = |update| match update {
                Progress::Observed(_) => node.log.push(&uid, "observed"),
                Progress::Dispatched(_) => node.log.push(&uid, "dispatched"),
            };
            Box::pin(sync_pod(&node.deps, job, cancel, &progress)).await
        })
    }

    /// Syncs a pod.
    pub(super) async fn sync(&self, job: SyncJob) -> SyncReport {
        self.begin(job).await.expect("no panic")
    }
}

fn runtime(
    cri: &FakeRuntime,
    files: &MemoryFiles,
    peers: &Peers,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> PodRuntime {
    PodRuntime::new(PodRuntimeDeps {
        runtime: Arc::new(cri.clone()),
        images: Arc::new(cri.clone()),
        credentials: None,
        assigned: None,
        checks: Arc::new(FakeChecks::default()),
        files: Arc::new(files.clone()),
        cgroups: None,
        events: Arc::new(peers.clone()),
        clock: Arc::clone(clock),
        node: Arc::default(),
        metrics: metrics.clone(),
        hung: HungCalls::new(Arc::clone(clock)).operations(),
        options: RuntimeOptions::default(),
    })
}

/// A runtime that may be used.
pub(super) fn usable() -> RuntimeState {
    RuntimeState {
        runtime_error: None,
        network_error: None,
        pleg_error: None,
        answered: true,
    }
}

/// A static pod with this name and UID and the container `app`.
pub(super) fn builder(name: &str) -> PodBuilder {
    PodBuilder::new(name).uid(name).container("app", "img:1")
}

/// See [`builder`].
pub(super) fn pod(name: &str) -> SharedPod {
    Arc::new(builder(name).build())
}

/// The first sync of a pod.
pub(super) fn job(pod: &SharedPod) -> SyncJob {
    SyncJob {
        pod: Arc::clone(pod),
        backoff: Default::default(),
        probe_results: Arc::default(),
        status: Arc::default(),
        known: None,
        must_inspect: false,
        network_ready: true,
    }
}

pub(super) fn no_inputs(retry: Retry) -> InputsError {
    InputsError {
        reason: Reason::FailedMount,
        message: "configmap \"c\" not found".to_owned(),
        retry,
    }
}

pub(super) fn no_volumes(retry_at: Option<Timestamp>) -> VolumesNotReady {
    VolumesNotReady {
        reason: Reason::FailedMount,
        message: "volume data: disk is gone".to_owned(),
        retry: Retry::Soon,
        retry_at,
    }
}

/// The failures of a sync, as `Reason: text`, and the time of the retry.
pub(super) fn failures(report: &SyncReport) -> (Vec<String>, Option<Timestamp>) {
    let outcome = report.outcome.as_ref().expect("an outcome");
    let lines = outcome.failures.iter();
    let lines = lines.map(|it| format!("{}: {}", it.reason, it.message));
    (lines.collect(), outcome.retry_at)
}
