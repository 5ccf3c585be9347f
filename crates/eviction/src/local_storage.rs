//! Disk usage of a pod, and the limits of local storage that evict it (upstream
//! `localStorageEviction`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use windlass_pod_inputs::resources::{is_critical, pod_limit};
use windlass_types::corev1::{Container, Volume};
use windlass_types::pod::is_local_ephemeral;
use windlass_types::{Pod, PodExt};
use windlass_units::quantity::{Quantity, QuantityFormat, lookup};

use crate::pod::DiskUsage;

/// Interval of the checks (upstream `evictionMonitoringPeriod`).
pub const CHECK_INTERVAL: Duration = Duration::from_secs(10);

const RESOURCE: &str = "ephemeral-storage";

/// Disk usage of a running container. A part that could not be measured is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerDiskUsage {
    /// Name in the pod spec.
    pub name: String,
    /// Its writable layer.
    pub writable_layer: Option<DiskUsage>,
    /// Its logs, with the rotated ones.
    pub logs: Option<DiskUsage>,
}

/// Disk usage of a pod. A volume that could not be measured is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDiskUsage {
    /// Running containers.
    pub containers: Vec<ContainerDiskUsage>,
    /// Local volumes that are removed with the pod, by name.
    pub volumes: BTreeMap<String, DiskUsage>,
    /// The hosts file, and logs of containers that do not run.
    pub others: DiskUsage,
}

/// Limits of local storage of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalStorageLimits {
    /// `sizeLimit` of emptyDirs on disk, by volume.
    empty_dirs: Vec<(String, Quantity)>,
    /// Sum of the limits of the containers.
    pod: Option<Quantity>,
    /// Limits of app containers.
    containers: Vec<(String, Quantity)>,
}

/// A limit that a pod exceeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceededLimit {
    /// Which kind of limit.
    pub kind: LimitKind,
    /// Upstream's message, with its trailing space.
    pub message: String,
}

/// Kinds of limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// `sizeLimit` of an emptyDir.
    EmptyDir,
    /// Sum of the limits of the containers.
    Pod,
    /// Limit of a container.
    Container,
}

impl LimitKind {
    /// Returns upstream's signal, a label of `kubelet_evictions`.
    pub fn signal(self) -> &'static str {
        match self {
            Self::EmptyDir => "emptydirfs.limit",
            Self::Pod => "ephemeralpodfs.limit",
            Self::Container => "ephemeralcontainerfs.limit",
        }
    }
}

impl PodDiskUsage {
    /// Sum of the writable layers.
    pub fn layers(&self) -> DiskUsage {
        sum(self.containers.iter().filter_map(|it| it.writable_layer))
    }

    /// Sum of the logs of running containers.
    pub fn logs(&self) -> DiskUsage {
        sum(self.containers.iter().filter_map(|it| it.logs))
    }

    /// Sum of the local volumes.
    pub fn local_volumes(&self) -> DiskUsage {
        sum(self.volumes.values().copied())
    }

    /// Sum of everything (upstream `ephemeral-storage` of the summary).
    pub fn total(&self) -> DiskUsage {
        let parts = [self.layers(), self.logs(), self.local_volumes()];
        sum(parts.into_iter().chain([self.others]))
    }
}

impl LocalStorageLimits {
    /// Returns the limits of a pod; `None` without limits, and for critical and static pods, which
    /// are never evicted.
    pub fn from_pod(pod: &Pod) -> Option<Self> {
        if is_critical(pod) {
            return None;
        }
        let volumes = PodExt::spec(pod).volumes.iter().flatten();
        let limits = Self {
            empty_dirs: volumes.filter_map(empty_dir_limit).collect(),
            pod: pod_limit(pod, RESOURCE),
            containers: pod
                .containers()
                .iter()
                .filter_map(container_limit)
                .collect(),
        };
        let is_limited = limits.pod.is_some() || !limits.empty_dirs.is_empty();
        is_limited.then_some(limits)
    }

