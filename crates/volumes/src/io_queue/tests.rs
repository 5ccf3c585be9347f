//! Disk and device permits, with calls that hang until the test releases them.

use std::sync::mpsc;

use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_inputs::projection::VolumePayload;
use windlass_types::{Pod, Timestamp};
use windlass_volume_plan::volume_source::{LocalVolume, PayloadKind, PodVolume, VolumeSource};

use super::*;
use crate::{HostVolumes, VolumePlugins, VolumeRequest};

/// Calls that hang until this is dropped.
struct Hung {
    gates: Vec<mpsc::Sender<()>>,
    calls: Vec<tokio::task::JoinHandle<Result<(), IoQueueError>>>,
}

impl Hung {
    /// Starts one call in each queue.
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
                queues.run_in(&queue, "inspecting a volume", hangs).await
            }));
        }
        hung
    }
}

/// A runtime with the thread limits of the agent.
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
    queues.permits.calls.lock().running.len()
}

fn device(index: usize) -> IoQueue {
    IoQueue::Device(format!("d^{index:03}"))
}

#[test]
fn hung_devices_do_not_delay_files_of_other_pods() {
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(600)));
        // two calls at each: the second waits in its queue without a permit
        let all = (0..400).map(|index| device(index % 200));
        let hung = Hung::begin(&queues, all);
        until("all permits are in use", || {
            running(&queues) == DEVICE_PERMITS
        })
        .await;
        let mut done = tokio::task::JoinSet::new();
        for pod in 0..1000 {
            let queues = Arc::clone(&queues);
            done.spawn(async move {
                let work = || Ok::<_, IoQueueError>(());
                queues.run(&format!("uid-{pod}"), "writing", work).await
            });
        }
        let done = timeout(Duration::from_secs(60), done.join_all()).await;
        let done = done.expect("disk calls do not wait for devices");
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
fn saturation_error_names_holders_until_they_finish() {
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_millis(600)));
        let hung = Hung::begin(&queues, (0..DEVICE_PERMITS).map(device));
        until("all permits are in use", || {
            running(&queues) == DEVICE_PERMITS
        })
        .await;
        let another = device(999);
        let look = || queues.run_in(&another, "looking", || Ok::<_, IoQueueError>(()));
        let error = look().await.expect_err("no permit");
        assert_eq!(error.retry(), Retry::Later);
        let IoQueueError::Saturated { hanging, named } = &error else {
            panic!("{error}");
        };
        assert_eq!((*hanging, named.len()), (DEVICE_PERMITS, MAX_NAMED_VOLUMES));
        let text = error.to_string();
        let begin = format!("no free I/O thread: {DEVICE_PERMITS} volumes hang: d^");
        assert!(text.starts_with(&begin), "{text}");
        let end = "(inspecting a volume) and 125 others";
        assert!(text.ends_with(end), "{text}");
        // the text is stable while the same calls hang
        assert_eq!(look().await, Err(error));
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
        look().await.expect("a permit");
    });
}

#[test]
fn saturated_device_does_not_delay_config_maps() {
    let temp = tempfile::tempdir().expect("a directory");
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_millis(600)));
        let hung = Hung::begin(&queues, (0..DEVICE_PERMITS).map(device));
        until("all permits are in use", || {
            running(&queues) == DEVICE_PERMITS
        })
        .await;
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
                pvc: None,
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
            text.starts_with("no free I/O thread: 128 volumes hang: d^"),
            "{text}"
        );
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
    });
}

#[test]
fn slow_disk_call_frees_its_permit_for_waiters() {
    runtime().block_on(async {
        let queues = Arc::new(IoQueues::new(Duration::from_secs(4)));
        let pods = (0..DISK_PERMITS).map(|pod| IoQueue::Disk(format!("uid-{pod}")));
        let hung = Hung::begin(&queues, pods);
        until("all permits are in use", || {
            running(&queues) == DISK_PERMITS
        })
        .await;
        let work = queues.run("another", "writing", || Ok::<_, IoQueueError>(()));
        work.await.expect("the permit of a slow call");
        drop(hung.gates);
        for call in hung.calls {
            let _ = call.await.expect("task");
        }
        assert_eq!(queues.permits.disk.available_permits(), DISK_PERMITS);
        assert_eq!(queues.permits.device.available_permits(), DEVICE_PERMITS);
    });
}

#[test]
fn saturation_error_describes_holders() {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let check = |hanging: usize, names: &[&str], expected: &str| {
        let error = IoQueueError::Saturated {
            hanging,
            named: named(names),
        };
        assert_eq!(error.to_string(), format!("no free I/O thread: {expected}"));
    };
    check(0, &[], "128 volumes are in use");
    check(2, &["a", "b"], "2 volumes hang: a, b");
    check(9, &["a", "b", "c"], "9 volumes hang: a, b, c and 6 others");
}
