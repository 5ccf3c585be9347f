//! Host operations of CSI volumes.

use std::fs;
use std::time::Duration;

use rustix::mount::{MountFlags, mount};
use windlass_csi::{UsageEntry, UsageUnit, VolumeUsage};
use windlass_pod_inputs::paths::NodePaths;

use super::*;
use crate::io_queue::IoQueues;
use crate::port::VolumePlugins;
use crate::{HostVolumes, mounts_beneath};

#[test]
fn nested_mounts_are_unmounted_and_the_volume_stays() {
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
fn driver_usage_needs_bytes() {
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
async fn csi_tear_down_without_api_server_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let paths = NodePaths {
        root_dir: dir.path().to_owned(),
        ..NodePaths::default()
    };
    let volume = dir.path().join("pods/uid-1/volumes/kubernetes.io~csi/pv-1");
    fs::create_dir_all(&volume).unwrap();
    let data = r#"{"driverName":"d.io","volumeHandle":"v","specVolID":"pv-1"}"#;
    fs::write(volume.join("vol_data.json"), data).unwrap();
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
