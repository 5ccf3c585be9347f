//! The state files below the root directory, at upstream's paths.

use std::path::{Path, PathBuf};

use windlass_resource_managers::cpu::STATE_FILE as CPU_STATE_FILE;
use windlass_resource_managers::devices::CHECKPOINT_FILE;
use windlass_store::TextFile;

use crate::ports::{StateFile, StateFiles};

const MEMORY_STATE_FILE: &str = "memory_manager_state";

/// The state files of a host.
#[derive(Clone, Debug)]
pub struct HostStateFiles {
    root_dir: PathBuf,
}

impl HostStateFiles {
    /// Files below `--root-dir`.
    pub fn new(root_dir: &Path) -> Self {
        Self {
            root_dir: root_dir.to_owned(),
        }
    }

    fn file(&self, file: StateFile) -> TextFile {
        TextFile::new(match file {
            StateFile::Devices => self.root_dir.join("device-plugins").join(CHECKPOINT_FILE),
            StateFile::Cpus => self.root_dir.join(CPU_STATE_FILE),
            StateFile::Memory => self.root_dir.join(MEMORY_STATE_FILE),
        })
    }
}

impl StateFiles for HostStateFiles {
    fn load(&self, file: StateFile) -> Result<Option<String>, String> {
        self.file(file).load().map_err(|error| error.to_string())
    }

    fn save(&self, file: StateFile, content: &str) -> Result<(), String> {
        self.file(file)
            .save(content)
            .map_err(|error| error.to_string())
    }

    fn set_aside(&self, file: StateFile, why: &str) {
        self.file(file).set_aside(why);
    }
}
