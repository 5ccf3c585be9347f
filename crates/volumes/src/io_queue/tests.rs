//! Two budgets of threads, with calls that hang until the test lets them go.

use std::sync::mpsc;

use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_inputs::projection::VolumePayload;
use windlass_volume_plan::volume_source::{LocalVolume, PayloadKind, PodVolume, VolumeSource};
use windlass_types::{Pod, Timestamp};

use super::*;
use crate::{HostVolumes, VolumePlugins, VolumeRequest};

/// Calls that hang as long as this lives.
struct Hung {
    gates: Vec<mpsc::Sender<()>>,
    calls: Vec<tokio::task::JoinHandle<Result<(), IoQueueError>>>,
}

impl Hung {
    /// One call in each queue, all of them begun or waiting for a permit.
    fn begin(queues: &Arc<IoQueues>, all: impl Iterator<Item = IoQueue>) -> Self {
        let mut hung = Self {
            gates: Vec::new(),
            calls: Vec::new(),
        };
        for queue in all {
            let (gate, closed) = mpsc::channel::<()>();
            hung.gates.push(gate);
            let queues = Arc::clone(queues);
            hung.calls.push(tokio::spawn(async move {
                let hangs = move || {
                    let _ = closed.recv();
                    Ok(())
                };
                queues.run_in(&queue, "looking at a volume", hangs).await
            }));
        }
        hung
    }
}

/// Threads as the agent has them.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(IO_PERMITS + 32)
        .enable_all()
        .build()
        .expect("threads")
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}

fn running(queues: &IoQueues) -> usize {
    queues.permits.calls().running.len()
}

fn device(index: usize) -> IoQueue {
    IoQueue::Device(format!("d^{index:03}"))
}

#[test]
fn two_hundred_devices_that_hang_cost_the_files_of_other_pods_nothing() {
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(600)));
        // two calls at each: the second waits for its turn and takes no permit
        let all = (0..400).map(|index| device(index % 200));
        let hung = Hung::begin(&queues, all);
        until("all permits are taken", || running(&queues) == DEVICE_PERMITS).await;
        let mut done = tokio::task::JoinSet::new();
        for pod in 0..1000 {
            let queues = Arc::clone(&queues);
            done.spawn(async move {
                let work = || Ok::<_, IoQueueError>(());
                queues.run(&format!("uid-{pod}"), "writing", work).await
            });
        }
        let done = timeout(Duration::from_secs(60), done.join_all()).await;
        let done = done.expect("nobody waits for a device");
        assert_eq!(done.into_iter().filter(Result::is_ok).count(), 1000);
        assert_eq!(running(&queues), DEVICE_PERMITS);
        drop(hung.gates);
        for call in hung.calls {
            call.await.expect("task").expect("ended");
        }
        assert_eq!(running(&queues), 0);
    });
}

#[test]
fn who_finds_no_place_hears_who_has_them_and_gets_one_when_they_let_go() {
    runtime().block_on(async {
        // permit_timeout is half of it
        let queues = Arc::new(IoQueues::new(Duration::from_millis(600)));
        let hung = Hung::begin(&queues, (0..DEVICE_PERMITS).map(device));
        until("all permits are taken", || running(&queues) == DEVICE_PERMITS).await;
        let another = device(999);
        let look = || queues.run_in(&another, "looking", || Ok::<_, IoQueueError>(()));
        let error = look().await.expect_err("no permit");
        assert_eq!(error.retry(), Retry::Later);
        let IoQueueError::Saturated { hanging, named } = &error else {
            panic!("{error}");
        };
        assert_eq!((*hanging, named.len()), (DEVICE_PERMITS, MAX_NAMED_VOLUMES));
        let text = error.to_string();
        let begin = format!("waits for a permit: {DEVICE_PERMITS} volumes hang: d^");
        assert!(text.starts_with(&begin), "{text}");
        let end = "(looking at a volume) and 125 others";
        assert!(text.ends_with(end), "{text}");
        // as long as the same hang the words are the same
        assert_eq!(look().await, Err(error));
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
        look().await.expect("a permit");
    });
}

#[test]
fn a_pod_hears_that_its_device_waits_for_a_place_and_another_has_its_files_meanwhile() {
    let temp = tempfile::tempdir().expect("a directory");
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_millis(600)));
        let hung = Hung::begin(&queues, (0..DEVICE_PERMITS).map(device));
        until("all permits are taken", || running(&queues) == DEVICE_PERMITS).await;
        let paths = NodePaths {
            root_dir: temp.path().to_owned(),
            ..NodePaths::default()
        };
        let volumes = HostVolumes::new(paths, Arc::clone(&queues));
        let set_up = async |name: &str, source: VolumeSource| {
            let mut pod = Pod::default();
            pod.metadata.uid = Some(format!("{name}-uid"));
            let volume = PodVolume {
                name: name.to_owned(),
                source,
                read_only: false,
                mount_options: Vec::new(),
                claim: None,
            };
            let request = VolumeRequest {
                pod: Arc::new(pod),
                volume,
                now: Timestamp::UNIX_EPOCH,
            };
            volumes.set_up(&request).await
        };
        let map = VolumeSource::Payload(PayloadKind::ConfigMap, VolumePayload::default());
        set_up("map", map).await.expect("files");
        let disk = VolumeSource::Local(LocalVolume {
            volume_name: "pv".to_owned(),
            path: temp.path().to_owned(),
            fs_type: None,
            block: false,
            size: None,
        });
        let error = set_up("disk", disk).await.expect_err("no permit");
        let text = error.to_string();
        assert!(
            text.starts_with("waits for a permit: 128 volumes hang: d^"),
            "{text}"
        );
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
    });
}

#[test]
fn what_hangs_on_the_disk_gives_its_place_to_who_waits() {
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(4)));
        let pods = (0..DISK_PERMITS).map(|pod| IoQueue::Disk(format!("uid-{pod}")));
        let hung = Hung::begin(&queues, pods);
        until("all permits are taken", || running(&queues) == DISK_PERMITS).await;
        let work = queues.run("another", "writing", || Ok::<_, IoQueueError>(()));
        work.await.expect("a permit of one that took too long");
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
        assert_eq!(queues.permits.disk.available_permits(), DISK_PERMITS);
        assert_eq!(queues.permits.device.available_permits(), DEVICE_PERMITS);
    });
}

#[test]
fn words_for_who_has_the_places() {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let check = |hanging: usize, names: &[&str], expected: &str| {
        let error = IoQueueError::Saturated {
            hanging,
            named: named(names),
        };
        assert_eq!(error.to_string(), format!("waits for a permit: {expected}"));
    };
    check(0, &[], "128 volumes are being worked on");
    check(2, &["a", "b"], "2 volumes hang: a, b");
    check(9, &["a", "b", "c"], "9 volumes hang: a, b, c and 6 others");
}
