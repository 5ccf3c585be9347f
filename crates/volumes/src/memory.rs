//! A model of the node's volumes for simulations: in memory, with injected faults and a record of
//! invariant violations.
//!
//! Staged and mounted volumes survive the agent, as on a real node: [`MemoryVolumes::new_agent_run`]
//! starts an agent run, whose calls stop where they are when it is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use windlass_pod_inputs::paths::NodePaths;
use windlass_pod_inputs::projection::VolumePayload;
use windlass_types::{DeviceName, MountedContent, MountedVolume, PodExt, PodUid};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};
use windlass_volume_plan::volume_usage::{StatsSource, VolumeStats};

use crate::error::VolumeError;
use crate::port::{DiscoveredVolume, VolumePlugins, VolumeRequest};
use crate::usage::Measured;

/// Interval at which a hung call checks whether it may continue.
const HANG_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Operation for fault injection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeStep {
    /// `find`.
    Find,
    /// `stage`.
    Stage,
    /// `unstage`.
    Unstage,
    /// `set_up`.
    Mount,
    /// `expand`.
    Expand,
    /// `tear_down`.
    Unmount,
    /// `usage`, which only hangs.
    Usage,
}

/// Implementation of [`VolumePlugins`] in memory. Clones share the state.
#[derive(Clone, Default)]
pub struct MemoryVolumes {
    paths: NodePaths,
    state: Arc<Mutex<State>>,
    dead: Arc<AtomicBool>,
    on_half: Option<Arc<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    pods: BTreeSet<PodUid>,
    volumes: BTreeMap<(PodUid, DiscoveredVolume), StoredVolume>,
    staged: BTreeSet<DeviceName>,
    /// Devices over the attach limit.
    full: BTreeSet<DeviceName>,
    failing: BTreeMap<(VolumeStep, String), String>,
    hanging: BTreeSet<(VolumeStep, String)>,
    latency: Duration,
    used: BTreeMap<(PodUid, String), u64>,
    busy: BTreeSet<String>,
    calls: Vec<String>,
    violations: Vec<String>,
    is_running: Option<IsRunning>,
}

/// Whether a container of a pod runs.
type IsRunning = Arc<dyn Fn(&PodUid) -> bool + Send + Sync>;

/// State of a volume.
#[derive(Default)]
struct StoredVolume {
    mounted: bool,
    payload: Option<VolumePayload>,
}

impl fmt::Debug for MemoryVolumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryVolumes").finish_non_exhaustive()
    }
}

impl MemoryVolumes {
    /// A node without volumes.
    pub fn new(paths: NodePaths) -> Self {
        Self {
            paths,
            ..Self::default()
        }
    }

    /// Starts an agent run with the same volumes.
    pub fn new_agent_run(&self) -> Self {
        self.state.lock().busy.clear();
        Self {
            dead: Arc::default(),
            on_half: None,
            ..self.clone()
        }
    }

    /// Calls `observer` before each half of a step of this agent run; it may kill the run.
    pub fn on_half_step(&mut self, observer: impl Fn() + Send + Sync + 'static) {
        self.on_half = Some(Arc::new(observer));
    }

    /// Kills the agent run: its calls never return and have no further effect.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Reboots the host: nothing is mounted or staged. Directories stay, without content.
    pub fn reboot(&self) {
        let mut state = self.state.lock();
        state.staged.clear();
        for stored in state.volumes.values_mut() {
            *stored = StoredVolume::default();
        }
    }

    /// Checks at unmounts that no container of the pod runs.
    pub fn watch_pods(&self, is_running: impl Fn(&PodUid) -> bool + Send + Sync + 'static) {
        self.state.lock().is_running = Some(Arc::new(is_running));
    }

    /// Makes a step fail with this text, or succeed again. The subject is a pod (all of its
    /// volumes), `<pod>/<volume>` or a device.
    pub fn fail(&self, step: VolumeStep, subject: &str, message: Option<&str>) {
        let key = (step, subject.to_owned());
        let mut state = self.state.lock();
        match message {
            Some(text) => state.failing.insert(key, text.to_owned()),
            None => state.failing.remove(&key),
        };
    }

    /// Makes a step hang, or continue; subjects as in [`Self::fail`].
    pub fn hang(&self, step: VolumeStep, subject: &str, hang: bool) {
        let key = (step, subject.to_owned());
        let mut state = self.state.lock();
        match hang {
            true => state.hanging.insert(key),
            false => state.hanging.remove(&key),
        };
    }

    /// Sets the usage of a volume; other volumes have none.
    pub fn fill(&self, uid: &PodUid, volume: &str, bytes: u64) {
        let key = (uid.clone(), volume.to_owned());
        self.state.lock().used.insert(key, bytes);
    }

    /// Sets the duration of each half of a step.
    pub fn set_latency(&self, latency: Duration) {
        self.state.lock().latency = latency;
    }

    /// Pods that have a directory for volumes.
    pub fn pods(&self) -> BTreeSet<PodUid> {
        self.state.lock().pods.clone()
    }

