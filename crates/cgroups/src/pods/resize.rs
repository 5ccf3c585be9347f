//! Cgroups of running pods: read back, changed value by value, and their memory usage.

use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::pod_cgroup::{CgroupValues, read_values};
use windlass_runtime_config::resize::MemoryUsage;
use windlass_types::{ContainerId, PodUid};

use super::PodCgroups;
use crate::error::CgroupError;

impl PodCgroups {
    /// Values that this agent run has set or read; `None` before either.
    pub fn known(&self, uid: &PodUid) -> Option<CgroupValues> {
        self.0
            .state
            .lock()
            .applied
            .get(uid)
            .map(|(_, values)| *values)
    }

    /// True if the pod has a cgroup in every hierarchy that has values for pods.
    pub fn exists(&self, class: QosClass, uid: &PodUid) -> bool {
        let path = self.0.layout.pod(class, uid);
        let hierarchies = self.pod_hierarchies();
        !hierarchies.is_empty() && hierarchies.iter().all(|h| self.0.tree.exists(h, &path))
    }

    /// Reads the values of a pod's cgroup; `None` without one. They are known from then on.
    pub fn read(&self, class: QosClass, uid: &PodUid) -> Option<CgroupValues> {
        if !self.exists(class, uid) {
            return None;
        }
        let tree = &self.0.tree;
        let path = self.0.layout.pod(class, uid);
        let values = read_values(tree.unified(), |controller, file| {
            let hierarchy = tree.hierarchy_of(controller)?;
            tree.read(&hierarchy, &path, file).ok()
        });
        let mut state = self.0.state.lock();
        state.applied.insert(uid.clone(), (class, values));
        Some(values)
    }

    /// Records that the cgroup has these values.
    pub fn confirm(&self, class: QosClass, uid: &PodUid, values: CgroupValues) {
        let applied = &mut self.0.state.lock().applied;
        applied.insert(uid.clone(), (class, values));
    }

    /// Sets the values of `change`, and keeps the others.
    ///
    /// # Errors
    /// The kernel or systemd rejects a value: the kernel of cgroup v1 rejects a memory limit below
    /// the usage. Values before it are set.
    pub fn resize(
        &self,
        class: QosClass,
        uid: &PodUid,
        change: CgroupValues,
    ) -> Result<(), CgroupError> {
        let path = self.0.layout.pod(class, uid);
        let known = self.known(uid).unwrap_or_default();
        // unknown until it is done
        self.0.state.lock().applied.remove(uid);
        self.start_slice(&path, change)?;
        self.write(&path, change)?;
        let values = CgroupValues {
            cpu_shares: change.cpu_shares.or(known.cpu_shares),
            cpu_quota: change.cpu_quota.or(known.cpu_quota),
            memory_limit: change.memory_limit.or(known.memory_limit),
            pids_limit: change.pids_limit.or(known.pids_limit),
            memory_min: change.memory_min.or(known.memory_min),
            memory_low: change.memory_low.or(known.memory_low),
            huge_pages: known.huge_pages,
        };
        self.0
            .state
            .lock()
            .applied
            .insert(uid.clone(), (class, values));
        Ok(())
    }

    /// Reads the memory usage of a pod and of those of `containers` whose cgroups are found by
    /// their ID.
    pub fn memory_usage(
        &self,
        class: QosClass,
        uid: &PodUid,
        containers: &[ContainerId],
    ) -> MemoryUsage {
        let tree = &self.0.tree;
        let path = self.0.layout.pod(class, uid);
        let hierarchy = tree.hierarchy_of("memory");
        let children = hierarchy.and_then(|hierarchy| tree.children(&hierarchy, &path).ok());
        let of_container = |id: &ContainerId| {
            let mut names = children.iter().flatten();
            let name = names.find(|name| name.contains(id.as_str()))?;
            Some((id.clone(), self.usage(&format!("{path}/{name}"))?))
        };
        MemoryUsage {
            pod: self.usage(&path),
            containers: containers.iter().filter_map(of_container).collect(),
        }
    }
}
