//! Walks that outlive who began them, and what a pod is told of a long one.

use std::os::unix::fs::MetadataExt;
use std::sync::Mutex as StdMutex;

use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod};

use super::*;
use crate::io_queue::IoQueues;
use crate::ownership::{GroupPolicy, set_volume_ownership};

#[derive(Debug, Default)]
struct Told(StdMutex<Vec<String>>);

impl EventRecorder for Told {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, reason: Reason, message: &str) {
        self.0
            .lock()
            .expect("lock")
            .push(format!("{reason} {message}"));
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

struct Bed {
    machine: Arc<Machine>,
    told: Arc<Told>,
    pod: SharedPod,
    dir: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(600)));
        let machine = Machine::new(windlass_pod_inputs::paths::NodePaths::default(), queues);
        let told = Arc::new(Told::default());
        let recorder: Arc<dyn EventRecorder> = told.clone();
        machine.events.set(recorder).expect("first");
        let mut pod = Pod::default();
        pod.metadata.uid = Some("uid-1".to_owned());
        Self {
            machine: Arc::new(machine),
            told,
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

    /// A walk that ends when the test says so.
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
        self.machine.walks.lock().insert(dir, Arc::new(running));
        sender
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_hears_of_a_long_walk_after_30_seconds_and_then_each_minute() {
    let bed = Bed::new();
    let sender = bed.running();
    let wait = bed.machine.change_ownership(bed.ownership());
    let late = tokio::time::timeout(Duration::from_secs(95), wait).await;
    assert!(late.is_err(), "still under way");
    let told = bed.told.0.lock().expect("lock").clone();
    assert_eq!(
        told,
        [
            "VolumePermissionChangeInProgress Setting volume ownership for uid-1/volumes/x/y is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods",
            "VolumePermissionChangeInProgress Setting volume ownership for uid-1/volumes/x/y, processed 0 files.",
        ]
    );
    // whoever comes next waits for the same walk, and its pod is not told twice
    sender.send_replace(Some(Ok(WalkOutcome::Skipped)));
    bed.machine
        .change_ownership(bed.ownership())
        .await
        .expect("done");
    assert_eq!(bed.told.0.lock().expect("lock").len(), 2);
    assert!(bed.machine.walks.lock().is_empty());
}

#[tokio::test]
async fn a_walk_that_failed_is_begun_anew_by_the_next_who_asks() {
    let bed = Bed::new();
    bed.running().send_replace(Some(Err("no".to_owned())));
    let error = bed.machine.change_ownership(bed.ownership()).await;
    assert_eq!(error.expect_err("failed").to_string(), "no");
    bed.machine
        .change_ownership(bed.ownership())
        .await
        .expect("done");
}

#[tokio::test]
async fn a_walk_that_never_began_keeps_nobody() {
    let bed = Bed::new();
    drop(bed.running());
    let error = bed.machine.change_ownership(bed.ownership()).await;
    assert!(
        matches!(error, Err(VolumeError::Stopped { .. })),
        "{error:?}"
    );
    bed.machine
        .change_ownership(bed.ownership())
        .await
        .expect("done");
}

#[tokio::test]
async fn the_walks_of_a_pod_end_with_it() {
    let bed = Bed::new();
    let sender = bed.running();
    let running = bed.machine.walks.of(bed.dir.path()).expect("running");
    let machine = Arc::clone(&bed.machine);
    let stop =
        tokio::spawn(async move { machine.stop_walks(&PodUid::from("uid-1".to_owned())).await });
    bed.machine
        .stop_walks(&PodUid::from("another".to_owned()))
        .await;
    let stopped = set_volume_ownership_of(&bed, &running);
    sender.send_replace(Some(Err(stopped.await)));
    stop.await.expect("stopped");
}

/// What the walk of `running` comes to once its pod has told it to stop.
async fn set_volume_ownership_of(bed: &Bed, running: &RunningWalk) -> String {
    loop {
        let group = bed.ownership().group;
        match set_volume_ownership(bed.dir.path(), group, &running.progress) {
            Err(error) => return error.to_string(),
            Ok(_) => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_walk_that_hangs_keeps_its_pod_for_seconds_only() {
    let bed = Bed::new();
    let _hangs = bed.running();
    let stop = async {
        bed.machine
            .stop_walks(&PodUid::from("uid-1".to_owned()))
            .await;
    };
    let begin = Instant::now();
    let (given, ()) = tokio::join!(bed.machine.change_ownership(bed.ownership()), stop);
    assert!(
        matches!(given, Err(VolumeError::Stopped { .. })),
        "{given:?}"
    );
    assert_eq!(begin.elapsed().as_secs(), 10);
    assert!(bed.machine.walks.lock().is_empty(), "nobody asks again");
}

#[tokio::test]
async fn what_came_of_another_pods_walk_counts_for_that_pod_only() {
    let bed = Bed::new();
    bed.running()
        .send_replace(Some(Err("some time ago".to_owned())));
    let mut other = Pod::default();
    other.metadata.uid = Some("uid-2".to_owned());
    let other: SharedPod = Arc::new(other);
    let wanted = OwnershipChange {
        pod: &other,
        ..bed.ownership()
    };
    bed.machine.change_ownership(wanted).await.expect("walked");
    assert!(bed.machine.walks.lock().is_empty());
}

#[tokio::test]
async fn a_walk_that_waits_for_a_place_ends_with_its_pod() {
    let bed = Bed::new();
    let all = u32::try_from(MAX_CONCURRENT_WALKS).expect("few");
    let places = Arc::clone(&bed.machine.walks.places);
    let taken = places.acquire_many_owned(all).await.expect("open");
    let stop = async {
        bed.machine
            .stop_walks(&PodUid::from("uid-1".to_owned()))
            .await;
    };
    let (given, ()) = tokio::join!(bed.machine.change_ownership(bed.ownership()), stop);
    assert!(
        matches!(given, Err(VolumeError::Stopped { .. })),
        "{given:?}"
    );
    drop(taken);
    bed.machine
        .change_ownership(bed.ownership())
        .await
        .expect("there is a place");
}

#[tokio::test]
async fn a_large_walk_lets_others_look_at_its_device_in_between() {
    let bed = Bed::new();
    for index in 0..3 * SLICE_ENTRIES {
        std::fs::write(bed.dir.path().join(index.to_string()), "").expect("write");
    }
    let queue = bed.ownership().queue;
    let running = bed.machine.begin(&bed.ownership());
    let mut seen = Vec::new();
    while !running.is_over() {
        let look = || Ok::<_, IoQueueError>(());
        let looked = bed.machine.queues.run_in(&queue, "looking", look);
        looked.await.expect("a turn");
        seen.push(running.progress.files());
    }
    let files = 3 * SLICE_ENTRIES + 1;
    let between = seen.iter().filter(|seen| (1..files).contains(*seen));
    assert!(between.count() >= 2, "{seen:?}");
    assert_eq!(running.progress.files(), files);
}
