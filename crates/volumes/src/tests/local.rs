//! Local volumes: directories, file systems of devices, devices.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use windlass_types::MountedContent;

use super::fixture::{Fixture, LoopDevice, VolumeSpec, local};
use super::mode;
use crate::VolumePlugins;

const PLACE: &str = "volumes/kubernetes.io~local-volume/pv";

#[tokio::test]
async fn directory_is_mounted_for_each_pod_and_keeps_its_content() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let disk = fixture.at("disk");
    fs::create_dir(&disk).expect("dir");
    symlink(&disk, fixture.at("link")).expect("link");
    let writer =
        VolumeSpec::new("1", local(fixture.at("link"), false)).options(&["nosuid", "discard"]);
    let reader = VolumeSpec::new("2", local(&disk, false)).read_only();
    let agent = fixture.agent();
    let path = writer.set_up(&agent).await.expect("set up");
    assert_eq!(path, fixture.at("pods/1").join(PLACE));
    fs::write(path.join("kept"), "x").expect("write");
    let read = reader.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    for (spec, relabel) in [(&writer, true), (&reader, false)] {
        let mounted = agent.set_up(&spec.request()).await.expect("again");
        assert_eq!(mounted.relabel, relabel);
    }
    let refused = fs::write(read.join("new"), "x").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let options = |uid: &str| {
        let mounts = crate::mounts_beneath(&fixture.at("pods").join(uid)).expect("mounts");
        mounts[0].options.clone()
    };
    assert!(options("1").contains("nosuid"), "{}", options("1"));
    // the next agent run changes nothing, and nested mounts are unmounted first
    fs::create_dir(path.join("below")).expect("dir");
    rustix::mount::mount_bind(&read, path.join("below")).expect("bind");
    let agent = fixture.agent();
    writer.set_up(&agent).await.expect("again");
    assert_eq!(fixture.mounts().len(), 3);
    assert!(reader.volume.device() == reader.found(&agent).await[0].device);
    writer.release(&agent).await.expect("release");
    assert!(!path.exists());
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    reader.release(&agent).await.expect("release");
    reader.release(&agent).await.expect("twice is fine");
    assert!(fixture.mounts().is_empty());
    assert_eq!(fs::read_to_string(disk.join("kept")).expect("read"), "x");
}

#[tokio::test]
async fn invalid_local_volumes_are_rejected_with_upstream_errors() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::write(fixture.at("file"), "x").expect("file");
    let agent = fixture.agent();
    let check = async |path: &str, block, expected: &str| {
        let path = match path.strip_prefix('$') {
            Some(below) => fixture.at(below.trim_start_matches('/')),
            None => path.into(),
        };
        let spec = VolumeSpec::new("1", local(path, block));
        let error = spec.set_up(&agent).await.expect_err(expected);
        let step = error.step().unwrap_or("-");
        assert_eq!(
            format!("{step}: {} ({})", fixture.text(&error), error.retry()),
            expected
        );
    };
    let new_mounter = "MountVolume.NewMounter initialization";
    check(
        "$/gone",
        false,
        &format!("{new_mounter}: path \"$/gone\" does not exist (later)"),
    )
    .await;
    check(
        "$/file",
        false,
        &format!("{new_mounter}: only directory and block device are supported (later)"),
    )
    .await;
    check(
        "$/gone",
        true,
        "MapVolume.EvalHostSymlinks: path \"$/gone\" does not exist (later)",
    )
    .await;
    check(
        "$/file",
        true,
        "-: path \"$/file\" is not a block device (later)",
    )
    .await;
    check(
        "/a/../b",
        false,
        "-: volume \"pv\": invalid path: /a/../b must not contain '..' (never)",
    )
    .await;
    check(
        "",
        false,
        "-: volume \"pv\": local volume source is nil or local path is not set (never)",
    )
    .await;
    assert!(fixture.mounts().is_empty());
}

#[tokio::test]
async fn shared_directory_gets_the_group_of_the_first_pod() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let disk = fixture.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("file"), "x").expect("write");
    let gid = || fs::metadata(disk.join("file")).expect("metadata").gid();
    let agent = fixture.agent();
    let reader = VolumeSpec::new("0", local(&disk, false))
        .read_only()
        .group(1000);
    reader.set_up(&agent).await.expect("set up");
    assert_eq!(gid(), 0, "nothing is given away through a read-only mount");
    reader.release(&agent).await.expect("release");

    let first = VolumeSpec::new("1", local(&disk, false)).group(2000);
    first.set_up(&agent).await.expect("set up");
    assert_eq!((gid(), mode(&disk.join("file"))), (2000, 0o664));
    let second = VolumeSpec::new("2", local(&disk, false)).group(3000);
    second.set_up(&agent).await.expect("set up");
    assert_eq!(gid(), 2000);
    assert_eq!(
        fixture.events.lines(),
        [
            "Warning AlreadyMountedVolume The requested fsGroup is 3000, but the volume pv has GID 2000. The volume may not be shareable."
        ]
    );
    first.release(&agent).await.expect("release");
    second.release(&agent).await.expect("release");
    second.set_up(&agent).await.expect("set up");
    assert_eq!(gid(), 3000, "now it is the first");
    second.release(&agent).await.expect("release");
}

