//! Measures the parts of a pod's disk usage and assembles them.
//!
//! *owns* the last writable layers · *invariant* every part has a timeout; a part that is late is
//! absent · *bound* one `ListContainerStats` call, one thread for logs; volumes run in their own
//! I/O queues.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::time::timeout;
use windlass_actors::StatusCache;
use windlass_cri::{RuntimeFs, RuntimeStats};
use windlass_eviction::DiskUsage;
use windlass_eviction::local_storage::{ContainerDiskUsage, PodDiskUsage};
use windlass_stats::{AgeLimits, DiskUsageTotal, PodFiles, RefreshingCache};
use windlass_types::{ContainerId, ContainerState, ObservedPod, PodExt, PodUid, SharedPod};

/// Time that a measurement waits for one of its parts. A check waits three times at most, for all
/// parts at once, the runtime's directories and their disk: 9 s of its interval of 10 s.
pub(crate) const MEASURE_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of volume measurements: a little less than that of the checks, which must not miss one.
const VOLUME_INTERVAL: Duration = Duration::from_secs(9);
/// Ages of writable layers. Containerd refreshes them every 10 s.
const LAYERS: AgeLimits = AgeLimits {
    fresh: Duration::from_secs(1),
    stale: Duration::from_secs(60),
    timeout: MEASURE_TIMEOUT,
};

/// Files of pods on the node's disk.
#[async_trait]
pub trait NodeDisk: Send + Sync + Debug + 'static {
    /// Usage of logs and hosts files by pod; `None` if the disk does not respond in time.
    async fn pod_files(&self, pods: Vec<SharedPod>) -> Option<HashMap<PodUid, PodFiles>>;
    /// Whether a directory is on the file system of `--root-dir`; `None` if unknown.
    async fn is_on_node_fs(&self, dir: &Path) -> Option<bool>;
}

/// Usage of local volumes.
#[async_trait]
pub trait LocalVolumes: Send + Sync + Debug + 'static {
    /// Usage of the named volumes of a pod, not older than `interval` except for slow ones. Waits
    /// at most `wait`; unknown volumes are absent.
    async fn usage(
        &self,
        uid: &PodUid,
        volumes: &[String],
        interval: Duration,
        wait: Duration,
    ) -> BTreeMap<String, DiskUsage>;
}

/// What to measure of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) pod: SharedPod,
    /// Names of volumes.
    pub(crate) volumes: Vec<String>,
    /// Writable layers and logs.
    pub(crate) containers: bool,
}

/// Sources of the measurements.
#[derive(Debug)]
pub(crate) struct Meter {
    pub(crate) observed: StatusCache,
    pub(crate) runtime: Arc<dyn RuntimeStats>,
    pub(crate) images: Arc<dyn RuntimeStats>,
    pub(crate) disk: Arc<dyn NodeDisk>,
    pub(crate) volumes: Arc<dyn LocalVolumes>,
    layers: RefreshingCache<HashMap<ContainerId, RuntimeFs>>,
    layers_on_node_fs: OnceLock<bool>,
}

impl Meter {
    pub(crate) fn new(
        observed: StatusCache,
        (runtime, images): (Arc<dyn RuntimeStats>, Arc<dyn RuntimeStats>),
        disk: Arc<dyn NodeDisk>,
        volumes: Arc<dyn LocalVolumes>,
    ) -> Self {
        Self {
            observed,
            runtime,
            images,
            disk,
            volumes,
            layers: RefreshingCache::new(LAYERS),
            layers_on_node_fs: OnceLock::new(),
        }
    }

