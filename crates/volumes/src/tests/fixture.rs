//! A root directory for the agent, requests, and devices backed by files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::corev1::{PodSecurityContext, PodSpec};
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodUid, Reason, Timestamp};
use windlass_volume_plan::volume_source::{LocalVolume, NfsVolume, PodVolume, VolumeSource};

use crate::{
    DiscoveredVolume, HostVolumes, HostVolumesConfig, IoQueues, Programs, VolumeError,
    VolumePlugins, VolumeRequest, mounts_beneath,
};

pub(super) struct Fixture {
    root: tempfile::TempDir,
    pub(super) programs: Programs,
    pub(super) events: Arc<RecordedEvents>,
}

#[derive(Debug, Default)]
pub(super) struct RecordedEvents(Mutex<Vec<String>>);

impl RecordedEvents {
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.lock().expect("lock").clone()
    }
}

impl EventRecorder for RecordedEvents {
    fn record(&self, _: &Pod, _: Option<&str>, kind: EventType, reason: Reason, message: &str) {
        let line = format!("{} {reason} {message}", kind.as_str());
        self.0.lock().expect("lock").push(line);
    }

    fn record_node(&self, _: EventType, _: Reason, _: &str) {}
}

impl Fixture {
    /// `None` without root, which mounts need.
    pub(super) fn new() -> Option<Self> {
        super::may_mount().then(|| Self {
            root: tempfile::tempdir().expect("temp dir"),
            programs: Programs::default(),
            events: Arc::default(),
        })
    }

    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Starts an agent run.
    pub(super) fn agent(&self) -> HostVolumes {
        let paths = NodePaths {
            root_dir: self.root.path().to_owned(),
            ..NodePaths::default()
        };
        let queues = Arc::new(IoQueues::new(Duration::from_secs(60)));
        let agent = HostVolumes::new(paths, queues).with_config(HostVolumesConfig {
            programs: self.programs.clone(),
            ..HostVolumesConfig::default()
        });
        let events: Arc<dyn EventRecorder> = self.events.clone();
        agent.set_event_recorder(events);
        agent
    }

    /// An agent run that is killed after this many steps.
    pub(super) fn agent_killed_after(&self, steps: usize) -> HostVolumes {
        let agent = self.agent();
        *agent.machine.steps_before_kill.lock().expect("lock") = Some(steps);
        agent
    }

    /// Replaces a program of the node by a script.
    pub(super) fn replace_program(&mut self, name: &str, script: &str) {
        let dir = self.at("programs");
        if self.programs.directory.is_none() {
            fs::create_dir(&dir).expect("dir");
            self.programs.directory = Some(dir.clone());
        }
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("mode");
    }

    /// Mount points below the root directory.
    pub(super) fn mounts(&self) -> Vec<String> {
        let mounts = mounts_beneath(self.root.path()).expect("mounts");
        let root = self.root.path().canonicalize().expect("root");
        let name = |path: &Path| {
            let path = path.strip_prefix(&root).expect("below the root");
            path.display().to_string()
        };
        mounts.iter().map(|mount| name(&mount.path)).collect()
    }

    /// An error, with the root directory as `$`.
    pub(super) fn text(&self, error: &VolumeError) -> String {
        let root = self.root.path().to_string_lossy().into_owned();
        error.to_string().replace(&root, "$")
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for mount in mounts_beneath(self.root.path()).into_iter().flatten().rev() {
            let _ = unmount(&mount.path, UnmountFlags::DETACH);
        }
    }
}

/// A volume of one pod.
#[derive(Clone)]
pub(super) struct VolumeSpec {
    pub(super) uid: PodUid,
    pub(super) volume: PodVolume,
    fs_group: Option<i64>,
}

impl VolumeSpec {
    pub(super) fn new(uid: &str, source: VolumeSource) -> Self {
        Self {
            uid: PodUid::from(uid.to_owned()),
            volume: PodVolume {
                name: "data".to_owned(),
                source,
                read_only: false,
                mount_options: Vec::new(),
                pvc: None,
            },
            fs_group: None,
        }
    }

    pub(super) fn read_only(mut self) -> Self {
        self.volume.read_only = true;
        self
    }

    pub(super) fn options(mut self, options: &[&str]) -> Self {
        self.volume.mount_options = options.iter().map(|o| (*o).to_owned()).collect();
        self
    }

    pub(super) fn group(mut self, gid: i64) -> Self {
        self.fs_group = Some(gid);
        self
    }

