//! Volumes on this host: dispatch to the plugins, each in its own file.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use windlass_csi::{CsiPaths, CsiVolumes, is_csi_device};
use windlass_pod_inputs::paths::{NodePaths, check_component};
use windlass_types::{DeviceName, EventRecorder, MountedVolume, PodExt, PodUid};
use windlass_volume_plan::volume_source::{PodVolume, VolumeSource};

use crate::block::{self, OpenDevices};
use crate::csi::{self, CsiConfig, without_csi};
use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueues, pod_volumes_queue};
use crate::local;
use crate::machine::{HostVolumesConfig, Machine};
use crate::nfs;
use crate::pod_volumes::{VolumeSite, set_up_volume, tear_down_volume, volume_path};
use crate::port::{DiscoveredVolume, VolumePlugins, VolumeRequest};
use crate::subpath::clean_sub_paths;
use crate::usage::{Measured, VolumeMeter};

/// Directory of local volumes below a pod.
const LOCAL_DIR: &str = "kubernetes.io~local-volume";

/// Implementation of [`VolumePlugins`] on the node.
#[derive(Debug)]
pub struct HostVolumes {
    paths: NodePaths,
    queues: Arc<IoQueues>,
    pub(crate) machine: Arc<Machine>,
    csi: Option<CsiVolumes>,
    open: OpenDevices,
    meter: VolumeMeter,
}

impl HostVolumes {
    /// Volumes below `paths.root_dir`. `queues` may be shared with other file work.
    pub fn new(paths: NodePaths, queues: Arc<IoQueues>) -> Self {
        Self {
            machine: Arc::new(Machine::new(paths.clone(), Arc::clone(&queues))),
            csi: None,
            open: OpenDevices::default(),
            paths,
            meter: VolumeMeter::new(Arc::clone(&queues)),
            queues,
        }
    }

    /// Sets the node settings. Call it before [`HostVolumes::with_csi`].
    pub fn with_config(mut self, config: HostVolumesConfig) -> Self {
        let mut machine = Machine::new(self.paths.clone(), Arc::clone(&self.queues));
        machine.config = config;
        self.machine = Arc::new(machine);
        self
    }

    /// Adds CSI volumes.
    pub fn with_csi(mut self, config: CsiConfig) -> Self {
        self.csi = Some(csi::csi_volumes(&self.machine, config));
        self
    }

    fn csi(&self) -> Result<&CsiVolumes, VolumeError> {
        self.csi.as_ref().ok_or_else(without_csi)
    }
}

#[async_trait]
impl VolumePlugins for HostVolumes {
    async fn find(&self, uid: &PodUid) -> Result<Vec<DiscoveredVolume>, VolumeError> {
        check_uid(uid)?;
        let dir = self.paths.pod_dir(uid);
        let (paths, of) = (self.paths.clone(), uid.clone());
        self.queues
            .run(&pod_volumes_queue(uid), "listing volumes", move || {
                let mut found = volumes_in(&dir, "volumes", false)?;
                found.extend(volumes_in(&dir, "volumeDevices", true)?);
                for volume in &mut found {
                    if volume.plugin_dir == LOCAL_DIR {
                        volume.device = Some(local::device_name(&volume.name));
                    }
                    if csi::is_csi(volume) {
                        csi::set_device(&paths, &of, volume);
                    }
                }
                Ok(found)
            })
            .await
    }

    async fn find_pods(&self) -> Result<Vec<PodUid>, VolumeError> {
        let dir = self.paths.pods_dir();
        self.queues
            .run("node:volumes", "listing pods", move || {
                Ok(names_in(&dir)?.into_iter().map(PodUid::from).collect())
            })
            .await
    }

