//! File systems that are full, read-only, broken or busy.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_remount, unmount};
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload};
use windlass_types::corev1::{Container, EmptyDirVolumeSource, ResourceRequirements};
use windlass_volume_plan::volume_source::{PayloadKind, VolumeSource};

use super::fixture::{Fixture, LoopDevice, VolumeSpec, local};
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

/// A request of a pod with a container limit.
fn limited(spec: &VolumeSpec, resource: &str, limit: &str) -> VolumeRequest {
    let mut request = spec.request();
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
async fn secret_of_one_mebibyte_is_complete() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let spec = VolumeSpec::new("1", secret(1 << 20));
    let agent = fixture.agent();
    let mounted = agent.set_up(&spec.request()).await.expect("set up");
    let shown = fs::read(mounted.path().expect("path").join("key")).expect("read");
    assert_eq!(shown.len(), 1 << 20);
    spec.release(&agent).await.expect("release");
}

#[tokio::test]
async fn secret_without_space_fails_and_keeps_old_content() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let agent = fixture.agent();
    let small = VolumeSpec::new("1", secret(10));
    let request = limited(&small, "memory", "512Ki");
    let mounted = agent.set_up(&request).await.expect("set up");
    let key = mounted.path().expect("path").join("key");
    let large = VolumeSpec::new("1", secret(1 << 20));
    for _ in 0..2 {
        let request = limited(&large, "memory", "512Ki");
        let error = agent.set_up(&request).await.expect_err("too large");
        assert_eq!(
            fixture.text(&error),
            "cannot write the content of $/pods/1/volumes/kubernetes.io~secret/data: No space left on device (os error 28)"
        );
        assert_eq!(fs::read(&key).expect("read"), b"xxxxxxxxxx");
    }
    // the incomplete content is removed by the next write
    let other = VolumeSpec::new("1", secret(20));
    let request = limited(&other, "memory", "512Ki");
    agent.set_up(&request).await.expect("set up");
    assert_eq!(fs::read(&key).expect("read").len(), 20);
    other.release(&agent).await.expect("release");
}

#[tokio::test]
async fn set_up_fails_on_a_read_only_disk_until_it_is_writable() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let pods = fixture.at("pods");
    fs::create_dir(&pods).expect("dir");
    mount_bind(&pods, &pods).expect("bind");
    let flags = MountFlags::BIND | MountFlags::RDONLY;
    mount_remount(&pods, flags, c"").expect("remount");
    fs::create_dir(fixture.at("disk")).expect("dir");
    let sources = [
        empty_dir(None),
        empty_dir(Some("Memory")),
        secret(1),
        local(fixture.at("disk"), false),
    ];
    let agent = fixture.agent();
    for source in &sources {
        let spec = VolumeSpec::new("1", source.clone());
        let error = spec.set_up(&agent).await.expect_err("read-only");
        let text = fixture.text(&error);
        assert!(
            text.starts_with("cannot create directory $/pods/1/volumes/"),
            "{text}"
        );
        assert!(
            text.ends_with("Read-only file system (os error 30)"),
            "{text}"
        );
        spec.release(&agent).await.expect("nothing is there");
    }
    mount_remount(&pods, MountFlags::BIND, c"").expect("remount");
    for source in sources {
        let spec = VolumeSpec::new("1", source);
        spec.set_up(&agent).await.expect("writable again");
        spec.release(&agent).await.expect("release");
    }
    unmount(&pods, UnmountFlags::empty()).expect("unmount");
}

