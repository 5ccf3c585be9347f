//! A node with one CSI driver. Each operation is one line of a journal and one step at which the
//! agent can be killed.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures::FutureExt;
use serde_json::json;
use tempfile::TempDir;
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::{DeviceName, MountedVolume, Pod, PodExt, PodUid, Retry, SharedPod};
use windlass_volume_plan::volume_source::{CsiVolume, PodVolume, SecretRef, VolumeSource};

use crate::mount::paths::CsiPaths;
use crate::mount::{CsiVolumes, CsiVolumesDeps, FileWork, IoQueueKind, MountError, VolumeHost};
use crate::port::{
    Attachment, CsiDriverSpec, CsiError, CsiNode, CsiObjects, NodeCapability, NodeInfo,
    ObjectError, PodToken, PublishRequest, StageRequest, TokenRequest, UsageEntry, UsageUnit,
    VolumeUsage,
};
use crate::{CsiDrivers, RegisteredDriver};

pub(super) const DRIVER: &str = "host.csi.k8s.io";
pub(super) const NODE: &str = "node-a";

/// Fault of the next call of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The driver rejects the call without effect.
    Refuse,
    /// As `Refuse`, with another code.
    Code(&'static str),
    /// The request is lost; no effect.
    LoseRequest,
    /// The response is lost after the effect.
    LoseAnswer,
    /// The call succeeds without unmounting.
    Lie,
    /// The call never returns.
    Hang,
}

#[derive(Debug)]
pub(super) struct Fixture {
    pub(super) dir: TempDir,
    pub(super) drivers: CsiDrivers,
    pub(super) state: Arc<Mutex<State>>,
    volumes: CsiVolumes,
}

#[derive(Debug, Default)]
pub(super) struct State {
    root: PathBuf,
    pub(super) capabilities: BTreeSet<NodeCapability>,
    pub(super) spec: Option<CsiDriverSpec>,
    pub(super) attachment: Option<Attachment>,
    /// The attach limit in NodeGetInfo.
    pub(super) max_volumes: Option<i64>,
    /// The API server is unreachable.
    pub(super) unreachable: bool,
    pub(super) faults: BTreeMap<&'static str, Fault>,
    pub(super) mounts: BTreeSet<PathBuf>,
    /// Handle and path.
    pub(super) staged: BTreeSet<(String, PathBuf)>,
    pub(super) published: BTreeSet<(String, PathBuf)>,
    pub(super) journal: Vec<String>,
    pub(super) last_stage: Option<StageRequest>,
    pub(super) last_publish: Option<PublishRequest>,
    /// The ownership change fails.
    pub(super) keep_group: bool,
    step: usize,
    kill_at: Option<usize>,
}

