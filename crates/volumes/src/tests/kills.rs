//! The agent dies between any two steps of what it does with a volume; the next one converges.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};
use windlass_volume_plan::volume_source::{PayloadKind, VolumeSource};
use windlass_types::corev1::EmptyDirVolumeSource;

use super::bed::{Asked, Bed, LoopDevice, local, nfs};
use super::temp;
use crate::VolumeError;
use crate::empty_dir::{EmptyDir, STEPS};
use windlass_volume_plan::empty_dir::EmptyDirMedium;

/// More steps than any plugin has.
const ENOUGH: usize = 20;

/// Kills the agent after each number of steps of setting up, then of releasing. `there` looks whether
/// what was set up is as asked.
async fn check_kills(bed: &Bed, asked: &Asked, there: impl Fn(&PathBuf)) {
    let mut deaths = 0;
    for steps in 0..ENOUGH {
        let killed = asked.set_up(&bed.mortal_agent(steps)).await;
        deaths += usize::from(killed.is_err());
        check_killed(killed.err());
        let path = asked.set_up(&bed.agent()).await.expect("the next agent");
        there(&path);
        let mounts = bed.mounts();
        asked.set_up(&bed.agent()).await.expect("and another");
        assert_eq!(bed.mounts(), mounts, "nothing is mounted twice");

        let killed = asked.release(&bed.mortal_agent(steps)).await;
        check_killed(killed.err());
        asked.release(&bed.agent()).await.expect("the next agent");
        assert!(bed.mounts().is_empty(), "after {steps} steps");
        assert!(asked.found(&bed.agent()).await.is_empty());

        // a pod that goes before it was set up
        let killed = asked.set_up(&bed.mortal_agent(steps)).await;
        check_killed(killed.err());
        asked.release(&bed.agent()).await.expect("the next agent");
        assert!(bed.mounts().is_empty(), "after {steps} steps");
        assert!(asked.found(&bed.agent()).await.is_empty());
    }
    assert!((1..ENOUGH).contains(&deaths), "{deaths} deaths");
}

fn check_killed(error: Option<VolumeError>) {
    if let Some(error) = error {
        assert!(
            error.to_string().contains("operation on killed was cancelled"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_directory_for_a_group_survives_kills() {
    let Some(bed) = Bed::new() else { return };
    let disk = bed.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("kept"), "x").expect("write");
    let asked = Asked::new("1", local(&disk, false))
        .group(2000)
        .options(&["nosuid"]);
    check_kills(&bed, &asked, |path| {
        assert!(path.join("kept").exists());
        let mounts = crate::mounts_beneath(path).expect("mounts");
        assert!(mounts[0].options.contains("nosuid"));
    })
    .await;
    assert!(disk.join("kept").exists());
}

#[tokio::test]
async fn the_file_system_of_a_device_survives_kills() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let asked = Asked::new("1", local(&device.path, false));
    check_kills(&bed, &asked, |path| {
        fs::write(path.join("kept"), "x").expect("write");
    })
    .await;
    let path = asked.set_up(&bed.agent()).await.expect("set up");
    assert!(path.join("kept").exists());
    asked.release(&bed.agent()).await.expect("release");
}

#[tokio::test]
async fn a_device_survives_kills() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let asked = Asked::new("1", local(&device.path, true));
    check_kills(&bed, &asked, |path| {
        assert_eq!(fs::read_link(path).expect("link"), device.path);
    })
    .await;
}

#[tokio::test]
async fn an_nfs_volume_survives_kills() {
    let Some(mut bed) = Bed::new() else { return };
    let mount = "for last; do :; done; exec /bin/mount -t tmpfs tmpfs \"$last\"";
    bed.replace_program("mount", mount);
    bed.replace_program("umount", "exec /bin/umount \"$@\"");
    let asked = Asked::new("1", nfs("server", "/e"));
    check_kills(&bed, &asked, |path| {
        fs::write(path.join("written"), "x").expect("write");
    })
    .await;
}

#[test]
fn an_empty_dir_survives_kills_at_each_step() {
    if !super::may_mount() {
        return;
    }
    let memory = EmptyDirMedium::Memory {
        size: Some(1 << 20),
    };
    for (medium, mode) in [(EmptyDirMedium::Disk, 0o2777), (memory, 0o3777)] {
        for steps in 0..=STEPS.len() {
            let root = temp();
            let (dir, notes) = (root.path().join("volume"), root.path().join("notes"));
            let empty_dir = EmptyDir {
                dir: &dir,
                medium,
                fs_group: Some(2000),
                notes: Some(&notes),
            };
            for step in &STEPS[..steps] {
                empty_dir.run(*step).expect("step");
            }
            empty_dir.set_up().expect("the next agent");
            assert_eq!(super::mode(&dir), mode, "{medium} after {steps}");
            fs::write(dir.join("kept"), "x").expect("write");
            empty_dir.set_up().expect("and another");
            assert!(dir.join("kept").exists());
            crate::pod_volumes::unmount_beneath(&dir).expect("unmount");
        }
    }
}

#[tokio::test]
async fn volumes_of_files_are_released_whatever_an_earlier_agent_left() {
    let Some(bed) = Bed::new() else { return };
    let file = PayloadFile {
        data: b"x"[..].into(),
        mode: 0o644,
        owner: None,
    };
    let payload = VolumePayload {
        files: BTreeMap::from([("key".to_owned(), file)]),
        in_memory: true,
    };
    let memory = EmptyDirVolumeSource {
        medium: Some("Memory".to_owned()),
        size_limit: None,
    };
    let sources = [
        VolumeSource::Payload(PayloadKind::Secret, payload),
        VolumeSource::EmptyDir(memory),
        VolumeSource::EmptyDir(EmptyDirVolumeSource::default()),
    ];
    for source in sources {
        let asked = Asked::new("1", source);
        let request = asked.request();
        let agent = bed.agent();
        let mounted = crate::VolumePlugins::set_up(&agent, &request)
            .await
            .expect("set up");
        fs::write(mounted.path().expect("path").join("more"), "x").expect("write");
        asked.release(&bed.agent()).await.expect("a later agent");
        assert!(bed.mounts().is_empty());
        assert!(asked.found(&bed.agent()).await.is_empty());
    }
}
