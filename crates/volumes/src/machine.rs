//! What every plugin works with: paths, queues, the node's programs, who is told.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use windlass_pod_inputs::paths::{NodePaths, escape_plugin};
use windlass_volume_plan::selinux_mount::{SelinuxMounts, mount_label};
use windlass_volume_plan::volume_source::LOCAL_PLUGIN;
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodExt, Reason};

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueues};
use crate::port::VolumeRequest;
use crate::programs::Programs;
use crate::walks::Walks;

/// What the plugins know of the node.
#[derive(Clone, Debug, Default)]
pub struct HostVolumesConfig {
    /// Memory that all pods may use, in bytes; 0 if unknown.
    pub allocatable_memory: u64,
    /// How volumes get their SELinux label; `None` without SELinux.
    pub selinux: Option<SelinuxMounts>,
    /// The programs that mount and make file systems.
    pub programs: Programs,
}

/// Shared by the plugins of one node.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) paths: NodePaths,
    pub(crate) queues: Arc<IoQueues>,
    pub(crate) config: HostVolumesConfig,
    pub(crate) walks: Walks,
    /// Set once the agent has somebody to record_event.
    pub(crate) events: OnceLock<Arc<dyn EventRecorder>>,
    /// Directories that pods share, while one of them is set up.
    shared: Mutex<HashMap<PathBuf, Weak<tokio::sync::Mutex<()>>>>,
    /// Steps that still run before the agent "dies"; for tests of what a kill leaves.
    #[cfg(test)]
    pub(crate) lives: Mutex<Option<usize>>,
}

impl Machine {
    pub(crate) fn new(paths: NodePaths, queues: Arc<IoQueues>) -> Self {
        Self {
            paths,
            queues,
            config: HostVolumesConfig::default(),
            walks: Walks::default(),
            events: OnceLock::new(),
            shared: Mutex::default(),
            #[cfg(test)]
            lives: Mutex::new(None),
        }
    }

    /// One step of a plugin that touches the node, in a queue. A plugin is a row of such steps: the
    /// agent may die between any two, and whoever comes next goes through all of them again.
    pub(crate) async fn step<T: Send + 'static>(
        &self,
        queue: &IoQueue,
        action: &'static str,
        work: impl FnOnce() -> Result<T, VolumeError> + Send + 'static,
    ) -> Result<T, VolumeError> {
        self.kill_point()?;
        self.queues.run_in(queue, action, work).await
    }

    #[cfg(not(test))]
    #[expect(clippy::unnecessary_wraps, reason = "tests let it die here")]
    pub(crate) fn kill_point(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn kill_point(&self) -> Result<(), VolumeError> {
        let mut lives = self.lives.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *lives {
            Some(0) => {
                return Err(VolumeError::Stopped {
                    path: PathBuf::from("killed"),
                });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(())
    }

    /// The label that a volume is to be mounted with; `None` leaves labels to the runtime.
    pub(crate) fn label_of(&self, request: &VolumeRequest) -> Option<String> {
        let node = self.config.selinux.as_ref()?;
        let label = mount_label(&request.pod, &request.volume, node);
        // its driver may not be able to mount with a label at all, so this is no failure yet
        label.unwrap_or_else(|error| {
            let (pod, volume) = (request.pod.full_name(), &request.volume.name);
            tracing::warn!(%pod, volume, %error, "mounts without a label");
            None
        })
    }

    pub(crate) fn record_event(&self, pod: &Pod, reason: Reason, message: &str) {
        if let Some(events) = self.events.get() {
            events.record(pod, None, EventType::Warning, reason, message);
        }
    }

    /// Whoever holds what this returns is alone with a directory that pods share.
    pub(crate) fn lock_directory(&self, dir: &Path) -> Arc<tokio::sync::Mutex<()>> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, turn| turn.strong_count() > 0);
        if let Some(turn) = shared.get(dir).and_then(Weak::upgrade) {
            return turn;
        }
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        shared.insert(dir.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// `plugins/kubernetes.io/local-volume/mounts`: file systems of block devices, by
    /// PersistentVolume.
    pub(crate) fn local_mounts(&self) -> PathBuf {
        let plugins = self.paths.root_dir.join("plugins");
        plugins.join(LOCAL_PLUGIN).join("mounts")
    }

    /// `plugins/kubernetes.io~local-volume/volumeDevices`: block devices in use, by
    /// PersistentVolume and pod.
    pub(crate) fn local_devices(&self) -> PathBuf {
        let plugins = self.paths.root_dir.join("plugins");
        plugins
            .join(escape_plugin(LOCAL_PLUGIN))
            .join("volumeDevices")
    }
}