#[derive(Debug)]
struct Node(Arc<Mutex<State>>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes one step; never returns if the agent is killed at it.
async fn step(state: &Mutex<State>) {
    let killed = {
        let mut state = lock(state);
        state.step += 1;
        state.kill_at == Some(state.step)
    };
    if killed {
        std::future::pending::<()>().await;
    }
}

impl Fixture {
    pub(super) fn new(capabilities: &[NodeCapability]) -> Self {
        let dir = TempDir::new().unwrap();
        let state = State {
            root: dir.path().to_owned(),
            capabilities: capabilities.iter().copied().collect(),
            spec: Some(CsiDriverSpec {
                attach_required: false,
                ephemeral: true,
                ..CsiDriverSpec::default()
            }),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let drivers = CsiDrivers::default();
        let volumes = agent(&dir, &drivers, &state);
        let fixture = Self {
            dir,
            drivers,
            state,
            volumes,
        };
        fixture.register();
        fixture
    }

    /// Registers the driver.
    pub(super) fn register(&self) {
        let driver = RegisteredDriver {
            node: Arc::new(Node(Arc::clone(&self.state))),
            info: NodeInfo::default(),
        };
        self.drivers.add(DRIVER, driver);
    }

    /// Starts a new agent run, which knows only the disk.
    pub(super) fn restart(&mut self) {
        let mut state = self.state();
        state.step = 0;
        state.kill_at = None;
        drop(state);
        self.volumes = agent(&self.dir, &self.drivers, &self.state);
    }

    pub(super) fn kill_at(&self, step: usize) {
        let mut state = self.state();
        state.step = 0;
        state.kill_at = Some(step);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    pub(super) fn paths(&self) -> CsiPaths {
        paths(&self.dir)
    }

    pub(super) fn next(&self, call: &'static str, fault: Fault) {
        self.state().faults.insert(call, fault);
    }

    /// Takes the journal as one line.
    pub(super) fn journal(&self) -> String {
        std::mem::take(&mut self.state().journal).join(", ")
    }

    // ---- one call each; None if the agent is killed in it, or it hangs

    pub(super) fn try_stage(
        &self,
        pod: &Pod,
        volume: &PodVolume,
    ) -> Option<Result<(), MountError>> {
        let pod = SharedPod::from(pod.clone());
        self.volumes.stage(&pod, volume, None).now_or_never()
    }

    pub(super) fn try_set_up(
        &self,
        pod: &Pod,
        volume: &PodVolume,
    ) -> Option<Result<MountedVolume, MountError>> {
        let pod = SharedPod::from(pod.clone());
        self.volumes.set_up(&pod, volume, None).now_or_never()
    }

    pub(super) fn try_tear_down(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Option<Result<(), MountError>> {
        let block = volume.source.is_block();
        let name = volume.dir_name();
        self.volumes.tear_down(uid, name, block).now_or_never()
    }

    pub(super) fn try_unstage(&self, device: &DeviceName) -> Option<Result<(), MountError>> {
        self.volumes.unstage(device).now_or_never()
    }

    pub(super) fn stage(&self, pod: &Pod, volume: &PodVolume) -> Result<(), MountError> {
        self.try_stage(pod, volume).unwrap()
    }

    pub(super) fn set_up(
        &self,
        pod: &Pod,
        volume: &PodVolume,
    ) -> Result<MountedVolume, MountError> {
        self.try_set_up(pod, volume).unwrap()
    }

    pub(super) fn set_up_labelled(
        &self,
        pod: &Pod,
        volume: &PodVolume,
        label: &str,
    ) -> Result<MountedVolume, MountError> {
        let pod = SharedPod::from(pod.clone());
        let set_up = self.volumes.set_up(&pod, volume, Some(label));
        set_up.now_or_never().unwrap()
    }

    pub(super) fn tear_down(&self, pod: &Pod, volume: &PodVolume) -> Result<(), MountError> {
        self.try_tear_down(&pod.uid(), volume).unwrap()
    }

    pub(super) fn unstage(&self, volume: &PodVolume) -> Result<(), MountError> {
        self.try_unstage(&volume.device().unwrap()).unwrap()
    }

    pub(super) fn expand(
        &self,
        pod: &Pod,
        volume: &PodVolume,
        bytes: u64,
    ) -> Result<(), MountError> {
        let pod = SharedPod::from(pod.clone());
        let expanded = self.volumes.expand(&pod, volume, bytes);
        expanded.now_or_never().unwrap()
    }

    pub(super) fn is_node_full(&self, volume: &PodVolume) -> bool {
        let VolumeSource::Csi(csi) = &volume.source else {
            panic!("not a CSI volume");
        };
        self.volumes.is_node_full(csi).now_or_never().unwrap()
    }

    pub(super) fn usage(
        &self,
        pod: &Pod,
        volume: &PodVolume,
    ) -> Result<Option<VolumeUsage>, MountError> {
        let (uid, block) = (pod.uid(), volume.source.is_block());
        let usage = self.volumes.usage(&uid, volume.dir_name(), block);
        usage.now_or_never().unwrap()
    }

    /// Files, links and directories that the volumes left.
    pub(super) fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        walk(self.dir.path(), &mut left);
        let names = left.iter().filter_map(|path| {
            let name = path.strip_prefix(self.dir.path()).ok()?.to_str()?;
            // directories shared with other volumes stay
            let shared = [
                "pods",
                "plugins",
                "plugins/kubernetes.io",
                "plugins/kubernetes.io/csi",
                "plugins/kubernetes.io/csi/host.csi.k8s.io",
                "plugins/kubernetes.io/csi/volumeDevices",
                "plugins/kubernetes.io/csi/volumeDevices/staging",
                "plugins/kubernetes.io/csi/volumeDevices/publish",
            ];
            let of_pod = name.starts_with("pods/")
                && ["volumes", "volumeDevices", "kubernetes.io~csi"]
                    .iter()
                    .any(|end| name.ends_with(end));
            let pod = name.starts_with("pods/") && name.matches('/').count() == 1;
            (!shared.contains(&name) && !of_pod && !pod).then(|| name.to_owned())
        });
        names.collect()
    }

    /// Asserts that disk, mount table and driver are clean.
    pub(super) fn assert_clean(&self, what: &str) {
        let state = self.state();
        assert!(
            state.mounts.is_empty(),
            "{what}: mounted {:?}",
            state.mounts
        );
        assert!(state.staged.is_empty(), "{what}: staged {:?}", state.staged);
        assert!(
            state.published.is_empty(),
            "{what}: published {:?}",
            state.published
        );
        drop(state);
        assert_eq!(self.left(), Vec::<String>::new(), "{what}");
    }
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.symlink_metadata().unwrap().is_dir() {
            walk(&path, found);
        }
        found.push(path);
    }
}

fn paths(dir: &TempDir) -> CsiPaths {
    CsiPaths::new(NodePaths {
        root_dir: dir.path().to_owned(),
        ..NodePaths::default()
    })
}

fn agent(dir: &TempDir, drivers: &CsiDrivers, state: &Arc<Mutex<State>>) -> CsiVolumes {
    CsiVolumes::new(CsiVolumesDeps {
        paths: paths(dir),
        node_name: NODE.to_owned(),
        drivers: drivers.clone(),
        objects: Arc::new(Node(Arc::clone(state))),
        host: Arc::new(Node(Arc::clone(state))),
    })
}

pub(super) fn pod(uid: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": uid},
        "spec": {"serviceAccountName": "robot", "securityContext": {"fsGroup": 2000}},
    }))
    .unwrap()
}

