//! State shared by the volume plugins: paths, I/O queues, programs, event recorder.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use windlass_pacing::SharedByKey;
use windlass_pod_inputs::paths::{NodePaths, escape_plugin};
use windlass_types::view::EventType;
use windlass_types::{EventRecorder, Pod, PodExt, Reason};
use windlass_volume_plan::selinux_mount::{SelinuxMounts, mount_label};
use windlass_volume_plan::volume_source::LOCAL_PLUGIN;

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueues};
use crate::port::VolumeRequest;
use crate::programs::Programs;
use crate::walks::Walks;

/// Node settings of the plugins.
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
    /// Set once the event recorder exists.
    pub(crate) events: OnceLock<Arc<dyn EventRecorder>>,
    /// Locks of directories that pods share.
    pub(crate) directory_locks: SharedByKey<PathBuf, tokio::sync::Mutex<()>>,
    /// Steps until the simulated kill.
    #[cfg(test)]
    pub(crate) steps_before_kill: std::sync::Mutex<Option<usize>>,
}

impl Machine {
    pub(crate) fn new(paths: NodePaths, queues: Arc<IoQueues>) -> Self {
        Self {
            paths,
            queues,
            config: HostVolumesConfig::default(),
            walks: Walks::default(),
            events: OnceLock::new(),
            directory_locks: SharedByKey::default(),
            #[cfg(test)]
            steps_before_kill: std::sync::Mutex::default(),
        }
    }

    /// Runs one step of a plugin in an I/O queue. The agent may be killed between any two steps; the
    /// next agent run repeats all of them.
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
    #[expect(clippy::unnecessary_wraps, reason = "fails only in tests")]
    pub(crate) fn kill_point(&self) -> Result<(), VolumeError> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn kill_point(&self) -> Result<(), VolumeError> {
        let mut steps_before_kill = self.steps_before_kill.lock().expect("not poisoned");
        match &mut *steps_before_kill {
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

    /// SELinux label of the mount; `None` leaves labels to the runtime.
    pub(crate) fn label_of(&self, request: &VolumeRequest) -> Option<String> {
        let node = self.config.selinux.as_ref()?;
        let label = mount_label(&request.pod, &request.volume, node);
        // not an error yet: the driver may not support mounting with a label
        label.unwrap_or_else(|error| {
            let (pod, volume) = (request.pod.full_name(), &request.volume.name);
            tracing::warn!(%pod, volume, %error, "mounting without an SELinux label");
            None
        })
    }

    pub(crate) fn record_event(&self, pod: &Pod, reason: Reason, message: &str) {
        if let Some(events) = self.events.get() {
            events.record(pod, None, EventType::Warning, reason, message);
        }
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
