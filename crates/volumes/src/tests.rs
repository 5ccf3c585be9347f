//! Volumes and removal on a real file system.

mod faults;
mod fixture;
mod kills;
mod local;
mod nfs;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use windlass_pod_inputs::projection::{PayloadFile, VolumePayload, VolumePayloads};
use windlass_types::corev1::{
    ConfigMapVolumeSource, Container, EmptyDirVolumeSource, HostPathVolumeSource,
    PodSecurityContext, PodSpec, Volume, VolumeMount,
};
use windlass_types::{Pod, Timestamp};

use windlass_volume_plan::volume_source::{PayloadKind, VolumeSource, plain_volume, plain_volumes};

use crate::pod_volumes::{VolumeSite, set_up_volume, tear_down_volume};
use crate::{
    DiscoveredVolume, RemoveError, VolumeError, check_host_path, mount_info, mounts_beneath,
    remove_tree,
};

/// Sets up volumes without API server content.
fn set_up_pod_volumes(dir: &Path, pod: &Pod) -> Result<(), VolumeError> {
    set_up_with(dir, pod, &VolumePayloads::new())
}

fn set_up_with(dir: &Path, pod: &Pod, payloads: &VolumePayloads) -> Result<(), VolumeError> {
    let volumes = plain_volumes(pod, payloads);
    let mut volumes = volumes.iter();
    let site = VolumeSite {
        pod_dir: dir,
        pod,
        now: Timestamp::default(),
        allocatable_memory: 0,
    };
    volumes.try_for_each(|volume| set_up_volume(site, volume).map(drop))
}

fn tear_down_pod_volumes(dir: &Path) -> Result<(), VolumeError> {
    for kind in fs::read_dir(dir.join("volumes")).expect("volumes") {
        let kind = kind.expect("kind");
        for volume in fs::read_dir(kind.path()).expect("kind") {
            let found = DiscoveredVolume {
                plugin_dir: kind.file_name().into_string().expect("text"),
                name: volume
                    .expect("volume")
                    .file_name()
                    .into_string()
                    .expect("text"),
                block: false,
                device: None,
            };
            tear_down_volume(dir, &found)?;
        }
    }
    Ok(())
}

fn temp() -> tempfile::TempDir {
    tempfile::tempdir().expect("temp dir")
}

fn empty_dir(name: &str, medium: Option<&str>, size: Option<&str>) -> Volume {
    Volume {
        name: name.into(),
        empty_dir: Some(EmptyDirVolumeSource {
            medium: medium.map(Into::into),
            size_limit: size.map(|text| Quantity(text.into())),
        }),
        ..Volume::default()
    }
}

fn pod(volumes: Vec<Volume>) -> Pod {
    Pod {
        spec: Some(PodSpec {
            volumes: Some(volumes),
            ..PodSpec::default()
        }),
        ..Pod::default()
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("metadata").permissions().mode() & 0o7777
}

/// Whether the process may mount, which needs root.
fn may_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: mounting tmpfs needs root");
    }
    root
}

#[test]
fn host_path_types_check_or_create_the_path() {
    let dir = temp();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("dir")).expect("dir");
    fs::write(at("file"), "x").expect("file");
    symlink(at("file"), at("link")).expect("link");
    let _listener = UnixListener::bind(at("socket")).expect("socket");
    let check = |path: &str, kind: &str, expected: &str| {
        let path = if path.starts_with('/') {
            path.to_owned()
        } else {
            at(path).to_string_lossy().into_owned()
        };
        let source = HostPathVolumeSource {
            path,
            type_: (!kind.is_empty()).then(|| kind.to_owned()),
        };
        let line = match check_host_path("v", &source) {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{} ({})", error, error.retry())
                .replace(&*dir.path().to_string_lossy(), "$"),
        };
        assert_eq!(line, expected, "{kind} at {}", source.path);
    };
    let failed = |what: &str| format!("hostPath type check failed: $/{what} (later)");
    check("missing", "", "ok");
    check("dir", "Directory", "ok");
    check("file", "Directory", &failed("file is not a directory"));
    check(
        "missing",
        "Directory",
        &failed("missing is not a directory"),
    );
    check("made/deep", "DirectoryOrCreate", "ok");
    check("made/deep", "DirectoryOrCreate", "ok");
    check(
        "file",
        "DirectoryOrCreate",
        &failed("file is not a directory"),
    );
    check("file", "File", "ok");
    check("link", "File", "ok");
    check("dir", "File", &failed("dir is not a file"));
    check("made-file", "FileOrCreate", "ok");
    check("made-file", "FileOrCreate", "ok");
    check("dir", "FileOrCreate", &failed("dir is not a file"));
    check(
        "no-parent/f",
        "FileOrCreate",
        "cannot create file $/no-parent/f: No such file or directory (os error 2) (later)",
    );
    check("socket", "Socket", "ok");
    check("file", "Socket", &failed("file is not a socket file"));
    check("/dev/null", "CharDevice", "ok");
    check(
        "dir",
        "CharDevice",
        &failed("dir is not a character device"),
    );
    check("dir", "BlockDevice", &failed("dir is not a block device"));
    check(
        "dir",
        "Folder",
        "volume \"v\": \"Folder\" is an invalid hostPath type (never)",
    );
    check(
        "/a/../b",
        "",
        "volume \"v\": host path \"/a/../b\" must be absolute and without '..' (never)",
    );
    assert_eq!(mode(&at("made/deep")), 0o755);
    assert_eq!(mode(&at("made-file")), 0o644);
    assert!(!at("missing").exists());
}