    /// Removes a pod's directory; false if a volume is mounted in it.
    pub fn remove_pod(&self, uid: &PodUid) -> bool {
        let mut state = self.state.lock();
        let mounted = state.volumes.keys().any(|(of, _)| of == uid);
        if !mounted {
            state.pods.remove(uid);
        }
        !mounted
    }

    /// Payload of a volume.
    pub fn payload(&self, uid: &PodUid, volume: &str) -> Option<VolumePayload> {
        let state = self.state.lock();
        let mut volumes = state.volumes.iter();
        let found = volumes.find(|((of, found), _)| of == uid && found.name == volume);
        found?.1.payload.clone()
    }

    /// Names of the volumes that are mounted for a pod.
    pub fn mounted(&self, uid: &PodUid) -> BTreeSet<String> {
        let state = self.state.lock();
        let volumes = state.volumes.iter();
        let mounted = volumes.filter(|((of, _), stored)| of == uid && stored.mounted);
        mounted.map(|((_, found), _)| found.name.clone()).collect()
    }

    /// Devices that are staged.
    pub fn staged(&self) -> BTreeSet<DeviceName> {
        self.state.lock().staged.clone()
    }

    /// Marks the node as full for this device.
    pub fn set_node_full_for(&self, device: &DeviceName) {
        self.state.lock().full.insert(device.clone());
    }

    /// Adds a staged device of a previous agent run.
    pub fn add_staged_device(&self, device: &DeviceName) {
        self.state.lock().staged.insert(device.clone());
    }

    /// Records a violation unless the volumes of these container paths are mounted.
    pub fn check_paths<'a>(&self, uid: &PodUid, paths: impl IntoIterator<Item = &'a Path>) {
        let dir = self.paths.pod_dir(uid);
        let mut state = self.state.lock();
        for path in paths {
            let Ok(volume) = path.strip_prefix(dir.join("volumes")) else {
                continue;
            };
            let mounted = state.volumes.iter().any(|((of, found), stored)| {
                let at = Path::new(&found.plugin_dir).join(&found.name);
                of == uid && stored.mounted && volume.starts_with(at)
            });
            if !mounted {
                let path = path.display();
                state.violations.push(format!("{path} is not mounted"));
            }
        }
    }

    /// All steps so far, as operation and subject.
    pub fn calls(&self) -> Vec<String> {
        self.state.lock().calls.clone()
    }

    /// Clears the record of steps.
    pub fn clear_calls(&self) {
        self.state.lock().calls.clear();
    }

    /// Invariant violations so far.
    pub fn violations(&self) -> Vec<String> {
        self.state.lock().violations.clone()
    }

    /// Half of a step, with latency, hang, fault or kill.
    async fn half(&self, step: VolumeStep, subjects: &[String]) -> Result<(), VolumeError> {
        let latency = self.state.lock().latency;
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        let keys: Vec<_> = subjects.iter().map(|s| (step, s.clone())).collect();
        while keys
            .iter()
            .any(|key| self.state.lock().hanging.contains(key))
        {
            tokio::time::sleep(HANG_CHECK_INTERVAL).await;
        }
        if let Some(observer) = &self.on_half {
            observer();
        }
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let state = self.state.lock();
        let text = keys.iter().find_map(|key| state.failing.get(key));
        text.map_or(Ok(()), |text| {
            Err(VolumeError::Io {
                action: "work on",
                path: PathBuf::from(subjects.concat()),
                source: io::Error::other(text.clone()),
            })
        })
    }

    /// A step: `begin` runs first, `end` if it succeeds.
    async fn step<T>(
        &self,
        step: VolumeStep,
        line: String,
        subjects: &[String],
        begin: impl FnOnce(&mut State) + Send,
        end: impl FnOnce(&mut State) -> T + Send,
    ) -> Result<T, VolumeError> {
        self.half(step, &[]).await?;
        {
            let mut state = self.state.lock();
            if !state.busy.insert(line.clone()) {
                state
                    .violations
                    .push(format!("{line} is already in progress"));
            }
            state.calls.push(line.clone());
            begin(&mut state);
        }
        let through = self.half(step, subjects).await;
        let mut state = self.state.lock();
        state.busy.remove(&line);
        through?;
        Ok(end(&mut state))
    }
}

/// The pod, and the volume in it.
fn subjects(uid: &PodUid, name: &str) -> [String; 2] {
    [uid.to_string(), format!("{uid}/{name}")]
}

/// The volume as discovery finds it, if it has a directory.
fn place(volume: &PodVolume) -> Option<DiscoveredVolume> {
    Some(DiscoveredVolume {
        plugin_dir: volume.source.plugin_dir()?.to_owned(),
        name: volume.dir_name().to_owned(),
        block: volume.source.is_block(),
        device: volume.device(),
    })
}

