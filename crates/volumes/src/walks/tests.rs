//! Ownership changes that outlive their callers, and events of long ones.

use std::os::unix::fs::MetadataExt;
use std::sync::Mutex as StdMutex;

use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod};

use super::*;
use crate::io_queue::IoQueues;
use crate::ownership::{GroupPolicy, set_volume_ownership};

#[derive(Debug, Default)]
struct RecordedEvents(StdMutex<Vec<String>>);

impl EventRecorder for RecordedEvents {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        self.0
            .lock()
            .expect("lock")
            .push(format!("{reason} {message}"));
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

struct Fixture {
    machine: Arc<Machine>,
    events: Arc<RecordedEvents>,
    pod: SharedPod,
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(600)));
        let machine = Machine::new(windlass_pod_inputs::paths::NodePaths::default(), queues);
        let events = Arc::new(RecordedEvents::default());
        let recorder: Arc<dyn EventRecorder> = events.clone();
        machine.events.set(recorder).expect("first");
        let mut pod = Pod::default();
        pod.metadata.uid = Some("uid-1".to_owned());
        Self {
            machine: Arc::new(machine),
            events,
            pod: Arc::new(pod),
            dir: tempfile::tempdir().expect("temp dir"),
        }
    }

    fn ownership(&self) -> OwnershipChange<'_> {
        OwnershipChange {
            pod: &self.pod,
            queue: IoQueue::Device("d^v".to_owned()),
            dir: self.dir.path(),
            pod_path: Path::new("/var/lib/kubelet/pods/uid-1/volumes/x/y"),
            group: VolumeGroup {
                gid: self.dir.path().metadata().expect("metadata").gid(),
                policy: GroupPolicy::Always,
                read_only: false,
            },
        }
    }

    /// A walk that the test ends.
    fn running(&self) -> watch::Sender<Option<Result<WalkOutcome, String>>> {
        let (sender, ended) = watch::channel(None);
        let progress = Arc::new(WalkProgress::default());
        let running = RunningWalk {
            group: self.ownership().group,
            uid: self.pod.uid(),
            began: Instant::now(),
            progress,
            ended,
        };
        let dir = self.dir.path().to_owned();
        self.machine
            .walks
            .running
            .lock()
            .insert(dir, Arc::new(running));
        sender
    }
}

#[tokio::test(start_paused = true)]
async fn long_ownership_change_records_events() {
    let fixture = Fixture::new();
    let sender = fixture.running();
    let wait = fixture.machine.change_ownership(fixture.ownership());
    let late = tokio::time::timeout(Duration::from_secs(95), wait).await;
    assert!(late.is_err(), "still in progress");
    let events = fixture.events.0.lock().expect("lock").clone();
    assert_eq!(
        events,
        [
            "VolumePermissionChangeInProgress Setting volume ownership for uid-1/volumes/x/y is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods",
            "VolumePermissionChangeInProgress Setting volume ownership for uid-1/volumes/x/y, processed 0 files.",
        ]
    );
    // the next caller waits for the same walk, without a second event
    sender.send_replace(Some(Ok(WalkOutcome::Skipped)));
    fixture
        .machine
        .change_ownership(fixture.ownership())
        .await
        .expect("done");
    assert_eq!(fixture.events.0.lock().expect("lock").len(), 2);
    assert!(fixture.machine.walks.running.lock().is_empty());
}

#[tokio::test]
async fn failed_walk_is_restarted_by_the_next_call() {
    let fixture = Fixture::new();
    fixture.running().send_replace(Some(Err("no".to_owned())));
    let error = fixture.machine.change_ownership(fixture.ownership()).await;
    assert_eq!(error.expect_err("failed").to_string(), "no");
    fixture
        .machine
        .change_ownership(fixture.ownership())
        .await
        .expect("done");
}

#[tokio::test]
async fn dropped_walk_does_not_block_callers() {
    let fixture = Fixture::new();
    drop(fixture.running());
    let error = fixture.machine.change_ownership(fixture.ownership()).await;
    assert!(
        matches!(error, Err(VolumeError::Stopped { .. })),
        "{error:?}"
    );
    fixture
        .machine
        .change_ownership(fixture.ownership())
        .await
        .expect("done");
}

