//! [`StatsSource`] of this host.
//!
//! *owns* state between two collections: open files, rates, cgroup paths, disk usage · *invariant*
//! nothing is read without a request · *bound* one blocking thread for the cgroups of pods, one for
//! those of the node, one for each kind of disk usage; other callers wait at most
//! [`COLLECTION_TIMEOUT`] · *restart* nothing to restore.
//!
//! Cgroup files and `/proc` are read on a blocking thread: 250 pods are some milliseconds of kernel
//! work, and `memory.stat` may wait for a kernel lock.

mod node;
mod pods;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use windlass_cri::{ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_pod_inputs::paths::NodePaths;
use windlass_types::{Clock, ContainerId, PodUid, SandboxId, Timestamp};

use crate::cgroup::Cgroups;
use crate::cgroup_paths::CgroupPaths;
use crate::disk::{PodFiles, file_system};
use crate::logs::LogUsage;
use crate::pods::{RunningPods, VolumeStatsProvider};
use crate::refreshing_cache::{AgeLimits, RefreshingCache};
use crate::resource::{PodFigures, ResourceFigures, ResourceUsage};
use crate::source::{StatsError, StatsSelection, StatsSource, StatsUnavailable};
use crate::usage::{FsUsage, NodeUsage, PodUsage};
use crate::volumes::VolumeCache;

/// Timeout of a collection of cgroups, which takes milliseconds normally.
const COLLECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits of file system usage; evictions depend on it.
const FILE_SYSTEMS: AgeLimits = ages(1, 60);
/// Limits of logs and writable layers; containerd refreshes snapshots every 10 s
/// (`stats_collect_period`).
const SLOW: AgeLimits = ages(10, 120);

/// Limits of sandbox images: always refreshed for new sandboxes, and kept long because labels must
/// not change.
const IMAGES: AgeLimits = ages(0, 3600);

const fn ages(fresh: u64, stale: u64) -> AgeLimits {
    AgeLimits {
        fresh: Duration::from_secs(fresh),
        stale: Duration::from_secs(stale),
        timeout: Duration::from_secs(2),
    }
}

/// Kernel directories; tests use others.
#[derive(Clone, Debug)]
pub struct KernelRoots {
    /// Mount point of cgroups.
    pub cgroups: PathBuf,
    /// Mount point of `/proc`.
    pub proc: PathBuf,
    /// Directory of huge page sizes.
    pub huge_pages: PathBuf,
}

impl Default for KernelRoots {
    fn default() -> Self {
        Self {
            cgroups: PathBuf::from("/sys/fs/cgroup"),
            proc: PathBuf::from("/proc"),
            huge_pages: PathBuf::from("/sys/kernel/mm/hugepages"),
        }
    }
}

/// Configured system cgroups; an empty one is looked up or omitted.
#[derive(Clone, Debug, Default)]
pub struct SystemCgroups {
    /// `kubeletCgroups`; empty: the cgroup of this process.
    pub kubelet: String,
    /// `--runtime-cgroups`.
    pub runtime: String,
    /// `systemCgroups`.
    pub misc: String,
}

/// Configuration of [`HostStats`].
#[derive(Clone, Debug)]
pub struct HostStatsConfig {
    /// Kernel directories.
    pub roots: KernelRoots,
    /// `cgroupRoot`.
    pub cgroup_root: String,
    /// Cgroups of the system.
    pub system: SystemCgroups,
    /// Paths of pod files.
    pub paths: NodePaths,
    /// `volumeStatsAggPeriod`: maximum age of volume usage; `None` disables it.
    pub volume_period: Option<Duration>,
    /// When this agent started.
    pub started_at: Timestamp,
    /// The pods in the runtime.
    pub pods: Arc<dyn RunningPods>,
    /// Usage of their volumes.
    pub volumes: Arc<dyn VolumeStatsProvider>,
    /// Runtime stats of writable layers.
    pub runtime: Arc<dyn RuntimeStats>,
    /// Image service stats of file systems.
    pub images: Arc<dyn RuntimeStats>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Collects the stats of this host.
#[derive(Debug)]
pub struct HostStats {
    config: Arc<HostStatsConfig>,
    node: CollectionQueue<NodeState>,
    pods: CollectionQueue<PodState>,
    node_fs: RefreshingCache<FsUsage>,
    runtime_fs: RefreshingCache<RuntimeFileSystems>,
    image_info: RefreshingCache<ImageFsInfo>,
    layers: RefreshingCache<HashMap<ContainerId, RuntimeFs>>,
    files: RefreshingCache<HashMap<PodUid, PodFiles>>,
    sandbox_images: RefreshingCache<HashMap<SandboxId, String>>,
    volumes: Option<VolumeCache>,
}

#[derive(Debug)]
struct NodeState {
    cgroups: Option<Cgroups>,
    cgroup_paths: CgroupPaths,
}

#[derive(Debug)]
struct PodState {
    cgroups: Option<Cgroups>,
    cgroup_paths: CgroupPaths,
}

#[derive(Debug)]
struct RuntimeFileSystems {
    images: Option<FsUsage>,
    containers: Option<FsUsage>,
}

impl HostStats {
    /// Opens the cgroups. Without cgroups the node has stats from `/proc` only, and pods have none.
    pub fn new(config: HostStatsConfig) -> Self {
        let roots = &config.roots;
        let cgroups = || -> io::Result<Cgroups> {
            Cgroups::open(&roots.cgroups, &roots.proc, &roots.huge_pages)
        };
        let opened = |cgroups: io::Result<Cgroups>| {
            cgroups
                .inspect_err(
                    |error| tracing::warn!(%error, "cgroups unavailable, pods have no stats"),
                )
                .ok()
        };
        let cgroup_paths = || CgroupPaths::new(&config.cgroup_root);
        let period = config.volume_period;
        let volumes = period.map(|age| VolumeCache::new(Arc::clone(&config.volumes), age));
        Self {
            node: CollectionQueue::new(NodeState {
                cgroups: opened(cgroups()),
                cgroup_paths: cgroup_paths(),
            }),
            pods: CollectionQueue::new(PodState {
                cgroups: cgroups().ok(),
                cgroup_paths: cgroup_paths(),
            }),
            node_fs: RefreshingCache::new(FILE_SYSTEMS),
            runtime_fs: RefreshingCache::new(FILE_SYSTEMS),
            image_info: RefreshingCache::new(SLOW),
            layers: RefreshingCache::new(SLOW),
            files: RefreshingCache::new(SLOW),
            sandbox_images: RefreshingCache::new(IMAGES),
            volumes,
            config: Arc::new(config),
        }
    }

