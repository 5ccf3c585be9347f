//! How much volumes may hold and hold, and when to look again.
//!
//! A pod whose emptyDir on disk outgrows its `sizeLimit` is evicted (upstream
//! `emptyDirLimitEviction`). Memory volumes need no look: the kernel bounds them.

use std::fmt;
use std::time::Duration;

use windlass_types::corev1::Volume;
use windlass_types::{Pod, PodExt};

use crate::volume_source::{CSI_PLUGIN, PodVolume, VolumeSource};
use windlass_pod_inputs::resources::is_critical;
use windlass_units::quantity::Quantity;

/// Pause between two looks at a volume with a limit (upstream `evictionMonitoringPeriod`).
pub const LIMIT_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// A look that took long is followed by this many times as long without one: at most a
/// twenty-first of the time goes into looking at one volume.
pub(crate) const REST_FACTOR: u32 = 20;
/// Age at which a number is measured anew for those who ask (upstream's default of
/// `volumeStatsAggPeriod`).
pub const STATS_PERIOD: Duration = Duration::from_secs(60);

/// What the file system of a volume has, and what of it is in use (upstream `volume.Metrics`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeStats {
    /// Bytes of the file system.
    pub capacity: u64,
    /// Bytes that may still be written by those who are not root.
    pub available: u64,
    /// Bytes that the volume takes.
    pub used: u64,
    /// Inodes of the file system.
    pub inodes: u64,
    /// Inodes that are free.
    pub inodes_free: u64,
    /// Inodes that the volume takes.
    pub inodes_used: u64,
}

/// Where [`VolumeStats`] come from, in upstream's words for it (`metric_source`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatsSource {
    /// The volume is a file system of its own.
    StatFs,
    /// It has a project quota of its own.
    Quota,
    /// Its files were counted one by one.
    Walk,
    /// It is a block device; only its capacity is known.
    Block,
    /// The driver of this name was asked.
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

/// The most that one emptyDir on disk may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmptyDirLimit {
    /// Name of the volume in its pod.
    pub volume: String,
    limit: Quantity,
}

impl EmptyDirLimit {
    /// Why the pod is evicted, in upstream's words with their blank at the end; `None` while it
    /// may stay.
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

/// The limits of a pod's volumes that somebody has to watch, in the order of its spec. None of a
/// critical pod, which static ones are: those are never evicted.
pub fn empty_dir_limits(pod: &Pod) -> Vec<EmptyDirLimit> {
    if is_critical(pod) {
        return Vec::new();
    }
    let volumes = PodExt::spec(pod).volumes.iter().flatten();
    volumes.filter_map(limit_of).collect()
}

fn limit_of(volume: &Volume) -> Option<EmptyDirLimit> {
    let source = volume.empty_dir.as_ref()?;
    // memory and huge pages are file systems of their own and end at their size
    if !matches!(source.medium.as_deref(), None | Some("")) {
        return None;
    }
    // what is no quantity was refused long before
    let limit: Quantity = source.size_limit.as_ref()?.0.parse().ok()?;
    (limit > Quantity::ZERO).then(|| EmptyDirLimit {
        volume: volume.name.clone(),
        limit,
    })
}

/// In which round of looks, one each [`LIMIT_CHECK_INTERVAL`], a volume is looked at next whose last look ended
/// in this round and took this long.
pub fn next_round(round: u64, took: Duration) -> u64 {
    let rest = took.saturating_mul(REST_FACTOR).as_millis();
    let rounds = rest.div_ceil(LIMIT_CHECK_INTERVAL.as_millis()).max(1);
    round.saturating_add(u64::try_from(rounds).unwrap_or(u64::MAX))
}

/// The claim behind a volume of a pod: named, or made for it (`ephemeral`).
pub fn pvc_name(pod: &Pod, volume: &str) -> Option<String> {
    let mut volumes = PodExt::spec(pod).volumes.iter().flatten();
    let volume = volumes.find(|it| it.name == volume)?;
    if let Some(source) = &volume.persistent_volume_claim {
        return Some(source.claim_name.clone());
    }
    let made = volume.ephemeral.as_ref();
    made.map(|_| format!("{}-{}", pod.name(), volume.name))
}

/// Upstream's name of the plugin, for metrics: with the driver's for CSI.
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

/// Upstream's name of the plugin to which a directory below `volumes/` belongs.
pub fn plugin_of_dir(dir: &str) -> String {
    dir.replace('~', "/")
}

#[cfg(test)]
mod tests;
