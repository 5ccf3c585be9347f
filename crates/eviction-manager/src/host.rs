//! Readings of this host.
//!
//! *owns* open cgroup files, the last reading of each disk · *invariant* a hung disk or cgroup
//! delays only its own reading, and the last one stays with its time · *bound* one blocking thread
//! for cgroups and one for each of three disks · *restart* nothing to restore.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use windlass_cri::{ImageFsInfo, RuntimeFs, RuntimeStats};
use windlass_eviction::{
    ContainerUsage, FileSystems, MemoryFacts, Observation, Observations, PodUsage, Signal, Stall,
};
use windlass_mailboxes::spawn_io;
use windlass_stats::usage::MemoryUsage;
use windlass_stats::{DiskSpace, KernelRoots, MemoryReader, NodeMemory, PodMemory, SingleFlightIo};
use windlass_types::{Clock, ObservedPod, PodUid, Timestamp};

use crate::ports::{NodeFigures, NodeReading};

/// Time that a reading waits for disks and cgroups, all at once: half of the shortest interval of
/// passes. They take microseconds normally.
const READ_TIMEOUT: Duration = Duration::from_millis(500);
/// Time that the runtime may take to report its directories: two passes at the shortest interval,
/// none of which waits for it.
const LAYOUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Age after which the directories are requested again: a runtime may be reconfigured.
const LAYOUT_AGE: Duration = Duration::from_secs(600);
/// Time between the first requests, while they fail.
const LAYOUT_RETRY: Duration = Duration::from_secs(1);
/// Number of those requests.
const LAYOUT_RETRIES: u32 = 60;

/// Configuration of [`HostFigures`].
#[derive(Clone, Debug)]
pub struct HostFiguresConfig {
    /// Kernel directories.
    pub roots: KernelRoots,
    /// `cgroupRoot`.
    pub cgroup_root: String,
    /// `--root-dir`, the directory of nodefs.
    pub root_dir: PathBuf,
    /// Feature gate `KubeletSeparateDiskGC`: images may have a file system of their own.
    pub split_images: bool,
    /// Reports the directories of images and writable layers.
    pub images: Arc<dyn RuntimeStats>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Reads this host.
#[derive(Debug)]
pub struct HostFigures {
    config: HostFiguresConfig,
    memory: SingleFlightIo<MemoryReader, NodeMemory>,
    node_fs: Disk,
    layout: Arc<Mutex<Layout>>,
}

type Disk = SingleFlightIo<PathBuf, DiskSpace>;

/// Directories of the container runtime.
#[derive(Debug, Default)]
struct Layout {
    asked_at: Option<Instant>,
    is_asking: bool,
    requests: u32,
    images: Option<(PathBuf, Arc<Disk>)>,
    containers: Option<(PathBuf, Arc<Disk>)>,
}

impl HostFigures {
    /// Opens the cgroups.
    pub fn new(config: HostFiguresConfig) -> Self {
        let memory = MemoryReader::open(&config.roots, &config.cgroup_root);
        Self {
            memory: SingleFlightIo::new(memory),
            node_fs: SingleFlightIo::new(config.root_dir.clone()),
            layout: Arc::default(),
            config,
        }
    }

    /// Returns the disks of images and of writable layers as far as they are known. Asks the
    /// runtime without waiting for it.
    fn disks(&self) -> [Option<Arc<Disk>>; 2] {
        let mut layout = self.layout.lock();
        let age = match layout.images {
            None if layout.requests < LAYOUT_RETRIES => LAYOUT_RETRY,
            _ => LAYOUT_AGE,
        };
        if !layout.is_asking && layout.asked_at.is_none_or(|at| at.elapsed() >= age) {
            layout.asked_at = Some(Instant::now());
            layout.is_asking = true;
            layout.requests = layout.requests.saturating_add(1);
            let (images, layout) = (Arc::clone(&self.config.images), Arc::clone(&self.layout));
            spawn_io("image-file-systems", async move {
                let info = timeout(LAYOUT_TIMEOUT, images.image_fs_info()).await;
                layout.lock().answered(info.ok().and_then(Result::ok));
            });
        }
        let disk = |disk: &Option<(PathBuf, Arc<Disk>)>| disk.as_ref().map(|it| Arc::clone(&it.1));
        [disk(&layout.images), disk(&layout.containers)]
    }
}

impl Layout {
    fn answered(&mut self, info: Option<ImageFsInfo>) {
        self.is_asking = false;
        let Some(info) = info else { return };
        let dir = |fs: Option<RuntimeFs>| {
            let dir = fs.map(|fs| PathBuf::from(fs.mountpoint));
            dir.filter(|dir| dir.is_absolute())
        };
        let images = dir(info.images);
        // without separate file systems they are the same
        let containers = dir(info.containers).or_else(|| images.clone());
        for (known, dir) in [
            (&mut self.images, images),
            (&mut self.containers, containers),
        ] {
            let Some(dir) = dir else { continue };
            if known.as_ref().is_none_or(|(known, _)| *known != dir) {
                *known = Some((dir.clone(), Arc::new(SingleFlightIo::new(dir))));
            }
        }
    }
}

async fn read_some(disk: Option<Arc<Disk>>, at: Timestamp) -> Option<(DiskSpace, Timestamp)> {
    read_disk(disk.as_deref()?, at).await
}

async fn read_disk(disk: &Disk, at: Timestamp) -> Option<(DiskSpace, Timestamp)> {
    disk.refresh(READ_TIMEOUT, at, |dir| DiskSpace::read_nearest(dir))
        .await
}

#[async_trait]
impl NodeFigures for HostFigures {
    async fn read(&self) -> NodeReading {
        let now = self.config.clock.now();
        let memory = self
            .memory
            .refresh(READ_TIMEOUT, now, move |reader| Some(reader.read(now)));
        let [images, containers] = self.disks();
        let (memory, node_fs, image_fs, container_fs) = tokio::join!(
            memory,
            read_disk(&self.node_fs, now),
            read_some(images, now),
            read_some(containers, now)
        );
        let mut reading = NodeReading {
            file_systems: layout_of(node_fs, image_fs, container_fs, self.config.split_images),
            ..NodeReading::default()
        };
        if let Some((memory, at)) = memory {
            add_memory(&mut reading, &memory, at);
        }
        let disks = [
            (node_fs, Signal::NodeFsAvailable, Signal::NodeFsInodesFree),
            (
                image_fs,
                Signal::ImageFsAvailable,
                Signal::ImageFsInodesFree,
            ),
            (
                container_fs,
                Signal::ContainerFsAvailable,
                Signal::ContainerFsInodesFree,
            ),
        ];
        for (disk, bytes, inodes) in disks {
            if let Some((space, at)) = disk {
                let signals = &mut reading.observations.signals;
                signals.insert(bytes, observation(space.available, space.capacity, at));
                if space.inodes > 0 {
                    signals.insert(inodes, observation(space.inodes_free, space.inodes, at));
                }
            }
        }
        reading
    }