    async fn node_fs(&self) -> Option<Arc<FsUsage>> {
        let config = Arc::clone(&self.config);
        let make = || async move {
            let (root_dir, proc) = (config.paths.root_dir.clone(), config.roots.proc.clone());
            let at = config.clock.now();
            spawn_blocking(move || file_system(&root_dir, &proc, at))
                .await
                .ok()
                .flatten()
        };
        self.node_fs.get(make).await
    }

    /// Returns the file systems of the image service; `None` while it is unreachable.
    async fn image_info(&self) -> Option<Arc<ImageFsInfo>> {
        let images = Arc::clone(&self.config.images);
        let make = || async move {
            let info = images.image_fs_info().await;
            info.inspect_err(|error| tracing::debug!(%error, "image file system info failed"))
                .ok()
        };
        self.image_info.get(make).await
    }

    /// Returns the file systems of images and writable layers.
    async fn runtime_fs(&self, info: Option<&ImageFsInfo>) -> Option<Arc<RuntimeFileSystems>> {
        let info = info?;
        let dir = |fs: &Option<RuntimeFs>| {
            let dir = fs.as_ref().map(|fs| PathBuf::from(&fs.mountpoint));
            dir.filter(|dir| dir.is_absolute())
        };
        let images = dir(&info.images);
        // without separate file systems they are the same
        let containers = dir(&info.containers).or_else(|| images.clone());
        let (proc, at) = (self.config.roots.proc.clone(), self.config.clock.now());
        let make = || async move {
            let task = spawn_blocking(move || {
                let of = |dir: Option<PathBuf>| dir.and_then(|dir| file_system(&dir, &proc, at));
                RuntimeFileSystems {
                    images: of(images),
                    containers: of(containers),
                }
            });
            task.await.ok()
        };
        self.runtime_fs.get(make).await
    }
}

#[async_trait]
impl StatsSource for HostStats {
    async fn node(&self, selection: StatsSelection) -> Result<NodeUsage, StatsError> {
        self.measure_node(selection).await
    }

    async fn pods(&self, selection: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        self.measure_pods(selection).await
    }

    async fn resource(&self) -> Result<ResourceUsage, StatsError> {
        let selection = StatsSelection::CPU_AND_MEMORY;
        let pods = self.collect_pods(self.ready_pods(), selection, PodFigures::of);
        let (node, pods) = tokio::try_join!(self.measure_node(selection), pods)?;
        Ok(ResourceUsage {
            node: ResourceFigures::of(&node.cgroup),
            pods: pods.into_iter().flatten().collect(),
        })
    }

    async fn logs(&self) -> Vec<LogUsage> {
        self.measure_logs().await
    }
}

/// Serializes blocking collections.
#[derive(Debug)]
struct CollectionQueue<S> {
    state: Arc<Mutex<S>>,
    lock: Arc<tokio::sync::Mutex<()>>,
}

impl<S: Send + 'static> CollectionQueue<S> {
    fn new(state: S) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            lock: Arc::default(),
        }
    }

    /// Runs a collection on a blocking thread, which holds the lock until its end.
    ///
    /// # Errors
    /// This collection or the previous one timed out.
    async fn run<T: Send + 'static>(
        &self,
        collect: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T, StatsUnavailable> {
        let late = StatsUnavailable::Late(COLLECTION_TIMEOUT);
        let guard = Arc::clone(&self.lock).lock_owned();
        let guard = timeout(COLLECTION_TIMEOUT, guard).await.map_err(|_| late)?;
        let state = Arc::clone(&self.state);
        let work = spawn_blocking(move || {
            let _guard = guard;
            collect(&mut state.lock())
        });
        let done = timeout(COLLECTION_TIMEOUT, work).await.map_err(|_| late)?;
        // an error means that the agent is shutting down
        done.map_err(|_| late)
    }
}