#[tokio::test]
async fn walks_of_a_pod_are_cancelled_at_tear_down() {
    let fixture = Fixture::new();
    let sender = fixture.running();
    let running = fixture
        .machine
        .walks
        .get(fixture.dir.path())
        .expect("running");
    let machine = Arc::clone(&fixture.machine);
    let stop =
        tokio::spawn(async move { machine.stop_walks(&PodUid::from("uid-1".to_owned())).await });
    fixture
        .machine
        .stop_walks(&PodUid::from("another".to_owned()))
        .await;
    let stopped = set_volume_ownership_of(&fixture, &running);
    sender.send_replace(Some(Err(stopped.await)));
    stop.await.expect("stopped");
}

/// Result of the walk `running` after its cancellation.
async fn set_volume_ownership_of(fixture: &Fixture, running: &RunningWalk) -> String {
    loop {
        let group = fixture.ownership().group;
        match set_volume_ownership(fixture.dir.path(), group, &running.progress) {
            Err(error) => return error.to_string(),
            Ok(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn hung_walk_delays_tear_down_for_seconds_only() {
    let fixture = Fixture::new();
    let _hangs = fixture.running();
    let stop = async {
        fixture
            .machine
            .stop_walks(&PodUid::from("uid-1".to_owned()))
            .await;
    };
    let begin = Instant::now();
    let (given, ()) = tokio::join!(fixture.machine.change_ownership(fixture.ownership()), stop);
    assert!(
        matches!(given, Err(VolumeError::Stopped { .. })),
        "{given:?}"
    );
    assert_eq!(begin.elapsed().as_secs(), 10);
    assert!(
        fixture.machine.walks.running.lock().is_empty(),
        "no second request"
    );
}

#[tokio::test]
async fn result_of_a_walk_is_used_only_for_its_pod() {
    let fixture = Fixture::new();
    fixture
        .running()
        .send_replace(Some(Err("some time ago".to_owned())));
    let mut other = Pod::default();
    other.metadata.uid = Some("uid-2".to_owned());
    let other: SharedPod = Arc::new(other);
    let wanted = OwnershipChange {
        pod: &other,
        ..fixture.ownership()
    };
    fixture
        .machine
        .change_ownership(wanted)
        .await
        .expect("walked");
    assert!(fixture.machine.walks.running.lock().is_empty());
}

#[tokio::test]
async fn walk_waiting_for_a_permit_is_cancelled() {
    let fixture = Fixture::new();
    let all = u32::try_from(MAX_CONCURRENT_WALKS).expect("few");
    let permits = Arc::clone(&fixture.machine.walks.permits);
    let taken = permits.acquire_many_owned(all).await.expect("open");
    let stop = async {
        fixture
            .machine
            .stop_walks(&PodUid::from("uid-1".to_owned()))
            .await;
    };
    let (given, ()) = tokio::join!(fixture.machine.change_ownership(fixture.ownership()), stop);
    assert!(
        matches!(given, Err(VolumeError::Stopped { .. })),
        "{given:?}"
    );
    drop(taken);
    fixture
        .machine
        .change_ownership(fixture.ownership())
        .await
        .expect("a free permit");
}

#[tokio::test]
async fn large_walk_does_not_block_its_device() {
    let fixture = Fixture::new();
    for index in 0..3 * SLICE_ENTRIES {
        std::fs::write(fixture.dir.path().join(index.to_string()), "").expect("write");
    }
    let queue = fixture.ownership().queue;
    let running = fixture.machine.begin(&fixture.ownership());
    let mut seen = Vec::new();
    while !running.is_finished() {
        let look = || Ok::<_, IoQueueError>(());
        let looked = fixture.machine.queues.run_in(&queue, "looking", look);
        looked.await.expect("a turn");
        seen.push(running.progress.files());
    }
    let files = 3 * SLICE_ENTRIES + 1;
    let between = seen.iter().filter(|seen| (1..files).contains(*seen));
    assert!(between.count() >= 2, "{seen:?}");
    assert_eq!(running.progress.files(), files);
}
