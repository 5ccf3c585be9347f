//! File systems that are full, read-only, broken or busy.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};
use windlass_volume_plan::volume_source::{PayloadKind, VolumeSource};
use windlass_types::corev1::{Container, EmptyDirVolumeSource, ResourceRequirements};

use super::bed::{Asked, Bed, LoopDevice, local};
use super::mode;
use crate::{HostVolumes, HostVolumesConfig, VolumePlugins, VolumeRequest};

fn secret(bytes: usize) -> VolumeSource {
    let file = PayloadFile {
        data: vec![b'x'; bytes].into(),
        mode: 0o644,
        owner: None,
    };
    let payload = VolumePayload {
        files: BTreeMap::from([("key".to_owned(), file)]),
        in_memory: true,
    };
    VolumeSource::Payload(PayloadKind::Secret, payload)
}

fn empty_dir(medium: Option<&str>) -> VolumeSource {
    VolumeSource::EmptyDir(EmptyDirVolumeSource {
        medium: medium.map(str::to_owned),
        size_limit: None,
    })
}

/// The request of a pod with one container that has a limit.
fn limited(asked: &Asked, resource: &str, limit: &str) -> VolumeRequest {
    let mut request = asked.request();
    let limits = [(resource.to_owned(), Quantity(limit.to_owned()))];
    let container = Container {
        resources: Some(ResourceRequirements {
            limits: Some(limits.into()),
            ..ResourceRequirements::default()
        }),
        ..Container::default()
    };
    let mut pod = (*request.pod).clone();
    pod.spec.get_or_insert_default().containers = vec![container];
    request.pod = pod.into();
    request
}

#[tokio::test]
async fn a_secret_of_one_mebibyte_is_shown_whole() {
    let Some(bed) = Bed::new() else { return };
    let asked = Asked::new("1", secret(1 << 20));
    let agent = bed.agent();
    let mounted = agent.set_up(&asked.request()).await.expect("set up");
    let shown = fs::read(mounted.path().expect("path").join("key")).expect("read");
    assert_eq!(shown.len(), 1 << 20);
    asked.release(&agent).await.expect("release");
}

#[tokio::test]
async fn a_secret_that_does_not_fit_is_an_error_and_the_old_content_stays() {
    let Some(bed) = Bed::new() else { return };
    let agent = bed.agent();
    let small = Asked::new("1", secret(10));
    let request = limited(&small, "memory", "512Ki");
    let mounted = agent.set_up(&request).await.expect("set up");
    let key = mounted.path().expect("path").join("key");
    let large = Asked::new("1", secret(1 << 20));
    for _ in 0..2 {
        let request = limited(&large, "memory", "512Ki");
        let error = agent.set_up(&request).await.expect_err("too large");
        assert_eq!(
            bed.text(&error),
            "cannot write the content of $/pods/1/volumes/kubernetes.io~secret/data: No space left on device (os error 28)"
        );
        assert_eq!(fs::read(&key).expect("read"), b"xxxxxxxxxx");
    }
    // what was half written goes when there is content that fits
    let other = Asked::new("1", secret(20));
    let request = limited(&other, "memory", "512Ki");
    agent.set_up(&request).await.expect("set up");
    assert_eq!(fs::read(&key).expect("read").len(), 20);
    other.release(&agent).await.expect("release");
}

#[tokio::test]
async fn a_read_only_disk_keeps_volumes_from_being_made_until_it_is_writable() {
    let Some(bed) = Bed::new() else { return };
    let pods = bed.at("pods");
    fs::create_dir(&pods).expect("dir");
    mount_bind(&pods, &pods).expect("bind");
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    mount_remount(&pods, flags, c"").expect("remount");
    fs::create_dir(bed.at("disk")).expect("dir");
    let sources = [
        empty_dir(None),
        empty_dir(Some("Memory")),
        secret(1),
        local(bed.at("disk"), false),
    ];
    let agent = bed.agent();
    for source in &sources {
        let asked = Asked::new("1", source.clone());
        let error = asked.set_up(&agent).await.expect_err("read-only");
        let text = bed.text(&error);
        assert!(
            text.starts_with("cannot create directory $/pods/1/volumes/"),
            "{text}"
        );
        assert!(
            text.ends_with("Read-only file system (os error 30)"),
            "{text}"
        );
        asked.release(&agent).await.expect("nothing is there");
    }
    mount_remount(&pods, MountFlags::BIND, c"").expect("remount");
    for source in sources {
        let asked = Asked::new("1", source);
        asked.set_up(&agent).await.expect("writable again");
        asked.release(&agent).await.expect("release");
    }
    unmount(&pods, UnmountFlags::empty()).expect("unmount");
}