    async fn find_devices(&self) -> Result<Vec<DeviceName>, VolumeError> {
        let (mounts, devices) = (self.machine.local_mounts(), self.machine.local_devices());
        let csi = CsiPaths::new(self.paths.clone());
        let plugins = self.paths.root_dir.join("plugins");
        self.queues
            .run("node:volumes", "listing devices", move || {
                let mut names = names_in(&mounts)?;
                names.extend(names_in(&devices)?);
                names.sort();
                names.dedup();
                let mut found: Vec<_> = names.iter().map(|n| local::device_name(n)).collect();
                let staged = csi.staged_devices();
                found.extend(staged.map_err(|e| VolumeError::io("list", &plugins, e))?);
                Ok(found)
            })
            .await
    }

    async fn stage(&self, request: &VolumeRequest) -> Result<(), VolumeError> {
        match &request.volume.source {
            VolumeSource::Local(volume) => local::stage(&self.machine, request, volume).await,
            VolumeSource::Csi(_) => {
                let label = self.machine.label_of(request);
                let label = label.as_deref();
                let staged = self.csi()?.stage(&request.pod, &request.volume, label);
                Ok(staged.await?)
            }
            _ => Ok(()),
        }
    }

    async fn unstage(&self, device: &DeviceName) -> Result<(), VolumeError> {
        if is_csi_device(device) {
            return Ok(self.csi()?.unstage(device).await?);
        }
        match local::volume_of(device) {
            Some(volume) => local::unstage(&self.machine, volume).await,
            None => Ok(()),
        }
    }

    async fn set_up(&self, request: &VolumeRequest) -> Result<MountedVolume, VolumeError> {
        let uid = request.pod.uid();
        check_uid(&uid)?;
        match &request.volume.source {
            VolumeSource::Local(volume) if volume.block => {
                return block::set_up(&self.machine, &self.open, request, volume).await;
            }
            VolumeSource::Local(volume) => {
                return local::set_up(&self.machine, request, volume).await;
            }
            VolumeSource::Nfs(volume) => return nfs::set_up(&self.machine, request, volume).await,
            VolumeSource::Csi(_) => {
                let label = self.machine.label_of(request);
                let label = label.as_deref();
                let set_up = self.csi()?.set_up(&request.pod, &request.volume, label);
                return Ok(set_up.await?);
            }
            _ => {}
        }
        let (dir, request) = (self.paths.pod_dir(&uid), request.clone());
        let allocatable_memory = self.machine.config.allocatable_memory;
        self.queues
            .run(&pod_volumes_queue(&uid), "setting up a volume", move || {
                let site = VolumeSite {
                    pod_dir: &dir,
                    pod: &request.pod,
                    now: request.now,
                    allocatable_memory,
                };
                set_up_volume(site, &request.volume)
            })
            .await
    }

    async fn expand(&self, request: &VolumeRequest, bytes: u64) -> Result<(), VolumeError> {
        match &request.volume.source {
            VolumeSource::Csi(_) => {
                let expanded = self.csi()?.expand(&request.pod, &request.volume, bytes);
                Ok(expanded.await?)
            }
            VolumeSource::Local(volume) => local::expand(&self.machine, request, volume).await,
            _ => Ok(()),
        }
    }

    async fn is_node_full(&self, volume: &PodVolume) -> bool {
        match (&volume.source, &self.csi) {
            (VolumeSource::Csi(volume), Some(csi)) => csi.is_node_full(volume).await,
            _ => false,
        }
    }

    async fn tear_down(&self, uid: &PodUid, volume: &DiscoveredVolume) -> Result<(), VolumeError> {
        check_uid(uid)?;
        let (dir, volume) = (self.paths.pod_dir(uid), volume.clone());
        let queue = queue_for_plugin_dir(uid, &volume.plugin_dir);
        // subPath bind mounts keep the volume busy
        let (pod_dir, name) = (dir.clone(), volume.name.clone());
        self.queues
            .run_in(&queue, "unmounting subPaths", move || {
                clean_sub_paths(&pod_dir, Some(&name))
            })
            .await?;
        self.machine.stop_walks(uid).await;
        match volume.plugin_dir.as_str() {
            csi::CSI_DIR => {
                if !volume.block {
                    csi::release_nested(&self.machine, &queue, uid, &volume.name).await?;
                }
                let released = self.csi()?.tear_down(uid, &volume.name, volume.block);
                return Ok(released.await?);
            }
            LOCAL_DIR if volume.block => {
                let link = volume_path(&dir, &volume);
                let name = &volume.name;
                return block::tear_down(&self.machine, &self.open, uid, link, name).await;
            }
            nfs::PLUGIN_DIR => {
                return nfs::tear_down(&self.machine, uid, &volume_path(&dir, &volume)).await;
            }
            _ => {}
        }
        self.queues
            .run_in(&queue, "tearing down a volume", move || {
                tear_down_volume(&dir, &volume)
            })
            .await
    }

