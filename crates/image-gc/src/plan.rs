//! Which images are removed, and in which order.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use windlass_stats::DiskSpace;
use windlass_store::{ImageUse, ImageUses};
use windlass_types::Timestamp;
use windlass_types::cri::ImageInfo;

/// Interval between passes (upstream `ImageGCPeriod`).
pub(crate) const IMAGE_GC_PERIOD: Duration = Duration::from_secs(5 * 60);

/// Settings of the collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGcPolicy {
    /// `imageGCHighThresholdPercent`: disk usage at which images are removed.
    pub high_threshold_percent: u64,
    /// `imageGCLowThresholdPercent`: disk usage down to which they are removed.
    pub low_threshold_percent: u64,
    /// `imageMinimumGCAge`: images on the node for a shorter time are not removed for space.
    pub min_age: Duration,
    /// `imageMaximumGCAge`: images unused for a longer time are removed; zero for no limit.
    pub max_age: Duration,
}

impl Default for ImageGcPolicy {
    fn default() -> Self {
        Self {
            high_threshold_percent: 85,
            low_threshold_percent: 80,
            min_age: Duration::from_secs(2 * 60),
            max_age: Duration::ZERO,
        }
    }
}

impl ImageGcPolicy {
    /// Returns true if periodic passes remove nothing, as upstream: 100 % and no maximum age.
    pub fn is_off(&self) -> bool {
        self.high_threshold_percent == 100 && self.max_age.is_zero()
    }

    /// Returns true if an image is too old. Nothing is in the first minutes of an agent run, in
    /// which pods start that use images.
    fn is_expired(&self, image: &RemovableImage, time: PassTime) -> bool {
        let settled = time.running >= self.max_age.min(IMAGE_GC_PERIOD);
        let unused = since(
            image.times.last_used.unwrap_or(image.times.first_detected),
            time.now,
        );
        !self.max_age.is_zero() && settled && unused > self.max_age
    }

    /// Returns true if an image may be removed for space. As upstream, its age counts from the
    /// start of the agent at the earliest.
    fn is_old_enough(&self, image: &RemovableImage, time: PassTime) -> bool {
        let age = since(image.times.first_detected, time.now).min(time.running);
        age >= self.min_age
    }
}

/// Time of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassTime {
    /// Wall clock.
    pub now: Timestamp,
    /// How long the agent has been running.
    pub running: Duration,
}

/// What disk usage requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceDecision {
    /// Nothing.
    Enough {
        /// Usage in percent.
        used_percent: u64,
    },
    /// The file system reports no size.
    NoCapacity,
    /// Images must go.
    Free {
        /// Usage in percent.
        used_percent: u64,
        /// Bytes down to the low threshold.
        bytes: u64,
    },
}

impl SpaceDecision {
    /// Compares the usage of a file system with the thresholds.
    pub fn new(disk: DiskSpace, policy: &ImageGcPolicy) -> Self {
        if disk.capacity == 0 {
            return Self::NoCapacity;
        }
        let (capacity, available) = (
            u128::from(disk.capacity),
            u128::from(disk.available.min(disk.capacity)),
        );
        let used_percent = 100 - narrow(available * 100 / capacity);
        if used_percent < policy.high_threshold_percent {
            return Self::Enough { used_percent };
        }
        let kept_free = u128::from(100_u64.saturating_sub(policy.low_threshold_percent));
        Self::Free {
            used_percent,
            bytes: narrow((capacity * kept_free / 100).saturating_sub(available)),
        }
    }
}

impl fmt::Display for SpaceDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enough { used_percent } => write!(f, "enough ({used_percent}% used)"),
            Self::NoCapacity => f.write_str("no capacity"),
            Self::Free {
                used_percent,
                bytes,
            } => write!(f, "free {bytes} bytes ({used_percent}% used)"),
        }
    }
}

/// An image that nothing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovableImage {
    /// ID.
    pub id: String,
    /// Bytes.
    pub size: u64,
    /// When it was detected and used.
    pub times: ImageUse,
}

/// The images of a pass that nothing uses, least recently used first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovalOrder {
    /// To be removed in any case: unused for longer than the maximum age.
    pub expired: Vec<RemovableImage>,
    /// To be removed until there is enough space.
    pub for_space: Vec<RemovableImage>,
}