    /// Whether writable layers and logs count.
    pub fn includes_containers(&self) -> bool {
        self.pod.is_some()
    }

    /// Returns the volumes that count.
    pub fn volumes(&self, pod: &Pod) -> Vec<String> {
        match self.pod {
            Some(_) => local_volumes(pod),
            None => self.empty_dirs.iter().map(|it| it.0.clone()).collect(),
        }
    }

    /// Returns the first limit that is exceeded: of an emptyDir, of the pod, of a container. The
    /// writable layers count for a container only if they are on the file system of `--root-dir`.
    pub fn exceeded(&self, usage: &PodDiskUsage, layers_on_node_fs: bool) -> Option<ExceededLimit> {
        let empty_dir = || {
            let over = self.empty_dirs.iter().find(|(name, limit)| {
                let used = usage.volumes.get(name);
                used.is_some_and(|used| quantity(used.bytes) > *limit)
            });
            over.map(|(name, limit)| {
                let message =
                    format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". ");
                (LimitKind::EmptyDir, message)
            })
        };
        let pod = || {
            let limit = self.pod.filter(|it| quantity(usage.total().bytes) > *it)?;
            let message = format!(
                "Pod ephemeral local storage usage exceeds the total limit of containers {limit}. "
            );
            Some((LimitKind::Pod, message))
        };
        let container = || {
            let over = usage.containers.iter().find_map(|container| {
                let mut limits = self.containers.iter();
                let (name, limit) = limits.find(|(name, _)| *name == container.name)?;
                let layer = container.writable_layer.filter(|_| layers_on_node_fs);
                let used = sum(layer.into_iter().chain(container.logs));
                (quantity(used.bytes) > *limit).then_some((name, limit))
            });
            over.map(|(name, limit)| {
                let message = format!(
                    "Container {name} exceeded its local ephemeral storage limit \"{limit}\". "
                );
                (LimitKind::Container, message)
            })
        };
        let (kind, message) = empty_dir().or_else(pod).or_else(container)?;
        Some(ExceededLimit { kind, message })
    }
}

/// Returns the volumes of a pod that use its local storage: emptyDirs on disk, ConfigMaps.
pub fn local_volumes(pod: &Pod) -> Vec<String> {
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    let local = volumes.filter(|volume| is_local_ephemeral(volume));
    local.map(|volume| volume.name.clone()).collect()
}

fn empty_dir_limit(volume: &Volume) -> Option<(String, Quantity)> {
    let source = volume.empty_dir.as_ref()?;
    // the kernel limits memory and huge pages
    if !is_local_ephemeral(volume) {
        return None;
    }
    let limit: Quantity = source.size_limit.as_ref()?.0.parse().ok()?;
    (limit > Quantity::ZERO).then(|| (volume.name.clone(), limit))
}

fn container_limit(container: &Container) -> Option<(String, Quantity)> {
    let limits = container.resources.as_ref()?.limits.as_ref();
    let limit = lookup(limits, RESOURCE).ok().flatten()?;
    (!limit.is_zero()).then(|| (container.name.clone(), limit))
}

fn quantity(bytes: u64) -> Quantity {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    Quantity::from_units(bytes, QuantityFormat::BinarySi)
}

fn sum(usages: impl IntoIterator<Item = DiskUsage>) -> DiskUsage {
    let mut sum = DiskUsage::default();
    for usage in usages {
        sum.add(usage);
    }
    sum
}

/// The limits in the order of the checks: `data≤1Mi pod≤3Gi app≤1Gi`.
impl fmt::Display for LocalStorageLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pod = self.pod.map(|limit| ("pod".to_owned(), limit));
        let all = self.empty_dirs.iter().chain(&pod).chain(&self.containers);
        let lines: Vec<String> = all.map(|(name, limit)| format!("{name}≤{limit}")).collect();
        f.write_str(&lines.join(" "))
    }
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.signal(), self.message)
    }
}

#[cfg(test)]
mod tests;
