//! Dependencies and settings of the actors, by subsystem.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use windlass_checks::Checks;
use windlass_container_logs::LogRotation;
use windlass_cri::{ImageService, RuntimeService, RuntimeStats};
use windlass_csi::CsiDrivers;
use windlass_dra::{ClaimOwners, DraDrivers};
use windlass_eviction::{EvictionRecord, EvictionSettings};
use windlass_eviction_manager::{MemoryTriggers, NodeFigures, NodeReclaimer, PodDiskMeter};
use windlass_image_gc::{ImageFileSystem, ImageGcPolicy};
use windlass_local_storage::NodeDisk;
use windlass_metrics::Metrics;
use windlass_node::shutdown::{LogindBus, ShutdownRecord};
use windlass_node_rules::admission::AdmissionPolicy;
use windlass_objects::{CredentialDirs, KeptObjects};
use windlass_oom_watcher::OomSource;
use windlass_pod_inputs::node_facts::NodeFacts;
use windlass_pod_inputs::object_polling::ChangeDetection;
use windlass_pod_lifecycle::shutdown::ShutdownPeriods;
use windlass_runtime::files::PodFiles;
use windlass_runtime::{CgroupSettings, RuntimeOptions};
use windlass_runtime_config::port::ImageCredentials;
use windlass_store::{
    AdmittedPod, AdmittedPods, BackoffFile, BackoffTables, EvictionFile, ImageUseFile, ImageUses,
    PodResourceFiles, PodResources, ProbeResultFile, ProbeResultTables, Store,
};
use windlass_types::corev1::Node;
use windlass_types::{Clock, SpanSink};
use windlass_volumes::VolumePlugins;

use super::container_manager::ContainerManagerParts;
use super::sources::SourceParts;
use crate::cluster::ClusterParts;

/// Dependencies and settings of all actors.
#[derive(Debug)]
pub struct AgentParts {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
    /// Trace exporter.
    pub spans: Option<Arc<dyn SpanSink>>,
    /// The pod sources.
    pub sources: SourceParts,
    /// The cluster; `None` in standalone mode.
    pub cluster: Option<ClusterParts>,
    /// The node.
    pub node: NodeParts,
    /// ConfigMaps, Secrets and other objects that pods refer to.
    pub objects: ObjectParts,
    /// Volumes and CSI drivers.
    pub volumes: VolumeParts,
    /// CPUs, memory nodes and devices of containers.
    pub container_manager: ContainerManagerParts,
    /// Resource claims and DRA drivers.
    pub dra: DraParts,
    /// The container runtime.
    pub runtime: RuntimeParts,
    /// What acts when memory, disk or processes run out.
    pub pressure: PressureParts,
    /// Pod workers.
    pub workers: WorkerParts,
    /// State files and their contents.
    pub state: StateParts,
}

/// The node as pods and admission see it.
#[derive(Debug)]
pub struct NodeParts {
    /// Facts about the node.
    pub facts: Arc<NodeFacts>,
    /// The node object to register; pods are admitted against it until the API server has one.
    pub initial: Arc<Node>,
    /// What host and configuration allow pods.
    pub admission_policy: Arc<AdmissionPolicy>,
    /// The node's addresses.
    pub host_ips: Vec<IpAddr>,
    /// `podCIDR`, in effect until the node object has one.
    pub pod_cidr: String,
    /// Problem of the node's `resolv.conf`, for an event of the node.
    pub resolv_conf_warning: Option<String>,
    /// Warning that memory volumes may be swapped, for an event of the node.
    pub swap_warning: Option<String>,
    /// Graceful node shutdown; `None` in simulations.
    pub shutdown: Option<ShutdownParts>,
}

/// Settings of graceful node shutdown.
#[derive(Clone, Debug)]
pub struct ShutdownParts {
    /// Grace periods by priority.
    pub periods: ShutdownPeriods,
    /// Bus of logind.
    pub bus: LogindBus,
    /// Directory of logind's drop-in files.
    pub logind_conf_dir: PathBuf,
    /// State file of shutdown times.
    pub record: Option<ShutdownRecord>,
}

/// How objects are read and where the node's own credentials are.
#[derive(Debug)]
pub struct ObjectParts {
    /// How changes of ConfigMaps and Secrets are detected.
    pub change_detection: ChangeDetection,
    /// Directories of the node's registry credentials; `None` in simulations.
    pub credential_dirs: Option<CredentialDirs>,
    /// Copy of the objects for a reboot without an API server; `None` without the flag
    /// `--start-pods-offline`.
    pub kept: Option<KeptObjects>,
}

/// Volumes and the CSI drivers that serve them.
#[derive(Debug)]
pub struct VolumeParts {
    /// Volumes of pods.
    pub plugins: Arc<dyn VolumePlugins>,
    /// CSI drivers registered on this node; `plugins` calls them.
    pub csi_drivers: CsiDrivers,
    /// Directory of plugin sockets, `<root-dir>/plugins_registry`; `None` in simulations.
    pub registry: Option<PathBuf>,
}

