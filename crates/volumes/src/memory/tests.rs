//! Invariant violations that the model records.

use windlass_types::{Pod, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::{LocalVolume, PodVolume, VolumeSource};

use super::*;

fn request(source: VolumeSource) -> VolumeRequest {
    let mut pod = Pod::default();
    pod.metadata.uid = Some("u".into());
    VolumeRequest {
        pod: SharedPod::new(pod),
        volume: PodVolume {
            name: "v".into(),
            source,
            read_only: false,
            mount_options: Vec::new(),
            pvc: None,
        },
        now: Timestamp::UNIX_EPOCH,
    }
}

fn local() -> VolumeRequest {
    request(VolumeSource::Local(LocalVolume {
        volume_name: "pv".into(),
        path: "/disk".into(),
        fs_type: None,
        block: false,
        size: None,
    }))
}

#[tokio::test(start_paused = true)]
async fn steps_out_of_order_are_violations() {
    let volumes = MemoryVolumes::default();
    let uid = PodUid::from("u");
    let empty = request(VolumeSource::EmptyDir(Default::default()));
    let path = Path::new("/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/v/sub");
    volumes.check_paths(&uid, [path]);
    volumes.set_up(&empty).await.expect("mounted");
    volumes.check_paths(&uid, [path]);
    volumes.set_up(&local()).await.expect("mounted");
    let device = local().volume.device().expect("a device");
    volumes.unstage(&device).await.expect("unstaged");
    volumes.watch_pods(|_| true);
    for found in volumes.find(&uid).await.expect("found") {
        volumes.tear_down(&uid, &found).await.expect("gone");
    }
    volumes.hang(VolumeStep::Mount, "u", true);
    let twice = async { tokio::join!(volumes.set_up(&empty), volumes.set_up(&empty)) };
    let hung = tokio::time::timeout(HANG_CHECK_INTERVAL, twice).await;
    assert!(hung.is_err());
    let expected = [
        format!("{} is not mounted", path.display()),
        format!("mount u/v while {device} is not staged"),
        format!("{device} is unstaged while u/pv is there"),
        "unmount u/v while the pod runs".to_owned(),
        "unmount u/pv while the pod runs".to_owned(),
        "mount u/v is already in progress".to_owned(),
    ];
    assert_eq!(volumes.violations(), expected);
}

#[tokio::test(start_paused = true)]
async fn killed_run_leaves_started_steps_to_the_next() {
    let volumes = MemoryVolumes::default();
    let uid = PodUid::from("u");
    let empty = request(VolumeSource::EmptyDir(Default::default()));
    volumes.set_latency(HANG_CHECK_INTERVAL);
    let run = volumes.new_agent_run();
    let begun = tokio::time::timeout(HANG_CHECK_INTERVAL * 3 / 2, run.set_up(&empty)).await;
    assert!(begun.is_err());
    run.kill();
    let dead = tokio::time::timeout(HANG_CHECK_INTERVAL * 10, run.set_up(&empty)).await;
    assert!(dead.is_err() && volumes.mounted(&uid).is_empty());
    let next = volumes.new_agent_run();
    assert_eq!(next.find(&uid).await.expect("found").len(), 1);
    next.set_up(&empty).await.expect("mounted");
    assert_eq!(volumes.mounted(&uid), ["v".to_owned()].into());
    assert_eq!(volumes.violations(), [""; 0]);
}
