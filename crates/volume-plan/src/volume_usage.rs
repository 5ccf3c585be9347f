//! Usage of volumes, and how often it is measured. The limits are in `windlass-eviction`.

use std::fmt;
use std::time::Duration;

use windlass_types::{Pod, PodExt};

use crate::volume_source::{CSI_PLUGIN, PodVolume, VolumeSource};

/// Minimum pause after a measurement, as a multiple of its duration: the measurements of a volume
/// take at most 1/21 of the time.
const MIN_PAUSE_FACTOR: u32 = 20;
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

/// Returns the interval of the measurements of a volume whose last one took this long.
pub fn measurement_interval(interval: Duration, took: Duration) -> Duration {
    interval.max(took.saturating_mul(MIN_PAUSE_FACTOR))
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