impl fmt::Display for RemovalOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = |images: &[RemovableImage]| {
            let ids: Vec<&str> = images.iter().map(|image| image.id.as_str()).collect();
            ids.join(" ")
        };
        write!(
            f,
            "expired({}) for-space({})",
            ids(&self.expired),
            ids(&self.for_space)
        )
    }
}

/// Returns the IDs of the images that references name.
///
/// A reference is an ID, a digest or a tag; runtimes name the image of a container in different
/// ways.
pub fn used_images<'a>(
    images: &[ImageInfo],
    references: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<String> {
    let found = references
        .into_iter()
        .filter_map(|reference| find(images, reference));
    found.map(|image| image.id.clone()).collect()
}

fn find<'a>(images: &'a [ImageInfo], reference: &str) -> Option<&'a ImageInfo> {
    if reference.is_empty() {
        return None;
    }
    let by_id = |image: &&ImageInfo| {
        image.id == reference || image.id.strip_prefix("sha256:") == Some(reference)
    };
    let full = [
        format!("docker.io/library/{reference}"),
        format!("docker.io/{reference}"),
    ];
    let is_name = |name: &String| name == reference || full.contains(name);
    let by_name = |image: &&ImageInfo| {
        image.repo_digests.iter().any(is_name) || image.repo_tags.iter().any(is_name)
    };
    images
        .iter()
        .find(by_id)
        .or_else(|| images.iter().find(by_name))
}

/// Records which images are on the node and which are used now; forgets the others.
pub fn detect(uses: &mut ImageUses, images: &[ImageInfo], used: &BTreeSet<String>, now: Timestamp) {
    let present: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
    uses.retain(|id, _| present.contains(id.as_str()));
    for image in images {
        let times = uses.entry(image.id.clone()).or_insert(ImageUse {
            first_detected: now,
            last_used: None,
        });
        // the clock may have been set back
        times.first_detected = times.first_detected.min(now);
        times.last_used = match used.contains(&image.id) {
            true => Some(now),
            false => times.last_used.map(|last| last.min(now)),
        };
    }
}

/// Orders the images that may be removed: those never used first, then by last use, then by
/// detection.
pub fn removal_order(
    uses: &ImageUses,
    images: &[ImageInfo],
    used: &BTreeSet<String>,
    policy: &ImageGcPolicy,
    time: PassTime,
) -> RemovalOrder {
    let removable = images
        .iter()
        .filter(|image| !image.pinned && !image.id.is_empty() && !used.contains(&image.id));
    let mut all: Vec<RemovableImage> = removable
        .filter_map(|image| {
            Some(RemovableImage {
                id: image.id.clone(),
                size: image.size,
                times: *uses.get(&image.id)?,
            })
        })
        .collect();
    all.sort_by_key(|image| {
        let ImageUse {
            first_detected,
            last_used,
        } = image.times;
        (
            last_used,
            first_detected,
            Reverse(image.size),
            image.id.clone(),
        )
    });
    let (expired, rest): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|image| policy.is_expired(image, time));
    RemovalOrder {
        expired,
        for_space: rest
            .into_iter()
            .filter(|image| policy.is_old_enough(image, time))
            .collect(),
    }
}

/// Text of the event `FreeDiskSpaceFailed`.
pub(crate) fn insufficient_space(used_percent: u64, capacity: u64, freed: u64) -> String {
    format!(
        "Insufficient free disk space on the node's image filesystem ({used_percent}% of {} used). \
         Failed to free sufficient space by deleting unused images (freed {freed} bytes). \
         Investigate disk usage, as it could be used by active images, logs, volumes, or other data.",
        size_text(capacity)
    )
}

/// Formats bytes with a binary unit and one decimal.
fn size_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1024.0 && unit < UNITS.len() - 1 {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.1} {}", UNITS[unit])
}

/// Error text of removals that failed for several images.
pub(crate) fn aggregate(errors: &[String]) -> String {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_str()) {
            distinct.push(error);
        }
    }
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        several => format!("[{}]", several.join(", ")),
    }
}

fn since(earlier: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(earlier)).unwrap_or_default()
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