#[tokio::test]
async fn directory_behind_a_link_gets_the_group_of_its_pod() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let disk = fixture.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("file"), "").expect("file");
    symlink(&disk, fixture.at("link")).expect("link");
    let agent = fixture.agent();
    let spec = VolumeSpec::new("1", local(fixture.at("link"), false)).group(4242);
    let path = spec.set_up(&agent).await.expect("set up");
    let group = |path: &std::path::Path| path.metadata().expect("metadata").gid();
    assert_eq!((group(&disk), group(&path.join("file"))), (4242, 4242));
    spec.release(&agent).await.expect("release");
    assert!(disk.join("file").exists());
}

#[tokio::test]
async fn only_an_empty_device_is_formatted() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let agent = fixture.agent();
    let spec = VolumeSpec::new("1", local(&device.path, false)).options(&["noatime"]);
    let refused = spec.clone().read_only().set_up(&agent).await;
    let refused = fixture.text(&refused.expect_err("read-only"));
    assert!(
        refused.ends_with("as we are manipulating it in read-only mode"),
        "{refused}"
    );
    let path = spec.set_up(&agent).await.expect("set up");
    let global = "plugins/kubernetes.io/local-volume/mounts/pv".to_owned();
    assert_eq!(
        fixture.mounts(),
        [global.clone(), format!("pods/1/{PLACE}")]
    );
    fs::write(path.join("kept"), "x").expect("write");
    let other = VolumeSpec::new("2", local(&device.path, false)).read_only();
    let read = other.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    let found = agent.find_devices().await.expect("devices");
    assert_eq!(found, [spec.volume.device().expect("device")]);
    let agent = fixture.agent();
    let error = spec.release(&agent).await.expect_err("in use");
    assert_eq!(
        fixture.text(&error),
        format!(
            "The device mount path \"$/{global}\" is still mounted by other references [$/pods/2/{PLACE}]"
        )
    );
    other.release(&agent).await.expect("release");
    assert!(fixture.mounts().is_empty());
    assert!(agent.find_devices().await.expect("devices").is_empty());
    let path = spec.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    spec.release(&agent).await.expect("release");
}

#[tokio::test]
async fn mounted_file_system_is_resized_with_its_device() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let agent = fixture.agent();
    let spec = VolumeSpec::new("1", local(&device.path, false));
    let path = spec.set_up(&agent).await.expect("set up");
    fs::write(path.join("kept"), "x").expect("write");
    let size = || {
        let of = rustix::fs::statvfs(&path).expect("statvfs");
        of.f_blocks * of.f_frsize
    };
    let before = size();
    agent
        .expand(&spec.request(), 32 << 20)
        .await
        .expect("as large as it is");
    assert_eq!(size(), before);
    device.resize_to(32 << 20);
    let grown = agent.expand(&spec.request(), 32 << 20).await;
    if may_resize() {
        grown.expect("grows");
        assert!(size() > before + (12 << 20), "{before} became {}", size());
        let again = agent.expand(&spec.request(), 32 << 20).await;
        again.expect("once more");
    } else {
        // the kernel decides
        let text = grown.expect_err("not allowed").to_string();
        let name = device.path.display();
        let start = format!("resize of device {name} failed: exit status 1. resize2fs output: ");
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("Permission denied to resize"), "{text}");
        assert_eq!(size(), before);
    }
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    spec.release(&agent).await.expect("release");
    // no file system to resize
    let block = VolumeSpec::new("2", local(&device.path, true));
    agent.expand(&block.request(), 1).await.expect("a device");
    let directory = VolumeSpec::new("3", local(fixture.at("."), false));
    agent
        .expand(&directory.request(), 1)
        .await
        .expect("a directory");
}

/// Resizing a mounted file system requires `CAP_SYS_RESOURCE`.
fn may_resize() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let mut lines = status.lines();
    let set = lines.find_map(|line| line.strip_prefix("CapEff:\t"));
    let set = u64::from_str_radix(set.expect("a set"), 16).expect("a number");
    set & SYS_RESOURCE != 0
}