#[async_trait]
impl VolumePlugins for MemoryVolumes {
    async fn find(&self, uid: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError> {
        self.half(VolumeStep::Find, &[uid.to_string()]).await?;
        let state = self.state.lock();
        let found = state.volumes.keys().filter(|(of, _)| of == uid);
        Ok(found.map(|(_, found)| found.clone()).collect())
    }

    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError> {
        self.half(VolumeStep::Find, &[]).await?;
        Ok(self.state.lock().pods.iter().cloned().collect())
    }

    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError> {
        self.half(VolumeStep::Find, &[]).await?;
        Ok(self.state.lock().staged.iter().cloned().collect())
    }

    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError> {
        let Some(device) = request.volume.device() else {
            return Ok(());
        };
        let line = format!("stage {device}");
        let (begun, ended) = (device.clone(), device.clone());
        self.step(
            VolumeStep::Stage,
            line,
            &[device.to_string()],
            // a device may already be staged during the call
            move |state| {
                state.staged.insert(begun);
            },
            move |state| {
                state.staged.insert(ended);
            },
        )
        .await
    }

    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError> {
        let line = format!("unstage {device}");
        let begun = device.clone();
        self.step(
            VolumeStep::Unstage,
            line,
            &[device.to_string()],
            move |state| {
                let users = state.volumes.iter();
                let mut users =
                    users.filter(|((_, found), _)| found.device.as_ref() == Some(&begun));
                if let Some(((uid, found), _)) = users.next() {
                    let text = format!("{begun} is unstaged while {uid}/{} is there", found.name);
                    state.violations.push(text);
                }
            },
            |state| {
                state.staged.remove(device);
            },
        )
        .await
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        let (uid, volume) = (request.pod.uid(), &request.volume);
        let line = format!("mount {uid}/{}", volume.name);
        let place = place(volume).map(|found| (uid.clone(), found));
        let payload = match &volume.source {
            VolumeSource::Payload(_, payload) => Some(payload.clone()),
            VolumeSource::PayloadUnavailable(_, why) => match self.payload(&uid, &volume.name) {
                None => return Err(VolumeError::PayloadUnavailable(why.clone())),
                shown => shown,
            },
            _ => None,
        };
        let (begun, device) = (place.clone(), volume.device());
        let subjects = subjects(&uid, &volume.name);
        self.step(
            VolumeStep::Mount,
            line.clone(),
            &subjects,
            |state| {
                if let Some(device) = device.filter(|device| !state.staged.contains(device)) {
                    let text = format!("{line} while {device} is not staged");
                    state.violations.push(text);
                }
                state.pods.insert(uid.clone());
                if let Some(place) = begun {
                    state.volumes.entry(place).or_default();
                }
            },
            |state| {
                if let Some(place) = place {
                    let stored = state.volumes.entry(place).or_default();
                    (stored.mounted, stored.payload) = (true, payload);
                }
            },
        )
        .await?;
        let dir = volume.dir(&self.paths.pod_dir(&uid));
        let content = match &volume.source {
            VolumeSource::HostPath(source) => MountedContent::Path(PathBuf::from(&source.path)),
            VolumeSource::Image(image) => MountedContent::Image {
                reference: image.reference.clone(),
                pull_policy: image.pull_policy.clone(),
            },
            _ => MountedContent::Path(dir.unwrap_or_default()),
        };
        let shows = volume.source.has_payload();
        Ok(MountedVolume {
            content,
            read_only: volume.read_only || shows,
            relabel: shows || matches!(volume.source, VolumeSource::EmptyDir(_)),
        })
    }

    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError> {
        let (uid, volume) = (request.pod.uid(), &request.volume);
        let line = format!("expand {uid}/{} to {bytes}", volume.name);
        let subjects = subjects(&uid, &volume.name);
        let step = VolumeStep::Expand;
        self.step(step, line, &subjects, |_| (), |_| ()).await
    }

    async fn is_node_full(&self, volume: &PodVolume) -> bool {
        let device = volume.device();
        device.is_some_and(|device| self.state.lock().full.contains(&device))
    }

    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError> {
        let line = format!("unmount {uid}/{}", volume.name);
        let place = (uid.clone(), volume.clone());
        let subjects = subjects(uid, &volume.name);
        let is_running = self.state.lock().is_running.clone();
        if is_running.is_some_and(|is_running| is_running(uid)) {
            let text = format!("{line} while the pod runs");
            self.state.lock().violations.push(text);
        }
        let begun = place.clone();
        self.step(
            VolumeStep::Unmount,
            line,
            &subjects,
            |state| {
                if let Some(stored) = state.volumes.get_mut(&begun) {
                    stored.mounted = false;
                }
            },
            |state| drop(state.volumes.remove(&place)),
        )
        .await
    }

    async fn usage(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        let key = (uid.clone(), volume.name.clone());
        let hangs = |subject: &String| {
            let key = (VolumeStep::Usage, subject.clone());
            self.state.lock().hanging.contains(&key)
        };
        while subjects(uid, &volume.name).iter().any(hangs) {
            tokio::time::sleep(HANG_CHECK_INTERVAL).await;
        }
        let used = self.state.lock().used.get(&key).copied();
        let source = match &volume.source {
            VolumeSource::Nfs(_) | VolumeSource::Csi(_) | VolumeSource::Local(_) => {
                StatsSource::StatFs
            }
            _ => StatsSource::Walk,
        };
        let stats = |used| VolumeStats {
            used,
            ..VolumeStats::default()
        };
        Ok(used.map(|used| (stats(used), source)))
    }
}

#[cfg(test)]
mod tests;