/// A volume of a PersistentVolume `pv-1` with the handle `vol-1`.
pub(super) fn persistent(change: impl FnOnce(&mut CsiVolume)) -> PodVolume {
    let mut csi = CsiVolume {
        volume_name: "pv-1".to_owned(),
        driver: DRIVER.to_owned(),
        handle: Some("vol-1".to_owned()),
        fs_type: "ext4".to_owned(),
        attributes: BTreeMap::from([("tier".to_owned(), "fast".to_owned())]),
        block: false,
        access_modes: vec!["ReadWriteOnce".to_owned()],
        stage_secret: None,
        publish_secret: None,
        expand_secret: None,
        size: None,
        attach_required: false,
    };
    change(&mut csi);
    PodVolume {
        name: "data".to_owned(),
        source: VolumeSource::Csi(Box::new(csi)),
        read_only: false,
        mount_options: vec!["noatime".to_owned()],
        pvc: None,
    }
}

/// An inline volume `scratch`.
pub(super) fn inline() -> PodVolume {
    persistent(|csi| {
        csi.volume_name = "scratch".to_owned();
        csi.handle = None;
        csi.access_modes = Vec::new();
    })
}

pub(super) fn secret(name: &str) -> Option<SecretRef> {
    Some(SecretRef {
        namespace: "storage".to_owned(),
        name: name.to_owned(),
    })
}

impl State {
    /// A path as the journal shows it.
    fn short(&self, path: &Path) -> String {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        path.display().to_string()
    }

    fn fault(&mut self, call: &'static str) -> Option<Fault> {
        self.faults.remove(call)
    }
}

fn refused(code: &str) -> CsiError {
    CsiError::Refused {
        code: code.to_owned(),
        message: "no".to_owned(),
    }
}

