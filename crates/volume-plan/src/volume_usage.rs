//! Usage and limits of volumes, and the schedule of the checks.
//!
//! A pod is evicted if an emptyDir on disk exceeds its `sizeLimit` (upstream
//! `emptyDirLimitEviction`). Memory volumes are not checked: the kernel enforces their size.

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::Volume;
use windlass_types::{Pod, PodExt};

use crate::volume_source::{CSI_PLUGIN, PodVolume, VolumeSource};
use windlass_pod_inputs::resources::is_critical;
use windlass_units::quantity::Quantity;

/// Interval between two checks of a volume with a limit (upstream `evictionMonitoringPeriod`).
pub const LIMIT_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Minimum pause after a check, as a multiple of its duration: checks of a volume take at most 1/21
/// of the time.
pub(crate) const MIN_PAUSE_FACTOR: u32 = 20;
/// Maximum age of stats that a request returns (upstream's default of `volumeStatsAggPeriod`).
pub const STATS_PERIOD: Duration = Duration::from_secs(60);

/// Capacity and usage of a volume (upstream `volume.Metrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of the file system.
    pub capacity: u64,
    /// Bytes available to users other than root.
    pub available: u64,
    /// Bytes used by the volume.
    pub used: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Inodes used by the volume.
    pub inodes_used: u64,
}

/// Source of [`VolumeStats`] (upstream `metric_source`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsSource {
    /// `statfs` of the volume's own file system.
    StatFs,
    /// Project quota of the volume.
    Quota,
    /// Walk over all files.
    Walk,
    /// Block device; only the capacity is known.
    Block,
    /// CSI driver of this name.
    Driver(String),
}

impl fmt::Display for StatsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StatFs => "statfs",
            Self::Quota => "fsquota",
            Self::Walk => "du",
            Self::Block => "block",
            Self::Driver(name) => name,
        })
    }
}

/// Size limit of an emptyDir on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDirLimit {
    /// Name of the volume in its pod.
    pub volume: String,
    limit: Quantity,
}

impl EmptyDirLimit {
    /// Returns upstream's eviction message, with its trailing space, if `used` exceeds the limit.
    pub fn exceeded(&self, used: u64) -> Option<String> {
        let used = i64::try_from(used).unwrap_or(i64::MAX);
        let over = Quantity::from_units(used, Default::default()) > self.limit;
        over.then(|| {
            format!(
                "Usage of EmptyDir volume \"{}\" exceeds the limit \"{}\". ",
                self.volume, self.limit
            )
        })
    }
}

impl fmt::Display for EmptyDirLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}≤{}", self.volume, self.limit)
    }
}

/// Returns the limits of a pod's volumes to check. Critical pods, such as static pods, have none,
/// because they are never evicted.
pub fn empty_dir_limits(pod: &Pod) -> Vec<EmptyDirLimit> {
    if is_critical(pod) {
        return Vec::new();
    }
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    volumes.filter_map(limit_of).collect()
}

fn limit_of(volume: &Volume) -> Option<EmptyDirLimit> {
    let source = volume.empty_dir.as_ref()?;
    // the kernel limits memory and huge pages
    if !matches!(source.medium.as_deref(), None | Some("")) {
        return None;
    }
    let limit: Quantity = source.size_limit.as_ref()?.0.parse().ok()?;
    (limit > Quantity::ZERO).then(|| EmptyDirLimit {
        volume: volume.name.clone(),
        limit,
    })
}

/// Returns the round, one per [`LIMIT_CHECK_INTERVAL`], of the next check of a volume. The last
/// check took this long and ended in `round`.
pub fn next_round(round: u64, took: Duration) -> u64 {
    let pause = took.saturating_mul(MIN_PAUSE_FACTOR).as_millis();
    let rounds = pause.div_ceil(LIMIT_CHECK_INTERVAL.as_millis()).max(1);
    round.saturating_add(u64::try_from(rounds).unwrap_or(u64::MAX))
}

/// Returns the name of the PVC of a volume: from the spec, or generated for `ephemeral`.
pub fn pvc_name(pod: &Pod, volume: &str) -> Option<String> {
    let mut volumes = PodExt::spec(pod).volumes.iter().flatten();
    let volume = volumes.find(|it| it.name == volume)?;
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let ephemeral = volume.ephemeral.as_ref();
    ephemeral.map(|_| format!("{}-{}", pod.name(), volume.name))
}

/// Returns upstream's plugin name for metrics; for CSI with the driver.
pub fn plugin_name(volume: &PodVolume) -> String {
    match &volume.source {
        VolumeSource::Csi(csi) => format!("{CSI_PLUGIN}:{}", csi.driver),
        VolumeSource::HostPath(_) => "kubernetes.io/host-path".to_owned(),
        VolumeSource::Image(_) => "kubernetes.io/image".to_owned(),
        source => match source.plugin_dir() {
            Some(dir) => plugin_of_dir(dir),
            None => "N/A".to_owned(),
        },
    }
}

/// Returns upstream's plugin name of a directory below `volumes/`.
pub fn plugin_of_dir(dir: &str) -> String {
    dir.replace('~', "/")
}

#[cfg(test)]
mod tests;
