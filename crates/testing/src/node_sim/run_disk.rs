//! The state files of one agent run, behind its fence.

use std::io;
use std::path::Path;
use std::time::Duration;

use windlass_container_manager::{StateFile, StateFiles};
use windlass_store::{DiskWork, StateDisk};

use super::fence::Fence;
use crate::fake_devices::FakeDevices;
use crate::fake_state_disk::FakeStateDisk;

/// Time until work in the background begins: changes in between coalesce, and are lost in a kill.
const WORK_DELAY: Duration = Duration::from_millis(2);

/// The disk as one agent run sees it.
#[derive(Clone, Debug)]
pub(super) struct RunDisk {
    pub(super) disk: FakeStateDisk,
    pub(super) fence: Fence,
}

/// State files of the resource managers as one agent run sees them.
#[derive(Clone, Debug)]
pub(super) struct RunFiles {
    pub(super) devices: FakeDevices,
    pub(super) fence: Fence,
}

/// The error of a killed agent, which does not act on it.
fn killed() -> io::Error {
    io::Error::other("the agent is killed")
}

/// Runs work after a delay, unless the agent is killed by then.
fn run_later(fence: &Fence, delay: Duration, work: DiskWork) {
    let fence = fence.clone();
    tokio::spawn(async move {
        tokio::time::sleep(delay).await;
        if !fence.is_raised() {
            work();
        }
    });
}

impl StateDisk for RunDisk {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        self.disk.read(path)
    }

    fn replace(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let replaced = self.fence.pass_now(|| self.disk.replace(path, content));
        replaced.unwrap_or_else(|| Err(killed()))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let renamed = self.fence.pass_now(|| self.disk.rename(from, to));
        renamed.unwrap_or_else(|| Err(killed()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let removed = self.fence.pass_now(|| self.disk.remove(path));
        removed.unwrap_or_else(|| Err(killed()))
    }

    fn exists(&self, path: &Path) -> bool {
        self.disk.exists(path)
    }

    fn run(&self, work: DiskWork) {
        run_later(&self.fence, WORK_DELAY, work);
    }

    fn run_later(&self, delay: Duration, work: DiskWork) {
        run_later(&self.fence, delay, work);
    }
}

impl StateFiles for RunFiles {
    fn load(&self, file: StateFile) -> Result<Option<String>, String> {
        self.devices.load(file)
    }

    fn save(&self, file: StateFile, content: &str) -> Result<(), String> {
        let saved = self.fence.pass_now(|| self.devices.save(file, content));
        saved.unwrap_or_else(|| Err(killed().to_string()))
    }

    fn run(&self, work: DiskWork) {
        run_later(&self.fence, WORK_DELAY, work);
    }

    fn set_aside(&self, file: StateFile, why: &str) {
        self.devices.set_aside(file, why);
    }
}
