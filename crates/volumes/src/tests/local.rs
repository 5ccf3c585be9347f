//! Local volumes: directories, file systems of devices, devices.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use windlass_types::MountedContent;

use super::bed::{Asked, Bed, LoopDevice, local};
use super::mode;
use crate::VolumePlugins;

const PLACE: &str = "volumes/kubernetes.io~local-volume/pv";

#[tokio::test]
async fn a_directory_is_shown_to_each_pod_and_its_content_outlives_them() {
    let Some(bed) = Bed::new() else { return };
    let disk = bed.at("disk");
    fs::create_dir(&disk).expect("dir");
    symlink(&disk, bed.at("link")).expect("link");
    let writer = Asked::new("1", local(bed.at("link"), false)).options(&["nosuid", "discard"]);
    let reader = Asked::new("2", local(&disk, false)).read_only();
    let agent = bed.agent();
    let path = writer.set_up(&agent).await.expect("set up");
    assert_eq!(path, bed.at("pods/1").join(PLACE));
    fs::write(path.join("kept"), "x").expect("write");
    let read = reader.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    for (asked, relabel) in [(&writer, true), (&reader, false)] {
        let mounted = agent.set_up(&asked.request()).await.expect("again");
        assert_eq!(mounted.relabel, relabel);
    }
    let refused = fs::write(read.join("new"), "x").expect_err("read-only");
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    let options = |uid: &str| {
        let mounts = crate::mounts_beneath(&bed.at("pods").join(uid)).expect("mounts");
        mounts[0].options.clone()
    };
    assert!(options("1").contains("nosuid"), "{}", options("1"));
    // an agent that comes later changes nothing, and what is below goes first
    fs::create_dir(path.join("below")).expect("dir");
    rustix::mount::mount_bind(&read, path.join("below")).expect("bind");
    let agent = bed.agent();
    writer.set_up(&agent).await.expect("again");
    assert_eq!(bed.mounts().len(), 3);
    assert!(reader.volume.device() == reader.found(&agent).await[0].device);
    writer.release(&agent).await.expect("release");
    assert!(!path.exists());
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    reader.release(&agent).await.expect("release");
    reader.release(&agent).await.expect("twice is fine");
    assert!(bed.mounts().is_empty());
    assert_eq!(fs::read_to_string(disk.join("kept")).expect("read"), "x");
}

