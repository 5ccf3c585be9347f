//! Files and descriptors of notifications.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, eventfd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// Notifies when tasks wait for memory 15 % of a second; the kernel notifies at most once in that
/// window. Without `CAP_SYS_RESOURCE` it accepts only multiples of 2 s.
const STALLS: [&[u8]; 2] = [b"some 150000 1000000\0", b"some 300000 2000000\0"];
/// Longer than `memory.events`.
const ROOM: usize = 512;

/// A PSI file with a trigger.
#[derive(Debug)]
pub(super) struct StallFile(AsyncFd<File>);

impl StallFile {
    /// Opens the file and writes the trigger.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
        let mut file = options
            .read(true)
            .write(true)
            .custom_flags(nonblocking)
            .open(path)?;
        let [short, long] = STALLS;
        file.write_all(short).or_else(|_| file.write_all(long))?;
        let interest = Interest::PRIORITY | Interest::ERROR;
        Ok(Self(watched(file, interest)?))
    }

    /// Calls `notify` for each notification; returns when the file can no longer be watched.
    pub(super) async fn watch(self, notify: impl Fn()) -> io::Error {
        loop {
            let is_stall = match ready(&self.0).await {
                Ok(is_stall) => is_stall,
                Err(error) => return error,
            };
            if !is_stall {
                return io::Error::other("the cgroup was removed");
            }
            notify();
        }
    }
}

/// `memory.events` of a cgroup.
#[derive(Debug)]
pub(super) struct LimitFile(AsyncFd<File>);

impl LimitFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let interest = Interest::PRIORITY | Interest::ERROR;
        Ok(Self(watched(File::open(path)?, interest)?))
    }

    /// Calls `notify` when a count changed, at most once in `spacing`.
    pub(super) async fn watch(self, spacing: Duration, notify: impl Fn()) -> io::Error {
        let mut known = None;
        loop {
            let counts = match self.read() {
                Ok(counts) => counts,
                Err(error) => return error,
            };
            if known.as_ref().is_some_and(|known| *known != counts) {
                notify();
                sleep(spacing).await;
            }
            known = Some(counts);
            if let Err(error) = ready(&self.0).await {
                return error;
            }
        }
    }

    /// Reading also rearms the notification.
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut file = self.0.get_ref();
        file.rewind()?;
        let mut counts = vec![0; ROOM];
        let length = file.read(&mut counts)?;
        counts.truncate(length);
        Ok(counts)
    }
}

/// Waits for a notification; false for an error of the file alone.
async fn ready(fd: &AsyncFd<File>) -> io::Result<bool> {
    let mut guard = fd.ready(Interest::PRIORITY | Interest::ERROR).await?;
    let is_priority = guard.ready().is_priority();
    guard.clear_ready();
    Ok(is_priority)
}

/// A usage threshold of a v1 cgroup; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct UsageEvent(AsyncFd<OwnedFd>);

impl UsageEvent {
    /// Registers a threshold in bytes.
    pub(super) fn register(dir: &Path, bytes: u64) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let usage = File::open(dir.join("memory.usage_in_bytes"))?;
        let control = dir.join("cgroup.event_control");
        let mut control = OpenOptions::new().write(true).open(control)?;
        let line = format!("{} {} {bytes}", event.as_raw_fd(), usage.as_raw_fd());
        control.write_all(line.as_bytes())?;
        Ok(Self(watched(event, Interest::READABLE)?))
    }

    /// Waits until usage crosses the threshold in either direction.
    pub(super) async fn crossed(&self) -> io::Result<()> {
        loop {
            let mut guard = self.0.readable().await?;
            let mut count = [0; 8];
            match guard.try_io(|fd| Ok(rustix::io::read(fd.get_ref().as_fd(), &mut count)?)) {
                Ok(read) => return read.map(drop),
                Err(_would_block) => {}
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe; the descriptor is owned and not replaced"
)]
fn watched<F: AsRawFd>(fd: F, interest: Interest) -> io::Result<AsyncFd<F>> {
    AsyncFd::with_interest(fd, interest)
}
