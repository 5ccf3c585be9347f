//! Usage of a volume, without starting a process.
//!
//! For a volume with its own file system or project quota, one `statfs` is enough. For others the
//! files are counted ([`walk`]) in slices: all walks of the node together use at most a fifth of a
//! processor and alternate, so that a huge tree does not delay others. Measurements are made only on
//! request.

mod walk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, StatFs, Statx, StatxAttributes, StatxFlags, fstatfs,
    openat, statx,
};
use rustix::io::Errno;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use windlass_volume_plan::volume_usage::{StatsSource, VolumeStats};

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueueError, IoQueues};
use walk::Walk;

/// Entries per slice: one or two milliseconds, unless the disk is slow.
const SLICE_ENTRIES: usize = 1000;
/// Pause after a slice as a multiple of its duration; no other walk runs meanwhile.
const REST_FACTOR: u32 = 4;
/// Max concurrent walks, which alternate slices. Each may hold [`walk::MAX_OPEN`] descriptors.
const MAX_CONCURRENT_WALKS: usize = 4;

/// Max concurrent `statfs` calls on devices. A hung one keeps its thread: all of them take at most an
/// eighth of the device permits.
const MAX_DEVICE_SCANS: usize = crate::io_queue::DEVICE_PERMITS / 8;
/// Time a measurement waits for one of them.
const DEVICE_SCAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Max duration of a walk, whose totals are then used: a pod could otherwise prolong it by creating
/// files. A single walk counts about fifty million files in this time.
const MAX_WALK_DURATION: Duration = Duration::from_secs(10 * 60);

/// Usage of a volume and its source.
pub type Measured = (VolumeStats, StatsSource);

/// Measures the usage of volumes.
#[derive(Debug)]
pub(crate) struct VolumeMeter {
    queues: Arc<IoQueues>,
    device_scans: Arc<Semaphore>,
    walks: Semaphore,
    slice: Semaphore,
}

/// Result of the first step of a measurement.
enum Measurement {
    Complete(Measured),
    /// Stats of its file system, whose usage is still to be counted.
    Scan(VolumeStats, Walk),
}

impl VolumeMeter {
    pub(crate) fn new(queues: Arc<IoQueues>) -> Self {
        Self {
            queues,
            device_scans: Arc::new(Semaphore::new(MAX_DEVICE_SCANS)),
            walks: Semaphore::new(MAX_CONCURRENT_WALKS),
            slice: Semaphore::new(1),
        }
    }

    /// Measures the volume at `path`. Calls run in `queue`, so that a hung file system does not delay
    /// other volumes. Dropping the future cancels a walk after its slice.
    ///
    /// A project quota is trusted only if the file `userns` exists: without a user namespace, the owner
    /// of a file can remove it from its project.
    ///
    /// # Errors
    /// The path does not exist, a file operation fails, or a deadline is exceeded.
    pub(crate) async fn measure(
        &self,
        queue: &IoQueue,
        path: &Path,
        userns: &Path,
    ) -> Result<Measured, VolumeError> {
        const ACTION: &str = "measuring a volume";
        let lost = |_| VolumeError::from(IoQueueError::Lost { action: ACTION });
        let (first, userns) = (path.to_owned(), userns.to_owned());
        let timed_out = || IoQueueError::Deadline {
            action: ACTION,
            seconds: DEVICE_SCAN_TIMEOUT.as_secs(),
        };
        let permit = match queue {
            // the limit checks never wait for hung devices
            IoQueue::Disk(_) => None,
            IoQueue::Device(_) => {
                let permit = Arc::clone(&self.device_scans).acquire_owned();
                let permit = timeout(DEVICE_SCAN_TIMEOUT, permit).await;
                Some(permit.map_err(|_| timed_out())?.map_err(lost)?)
            }
        };
        let begin = move || {
            let measurement = begin_measurement(&first, &userns);
            // held while the file system hangs
            drop(permit);
            measurement
        };
        let measurement = self.queues.run_in(queue, ACTION, begin).await?;
        let (mut stats, mut walk) = match measurement {
            Measurement::Complete(measured) => return Ok(measured),
            Measurement::Scan(stats, walk) => (stats, walk),
        };
        let _permit = self.walks.acquire().await.map_err(lost)?;
        let began = Instant::now();
        loop {
            let slice_permit = self.slice.acquire().await.map_err(lost)?;
            let begin = Instant::now();
            let slice = move || {
                let done = walk.step(SLICE_ENTRIES);
                Ok::<_, VolumeError>((done, walk))
            };
            let (done, rest) = self.queues.run_in(queue, ACTION, slice).await?;
            walk = rest;
            if done || began.elapsed() > MAX_WALK_DURATION {
                if !done || walk.skipped() > 0 {
                    let (path, skipped) = (path.display(), walk.skipped());
                    tracing::debug!(%path, done, skipped, "volume usage is incomplete");
                }
                break;
            }
            // the slice permit is held during the pause, which limits all walks
            let pause = begin.elapsed().saturating_mul(REST_FACTOR);
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            drop(slice_permit);
        }
        let counted = walk.counted();
        stats.used = counted.bytes;
        stats.inodes_used = counted.inodes;
        Ok((stats, StatsSource::Walk))
    }
}

