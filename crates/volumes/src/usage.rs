//! How much a volume holds, without a process for it.
//!
//! A volume that is a file system of its own, or has a project quota of its own, is asked with one
//! `statfs`. Of any other the files are counted ([`walk`]), a slice at a time: all walks of the node together use at most a fifth of a
//! processor, and take turns, so that a huge tree delays nobody's number for long. Nothing is
//! measured but on request.

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

/// Entries that a walk looks at before it rests: a millisecond or two, unless the disk is slow.
const SLICE_ENTRIES: usize = 1000;
/// The rest after a slice, in times its duration; nobody else walks meanwhile.
const REST_FACTOR: u32 = 4;
/// Walks that are under way at the same time, a slice of each in turn. Each may hold
/// [`walk::MAX_OPEN`] descriptors.
const MAX_CONCURRENT_WALKS: usize = 4;

/// First looks at devices at the same time. One at a file system that does not answer keeps its thread:
/// all of them together take an eighth of the places for devices.
const MAX_DEVICE_SCANS: usize = crate::io_queue::DEVICE_PERMITS / 8;
/// How long a look waits for a place among them.
const DEVICE_SCAN_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest walk; what was counted by then is told. A pod that keeps making files ahead of a walk could
/// hold its place for ever. In this time a walk that is alone goes through some fifty million files.
const MAX_WALK_DURATION: Duration = Duration::from_secs(10 * 60);

/// What is known of a volume, and how.
pub type Measured = (VolumeStats, StatsSource);

/// Measures volumes of this node.
#[derive(Debug)]
pub(crate) struct VolumeMeter {
    queues: Arc<IoQueues>,
    looks: Arc<Semaphore>,
    walks: Semaphore,
    turn: Semaphore,
}

/// What the first look at a volume brings.
enum Measurement {
    Complete(Measured),
    /// Its file system's numbers, without what the volume itself uses.
    Scan(VolumeStats, Walk),
}

impl VolumeMeter {
    pub(crate) fn new(queues: Arc<IoQueues>) -> Self {
        Self {
            queues,
            looks: Arc::new(Semaphore::new(MAX_DEVICE_SCANS)),
            walks: Semaphore::new(MAX_CONCURRENT_WALKS),
            turn: Semaphore::new(1),
        }
    }

    /// Measures what lies at `path`. The calls run in `queue`: nobody else waits for a file system
    /// that hangs. Dropping the future ends a walk with its slice.
    ///
    /// A project quota is believed if there is a file `userns`: outside of a user namespace whoever
    /// owns a file may take it out of its project.
    ///
    /// # Errors
    /// Nothing is there, the file system refuses, or it does not answer within the queues' deadline.
    pub(crate) async fn measure(
        &self,
        queue: &IoQueue,
        path: &Path,
        userns: &Path,
    ) -> Result<Measured, VolumeError> {
        const ACTION: &str = "measuring a volume";
        let lost = |_| VolumeError::from(IoQueueError::Lost { action: ACTION });
        let (first, userns) = (path.to_owned(), userns.to_owned());
        let late = || IoQueueError::Deadline {
            action: ACTION,
            seconds: DEVICE_SCAN_TIMEOUT.as_secs(),
        };
        let place = match queue {
            // who watches over limits does not wait for a device that hangs
            IoQueue::Disk(_) => None,
            IoQueue::Device(_) => {
                let place = Arc::clone(&self.looks).acquire_owned();
                let place = timeout(DEVICE_SCAN_TIMEOUT, place).await;
                Some(place.map_err(|_| late())?.map_err(lost)?)
            }
        };
        let look = move || {
            let found = look(&first, &userns);
            // kept while the file system hangs
            drop(place);
            found
        };
        let look = self.queues.run_in(queue, ACTION, look).await?;
        let (mut stats, mut walk) = match look {
            Measurement::Complete(measured) => return Ok(measured),
            Measurement::Scan(stats, walk) => (stats, walk),
        };
        let _place = self.walks.acquire().await.map_err(lost)?;
        let began = Instant::now();
        loop {
            let turn = self.turn.acquire().await.map_err(lost)?;
            let begin = Instant::now();
            let slice = move || {
                let done = walk.step(SLICE_ENTRIES);
                Ok::<_, VolumeError>((done, walk))
            };
            let (done, rest) = self.queues.run_in(queue, ACTION, slice).await?;
            walk = rest;
            if done || began.elapsed() > MAX_WALK_DURATION {
                if !done || walk.passed_over() > 0 {
                    let (path, not_read) = (path.display(), walk.passed_over());
                    tracing::debug!(%path, done, not_read, "a volume holds more than was counted");
                }
                break;
            }
            // the turn is kept meanwhile: the rest is everybody's
            let pause = begin.elapsed().saturating_mul(REST_FACTOR);
            tokio::time::sleep(pause.max(Duration::from_millis(1))).await;
            drop(turn);
        }
        let counted = walk.counted();
        stats.used = counted.bytes;
        stats.inodes_used = counted.inodes;
        Ok((stats, StatsSource::Walk))
    }
}

fn look(path: &Path, userns: &Path) -> Result<Measurement, VolumeError> {
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
    // before the volume itself: a file system that grows meanwhile is no quota
    let parent = path.parent().unwrap_or(path);
    let around = rustix::fs::statfs(parent).map_err(failed)?;
    let own = fstatfs(&dir).map_err(failed)?;
    let whole = of_file_system(&own);
    if is_mount_root(&found, path).map_err(failed)? {
        return Ok(Measurement::Complete((whole, StatsSource::StatFs)));
    }
    let fs_type = u64::try_from(own.f_type).ok();
    if has_quota(fs_type, &of_file_system(&around), &whole) && userns.exists() {
        return Ok(Measurement::Complete((whole, StatsSource::Quota)));
    }
    let walk = Walk::start(dir).map_err(failed)?;
    Ok(Measurement::Scan(whole, walk))
}

fn file_type(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

/// True if something is mounted here: what the file system says is the volume's own.
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

/// True if a directory has a project of its own with limits on bytes and inodes: ext4 and XFS then
/// answer with the project's numbers. Elsewhere a smaller answer means something else.
fn has_quota(fs_type: Option<u64>, around: &VolumeStats, own: &VolumeStats) -> bool {
    const EXT4: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    let smaller = own.capacity < around.capacity && own.inodes < around.inodes;
    smaller && matches!(fs_type, Some(EXT4 | XFS))
}

fn device(stat: &Statx) -> (u32, u32) {
    (stat.stx_dev_major, stat.stx_dev_minor)
}

/// As upstream counts: what is free for root only is neither used nor available.
fn of_file_system(found: &StatFs) -> VolumeStats {
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

/// Bytes of a block device, which is not opened for that.
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
