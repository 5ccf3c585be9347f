//! The faults, and how each ends.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::{Pid, Signal, kill_process};

/// Bytes of the disk of the agent's root directory.
const DISK: &std::ffi::CStr = c"size=96m,mode=755";
/// Steps in which a disk is filled, from large to small.
const CHUNKS: [u64; 3] = [8 << 20, 64 << 10, 4 << 10];

/// A disk in memory at the agent's root directory, which can be filled.
#[derive(Debug)]
pub(crate) struct Disk(PathBuf);

impl Disk {
    pub(crate) fn mount(place: &Path) -> anyhow::Result<Self> {
        mount("windlass-chaos", place, "tmpfs", MountFlags::empty(), DISK)?;
        Ok(Self(place.to_owned()))
    }

    /// Where it is mounted.
    pub(crate) fn place(&self) -> &Path {
        &self.0
    }

    /// Leaves no free byte.
    pub(crate) fn fill(&self) -> anyhow::Result<()> {
        let file = File::create(self.filler())?;
        let mut length = 0;
        for chunk in CHUNKS {
            loop {
                match fallocate(&file, FallocateFlags::empty(), length, chunk) {
                    Ok(()) => length += chunk,
                    Err(Errno::NOSPC) => break,
                    Err(error) => return Err(error).context("cannot fill the disk"),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn free(&self) -> anyhow::Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // in use as long as the agent runs
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A stopped process, continued on drop.
#[derive(Debug)]
pub(crate) struct Stopped(Pid);

impl Stopped {
    pub(crate) fn stop(pid: u32) -> anyhow::Result<Self> {
        let pid = to_pid(pid)?;
        kill_process(pid, Signal::STOP)?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// `kill -9`; false if the process has exited before.
pub(crate) fn kill(pid: u32) -> anyhow::Result<bool> {
    match kill_process(to_pid(pid)?, Signal::KILL) {
        Ok(()) => Ok(true),
        Err(Errno::SRCH) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn to_pid(pid: u32) -> anyhow::Result<Pid> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.context("no PID")
}

/// PID of a task in the output of `ctr tasks ls`.
pub(crate) fn pid_of_task(tasks: &str, id: &str) -> Option<u32> {
    let line = tasks.lines().find(|line| line.starts_with(id))?;
    let mut fields = line.split_ascii_whitespace().skip(1);
    let pid = fields.next()?.parse().ok()?;
    (fields.next()? == "RUNNING").then_some(pid)
}

/// Interval of reading a state.
pub(crate) const POLL: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_of_a_running_task_is_read() {
        let tasks = "TASK    PID    STATUS\nabc     12     RUNNING\nabd     13     STOPPED\n";
        assert_eq!(pid_of_task(tasks, "abc"), Some(12));
        assert_eq!(pid_of_task(tasks, "abd"), None);
        assert_eq!(pid_of_task(tasks, "x"), None);
    }
}