    /// Measures pods; all parts concurrently, each within [`MEASURE_TIMEOUT`].
    pub(crate) async fn measure(&self, subjects: &[Subject]) -> BTreeMap<PodUid, PodDiskUsage> {
        let with_containers = subjects.iter().filter(|subject| subject.containers);
        let pods: Vec<_> = with_containers.map(|it| it.pod.clone()).collect();
        let containers = async {
            if pods.is_empty() {
                return (None, None);
            }
            tokio::join!(self.layers(), self.disk.pod_files(pods))
        };
        let volumes = join_all(subjects.iter().map(|subject| self.volumes_of(subject)));
        let ((layers, files), volumes) = tokio::join!(containers, volumes);
        let parts = Parts { layers, files };
        let subjects = subjects.iter().zip(volumes);
        let usages = subjects.map(|(subject, volumes)| {
            let uid = subject.pod.uid();
            let mut usage = match self.observed.get(&uid) {
                Some(observed) if subject.containers => parts.of_containers(&observed),
                _ => PodDiskUsage::default(),
            };
            usage.volumes = volumes;
            (uid, usage)
        });
        usages.collect()
    }

    /// Whether writable layers are on the file system of `--root-dir`; so until it is known.
    pub(crate) async fn layers_on_node_fs(&self) -> bool {
        if let Some(known) = self.layers_on_node_fs.get() {
            return *known;
        }
        let info = timeout(MEASURE_TIMEOUT, self.images.image_fs_info()).await;
        let Some(Ok(info)) = info.ok() else {
            return true;
        };
        let fs = info.containers.or(info.images);
        let dir = fs.map(|fs| fs.mountpoint).unwrap_or_default();
        let same = match dir.as_str() {
            "" => None,
            dir => self.disk.is_on_node_fs(Path::new(dir)).await,
        };
        same.is_none_or(|same| *self.layers_on_node_fs.get_or_init(|| same))
    }

    async fn layers(&self) -> Option<Arc<HashMap<ContainerId, RuntimeFs>>> {
        let runtime = Arc::clone(&self.runtime);
        let make = || async move {
            let layers = runtime.writable_layers().await;
            let layers =
                layers.inspect_err(|error| tracing::debug!(%error, "writable layer stats failed"));
            Some(layers.ok()?.into_iter().collect())
        };
        self.layers.get(make).await
    }

    async fn volumes_of(&self, subject: &Subject) -> BTreeMap<String, DiskUsage> {
        let (uid, volumes) = (subject.pod.uid(), &subject.volumes);
        if volumes.is_empty() {
            return BTreeMap::new();
        }
        self.volumes
            .usage(&uid, volumes, VOLUME_INTERVAL, MEASURE_TIMEOUT)
            .await
    }
}

/// Parts that are measured for all pods at once.
struct Parts {
    layers: Option<Arc<HashMap<ContainerId, RuntimeFs>>>,
    files: Option<HashMap<PodUid, PodFiles>>,
}

impl Parts {
    fn of_containers(&self, observed: &ObservedPod) -> PodDiskUsage {
        let files = self.files.as_ref().and_then(|it| it.get(&observed.uid));
        let mut logs = files.map(|files| files.logs.clone()).unwrap_or_default();
        let all = observed.containers.iter();
        let running = all.filter(|container| container.state == ContainerState::Running);
        let containers: Vec<ContainerDiskUsage> = running
            .map(|container| ContainerDiskUsage {
                name: container.name.clone(),
                writable_layer: self.layer(&container.id),
                logs: logs.remove(&container.name).map(disk_usage),
            })
            .collect();
        let mut others = DiskUsage::default();
        for usage in logs.into_values().chain(files.map(|files| files.others)) {
            others.add(disk_usage(usage));
        }
        PodDiskUsage {
            containers,
            volumes: BTreeMap::new(),
            others,
        }
    }

    fn layer(&self, id: &ContainerId) -> Option<DiskUsage> {
        let layer = self.layers.as_ref()?.get(id)?;
        Some(DiskUsage {
            bytes: layer.used_bytes?,
            inodes: layer.inodes_used.unwrap_or_default(),
        })
    }
}

fn disk_usage(total: DiskUsageTotal) -> DiskUsage {
    DiskUsage {
        bytes: total.bytes,
        inodes: total.inodes,
    }
}
