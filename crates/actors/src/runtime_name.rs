//! The name of the container runtime, readable from anywhere.
//!
//! One writer, the PLEG: it asks for the name with its first read, so that the name is known before
//! anything else is known of a container.

use std::sync::{Arc, OnceLock};

/// The name that the runtime gives itself in its answer to CRI `Version`, as in `containerd://<id>`.
#[derive(Clone, Debug, Default)]
pub struct RuntimeName(Arc<OnceLock<String>>);

impl RuntimeName {
    /// Sets the name. A name that is known stays. Only for the PLEG.
    pub fn set(&self, name: String) {
        // the first answer counts: IDs of containers do not change while the agent runs
        drop(self.0.set(name));
    }

    /// Returns the name, or `None` while the runtime has not answered.
    pub fn get(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