fn uncertain() -> CsiError {
    CsiError::Uncertain {
        code: "DeadlineExceeded".to_owned(),
        message: "late".to_owned(),
    }
}

impl Node {
    /// One call: the journal, the fault, and the effect between two steps.
    async fn call(
        &self,
        name: &'static str,
        handle: &str,
        at: &Path,
        effect: impl FnOnce(&mut State, bool) + Send,
    ) -> Result<(), CsiError> {
        step(&self.0).await;
        let fault = {
            let mut state = lock(&self.0);
            let line = format!("{name} {handle} {}", state.short(at));
            state.journal.push(line);
            state.fault(name)
        };
        match fault {
            Some(Fault::Refuse) => return Err(refused("InvalidArgument")),
            Some(Fault::Code(code)) => return Err(refused(code)),
            Some(Fault::LoseRequest) => return Err(uncertain()),
            Some(Fault::Hang) => std::future::pending::<()>().await,
            _ => effect(&mut lock(&self.0), fault == Some(Fault::Lie)),
        }
        step(&self.0).await;
        match fault {
            Some(Fault::LoseAnswer) => Err(uncertain()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl CsiNode for Node {
    async fn info(&self) -> Result<NodeInfo, CsiError> {
        Ok(NodeInfo {
            max_volumes: lock(&self.0).max_volumes,
            ..NodeInfo::default()
        })
    }

    async fn capabilities(&self) -> Result<BTreeSet<NodeCapability>, CsiError> {
        let mut state = lock(&self.0);
        match state.fault("capabilities") {
            Some(_) => Err(uncertain()),
            None => Ok(state.capabilities.clone()),
        }
    }

    async fn stage(&self, request: StageRequest) -> Result<(), CsiError> {
        let (handle, path) = (
            request.handle.clone(),
            request.staging_path.clone().unwrap(),
        );
        lock(&self.0).last_stage = Some(request.clone());
        assert!(
            path.is_dir(),
            "the staging directory exists before the call"
        );
        let has_data = path.parent().unwrap().join("vol_data.json");
        assert!(
            request.block || has_data.is_file(),
            "volume data before the call"
        );
        self.call("stage", &handle.clone(), &path.clone(), |state, _| {
            state.staged.insert((handle, path.clone()));
            if !request.block {
                state.mounts.insert(path);
            }
        })
        .await
    }

    async fn unstage(&self, handle: &str, path: &Path) -> Result<(), CsiError> {
        let key = (handle.to_owned(), path.to_owned());
        let published = lock(&self.0).published.iter().any(|(of, _)| of == handle);
        assert!(!published, "unstaged while it is published");
        self.call("unstage", handle, path, |state, lie| {
            state.staged.remove(&key);
            if !lie {
                state.mounts.remove(&key.1);
            }
        })
        .await
    }

    async fn publish(&self, request: PublishRequest) -> Result<(), CsiError> {
        let (volume, path) = (request.volume.clone(), request.target_path.clone());
        {
            let mut state = lock(&self.0);
            state.last_publish = Some(request);
            let mut staged = state.staged.iter();
            assert!(
                volume.staging_path.is_none() || staged.any(|(of, _)| *of == volume.handle),
                "published before it is staged"
            );
        }
        assert!(
            path.parent().unwrap().is_dir(),
            "the parent exists before the call"
        );
        self.call(
            "publish",
            &volume.handle.clone(),
            &path.clone(),
            |state, _| {
                match volume.block {
                    true => std::fs::write(&path, "").unwrap(),
                    false => std::fs::create_dir_all(&path).unwrap(),
                }
                state.published.insert((volume.handle, path.clone()));
                state.mounts.insert(path);
            },
        )
        .await
    }

    async fn unpublish(&self, handle: &str, path: &Path) -> Result<(), CsiError> {
        let key = (handle.to_owned(), path.to_owned());
        self.call("unpublish", handle, path, |state, lie| {
            state.published.remove(&key);
            if lie {
                return;
            }
            state.mounts.remove(&key.1);
            let _ = std::fs::remove_dir(&key.1).or_else(|_| std::fs::remove_file(&key.1));
        })
        .await
    }

    async fn expand(
        &self,
        request: StageRequest,
        wanted: u64,
        at: PathBuf,
    ) -> Result<u64, CsiError> {
        let staging = request.staging_path.is_some();
        let name = format!("{} to {wanted} staged {staging}", request.handle);
        self.call("expand", &name, &at, |_, _| {}).await?;
        Ok(0)
    }

    async fn usage(
        &self,
        handle: &str,
        path: &Path,
        _: Option<&Path>,
    ) -> Result<VolumeUsage, CsiError> {
        self.call("usage", handle, path, |_, _| {}).await?;
        let bytes = UsageEntry {
            unit: UsageUnit::Bytes,
            available: 6,
            total: 10,
            used: 4,
        };
        Ok(VolumeUsage {
            entries: vec![bytes],
            abnormal: None,
        })
    }
}

#[async_trait]
impl CsiObjects for Node {
    async fn driver(&self, _: &str) -> Result<Option<CsiDriverSpec>, ObjectError> {
        let state = lock(&self.0);
        state.reachable()?;
        Ok(state.spec.clone())
    }

    async fn attachment(&self, _: &str) -> Result<Option<Attachment>, ObjectError> {
        let state = lock(&self.0);
        state.reachable()?;
        Ok(state.attachment.clone())
    }

    async fn secret(&self, secret: &SecretRef) -> Result<BTreeMap<String, Vec<u8>>, ObjectError> {
        let state = lock(&self.0);
        state.reachable()?;
        let name = secret.name.clone();
        Ok(BTreeMap::from([("from".to_owned(), name.into_bytes())]))
    }

    async fn token(
        &self,
        pod: &SharedPod,
        request: &TokenRequest,
    ) -> Result<PodToken, ObjectError> {
        let state = lock(&self.0);
        state.reachable()?;
        Ok(PodToken {
            token: format!("{} for {:?}", pod.name(), request.audience),
            expires: "2026-11-22T00:00:00Z".to_owned(),
        })
    }
}

impl State {
    fn reachable(&self) -> Result<(), ObjectError> {
        match self.unreachable {
            true => Err(ObjectError {
                message: "API server unreachable".to_owned(),
                retry: Retry::Later,
            }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl VolumeHost for Node {
    async fn run(&self, _: &IoQueueKind, _: &'static str, work: FileWork) -> Result<(), String> {
        step(&self.0).await;
        work();
        step(&self.0).await;
        Ok(())
    }

    fn is_mounted(&self, path: &Path) -> io::Result<bool> {
        Ok(lock(&self.0).mounts.contains(path))
    }

    fn mounts_in_pods(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        let state = lock(&self.0);
        let mut staged = state.staged.iter().filter(|(_, at)| at == path);
        let handle = staged.next().map(|(handle, _)| handle);
        let of_handle = |(of, _): &&(String, PathBuf)| Some(of) == handle;
        let published = state.published.iter().filter(of_handle);
        Ok(published.map(|(_, at)| at.clone()).collect())
    }

    fn remove_tree(&self, path: &Path) -> io::Result<()> {
        assert!(!self.is_mounted(path)?, "{} is mounted", path.display());
        match std::fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    async fn release_device(&self, _: &IoQueueKind, node: &Path) -> Result<(), String> {
        step(&self.0).await;
        let mut state = lock(&self.0);
        if state.mounts.remove(node) {
            std::fs::remove_file(node).expect("a file");
            let line = format!("release {}", state.short(node));
            state.journal.push(line);
        }
        Ok(())
    }

    async fn set_ownership(
        &self,
        _: &IoQueueKind,
        _: &SharedPod,
        volume: &str,
        dir: &Path,
        fs_group: u32,
    ) -> Result<(), String> {
        step(&self.0).await;
        let mut state = lock(&self.0);
        let line = format!("group {fs_group} {volume} {}", state.short(dir));
        state.journal.push(line);
        match state.keep_group {
            true => Err("read-only file system".to_owned()),
            false => Ok(()),
        }
    }
}