#[tokio::test]
async fn what_cannot_be_a_local_volume_is_refused_in_upstreams_words() {
    let Some(bed) = Bed::new() else { return };
    fs::write(bed.at("file"), "x").expect("file");
    let agent = bed.agent();
    let check = async |path: &str, block, expected: &str| {
        let path = match path.strip_prefix('$') {
            Some(below) => bed.at(below.trim_start_matches('/')),
            None => path.into(),
        };
        let asked = Asked::new("1", local(path, block));
        let error = asked.set_up(&agent).await.expect_err(expected);
        let step = error.step().unwrap_or("-");
        assert_eq!(
            format!("{step}: {} ({})", bed.text(&error), error.retry()),
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
    assert!(bed.mounts().is_empty());
}

#[tokio::test]
async fn a_shared_directory_belongs_to_the_group_of_the_first_pod() {
    let Some(bed) = Bed::new() else { return };
    let disk = bed.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("file"), "x").expect("write");
    let gid = || fs::metadata(disk.join("file")).expect("metadata").gid();
    let agent = bed.agent();
    let reader = Asked::new("0", local(&disk, false)).read_only().group(1000);
    reader.set_up(&agent).await.expect("set up");
    assert_eq!(gid(), 0, "nothing is given away through a read-only mount");
    reader.release(&agent).await.expect("release");

    let first = Asked::new("1", local(&disk, false)).group(2000);
    first.set_up(&agent).await.expect("set up");
    assert_eq!((gid(), mode(&disk.join("file"))), (2000, 0o664));
    let second = Asked::new("2", local(&disk, false)).group(3000);
    second.set_up(&agent).await.expect("set up");
    assert_eq!(gid(), 2000);
    assert_eq!(
        bed.told.lines(),
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
async fn a_directory_behind_a_link_belongs_to_the_group_of_its_pod() {
    let Some(bed) = Bed::new() else { return };
    let disk = bed.at("disk");
    fs::create_dir(&disk).expect("dir");
    fs::write(disk.join("file"), "").expect("file");
    symlink(&disk, bed.at("link")).expect("link");
    let agent = bed.agent();
    let asked = Asked::new("1", local(bed.at("link"), false)).group(4242);
    let path = asked.set_up(&agent).await.expect("set up");
    let group = |path: &std::path::Path| path.metadata().expect("metadata").gid();
    assert_eq!((group(&disk), group(&path.join("file"))), (4242, 4242));
    asked.release(&agent).await.expect("release");
    assert!(disk.join("file").exists());
}

#[tokio::test]
async fn an_empty_device_gets_a_file_system_and_a_used_one_keeps_its_own() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let agent = bed.agent();
    let asked = Asked::new("1", local(&device.path, false)).options(&["noatime"]);
    let refused = asked.clone().read_only().set_up(&agent).await;
    let refused = bed.text(&refused.expect_err("read-only"));
    assert!(
        refused.ends_with("as we are manipulating it in read-only mode"),
        "{refused}"
    );
    let path = asked.set_up(&agent).await.expect("set up");
    let global = "plugins/kubernetes.io/local-volume/mounts/pv".to_owned();
    assert_eq!(bed.mounts(), [global.clone(), format!("pods/1/{PLACE}")]);
    fs::write(path.join("kept"), "x").expect("write");
    let other = Asked::new("2", local(&device.path, false)).read_only();
    let read = other.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(read.join("kept")).expect("read"), "x");
    let found = agent.find_devices().await.expect("devices");
    assert_eq!(found, [asked.volume.device().expect("device")]);
    let agent = bed.agent();
    let error = asked.release(&agent).await.expect_err("in use");
    assert_eq!(
        bed.text(&error),
        format!(
            "The device mount path \"$/{global}\" is still mounted by other references [$/pods/2/{PLACE}]"
        )
    );
    other.release(&agent).await.expect("release");
    assert!(bed.mounts().is_empty());
    assert!(agent.find_devices().await.expect("devices").is_empty());
    let path = asked.set_up(&agent).await.expect("set up");
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    asked.release(&agent).await.expect("release");
}

#[tokio::test]
async fn the_file_system_of_a_device_grows_with_it_while_it_is_mounted() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let agent = bed.agent();
    let asked = Asked::new("1", local(&device.path, false));
    let path = asked.set_up(&agent).await.expect("set up");
    fs::write(path.join("kept"), "x").expect("write");
    let size = || {
        let of = rustix::fs::statvfs(&path).expect("statvfs");
        of.f_blocks * of.f_frsize
    };
    let before = size();
    agent
        .expand(&asked.request(), 32 << 20)
        .await
        .expect("as large as it is");
    assert_eq!(size(), before);
    device.grow_to(32 << 20);
    let grown = agent.expand(&asked.request(), 32 << 20).await;
    if may_resize() {
        grown.expect("grows");
        assert!(size() > before + (12 << 20), "{before} became {}", size());
        let again = agent.expand(&asked.request(), 32 << 20).await;
        again.expect("once more");
    } else {
        // the kernel has the last word
        let text = grown.expect_err("not allowed").to_string();
        let name = device.path.display();
        let start = format!("resize of device {name} failed: exit status 1. resize2fs output: ");
        assert!(text.starts_with(&start), "{text}");
        assert!(text.contains("Permission denied to resize"), "{text}");
        assert_eq!(size(), before);
    }
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    asked.release(&agent).await.expect("release");
    // what is no file system has nothing to grow
    let block = Asked::new("2", local(&device.path, true));
    agent.expand(&block.request(), 1).await.expect("a device");
    let directory = Asked::new("3", local(bed.at("."), false));
    agent
        .expand(&directory.request(), 1)
        .await
        .expect("a directory");
}

/// The kernel lets nobody resize a mounted file system without `CAP_SYS_RESOURCE`.
fn may_resize() -> bool {
    const SYS_RESOURCE: u64 = 1 << 24;
    let status = fs::read_to_string("/proc/self/status").expect("status");
    let mut lines = status.lines();
    let set = lines.find_map(|line| line.strip_prefix("CapEff:\t"));
    let set = u64::from_str_radix(set.expect("a set"), 16).expect("a number");
    set & SYS_RESOURCE != 0
}

