//! Name of the container runtime. The PLEG writes it with its first relist.

use std::sync::{Arc, OnceLock};

/// Runtime name from CRI `Version`, as in `containerd://<id>`.
#[derive(Clone, Debug, Default)]
pub struct RuntimeName(Arc<OnceLock<String>>);

impl RuntimeName {
    /// Sets the name once. Only for the PLEG.
    pub fn set(&self, name: String) {
        // container IDs must not change during an agent run
        drop(self.0.set(name));
    }

    /// Returns the name; `None` before the first response of the runtime.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