#[test]
fn empty_dir_is_world_writable_and_keeps_its_content() {
    let dir = temp();
    let volume = empty_dir("cache", None, None);
    let path = plain_volume(&Pod::default(), &volume, None)
        .dir(dir.path())
        .expect("path");
    assert!(path.ends_with("volumes/kubernetes.io~empty-dir/cache"));
    let pod = pod(vec![volume]);
    for _ in 0..2 {
        set_up_pod_volumes(dir.path(), &pod).expect("set up");
        assert_eq!(mode(&path), 0o777);
        fs::write(path.join("kept"), "x").expect("write");
    }
    assert_eq!(mode(&dir.path().join("volumes")), 0o750);
    tear_down_pod_volumes(dir.path()).expect("tear down");
}

#[test]
fn empty_dir_has_the_fs_group() {
    if !may_mount() {
        return;
    }
    // a tmpfs is sticky, as upstream's tests expect
    for (medium, expected) in [(None, 0o2777), (Some("Memory"), 0o3777)] {
        let dir = temp();
        let volume = empty_dir("cache", medium, None);
        let path = plain_volume(&Pod::default(), &volume, None)
            .dir(dir.path())
            .expect("path");
        let mut pod = pod(vec![volume]);
        if let Some(spec) = &mut pod.spec {
            spec.security_context = Some(PodSecurityContext {
                fs_group: Some(2000),
                ..PodSecurityContext::default()
            });
        }
        set_up_pod_volumes(dir.path(), &pod).expect("set up");
        assert_eq!(mode(&path), expected, "{medium:?}");
        assert_eq!(fs::metadata(&path).expect("metadata").gid(), 2000);
        tear_down_pod_volumes(dir.path()).expect("tear down");
    }
}

#[test]
fn memory_volume_is_a_tmpfs_with_size_limit() {
    if !may_mount() {
        return;
    }
    let dir = temp();
    let volume = empty_dir("mem", Some("Memory"), Some("1Mi"));
    let path = plain_volume(&Pod::default(), &volume, None)
        .dir(dir.path())
        .expect("path");
    let pod = pod(vec![volume]);
    set_up_pod_volumes(dir.path(), &pod).expect("set up");
    fs::write(path.join("kept"), "x").expect("write");
    set_up_pod_volumes(dir.path(), &pod).expect("again, as after a restart of the agent");
    assert!(path.join("kept").exists());
    let mounts = mounts_beneath(dir.path()).expect("mounts");
    assert_eq!(mounts.len(), 1, "{mounts:?}");
    assert_eq!(mounts[0].fs_type, "tmpfs");
    assert_eq!(mode(&path), 0o1777);
    let stat = rustix::fs::statvfs(&path).expect("statvfs");
    assert_eq!(stat.f_blocks * stat.f_frsize, 1 << 20);
    let error = remove_tree(dir.path()).expect_err("still mounted");
    assert!(
        matches!(&error, RemoveError::Mounted { path: at } if *at == path),
        "{error}"
    );
    assert!(path.join("kept").exists(), "what is mounted is not touched");
    tear_down_pod_volumes(dir.path()).expect("tear down");
    tear_down_pod_volumes(dir.path()).expect("twice is fine");
    assert!(mounts_beneath(dir.path()).expect("mounts").is_empty());
    remove_tree(dir.path()).expect("remove");
    assert!(!dir.path().exists());
}