#[tokio::test]
async fn each_file_system_is_grown_by_its_own_program_or_refused_in_upstreams_words() {
    let Some(mut bed) = Bed::new() else { return };
    let Some(device) = LoopDevice::new() else {
        return;
    };
    let name = device.path.display().to_string();
    let place = format!("$/pods/1/{PLACE}");
    for program in ["xfs_growfs", "btrfs", "resize2fs"] {
        bed.replace_program(program, "echo \"$@\" >&2; exit 3");
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
        bed.replace_program("blkid", &format!("echo TYPE={present}"));
        let asked = Asked::new("1", local(&device.path, false));
        let error = bed.agent().expand(&asked.request(), 1).await;
        assert_eq!(bed.text(&error.expect_err(present)), expected);
    }
    bed.replace_program("blkid", "exit 2");
    let asked = Asked::new("1", local(&device.path, false));
    let nothing = bed.agent().expand(&asked.request(), 1).await;
    nothing.expect("nothing is on it");
}

#[tokio::test]
async fn a_device_that_cannot_be_read_is_never_formatted() {
    let (Some(mut bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    bed.replace_program("mkfs.ext4", "echo \"$@\" >\"$0.log\"");
    bed.replace_program("blkid", "exec /sbin/blkid \"$@\"");
    device.run("mkfs.ext4", &["-q", "-F"]);
    // every read of the device is an error from here on; `blkid` calls that "nothing found"
    device.lose_content();
    let asked = Asked::new("1", local(&device.path, false));
    let error = asked.set_up(&bed.agent()).await.expect_err("unreadable");
    let message = bed.text(&error);
    let expected = format!(
        "failed to get disk format of disk {}: Input/output error (os error 5)",
        device.path.display()
    );
    assert!(message.ends_with(&expected), "{message}");
    assert!(!bed.at("programs/mkfs.ext4.log").exists(), "formatted");
    assert!(bed.mounts().is_empty());
}

#[tokio::test]
async fn a_device_with_partitions_or_another_file_system_is_never_formatted() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let agent = bed.agent();
    let asked = Asked::new("1", local(&device.path, false));
    // one partition of type 83 and the signature of a partition table
    device.write(446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0]);
    device.write(510, &[0x55, 0xaa]);
    let before = device.content();
    let error = asked.set_up(&agent).await.expect_err("not a file system");
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
    assert!(bed.mounts().is_empty());

    device.run(
        "mkfs.ext2",
        &["-q", "-F", "-U", "c474bf8e-af6e-444d-a77c-2747cf19c944"],
    );
    asked.set_up(&agent).await.expect("ext4 reads ext2");
    asked.release(&agent).await.expect("release");
    let uuid = [0xc4, 0x74, 0xbf, 0x8e, 0xaf, 0x6e, 0x44, 0x4d];
    assert_eq!(device.content()[1024 + 104..1024 + 112], uuid);
}

#[tokio::test]
async fn a_device_is_mapped_for_each_pod_and_unmapped_with_it() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let agent = bed.agent();
    symlink(&device.path, bed.at("disk")).expect("link");
    let first = Asked::new("1", local(bed.at("disk"), true));
    let second = Asked::new("2", local(bed.at("disk"), true)).read_only();
    let link = first.set_up(&agent).await.expect("set up");
    assert_eq!(
        link,
        bed.at("pods/1/volumeDevices/kubernetes.io~local-volume/pv")
    );
    assert_eq!(fs::read_link(&link).expect("link"), device.path);
    second.set_up(&agent).await.expect("set up");
    first.set_up(&bed.agent()).await.expect("a later agent");
    let node = |uid: &str| format!("plugins/kubernetes.io~local-volume/volumeDevices/pv/{uid}");
    assert_eq!(bed.mounts(), [node("1"), node("2")]);
    let mounted = agent.set_up(&first.request()).await.expect("again");
    assert_eq!(mounted.content, MountedContent::Device(link.clone()));
    let rdev = |path| fs::metadata(path).expect("metadata").rdev();
    assert_eq!(rdev(bed.at(&node("1"))), rdev(device.path.clone()));
    // as an agent that keeps a device by a loop device leaves it
    let node_of_second = bed.at(&node("2"));
    let losetup = std::process::Command::new("losetup")
        .arg("-f")
        .arg(&node_of_second)
        .status();
    assert!(losetup.expect("start").success());

    let agent = bed.agent();
    assert!(first.found(&agent).await[0].block);
    first.release(&agent).await.expect("release");
    assert!(fs::symlink_metadata(&link).is_err());
    assert_eq!(bed.mounts(), [node("2")]);
    second.release(&agent).await.expect("release");
    assert!(bed.mounts().is_empty());
    assert!(agent.find_devices().await.expect("devices").is_empty());
}
