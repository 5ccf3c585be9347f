//! [`StatsSource`] of this machine.
//!
//! *owns* what is kept between two looks: open files, rates, where cgroups are, figures of the disk
//! · *invariant* nothing is read unless somebody asks · *bound* one blocking thread looks at
//! cgroups of pods, one at the node's, one at each kind of disk figure, whatever hangs: who comes
//! meanwhile waits, at most [`PATIENCE`], and then has less · *restart* nothing to restore.
//!
//! Cgroup files and `/proc` are read on a blocking thread although they answer in microseconds: 250
//! pods are some milliseconds of kernel work in a row, and `memory.stat` may wait for a lock of the
//! kernel's. The simulation has no such source, so no blocking thread stands in its way.

mod node;
mod pods;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use windlass_pod_inputs::paths::NodePaths;
use windlass_cri::{ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_types::{Clock, ContainerId, PodUid, SandboxId, Timestamp};

use crate::cgroup::Cgroups;
use crate::disk::{PodFiles, file_system};
use crate::logs::LogUsage;
use crate::cgroup_paths::CgroupPaths;
use crate::pods::{RunningPods, VolumeStatsProvider};
use crate::refreshing_cache::{AgeLimits, RefreshingCache};
use crate::resource::{PodFigures, ResourceFigures, ResourceUsage};
use crate::source::{StatsUnavailable, StatsError, StatsSource, StatsSelection};
use crate::usage::{FsUsage, NodeUsage, PodUsage};
use crate::volumes::VolumeCache;

/// How long a look at cgroups is waited for. They answer in milliseconds or something is wrong
/// with the kernel.
const PATIENCE: Duration = Duration::from_secs(5);
/// File systems are asked anew each second: evictions depend on it.
const FILE_SYSTEMS: AgeLimits = ages(1, 60);
/// Logs grow more slowly than they are cheap to count, and runtimes themselves look at their
/// snapshots every ten seconds (containerd's `stats_collect_period`).
const SLOW: AgeLimits = ages(10, 120);

/// Images of sandboxes: a label must not change while a pod runs, so that a new one is asked for at
/// once, and an old one stays known.
const IMAGES: AgeLimits = ages(0, 3600);

const fn ages(fresh: u64, stale: u64) -> AgeLimits {
    AgeLimits {
        fresh: Duration::from_secs(fresh),
        stale: Duration::from_secs(stale),
        patience: Duration::from_secs(2),
    }
}

/// Where the kernel tells what it knows. Tests have directories of their own.
#[derive(Clone, Debug)]
pub struct KernelRoots {
    /// Where cgroups are mounted.
    pub cgroups: PathBuf,
    /// Where processes are.
    pub proc: PathBuf,
    /// Directories named after sizes of huge pages.
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

/// Cgroups of the system, as configured; empty ones are looked up or left out.
#[derive(Clone, Debug, Default)]
pub struct SystemCgroups {
    /// `kubeletCgroups`; empty: the cgroup of this process.
    pub kubelet: String,
    /// `--runtime-cgroups`.
    pub runtime: String,
    /// `systemCgroups`.
    pub misc: String,
}

/// What [`HostStats`] is made of.
#[derive(Clone, Debug)]
pub struct HostStatsConfig {
    /// Where the kernel is.
    pub roots: KernelRoots,
    /// `cgroupRoot`.
    pub cgroup_root: String,
    /// Cgroups of the system.
    pub system: SystemCgroups,
    /// Where files of pods are.
    pub paths: NodePaths,
    /// `volumeStatsAggPeriod`: most age of a volume's figures; `None` for no such figures.
    pub volume_period: Option<Duration>,
    /// When this agent started.
    pub started_at: Timestamp,
    /// Which pods there are.
    pub pods: Arc<dyn RunningPods>,
    /// What their volumes hold.
    pub volumes: Arc<dyn VolumeStatsProvider>,
    /// What the runtime knows of writable layers.
    pub runtime: Arc<dyn RuntimeStats>,
    /// What the image service knows of its file systems.
    pub images: Arc<dyn RuntimeStats>,
    /// Dates what was measured.
    pub clock: Arc<dyn Clock>,
}

/// Measures this machine.
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
    /// Looks where cgroups are mounted, and at nothing else. Without cgroups the node is measured
    /// by `/proc`, and pods are not.
    pub fn new(config: HostStatsConfig) -> Self {
        let roots = &config.roots;
        let cgroups = || -> io::Result<Cgroups> {
            Cgroups::open(&roots.cgroups, &roots.proc, &roots.huge_pages)
        };
        let opened = |cgroups: io::Result<Cgroups>| {
            cgroups
                .inspect_err(|error| tracing::warn!(%error, "no cgroups: pods are not measured"))
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

    /// What the image service says of its file systems; absent while it does not answer.
    async fn image_info(&self) -> Option<Arc<ImageFsInfo>> {
        let images = Arc::clone(&self.config.images);
        let make = || async move {
            let info = images.image_fs_info().await;
            info.inspect_err(|error| tracing::debug!(%error, "no file systems of images"))
                .ok()
        };
        self.image_info.get(make).await
    }

    /// The file systems of images and of writable layers, whole.
    async fn runtime_fs(&self, info: Option<&ImageFsInfo>) -> Option<Arc<RuntimeFileSystems>> {
        let info = info?;
        let dir = |fs: &Option<RuntimeFs>| {
            let dir = fs.as_ref().map(|fs| PathBuf::from(&fs.mountpoint));
            dir.filter(|dir| dir.is_absolute())
        };
        let images = dir(&info.images);
        // a runtime that tells no difference has none
        let containers = dir(&info.containers).or_else(|| images.clone());
        let (proc, at) = (self.config.roots.proc.clone(), self.config.clock.now());
        let make = || async move {
            let look = spawn_blocking(move || {
                let of = |dir: Option<PathBuf>| dir.and_then(|dir| file_system(&dir, &proc, at));
                RuntimeFileSystems {
                    images: of(images),
                    containers: of(containers),
                }
            });
            look.await.ok()
        };
        self.runtime_fs.get(make).await
    }
}

#[async_trait]
impl StatsSource for HostStats {
    async fn node(&self, wanted: StatsSelection) -> Result<NodeUsage, StatsError> {
        self.measure_node(wanted).await
    }

    async fn pods(&self, wanted: StatsSelection) -> Result<Vec<PodUsage>, StatsError> {
        self.measure_pods(wanted).await
    }

    async fn resource(&self) -> Result<ResourceUsage, StatsError> {
        let wanted = StatsSelection::CPU_AND_MEMORY;
        let pods = self.collect_pods(self.ready_pods(), wanted, PodFigures::of);
        let (node, pods) = tokio::try_join!(self.measure_node(wanted), pods)?;
        Ok(ResourceUsage {
            node: ResourceFigures::of(&node.cgroup),
            pods: pods.into_iter().flatten().collect(),
        })
    }

    async fn logs(&self) -> Vec<LogUsage> {
        self.measure_logs().await
    }
}

/// Looks that block, one at a time.
#[derive(Debug)]
struct CollectionQueue<S> {
    state: Arc<Mutex<S>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl<S: Send + 'static> CollectionQueue<S> {
    fn new(state: S) -> Self {
        Self {
            state: Arc::new(Mutex::new(state)),
            turn: Arc::default(),
        }
    }

    /// Runs a look on a blocking thread, which keeps its turn until it ends.
    ///
    /// # Errors
    /// It, or the one before, takes too long.
    async fn run<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut S) -> T + Send + 'static,
    ) -> Result<T, StatsUnavailable> {
        let late = StatsUnavailable::Late(PATIENCE);
        let turn = Arc::clone(&self.turn).lock_owned();
        let turn = timeout(PATIENCE, turn).await.map_err(|_| late)?;
        let state = Arc::clone(&self.state);
        let work = spawn_blocking(move || {
            let _turn = turn;
            look(&mut state.lock().unwrap_or_else(PoisonError::into_inner))
        });
        let done = timeout(PATIENCE, work).await.map_err(|_| late)?;
        // it was not carried out: the runtime is shutting down
        done.map_err(|_| late)
    }
}
