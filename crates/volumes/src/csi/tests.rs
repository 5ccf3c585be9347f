//! What is left to do around a CSI volume on a real machine.

use std::fs;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use windlass_pod_inputs::paths::NodePaths;
use windlass_csi::{UsageEntry, UsageUnit, VolumeUsage};

use super::*;
use crate::io_queue::IoQueues;
use crate::port::VolumePlugins;
use crate::{HostVolumes, mounts_beneath};

#[test]
fn what_containers_left_mounted_in_a_volume_goes_and_the_volume_stays() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounting tmpfs needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mount");
    for path in [target.clone(), target.join("a"), target.join("a/b")] {
        fs::create_dir(&path).unwrap();
        mount("tmpfs", &path, "tmpfs", MountFlags::empty(), c"size=64k").unwrap();
    }
    unmount_below(&target).unwrap();
    let left = mounts_beneath(dir.path()).unwrap();
    let left: Vec<_> = left.into_iter().map(|mount| mount.path).collect();
    unmount(&target, UnmountFlags::empty()).unwrap();
    assert_eq!(left, [target.canonicalize().unwrap()]);
    unmount_below(&target.join("missing")).unwrap();
}

#[test]
fn what_a_driver_measured_is_shown_with_its_name_if_it_told_bytes() {
    let entry = |unit, total| UsageEntry {
        unit,
        available: 1,
        total,
        used: 2,
    };
    let usage = |entries| VolumeUsage {
        entries,
        abnormal: None,
    };
    let both = usage(vec![
        entry(UsageUnit::Inodes, 30),
        entry(UsageUnit::Bytes, 3),
    ]);
    let (stats, source) = measured("d.io", &both).unwrap();
    assert_eq!(source, StatsSource::Driver("d.io".to_owned()));
    assert_eq!((stats.capacity, stats.used, stats.inodes), (3, 2, 30));
    assert_eq!(
        measured("d.io", &usage(vec![entry(UsageUnit::Inodes, 30)])),
        None
    );
}

#[tokio::test]
async fn an_agent_without_an_api_server_finds_csi_volumes_and_says_that_it_cannot_take_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let paths = NodePaths {
        root_dir: dir.path().to_owned(),
        ..NodePaths::default()
    };
    let volume = dir.path().join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
    fs::create_dir_all(&volume).unwrap();
    let notes = r#"{"driverName":"d.io","volumeHandle":"v","specVolID":"pv-1"}"#;
    fs::write(volume.join("vol_data.json"), notes).unwrap();
    let queues = Arc::new(IoQueues::new(Duration::from_secs(30)));
    let volumes = HostVolumes::new(paths, queues);
    let uid = PodUid::from("uid-1");
    let found = volumes.find(&uid).await.unwrap();
    let device = found[0].device.as_ref().map(ToString::to_string);
    assert_eq!(device.as_deref(), Some("kubernetes.io/csi/d.io^v"));
    let error = volumes.tear_down(&uid, &found[0]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "kubernetes.io/csi: the agent is not connected to an API server"
    );
    assert!(volume.join("vol_data.json").exists());
}