fn begin_measurement(path: &Path, userns: &Path) -> Result<Measurement, VolumeError> {
    let failed = |error: Errno| VolumeError::io("measure", path, error);
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS).map_err(failed)?;
    if file_type(&found) == FileType::BlockDevice {
        let capacity = device_size(&found)
            .map_err(|error| VolumeError::io("read the size of", path, error))?;
        let stats = VolumeStats {
            capacity,
            ..VolumeStats::default()
        };
        return Ok(Measurement::Complete((stats, StatsSource::Block)));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    // before the volume itself: an expansion in between must not look like a quota
    let parent = path.parent().unwrap_or(path);
    let parent_fs = rustix::fs::statfs(parent).map_err(failed)?;
    let own = fstatfs(&dir).map_err(failed)?;
    let total = file_system_stats(&own);
    if is_mount_root(&found, path).map_err(failed)? {
        return Ok(Measurement::Complete((total, StatsSource::StatFs)));
    }
    let fs_type = u64::try_from(own.f_type).ok();
    if has_quota(fs_type, &file_system_stats(&parent_fs), &total) && userns.exists() {
        return Ok(Measurement::Complete((total, StatsSource::Quota)));
    }
    let walk = Walk::start(dir).map_err(failed)?;
    Ok(Measurement::Scan(total, walk))
}

fn file_type(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// Whether a file system is mounted here, whose usage is that of the volume.
fn is_mount_root(found: &Statx, path: &Path) -> Result<bool, Errno> {
    if found
        .stx_attributes_mask
        .contains(StatxAttributes::MOUNT_ROOT)
    {
        return Ok(found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
    }
    // before Linux 5.8
    let parent = path.parent().unwrap_or(path);
    let parent = statx(CWD, parent, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
    Ok(device(&parent) != device(found))
}

/// Whether a directory has its own project quota for bytes and inodes, for which ext4 and XFS report
/// the limits as size. For other file systems a smaller size has other reasons.
fn has_quota(fs_type: Option<u64>, parent_fs: &VolumeStats, own: &VolumeStats) -> bool {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    let smaller = own.capacity < parent_fs.capacity && own.inodes < parent_fs.inodes;
    smaller && matches!(fs_type, Some(EXT4 | XFS))
}

fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}

/// Stats as upstream: blocks reserved for root are neither used nor available.
fn file_system_stats(found: &StatFs) -> VolumeStats {
    let block = u64::try_from(found.f_bsize).unwrap_or_default();
    let bytes = |blocks: u64| blocks.saturating_mul(block);
    VolumeStats {
        capacity: bytes(found.f_blocks),
        available: bytes(found.f_bavail),
        used: bytes(found.f_blocks.saturating_sub(found.f_bfree)),
        inodes: found.f_files,
        inodes_free: found.f_ffree,
        inodes_used: found.f_files.saturating_sub(found.f_ffree),
    }
}

/// Size of a block device in bytes, without opening it.
fn device_size(found: &Statx) -> std::io::Result<u64> {
    const SECTOR: u64 = 512;
    let (major, minor) = (found.stx_rdev_major, found.stx_rdev_minor);
    let path = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/size"));
    let text = std::fs::read_to_string(path)?;
    let sectors: u64 = text
        .trim()
        .parse()
        .map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidData))?;
    Ok(sectors.saturating_mul(SECTOR))
}

#[cfg(test)]
mod tests;