    async fn cancel_operations(&self, uid: &PodUid) {
        self.machine.stop_walks(uid).await;
    }

    fn set_event_recorder(&self, events: Arc<dyn EventRecorder>) {
        // the first recorder stays
        let _ = self.machine.events.set(events);
    }

    async fn usage(
        &self,
        uid: &PodUid,
        volume: &PodVolume,
    ) -> Result<Option<Measured>, VolumeError> {
        check_uid(uid)?;
        if let VolumeSource::Csi(of) = &volume.source {
            let usage = self.csi()?.usage(uid, &of.volume_name, of.block).await?;
            return Ok(usage.and_then(|usage| csi::measured(&of.driver, &usage)));
        }
        let Some(path) = volume.dir(&self.paths.pod_dir(uid)) else {
            return Ok(None);
        };
        let queue = match &volume.source {
            VolumeSource::Local(of) => local::device_queue(&of.volume_name),
            VolumeSource::Nfs(_) => IoQueue::Device(path.display().to_string()),
            _ => IoQueue::Disk(format!("{uid}/usage")),
        };
        let userns = self.paths.user_namespace(uid);
        self.meter.measure(&queue, &path, &userns).await.map(Some)
    }
}

/// The queue of a pod's volumes in this plugin directory. It differs from the queue of the device: a
/// hung ownership change may end only when the volume is unmounted.
fn queue_for_plugin_dir(uid: &PodUid, plugin_dir: &str) -> IoQueue {
    match plugin_dir {
        csi::CSI_DIR | LOCAL_DIR | nfs::PLUGIN_DIR => IoQueue::Device(pod_volumes_queue(uid)),
        _ => IoQueue::Disk(pod_volumes_queue(uid)),
    }
}

/// The queue for work on a path in a pod volume.
pub fn queue_for_path(uid: &PodUid, path: &Path) -> IoQueue {
    let queues = path
        .iter()
        .filter_map(|part| Some(queue_for_plugin_dir(uid, part.to_str()?)));
    let mut devices = queues.filter(|queue| matches!(queue, IoQueue::Device(_)));
    devices
        .next()
        .unwrap_or_else(|| IoQueue::Disk(pod_volumes_queue(uid)))
}

fn check_uid(uid: &PodUid) -> Result<(), VolumeError> {
    check_component("pod UID", uid.as_str()).map_err(|error| VolumeError::Invalid {
        volume: String::new(),
        message: error.to_string(),
    })
}

/// `<pod>/<above>/<kind>/<volume>`.
fn volumes_in(
    pod_dir: &Path,
    above: &str,
    block: bool,
) -> Result<Vec<DiscoveredVolume>, VolumeError> {
    let mut found = Vec::new();
    for plugin_dir in names_in(&pod_dir.join(above))? {
        for name in names_in(&pod_dir.join(above).join(&plugin_dir))? {
            found.push(DiscoveredVolume {
                plugin_dir: plugin_dir.clone(),
                name,
                block,
                device: None,
            });
        }
    }
    Ok(found)
}

/// As [`names_in_dir`]; also empty for a foreign file in place of the directory.
fn names_in(dir: &Path) -> Result<Vec<String>, VolumeError> {
    match names_in_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(Vec::new()),
        names => names.map_err(|error| VolumeError::io("list", dir, error)),
    }
}

/// Names in a directory, sorted; empty if it is missing. Names that are not UTF-8 are skipped.
pub fn names_in_dir(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    names.sort();
    Ok(names)
}