    pub(super) fn request(&self) -> VolumeRequest {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(self.uid.to_string());
        pod.spec = Some(PodSpec {
            security_context: Some(PodSecurityContext {
                fs_group: self.fs_group,
                ..PodSecurityContext::default()
            }),
            ..PodSpec::default()
        });
        VolumeRequest {
            pod: Arc::new(pod),
            volume: self.volume.clone(),
            now: Timestamp::default(),
        }
    }

    /// Stages and sets up the volume; returns its path for containers.
    pub(super) async fn set_up(&self, agent: &HostVolumes) -> Result<PathBuf, VolumeError> {
        let request = self.request();
        agent.stage(&request).await?;
        let mounted = agent.set_up(&request).await?;
        let shows_objects = matches!(self.volume.source, VolumeSource::Payload(..));
        assert_eq!(mounted.read_only, self.volume.read_only || shows_objects);
        Ok(mounted.path().expect("path").to_owned())
    }

    /// Volumes of the pod that the agent discovers.
    pub(super) async fn found(&self, agent: &HostVolumes) -> Vec<DiscoveredVolume> {
        agent.find(&self.uid).await.expect("find")
    }

    /// Tears down all volumes of the pod and unstages the device.
    pub(super) async fn release(&self, agent: &HostVolumes) -> Result<(), VolumeError> {
        for volume in agent.find(&self.uid).await? {
            agent.tear_down(&self.uid, &volume).await?;
        }
        match self.volume.device() {
            Some(device) => agent.unstage(&device).await,
            None => Ok(()),
        }
    }
}

pub(super) fn local(path: impl Into<PathBuf>, block: bool) -> VolumeSource {
    VolumeSource::Local(LocalVolume {
        volume_name: "pv".to_owned(),
        path: path.into(),
        fs_type: None,
        block,
        size: None,
    })
}

pub(super) fn nfs(server: &str, path: &str) -> VolumeSource {
    VolumeSource::Nfs(NfsVolume {
        volume_name: "share".to_owned(),
        server: server.to_owned(),
        path: path.to_owned(),
    })
}

/// A block device backed by a file.
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    file: Arc<tempfile::NamedTempFile>,
}

impl LoopDevice {
    /// `None` on a host without loop devices.
    pub(super) fn new() -> Option<Self> {
        let file = tempfile::NamedTempFile::new().expect("file");
        file.as_file().set_len(16 << 20).expect("size");
        Self::from_file(Arc::new(file))
    }

    /// The same disk as a new device. A mount namespace that another process copied meanwhile (a
    /// container of another test) keeps the file system of the old one mounted, with its errors.
    pub(super) fn attached_again(&self) -> Self {
        Self::from_file(Arc::clone(&self.file)).expect("a loop device, as before")
    }

    fn from_file(file: Arc<tempfile::NamedTempFile>) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["-f", "--show"]).arg(file.path()).output();
        match made {
            Ok(made) if made.status.success() => {
                let path = String::from_utf8(made.stdout).expect("text");
                let path = PathBuf::from(path.trim());
                Some(Self { path, file })
            }
            made => {
                eprintln!("skipped: no loop device: {made:?}");
                None
            }
        }
    }

    /// Content of the device.
    pub(super) fn content(&self) -> Vec<u8> {
        fs::read(self.file.path()).expect("read")
    }

    pub(super) fn write(&self, at: usize, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let device = fs::OpenOptions::new().write(true).open(&self.path);
        let device = device.expect("open");
        device.write_all_at(bytes, at as u64).expect("write");
        device.sync_all().expect("sync");
    }

    /// Enlarges the device.
    pub(super) fn resize_to(&self, bytes: u64) {
        self.file.as_file().set_len(bytes).expect("size");
        self.run("losetup", &["-c"]);
    }

    /// Makes every read of the device fail.
    pub(super) fn lose_content(&self) {
        self.file.as_file().set_len(0).expect("truncated");
        let mut flush = Command::new("blockdev");
        let flushed = flush.arg("--flushbufs").arg(&self.path).status();
        assert!(flushed.expect("start").success());
    }

    pub(super) fn run(&self, program: &str, arguments: &[&str]) {
        let mut command = Command::new(program);
        let ended = command.args(arguments).arg(&self.path).output();
        let ended = ended.expect("start");
        assert!(ended.status.success(), "{program}: {ended:?}");
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).output();
    }
}