#[tokio::test]
async fn file_system_is_resized_by_its_own_program() {
    let Some(mut fixture) = Fixture::new() else {
        return;
    };
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let name = device.path.display().to_string();
    let place = format!("$/pods/1/{PLACE}");
    for program in ["xfs_growfs", "btrfs", "resize2fs"] {
        fixture.replace_program(program, "echo \"$@\" >&2; exit 3");
    }
    for (present, expected) in [
        (
            "xfs",
            format!(
                "resize of device {place} failed: exit status 3. xfs_growfs output: -d {place}\n"
            ),
        ),
        (
            "btrfs",
            format!(
                "resize of device {place} failed: exit status 3. btrfs output: filesystem resize \
                 max {place}\n"
            ),
        ),
        (
            "ext3",
            format!("resize of device {name} failed: exit status 3. resize2fs output: {name}\n"),
        ),
        (
            "vfat",
            format!(
                "ResizeFS.Resize - resize of format vfat is not supported for device {name} \
                 mounted at {place}"
            ),
        ),
    ] {
        fixture.replace_program("blkid", &format!("echo TYPE={present}"));
        let spec = VolumeSpec::new("1", local(&device.path, false));
        let error = fixture.agent().expand(&spec.request(), 1).await;
        assert_eq!(fixture.text(&error.expect_err(present)), expected);
    }
    fixture.replace_program("blkid", "exit 2");
    let spec = VolumeSpec::new("1", local(&device.path, false));
    let nothing = fixture.agent().expand(&spec.request(), 1).await;
    nothing.expect("nothing is on it");
}

#[tokio::test]
async fn unreadable_device_is_not_formatted() {
    let (Some(mut fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    fixture.replace_program("mkfs.ext4", "echo \"$@\" >\"$0.log\"");
    fixture.replace_program("blkid", "exec /sbin/blkid \"$@\"");
    device.run("mkfs.ext4", &["-q", "-F"]);
    // every read now fails, which `blkid` reports as "nothing found"
    device.lose_content();
    let spec = VolumeSpec::new("1", local(&device.path, false));
    let error = spec.set_up(&fixture.agent()).await.expect_err("unreadable");
    let message = fixture.text(&error);
    let expected = format!(
        "failed to get disk format of disk {}: Input/output error (os error 5)",
        device.path.display()
    );
    assert!(message.ends_with(&expected), "{message}");
    assert!(!fixture.at("programs/mkfs.ext4.log").exists(), "formatted");
    assert!(fixture.mounts().is_empty());
}

#[tokio::test]
async fn device_with_partitions_or_file_system_is_not_formatted() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let agent = fixture.agent();
    let spec = VolumeSpec::new("1", local(&device.path, false));
    // one partition of type 83 and the signature of a partition table
    device.write(446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    device.write(510, &[0x55, 0xaa]);
    let before = device.content();
    let error = spec.set_up(&agent).await.expect_err("not a file system");
    let text = error.to_string();
    let start = format!(
        "local: failed to mount device {} at ",
        device.path.display()
    );
    assert!(text.starts_with(&start), "{text}");
    let parts = [
        "(fstype: ext4), error mount failed: exit status 32",
        "Mounting command: mount\nMounting arguments: -t ext4 -o defaults ",
        "wrong fs type",
    ];
    for part in parts {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(device.content() == before, "nothing was written");
    assert!(fixture.mounts().is_empty());

    device.run(
        "mkfs.ext2",
        &["-q", "-F", "-U", "c474bf8e-af6e-444d-a77c-2747cf19c944"],
    );
    spec.set_up(&agent).await.expect("ext4 reads ext2");
    spec.release(&agent).await.expect("release");
    let uuid = [0xc4, 0x74, 0xbf, 0x8e, 0xaf, 0x6e, 0x44, 0x4d];
    assert_eq!(device.content()[1024 + 104..1024 + 112], uuid);
}

#[tokio::test]
async fn device_is_mapped_and_unmapped_for_each_pod() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let agent = fixture.agent();
    symlink(&device.path, fixture.at("disk")).expect("link");
    let first = VolumeSpec::new("1", local(fixture.at("disk"), true));
    let second = VolumeSpec::new("2", local(fixture.at("disk"), true)).read_only();
    let link = first.set_up(&agent).await.expect("set up");
    assert_eq!(
        link,
        fixture.at("pods/1/volumeDevices/kubernetes.io~local-volume/pv")
    );
    assert_eq!(fs::read_link(&link).expect("link"), device.path);
    second.set_up(&agent).await.expect("set up");
    first.set_up(&fixture.agent()).await.expect("a later agent");
    let node = |uid: &str| format!("plugins/kubernetes.io~local-volume/volumeDevices/pv/{uid}");
    assert_eq!(fixture.mounts(), [node("1"), node("2")]);
    let mounted = agent.set_up(&first.request()).await.expect("again");
    assert_eq!(mounted.content, MountedContent::Device(link.clone()));
    let rdev = |path| fs::metadata(path).expect("metadata").rdev();
    assert_eq!(rdev(fixture.at(&node("1"))), rdev(device.path.clone()));
    // as the Go kubelet leaves it
    let node_of_second = fixture.at(&node("2"));
    let losetup = std::process::Command::new("losetup")
        .arg("-f")
        .arg(&node_of_second)
        .status();
    assert!(losetup.expect("start").success());

    let agent = fixture.agent();
    assert!(first.found(&agent).await[0].block);
    first.release(&agent).await.expect("release");
    assert!(fs::symlink_metadata(&link).is_err());
    assert_eq!(fixture.mounts(), [node("2")]);
    second.release(&agent).await.expect("release");
    assert!(fixture.mounts().is_empty());
    assert!(agent.find_devices().await.expect("devices").is_empty());
}