#[tokio::test]
async fn a_disk_that_answers_with_errors_fails_volumes_until_it_is_back() {
    let (Some(bed), Some(device)) = (Bed::new(), LoopDevice::new()) else {
        return;
    };
    let pods = bed.at("pods");
    fs::create_dir(&pods).expect("dir");
    device.run("mkfs.ext4", &["-q", "-F"]);
    let mount_disk = || {
        let none = None::<&std::ffi::CStr>;
        mount(&device.path, &pods, "ext4", MountFlags::empty(), none).expect("mount");
    };
    mount_disk();
    let agent = bed.agent();
    let old = Asked::new("1", empty_dir(None)).group(2000);
    let new = Asked::new("2", empty_dir(None)).group(2000);
    let path = old.set_up(&agent).await.expect("set up");
    fs::write(path.join("kept"), "x").expect("write");
    // EXT4_IOC_SHUTDOWN: from now on the file system answers as it does when its disk is gone
    let shutdown = "open(my $d, '<', $ARGV[0]) or die; my $f = pack('L', 0); ioctl($d, 0x8004587d, $f) or die $!;";
    let ended = Command::new("perl")
        .args(["-e", shutdown])
        .arg(&pods)
        .output();
    if !ended.as_ref().is_ok_and(|ended| ended.status.success()) {
        eprintln!("skipped: cannot break a file system: {ended:?}");
        return;
    }
    let error = new.set_up(&agent).await.expect_err("EIO");
    assert_eq!(
        bed.text(&error),
        "cannot create directory $/pods/2/volumes/kubernetes.io~empty-dir/data: Input/output error (os error 5)"
    );
    let error = old.release(&agent).await.expect_err("EIO");
    assert!(bed.text(&error).contains("Input/output error"), "{error}");

    unmount(&pods, UnmountFlags::empty()).expect("unmount");
    mount_disk();
    let agent = bed.agent();
    let path = old.set_up(&agent).await.expect("the disk is back");
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    new.set_up(&agent).await.expect("set up");
    old.release(&agent).await.expect("release");
    new.release(&agent).await.expect("release");
    unmount(&pods, UnmountFlags::empty()).expect("unmount");
}

#[tokio::test]
async fn a_volume_that_is_busy_is_released_when_it_is_not() {
    let Some(bed) = Bed::new() else { return };
    fs::create_dir(bed.at("disk")).expect("dir");
    let agent = bed.agent();
    let sources = [
        local(bed.at("disk"), false),
        empty_dir(Some("Memory")),
        secret(1),
    ];
    for source in sources {
        let asked = Asked::new("1", source);
        let path = asked.set_up(&agent).await.expect("set up");
        fs::write(path.join("open"), "x").expect("write");
        let open = fs::File::open(path.join("open")).expect("open");
        for _ in 0..2 {
            let error = asked.release(&agent).await.expect_err("busy");
            let text = bed.text(&error);
            assert!(
                text.starts_with("cannot unmount $/pods/1/volumes/"),
                "{text}"
            );
            assert!(
                text.ends_with("Device or resource busy (os error 16)"),
                "{text}"
            );
            assert!(path.join("open").exists(), "nothing of it is gone");
        }
        drop(open);
        asked.release(&agent).await.expect("release");
        assert!(bed.mounts().is_empty());
    }
}

#[tokio::test]
async fn an_empty_dir_that_was_made_is_the_pods_also_for_the_next_agent() {
    let Some(bed) = Bed::new() else { return };
    for (medium, made) in [(None, 0o2777), (Some("Memory"), 0o3777)] {
        let asked = Asked::new("1", empty_dir(medium)).group(2000);
        let path = asked.set_up(&bed.agent()).await.expect("set up");
        assert_eq!(mode(&path), made);
        fs::write(path.join("kept"), "x").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("mode");
        let ready = bed.at("pods/1/plugins/kubernetes.io~empty-dir/data/ready");
        assert!(ready.exists(), "where the Go kubelet has it");
        asked.set_up(&bed.agent()).await.expect("again");
        assert_eq!(mode(&path), 0o700);
        assert!(path.join("kept").exists());
        asked.release(&bed.agent()).await.expect("release");
        assert!(!ready.exists());
    }
}

#[tokio::test]
async fn memory_is_bounded_by_the_node_where_nothing_else_bounds_it() {
    let Some(bed) = Bed::new() else { return };
    let agent: HostVolumes = bed.agent().with_config(HostVolumesConfig {
        allocatable_memory: 8 << 20,
        ..HostVolumesConfig::default()
    });
    let asked = Asked::new("1", empty_dir(Some("Memory")));
    let path = asked.set_up(&agent).await.expect("set up");
    let stat = rustix::fs::statvfs(&path).expect("statvfs");
    assert_eq!(stat.f_blocks * stat.f_frsize, 8 << 20);
    asked.release(&agent).await.expect("release");
}

#[tokio::test]
async fn huge_pages_are_mounted_with_their_page_size_and_once() {
    let Some(bed) = Bed::new() else { return };
    let there = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("hugetlbfs"))
        && fs::exists("/sys/kernel/mm/hugepages/hugepages-2048kB").unwrap_or_default();
    if !there {
        eprintln!("skipped: the kernel has no huge pages of 2 MiB");
        return;
    }
    let asked = Asked::new("1", empty_dir(Some("HugePages-2Mi")));
    let request = limited(&asked, "hugepages-2Mi", "4Mi");
    let path = "pods/1/volumes/kubernetes.io~empty-dir/data";
    for _ in 0..2 {
        bed.agent().set_up(&request).await.expect("set up");
        assert_eq!(bed.mounts(), [path]);
    }
    let stat = rustix::fs::statfs(bed.at(path)).expect("statfs");
    assert_eq!((stat.f_bsize, stat.f_blocks), (2 << 20, 2));
    assert_eq!(mode(&bed.at(path)), 0o777);
    asked.release(&bed.agent()).await.expect("release");
    assert!(bed.mounts().is_empty());
}