    async fn pods(&self, pods: Vec<Arc<ObservedPod>>) -> BTreeMap<PodUid, PodUsage> {
        let now = self.config.clock.now();
        let read = self
            .memory
            .run(READ_TIMEOUT, move |reader| reader.pods(&pods, now));
        let pods = read.await.unwrap_or_default().into_iter();
        pods.map(|(uid, pod)| (uid, pod_usage(pod))).collect()
    }

    async fn hold_memory(&self, pod: PodUid) {
        let named = pod.clone();
        let held = self
            .memory
            .run(READ_TIMEOUT, move |reader| reader.hold_pod(&pod));
        match held.await {
            Some(Ok(())) => tracing::debug!(pod = %named, "held the memory of the pod"),
            Some(Err(error)) => tracing::debug!(pod = %named, %error, "memory is not held"),
            None => tracing::debug!(pod = %named, "holding its memory takes long"),
        }
    }

    async fn kill(&self, pod: Arc<ObservedPod>) {
        let named = pod.uid.clone();
        let killed = self
            .memory
            .run(READ_TIMEOUT, move |reader| reader.kill_containers(&pod));
        match killed.await {
            Some(Ok(())) => tracing::debug!(pod = %named, "killed what was left of the pod"),
            // its cgroup is gone
            Some(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Some(Err(error)) => tracing::debug!(pod = %named, %error, "the pod was not killed"),
            None => tracing::debug!(pod = %named, "killing the pod takes long"),
        }
    }
}

fn pod_usage(pod: PodMemory) -> PodUsage {
    let containers = pod.containers.into_iter();
    let containers = containers.map(|(name, memory)| ContainerUsage {
        name,
        memory,
        ..ContainerUsage::default()
    });
    PodUsage {
        memory: pod.working_set,
        processes: pod.processes,
        containers: containers.collect(),
        ..PodUsage::default()
    }
}

fn observation(available: u64, capacity: u64, at: Timestamp) -> Observation {
    Observation {
        available,
        capacity,
        at,
    }
}

/// Adds memory and processes (upstream `makeSignalObservations`).
fn add_memory(reading: &mut NodeReading, memory: &NodeMemory, at: Timestamp) {
    let Observations {
        signals,
        node_memory,
        pods_memory,
    } = &mut reading.observations;
    let available = |usage: &MemoryUsage| {
        let limit = usage.limit?;
        let available = limit.saturating_sub(usage.working_set);
        let capacity = available.saturating_add(usage.working_set);
        Some(observation(available, capacity, at))
    };
    if let Some(usage) = &memory.node {
        signals.extend(available(usage).map(|it| (Signal::MemoryAvailable, it)));
        *node_memory = MemoryFacts {
            mem_available: memory.available,
            ..facts(usage)
        };
        reading.node_inactive_file = usage.inactive_file;
    }
    if let Some(usage) = &memory.pods {
        signals.extend(available(usage).map(|it| (Signal::AllocatableMemoryAvailable, it)));
        *pods_memory = facts(usage);
        reading.pods_inactive_file = usage.inactive_file;
    }
    if let (Some(max), Some(running)) = (memory.max_pid, memory.running_processes) {
        let free = observation(max.saturating_sub(running), max, at);
        signals.insert(Signal::PidAvailable, free);
    }
}

fn facts(usage: &MemoryUsage) -> MemoryFacts {
    MemoryFacts {
        active_file: usage.active_file,
        mem_available: None,
        stall: usage.pressure.map(|pressure| Stall {
            some_avg10: pressure.some.avg10,
            full_avg10: pressure.full.avg10,
        }),
    }
}

/// Compares the file systems of node, images and writable layers; `None` until all are known.
fn layout_of(
    node: Option<(DiskSpace, Timestamp)>,
    images: Option<(DiskSpace, Timestamp)>,
    containers: Option<(DiskSpace, Timestamp)>,
    split_images: bool,
) -> Option<FileSystems> {
    let device = |disk: Option<(DiskSpace, Timestamp)>| disk.map(|(space, _)| space.device);
    let (node, images, containers) = (device(node)?, device(images)?, device(containers)?);
    Some(if images == node {
        FileSystems::Shared
    } else if images != containers && split_images {
        FileSystems::SplitImages
    } else {
        FileSystems::SeparateImages
    })
}

#[cfg(test)]
mod tests;