/// Resource claims and the DRA drivers that prepare them.
#[derive(Debug, Default)]
pub struct DraParts {
    /// Registered drivers.
    pub drivers: DraDrivers,
    /// The checkpoint's directory; `None` in simulations without a disk.
    pub store: Option<Store>,
    /// Gate `DRAExtendedResource`.
    pub extended: bool,
    /// Whose claims a pod may use.
    pub owners: ClaimOwners,
    /// Gate `ResourceHealthStatus`.
    pub health: bool,
    /// Gate `ResourceHealthStatusMessage`.
    pub health_messages: bool,
}

/// What acts when memory, disk or processes run out.
#[derive(Debug)]
pub struct PressureParts {
    /// Local storage of pods.
    pub local_storage: LocalStorageParts,
    /// Image garbage collection.
    pub image_gc: ImageGcParts,
    /// Eviction of pods.
    pub eviction: EvictionParts,
    /// Sources of OOM kills.
    pub oom_source: Option<OomSource>,
}

/// Local storage of pods.
#[derive(Debug)]
pub struct LocalStorageParts {
    /// `localStorageCapacityIsolation`: pods over their limits are evicted.
    pub enforce_limits: bool,
    /// Writable layers of containers.
    pub runtime: Arc<dyn RuntimeStats>,
    /// File systems of the image service.
    pub images: Arc<dyn RuntimeStats>,
    /// Logs.
    pub disk: Arc<dyn NodeDisk>,
}

/// The container runtime and what containers need of the host.
#[derive(Debug)]
pub struct RuntimeParts {
    /// The container runtime.
    pub runtime: Arc<dyn RuntimeService>,
    /// The image service.
    pub images: Arc<dyn ImageService>,
    /// Network checks of probes and hooks.
    pub checks: Arc<dyn Checks>,
    /// Files of pods.
    pub files: Arc<dyn PodFiles>,
    /// Cgroups of pods; `None` leaves them to the runtime.
    pub cgroups: Option<CgroupSettings>,
    /// Credential providers for image pulls.
    pub credentials: Option<Arc<dyn ImageCredentials>>,
    /// Settings of the pod runtime.
    pub options: RuntimeOptions,
    /// Log rotation; `None` without a limit and in simulations.
    pub log_rotation: Option<LogRotation>,
}

/// Settings of image garbage collection and its view of the host.
#[derive(Debug)]
pub struct ImageGcParts {
    /// Thresholds and ages.
    pub policy: ImageGcPolicy,
    /// The file system of the images.
    pub file_system: Arc<dyn ImageFileSystem>,
}

/// Settings of eviction and its view of the host.
#[derive(Debug)]
pub struct EvictionParts {
    /// Thresholds and periods; without thresholds nothing is read.
    pub settings: EvictionSettings,
    /// Readings of node and pods.
    pub figures: Arc<dyn NodeFigures>,
    /// Notifications of the kernel.
    pub triggers: Arc<dyn MemoryTriggers>,
    /// Reclaims on the node; `None` for the agent's own collectors.
    pub reclaimer: Option<Arc<dyn NodeReclaimer>>,
    /// Disk usage of pods; `None` for the agent's own measurements.
    pub disk: Option<Arc<dyn PodDiskMeter>>,
}

/// Settings of the pod workers.
#[derive(Clone, Copy, Debug)]
pub struct WorkerParts {
    /// `syncFrequency`.
    pub sync_frequency: Duration,
    /// Max concurrent pod starts.
    pub start_concurrency: usize,
    /// Grace period of orphaned pods.
    pub orphan_grace: Duration,
}

/// State files, and what previous agent runs wrote to them. The files are `None` in simulations
/// without a disk.
#[derive(Debug, Default)]
pub struct StateParts {
    /// Restart back-offs.
    pub backoff: Option<(BackoffFile, BackoffTables)>,
    /// File of probe results.
    pub probe_result_file: Option<ProbeResultFile>,
    /// Probe results of the previous run.
    pub probe_results: ProbeResultTables,
    /// Times of use of images.
    pub image_uses: Option<(ImageUseFile, ImageUses)>,
    /// The last evictions.
    pub evictions: Option<(EvictionFile, Vec<EvictionRecord>)>,
    /// Checkpoint of admitted pods.
    pub admitted: Option<AdmittedPods>,
    /// Pods admitted by previous runs.
    pub restored: Vec<AdmittedPod>,
    /// Upstream's checkpoints of pod resources.
    pub resource_files: Option<PodResourceFiles>,
    /// Allocated resources in them. They are newer than those of `restored` if another agent ran.
    pub allocated: PodResources,
}