#[test]
fn unsupported_volumes_are_rejected() {
    let dir = temp();
    let check = |volume: Volume, expected: &str| {
        let error = set_up_pod_volumes(dir.path(), &pod(vec![volume])).expect_err(expected);
        assert_eq!(format!("{error} ({})", error.retry()), expected);
    };
    check(
        Volume {
            name: "settings".into(),
            config_map: Some(Default::default()),
            ..Volume::default()
        },
        "volume \"settings\": configMap volumes require an API server connection (standalone mode) (later)",
    );
    check(
        Volume {
            name: "claim".into(),
            persistent_volume_claim: Some(Default::default()),
            ..Volume::default()
        },
        "volume \"claim\": persistentVolumeClaim volumes require an API server connection (standalone mode) (later)",
    );
    check(
        empty_dir("huge", Some("HugePages"), None),
        "volume \"huge\": medium HugePages: hugePages storage requested, but there is no resource request for huge pages (never)",
    );
    check(
        empty_dir("v", Some("Memory"), Some("many")),
        "volume \"v\": sizeLimit \"many\" is not a size (never)",
    );
    check(
        empty_dir("../../x", None, None),
        "volume \"../../x\": not a volume name (never)",
    );
}

#[test]
fn payload_volume_is_set_up_updated_and_torn_down() {
    let dir = temp();
    let volume = |name: &str| Volume {
        name: name.into(),
        ..Volume::default()
    };
    let volumes = vec![
        Volume {
            config_map: Some(Default::default()),
            ..volume("cm")
        },
        Volume {
            secret: Some(Default::default()),
            ..volume("s")
        },
        Volume {
            downward_api: Some(Default::default()),
            ..volume("d")
        },
        Volume {
            projected: Some(Default::default()),
            ..volume("p")
        },
    ];
    let places = ["configmap/cm", "secret/s", "downward-api/d", "projected/p"];
    let mut pod = pod(volumes);
    let mounts = [
        ("/p", "p"),
        ("/p/nested/deep", "cm"),
        ("/p/nested/deep/er", "d"),
    ];
    let mounts = mounts.map(|(path, name)| VolumeMount {
        mount_path: path.into(),
        name: name.into(),
        ..VolumeMount::default()
    });
    if let Some(spec) = &mut pod.spec {
        spec.containers = vec![Container {
            volume_mounts: Some(mounts.to_vec()),
            ..Container::default()
        }];
    }
    let in_memory = may_mount();
    let payloads = |text: &str| {
        let file = PayloadFile {
            data: text.as_bytes().into(),
            mode: 0o644,
            owner: None,
        };
        let payload = |memory: bool| VolumePayload {
            files: [("key".to_owned(), file.clone())].into(),
            in_memory: memory && in_memory,
        };
        let memory = [("cm", false), ("s", true), ("d", true), ("p", true)];
        memory
            .map(|(name, memory)| (name.to_owned(), payload(memory)))
            .into()
    };
    for text in ["1", "2"] {
        let payloads: VolumePayloads = payloads(text);
        set_up_with(dir.path(), &pod, &payloads).expect("set up");
        for place in places {
            let path = dir
                .path()
                .join("volumes")
                .join(format!("kubernetes.io~{place}"));
            let read = fs::read_to_string(path.join("key")).expect("read");
            assert_eq!(read, text, "{place}");
            let sticky = in_memory && !place.starts_with("configmap");
            let expected = if sticky { 0o1777 } else { 0o777 };
            assert_eq!(mode(&path), expected, "{place}");
        }
    }
    let nested = dir
        .path()
        .join("volumes/kubernetes.io~projected/p/nested/deep");
    assert_eq!(mode(&nested), 0o755);
    assert_eq!(fs::read_dir(&nested).expect("list").count(), 0);
    if in_memory {
        let mounts = mounts_beneath(dir.path()).expect("mounts");
        let mut names: Vec<_> = mounts.iter().filter_map(|m| m.path.file_name()).collect();
        names.sort();
        assert_eq!(names, ["d", "p", "s"]);
    }
    tear_down_pod_volumes(dir.path()).expect("tear down");
    assert!(mounts_beneath(dir.path()).expect("mounts").is_empty());
    remove_tree(dir.path()).expect("remove");
}

