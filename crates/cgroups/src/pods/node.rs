//! Limits of all pods, of the QoS classes, and of the daemons for which resources are reserved.

use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::node_cgroups::{ClassValues, NodeLimit};
use windlass_runtime_config::pod_cgroup::CgroupValues;

use super::{PodCgroups, failed};
use crate::error::CgroupError;

impl PodCgroups {
    /// Returns the limit of all pods.
    pub fn pods_limit(&self) -> NodeLimit {
        NodeLimit::Pods(self.0.layout.name().to_vec())
    }

    /// Sets a limit of node allocatable. The cgroup of daemons must exist.
    ///
    /// # Errors
    /// The cgroup or one of its files does not exist, or the kernel or systemd rejects a value:
    /// the kernel of cgroup v1 rejects a memory limit below the usage.
    pub fn enforce(&self, limit: &NodeLimit) -> Result<(), CgroupError> {
        match limit {
            NodeLimit::Pods(_) => {
                self.reopen();
                let values = self.0.state.lock().node;
                let set = || self.enforce_values(&self.0.layout.kubepods(), values);
                match set() {
                    Err(CgroupError::Missing { .. }) => {
                        // a hierarchy that could not be changed before
                        self.open();
                        set()
                    }
                    result => result,
                }
            }
            NodeLimit::Reserved { cgroup, values, .. } => {
                let path = self.0.layout.named(cgroup);
                match values {
                    Some(values) => self.enforce_values(&path, *values),
                    None => Err(CgroupError::Unset { path }),
                }
            }
        }
    }

    /// Sets the values of the QoS classes; true if they were written. A memory limit below the
    /// usage is set to the usage, and the next call sets it again.
    ///
    /// # Errors
    /// The kernel rejects a value.
    pub fn update_classes(&self, values: ClassValues) -> Result<bool, CgroupError> {
        if self.usable().is_empty() || self.0.state.lock().classes == Some(values) {
            return Ok(false);
        }
        if values.all != CgroupValues::default() {
            self.set(&self.0.layout.kubepods(), values.all)?;
        }
        let mut exact = self.set_class(QosClass::Burstable, values.burstable)?;
        // its shares are constant
        if values.best_effort.memory_limit.is_some() {
            exact &= self.set_class(QosClass::BestEffort, values.best_effort)?;
        }
        self.0.state.lock().classes = exact.then_some(values);
        Ok(true)
    }

    /// True if the values were set as they are.
    fn set_class(&self, class: QosClass, values: CgroupValues) -> Result<bool, CgroupError> {
        let path = self.0.layout.qos(class);
        let usage = self.usage(&path).unwrap_or(0);
        let limit = values.memory_limit.map(|limit| limit.max(usage));
        let possible = CgroupValues {
            memory_limit: limit,
            ..values
        };
        self.set(&path, possible)?;
        Ok(possible == values)
    }

    /// Returns the memory usage of a cgroup in bytes; `None` if it is unknown.
    pub(super) fn usage(&self, path: &str) -> Option<i64> {
        let tree = &self.0.tree;
        let file = match tree.unified() {
            true => "memory.current",
            false => "memory.usage_in_bytes",
        };
        let hierarchy = tree.hierarchy_of("memory")?;
        let text = tree.read(&hierarchy, path, file).ok()?;
        text.trim().parse().ok()
    }

    /// Sets values in an existing cgroup; unlike for a pod, each of them has to take effect.
    fn enforce_values(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        let tree = &self.0.tree;
        let files = values.files(tree.unified());
        let mut missing: Vec<&str> = Vec::new();
        for file in &files {
            let hierarchy = tree.hierarchy_of(file.controller);
            let exists = hierarchy.is_some_and(|hierarchy| tree.exists(&hierarchy, path));
            if !exists && !missing.contains(&file.controller) {
                missing.push(file.controller);
            }
        }
        if !missing.is_empty() {
            return Err(CgroupError::Missing {
                path: path.to_owned(),
                controllers: missing.join(", "),
            });
        }
        self.start_slice(path, values)?;
        for file in files {
            let hierarchy = tree.hierarchy_of(file.controller).unwrap_or_default();
            let written = tree.write(&hierarchy, path, &file.name, &file.content);
            let target = format!("{path}/{}={}", file.name, file.content);
            written.map_err(|error| failed("set", &hierarchy, &target, error))?;
        }
        Ok(())
    }
}
