//! Logs of containers, which outlive them.

use std::path::Path;

use windlass_runtime::files::MemoryFiles;

/// Files in which the logs are created; without any, containers have no logs.
#[derive(Debug, Default)]
pub(super) struct Logs(Option<MemoryFiles>);

impl Logs {
    pub(super) fn in_files(files: MemoryFiles) -> Self {
        Self(Some(files))
    }

    /// Opens the log of a container that is started, and creates it unless it exists.
    pub(super) fn open(&self, path: &str) {
        let Some(files) = self.0.as_ref().filter(|_| !path.is_empty()) else {
            return;
        };
        if files.get(Path::new(path)).is_none() {
            files.put(path, "");
        }
    }
}