#[tokio::test]
async fn set_up_fails_on_a_broken_disk_until_it_recovers() {
    let (Some(fixture), Some(device)) = (Fixture::new(), LoopDevice::new()) else {
        return;
    };
    let pods = fixture.at("pods");
    fs::create_dir(&pods).expect("dir");
    device.run("mkfs.ext4", &["-q", "-F"]);
    let mount_disk = |device: &LoopDevice| {
        let none = None::<&std::ffi::CStr>;
        mount(&device.path, &pods, "ext4", MountFlags::empty(), none).expect("mount");
    };
    mount_disk(&device);
    let agent = fixture.agent();
    let old = VolumeSpec::new("1", empty_dir(None)).group(2000);
    let new = VolumeSpec::new("2", empty_dir(None)).group(2000);
    let path = old.set_up(&agent).await.expect("set up");
    fs::write(path.join("kept"), "x").expect("write");
    // EXT4_IOC_SHUTDOWN: the file system now fails as if its disk were lost
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
        fixture.text(&error),
        "cannot create directory $/pods/2/volumes/kubernetes.io~empty-dir/data: Input/output error (os error 5)"
    );
    let error = old.release(&agent).await.expect_err("EIO");
    assert!(
        fixture.text(&error).contains("Input/output error"),
        "{error}"
    );

    unmount(&pods, UnmountFlags::empty()).expect("unmount");
    let recovered = device.attached_again();
    mount_disk(&recovered);
    let agent = fixture.agent();
    let path = old.set_up(&agent).await.expect("the disk is back");
    assert_eq!(fs::read_to_string(path.join("kept")).expect("read"), "x");
    new.set_up(&agent).await.expect("set up");
    old.release(&agent).await.expect("release");
    new.release(&agent).await.expect("release");
    unmount(&pods, UnmountFlags::empty()).expect("unmount");
}

#[tokio::test]
async fn busy_volume_is_torn_down_later() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::create_dir(fixture.at("disk")).expect("dir");
    let agent = fixture.agent();
    let sources = [
        local(fixture.at("disk"), false),
        empty_dir(Some("Memory")),
        secret(1),
    ];
    for source in sources {
        let spec = VolumeSpec::new("1", source);
        let path = spec.set_up(&agent).await.expect("set up");
        fs::write(path.join("open"), "x").expect("write");
        let open = fs::File::open(path.join("open")).expect("open");
        for _ in 0..2 {
            let error = spec.release(&agent).await.expect_err("busy");
            let text = fixture.text(&error);
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
        spec.release(&agent).await.expect("release");
        assert!(fixture.mounts().is_empty());
    }
}

#[tokio::test]
async fn empty_dir_stays_unchanged_after_agent_restart() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for (medium, made) in [(None, 0o2777), (Some("Memory"), 0o3777)] {
        let spec = VolumeSpec::new("1", empty_dir(medium)).group(2000);
        let path = spec.set_up(&fixture.agent()).await.expect("set up");
        assert_eq!(mode(&path), made);
        fs::write(path.join("kept"), "x").expect("write");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("mode");
        let ready = fixture.at("pods/1/plugins/kubernetes.io~empty-dir/data/ready");
        assert!(ready.exists(), "where the Go kubelet has it");
        spec.set_up(&fixture.agent()).await.expect("again");
        assert_eq!(mode(&path), 0o700);
        assert!(path.join("kept").exists());
        spec.release(&fixture.agent()).await.expect("release");
        assert!(!ready.exists());
    }
}

#[tokio::test]
async fn memory_volume_is_limited_by_node_memory() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let agent: HostVolumes = fixture.agent().with_config(HostVolumesConfig {
        allocatable_memory: 8 << 20,
        ..HostVolumesConfig::default()
    });
    let spec = VolumeSpec::new("1", empty_dir(Some("Memory")));
    let path = spec.set_up(&agent).await.expect("set up");
    let stat = rustix::fs::statvfs(&path).expect("statvfs");
    assert_eq!(stat.f_blocks * stat.f_frsize, 8 << 20);
    spec.release(&agent).await.expect("release");
}

#[tokio::test]
async fn huge_pages_are_mounted_once_with_their_page_size() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let there = fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("hugetlbfs"))
        && fs::exists("/sys/kernel/mm/hugepages/hugepages-2048kB").unwrap_or_default();
    if !there {
        eprintln!("skipped: the kernel has no huge pages of 2 MiB");
        return;
    }
    let spec = VolumeSpec::new("1", empty_dir(Some("HugePages-2Mi")));
    let request = limited(&spec, "hugepages-2Mi", "4Mi");
    let path = "pods/1/volumes/kubernetes.io~empty-dir/data";
    for _ in 0..2 {
        fixture.agent().set_up(&request).await.expect("set up");
        assert_eq!(fixture.mounts(), [path]);
    }
    let stat = rustix::fs::statfs(fixture.at(path)).expect("statfs");
    assert_eq!((stat.f_bsize, stat.f_blocks), (2 << 20, 2));
    assert_eq!(mode(&fixture.at(path)), 0o777);
    spec.release(&fixture.agent()).await.expect("release");
    assert!(fixture.mounts().is_empty());
}
