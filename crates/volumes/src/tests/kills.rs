//! The agent is killed between any two steps of a volume operation; the next agent run completes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};
use windlass_types::corev1::EmptyDirVolumeSource;
use windlass_volume_plan::volume_source::{PayloadKind, VolumeSource};

use super::fixture::{Fixture, LoopDevice, VolumeSpec, local, nfs};
use super::temp;
use crate::VolumeError;
use crate::empty_dir::{EmptyDir, STEPS};
use windlass_volume_plan::empty_dir::EmptyDirMedium;

/// More steps than any plugin has.
const MAX_STEPS: usize = 20;

/// Kills the agent after each step of the set-up, then of the tear-down. `check` verifies the volume.
async fn check_kills(fixture: &Fixture, spec: &VolumeSpec, check: impl Fn(&PathBuf)) {
    let mut deaths = 0;
    for steps in 0..MAX_STEPS {
        let killed = spec.set_up(&fixture.agent_killed_after(steps)).await;
        deaths += usize::from(killed.is_err());
        check_killed(killed.err());
        let path = spec.set_up(&fixture.agent()).await.expect("the next agent");
        check(&path);
        let mounts = fixture.mounts();
        spec.set_up(&fixture.agent()).await.expect("and another");
        assert_eq!(fixture.mounts(), mounts, "nothing is mounted twice");

        let killed = spec.release(&fixture.agent_killed_after(steps)).await;
        check_killed(killed.err());
        spec.release(&fixture.agent())
            .await
            .expect("the next agent");
        assert!(fixture.mounts().is_empty(), "after {steps} steps");
        assert!(spec.found(&fixture.agent()).await.is_empty());

        // tear-down after an incomplete set-up
        let killed = spec.set_up(&fixture.agent_killed_after(steps)).await;
        check_killed(killed.err());
        spec.release(&fixture.agent())
            .await
            .expect("the next agent");
        assert!(fixture.mounts().is_empty(), "after {steps} steps");
        assert!(spec.found(&fixture.agent()).await.is_empty());
    }
    assert!((1..MAX_STEPS).contains(&deaths), "{deaths} deaths");
}

fn check_killed(error: Option<VolumeError>) {
    if let Some(error) = error {
        assert!(
            error
                .to_string()
                .contains("operation on killed was cancelled"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn directory_with_fs_group_survives_kills() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let disk = fixture.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("kept"), "x").expect("write");
    let spec = VolumeSpec::new("1", local(&disk, false))
        .group(2000)
        .options(&["nosuid"]);
    check_kills(&fixture, &spec, |path| {
        assert!(path.join("kept").exists());
        let mounts = crate::mounts_beneath(path).expect("mounts");
        assert!(mounts[0].options.contains("nosuid"));
    })
    .await;
    assert!(disk.join("kept").exists());
}

#[tokio::test]
async fn file_system_of_a_device_survives_kills() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let spec = VolumeSpec::new("1", local(&device.path, false));
    check_kills(&fixture, &spec, |path| {
        fs::write(path.join("kept"), "x").expect("write");
    })
    .await;
    let path = spec.set_up(&fixture.agent()).await.expect("set up");
    assert!(path.join("kept").exists());
    spec.release(&fixture.agent()).await.expect("release");
}

#[tokio::test]
async fn block_device_survives_kills() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let spec = VolumeSpec::new("1", local(&device.path, true));
    check_kills(&fixture, &spec, |path| {
        assert_eq!(fs::read_link(path).expect("link"), device.path);
    })
    .await;
}

#[tokio::test]
async fn nfs_volume_survives_kills() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let mount = "for last; do :; done; exec /bin/mount -t tmpfs tmpfs \"$last\"";
    fixture.replace_program("mount", mount);
    fixture.replace_program("umount", "exec /bin/umount \"$@\"");
    let spec = VolumeSpec::new("1", nfs("server", "/e"));
    check_kills(&fixture, &spec, |path| {
        fs::write(path.join("written"), "x").expect("write");
    })
    .await;
}

#[test]
fn empty_dir_survives_kills() {
    if !super::may_mount() {
        return;
    }
    let memory = EmptyDirMedium::Memory {
        size: Some(1 << 20),
    };
    for (medium, mode) in [(EmptyDirMedium::Disk, 0o2777), (memory, 0o3777)] {
        for steps in 0..=STEPS.len() {
            let root = temp();
            let (dir, meta_dir) = (root.path().join("volume"), root.path().join("meta"));
            let empty_dir = EmptyDir {
                dir: &dir,
                medium,
                fs_group: Some(2000),
                meta_dir: Some(&meta_dir),
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
async fn incomplete_file_volumes_are_torn_down() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
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
        let spec = VolumeSpec::new("1", source);
        let request = spec.request();
        let agent = fixture.agent();
        let mounted = crate::VolumePlugins::set_up(&agent, &request)
            .await
            .expect("set up");
        fs::write(mounted.path().expect("path").join("more"), "x").expect("write");
        spec.release(&fixture.agent()).await.expect("a later agent");
        assert!(fixture.mounts().is_empty());
        assert!(spec.found(&fixture.agent()).await.is_empty());
    }
}