#[test]
fn unavailable_payload_keeps_old_content_or_fails() {
    let dir = temp();
    let pod = pod(vec![Volume {
        name: "v".to_owned(),
        config_map: Some(ConfigMapVolumeSource::default()),
        ..Volume::default()
    }]);
    let why = "configmap \"conf\" not found";
    let mut volume = plain_volumes(&pod, &VolumePayloads::new()).remove(0);
    volume.source = VolumeSource::PayloadUnavailable(PayloadKind::ConfigMap, why.to_owned());
    let site = VolumeSite {
        pod_dir: dir.path(),
        pod: &pod,
        now: Timestamp::UNIX_EPOCH,
        allocatable_memory: 0,
    };
    let refused = set_up_volume(site, &volume).expect_err("nothing there");
    assert_eq!(refused.to_string(), why);
    let file = PayloadFile {
        data: b"1".as_slice().into(),
        mode: 0o644,
        owner: None,
    };
    let payload = VolumePayload {
        files: [("key".to_owned(), file)].into(),
        in_memory: false,
    };
    set_up_with(dir.path(), &pod, &[("v".to_owned(), payload)].into()).expect("set up");
    let kept = set_up_volume(site, &volume).expect("it shows something");
    assert!(kept.read_only && kept.relabel);
    let path = kept.path().expect("path");
    assert_eq!(fs::read_to_string(path.join("key")).expect("read"), "1");
}

#[test]
fn removal_does_not_follow_links() {
    let dir = temp();
    let outside = temp();
    fs::write(outside.path().join("precious"), "x").expect("write");
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).expect("dirs");
    symlink(outside.path(), tree.join("a/b/out")).expect("link");
    symlink("/", tree.join("root")).expect("link");
    symlink("nowhere", tree.join("dangling")).expect("link");
    fs::write(tree.join("a/file"), "x").expect("write");
    remove_tree(&tree).expect("remove");
    assert!(!tree.exists());
    assert!(outside.path().join("precious").exists());

    symlink(outside.path(), &tree).expect("link in the tree's place");
    remove_tree(&tree).expect("only the link goes");
    assert!(fs::symlink_metadata(&tree).is_err());
    assert!(outside.path().join("precious").exists());
    remove_tree(&tree).expect("missing is fine");
    remove_tree(&dir.path().join("no/parent")).expect("missing parent is fine");
}

#[test]
fn removal_handles_deep_and_wide_trees() {
    let dir = temp();
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).expect("tree");
    for i in 0..2000 {
        fs::write(tree.join(format!("f{i}")), "").expect("write");
    }
    // deeper than PATH_MAX allows to name at once
    let mut fd = fs::File::open(&tree).expect("open");
    for i in 0..3000 {
        let name = format!("d{i}");
        rustix::fs::mkdirat(&fd, &name, rustix::fs::Mode::RWXU).expect("mkdir");
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY;
        let next = rustix::fs::openat(&fd, &name, flags, rustix::fs::Mode::empty());
        fd = fs::File::from(next.expect("openat"));
    }
    drop(fd);
    remove_tree(&tree).expect("remove");
    assert!(!tree.exists());
}

#[test]
fn removal_keeps_a_mount_and_its_parents() {
    if !may_mount() {
        return;
    }
    let dir = temp();
    let tree = dir.path().join("tree");
    fs::create_dir_all(tree.join("a/mnt")).expect("dirs");
    fs::create_dir_all(tree.join("b/c")).expect("dirs");
    fs::write(tree.join("a/file"), "x").expect("write");
    mount(
        "tmpfs",
        tree.join("a/mnt"),
        "tmpfs",
        MountFlags::empty(),
        None::<&std::ffi::CStr>,
    )
    .expect("mount");
    fs::write(tree.join("a/mnt/precious"), "x").expect("write");
    let error = remove_tree(&tree).expect_err("mounted");
    let line = error.to_string().replace(&*tree.to_string_lossy(), "$");
    assert_eq!(line, "$/a/mnt is a mount point");
    assert!(tree.join("a/mnt/precious").exists());
    assert!(!tree.join("a/file").exists());
    assert!(!tree.join("b").exists());
    unmount(tree.join("a/mnt"), UnmountFlags::empty()).expect("unmount");
    remove_tree(&tree).expect("remove");
}

#[test]
fn mount_table_is_parsed_with_escapes_and_optional_fields() {
    let table = b"22 1 0:20 / / rw shared:1 - ext4 /dev/a rw\n\
        30 22 0:31 / /a\\040b/c\\134d rw,nosuid shared:5 master:1 - tmpfs tmpfs rw\n\
        garbage\n\
        31 22 0:32 / /plain rw - proc proc rw\n";
    let seen: Vec<_> = mount_info::parse(table)
        .map(|m| format!("{} {}", m.path.display(), m.fs_type))
        .collect();
    assert_eq!(seen, ["/ ext4", "/a b/c\\d tmpfs", "/plain proc"]);
}
