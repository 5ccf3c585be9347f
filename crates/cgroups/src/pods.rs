//! Creates, configures, lists and removes the cgroups of pods and of their QoS classes.
//!
//! *owns* the values that this agent run set on each pod's cgroup, and the subtree below the
//! layout's `kubepods` · *invariant* nothing outside that subtree is written, except the limits of
//! daemons; values that are set are not written again · *bound* one entry for each pod started in
//! this agent run · *restart* the state is in the file system; values are written again when they
//! are needed.

mod node;
mod resize;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::node_cgroups::ClassValues;
use windlass_runtime_config::pod_cgroup::CgroupValues;
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::error::CgroupError;
use crate::slices::Slices;
use crate::tree::CgroupTree;

const CLASSES: [QosClass; 3] = [
    QosClass::Guaranteed,
    QosClass::Burstable,
    QosClass::BestEffort,
];
/// Controllers with values for pods. In the others the runtime creates the pod's cgroup.
const POD_CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "hugetlb"];
/// The kernel's minimum CPU shares, used for a class without requests.
const MIN_SHARES: i64 = 2;
/// Stands for the hierarchy in errors of slices.
const SYSTEMD: &str = "systemd";
const SYSTEMD_DEFAULTS: &str = "slices have systemd's default values";

/// A hierarchy that cannot be used or a value that was rejected; pods run without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Handle to the cgroups of all pods. Clones share it.
#[derive(Clone, Debug)]
pub struct PodCgroups(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: CgroupLayout,
    tree: Arc<dyn CgroupTree>,
    slices: Option<Arc<dyn Slices>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Hierarchies with a cgroup of all pods; empty while systemd is unreachable.
    usable: Vec<String>,
    /// Limits of all pods.
    node: CgroupValues,
    applied: BTreeMap<PodUid, (QosClass, CgroupValues)>,
    classes: Option<ClassValues>,
}

impl PodCgroups {
    /// Changes nothing before [`PodCgroups::set_up`]. Under the systemd driver without a slice
    /// manager, slices are only named: systemd creates them with its default values.
    pub fn new(
        layout: CgroupLayout,
        tree: Arc<dyn CgroupTree>,
        slices: Option<Arc<dyn Slices>>,
    ) -> Self {
        let by_systemd = layout.driver() == CgroupDriver::Systemd;
        Self(Arc::new(Inner {
            slices: slices.filter(|_| by_systemd),
            layout,
            tree,
            state: Mutex::default(),
        }))
    }

    /// Cgroup parent of the pod's sandbox; `None` if no cgroup can be created.
    pub fn parent_of(&self, class: QosClass, uid: &PodUid) -> Option<String> {
        let named = self.by_systemd() || !self.0.state.lock().usable.is_empty();
        named.then(|| self.0.layout.pod(class, uid))
    }

    /// Creates the cgroups of all pods and of each class, and limits all pods to `node`. A rejected
    /// hierarchy or value is a warning.
    pub fn set_up(&self, node: CgroupValues) -> Vec<Warning> {
        self.0.state.lock().node = node;
        self.open()
    }

    /// Performs [`Self::set_up`], again after a removal by another program.
    fn open(&self) -> Vec<Warning> {
        let node = {
            let mut state = self.0.state.lock();
            state.classes = None;
            state.node
        };
        let (tree, layout) = (&self.0.tree, &self.0.layout);
        let (kubepods, burstable) = (layout.kubepods(), layout.qos(QosClass::Burstable));
        let mut had = tree.hierarchies();
        had.retain(|hierarchy| tree.exists(hierarchy, &burstable));
        if let Err(warning) = self.start_classes() {
            self.0.state.lock().usable.clear();
            return vec![warning];
        }
        let mut warnings = Vec::new();
        let mut usable = Vec::new();
        for hierarchy in tree.hierarchies() {
            match self.make_classes(&hierarchy) {
                Ok(()) => usable.push(hierarchy),
                Err(error) => warnings.push(Warning(error.to_string())),
            }
        }
        let new = usable.iter().any(|hierarchy| !had.contains(hierarchy));
        self.0.state.lock().usable = usable;
        let class = |shares| CgroupValues {
            cpu_shares: Some(shares),
            ..CgroupValues::default()
        };
        let mut values = vec![
            (kubepods, node),
            (layout.qos(QosClass::BestEffort), class(MIN_SHARES)),
        ];
        // an existing one keeps its value: the requests of its pods are not known yet
        if new {
            values.push((burstable, class(MIN_SHARES)));
        }
        for (path, values) in values {
            if let Err(error) = self.set(&path, values) {
                warnings.push(Warning(error.to_string()));
            }
        }
        warnings
    }

    /// Creates a pod's cgroup and sets its values; true if anything was written. While systemd is
    /// unreachable the pod runs without its values.
    ///
    /// # Errors
    /// The kernel rejects a change, or systemd rejects this pod's slice.
    pub fn ensure(
        &self,
        uid: &PodUid,
        class: QosClass,
        values: CgroupValues,
    ) -> Result<bool, CgroupError> {
        self.reopen();
        let path = self.0.layout.pod(class, uid);
        let known = self.0.state.lock().applied.get(uid) == Some(&(class, values));
        let tree = &self.0.tree;
        if known && self.pod_hierarchies().iter().all(|h| tree.exists(h, &path)) {
            return Ok(false);
        }
        self.start_pod(&path, values)?;
        let hierarchies = self.pod_hierarchies();
        if hierarchies.is_empty() {
            return Ok(false);
        }
        for hierarchy in &hierarchies {
            let made = tree.make(hierarchy, &path);
            made.map_err(|error| failed("make", hierarchy, &path, error))?;
        }
        self.write(&path, values)?;
        self.0
            .state
            .lock()
            .applied
            .insert(uid.clone(), (class, values));
        Ok(true)
    }

    /// True if a pod's cgroup that this agent run created no longer exists. A pod of a previous run
    /// without a cgroup does not count.
    pub fn is_removed(&self, uid: &PodUid) -> bool {
        let Some((class, _)) = self.0.state.lock().applied.get(uid).copied() else {
            return false;
        };
        let path = self.0.layout.pod(class, uid);
        let hierarchies = self.pod_hierarchies();
        hierarchies.iter().any(|h| !self.0.tree.exists(h, &path))
    }

    /// Removes the cgroups of a pod and its containers in every hierarchy. Kills processes in them
    /// without waiting; retry the removal.
    ///
    /// # Errors
    /// A process still exists, or the kernel rejects the removal.
    pub fn remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        self.0.state.lock().applied.remove(uid);
        let mut result = Ok(());
        for class in CLASSES {
            let path = self.0.layout.pod(class, uid);
            let mut hierarchies = self.usable();
            hierarchies.retain(|hierarchy| self.0.tree.exists(hierarchy, &path));
            if hierarchies.is_empty() {
                continue;
            }
            // a slice that systemd still has is kept, to be found by the next removal
            if let Err(error) = self.stop_slice(&path) {
                result = Err(error);
                continue;
            }
            for hierarchy in hierarchies {
                let removed = self.remove_tree(&hierarchy, &path);
                result = result.and(removed);
            }
        }
        result
    }

    /// Pods that have a cgroup in any hierarchy.
    ///
    /// # Errors
    /// A hierarchy cannot be read.
    pub fn list(&self) -> Result<BTreeSet<PodUid>, CgroupError> {
        self.reopen();
        let layout = &self.0.layout;
        let mut pods = BTreeSet::new();
        for hierarchy in self.usable() {
            for class in CLASSES {
                let parent = layout.qos(class);
                let names = self.0.tree.children(&hierarchy, &parent);
                let names = names.map_err(|error| failed("list", &hierarchy, &parent, error))?;
                let uids = names.iter().filter_map(|name| layout.pod_of(class, name));
                pods.extend(uids);
            }
        }
        Ok(pods)
    }

    /// Retries the setup while systemd was unreachable.
    fn reopen(&self) {
        if self.0.slices.is_some() && self.usable().is_empty() {
            for warning in self.open() {
                tracing::debug!(%warning, "slices of pods");
            }
        }
    }

    /// Starts a pod's slice. While systemd is unreachable the pod runs without it; parent slices
    /// that were stopped are started again.
    fn start_pod(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        let Err(error) = self.start_slice(path, values) else {
            return Ok(());
        };
        self.open();
        if self.usable().is_empty() {
            tracing::warn!(%error, "pod starts without the values of its slice");
            return Ok(());
        }
        self.start_slice(path, values)
    }

    /// Starts the slices of the classes before their cgroups are created; their values follow.
    fn start_classes(&self) -> Result<(), Warning> {
        if self.by_systemd() && self.0.slices.is_none() {
            return Err(Warning(SYSTEMD_DEFAULTS.to_owned()));
        }
        for class in CLASSES {
            let path = self.0.layout.qos(class);
            let started = self.start_slice(&path, CgroupValues::default());
            started.map_err(|error| Warning(format!("{SYSTEMD_DEFAULTS}: {error}")))?;
        }
        Ok(())
    }

    /// Starts a slice with its values, which systemd would reset otherwise. No-op under another
    /// driver.
    fn start_slice(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        let Some(slices) = &self.0.slices else {
            return Ok(());
        };
        let properties = values.slice_properties(self.0.tree.unified());
        let started = slices.start(unit(path), &properties);
        started.map_err(|error| failed("start", SYSTEMD, path, error))
    }

    fn stop_slice(&self, path: &str) -> Result<(), CgroupError> {
        let Some(slices) = &self.0.slices else {
            return Ok(());
        };
        let stopped = slices.stop(unit(path));
        stopped.map_err(|error| failed("stop", SYSTEMD, path, error))
    }

    fn make_classes(&self, hierarchy: &str) -> Result<(), CgroupError> {
        let layout = &self.0.layout;
        let kubepods = layout.kubepods();
        // parents in `cgroupRoot` first
        let ends = kubepods.match_indices('/').skip(1).map(|(end, _)| end);
        let parents = ends.map(|end| kubepods[..end].to_owned());
        let classes = CLASSES.map(|class| layout.qos(class));
        for path in parents.chain(classes) {
            let made = self.0.tree.make(hierarchy, &path);
            made.map_err(|error| failed("make", hierarchy, &path, error))?;
        }
        Ok(())
    }

    fn set(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        self.start_slice(path, values)?;
        self.write(path, values)
    }

    fn write(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        let tree = &self.0.tree;
        for file in values.files(tree.unified()) {
            let hierarchy = tree.hierarchy_of(file.controller);
            let Some(hierarchy) = hierarchy.filter(|h| self.0.state.lock().usable.contains(h))
            else {
                continue;
            };
            match tree.write(&hierarchy, path, &file.name, &file.content) {
                // such as a kernel without CFS quotas
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && tree.exists(&hierarchy, path) =>
                {
                    tracing::debug!(
                        path,
                        file = &*file.name,
                        "cgroup file not supported by the kernel"
                    );
                }
                result => {
                    let path = format!("{path}/{}={}", file.name, file.content);
                    result.map_err(|error| failed("set", &hierarchy, &path, error))?;
                }
            }
        }
        Ok(())
    }

    /// Removes children first. A killed process keeps its cgroup until it has exited.
    fn remove_tree(&self, hierarchy: &str, path: &str) -> Result<(), CgroupError> {
        let tree = &self.0.tree;
        let children = tree.children(hierarchy, path);
        let mut result = Ok(());
        for child in children.map_err(|error| failed("list", hierarchy, path, error))? {
            let removed = self.remove_tree(hierarchy, &format!("{path}/{child}"));
            result = result.and(removed);
        }
        let pids = tree.processes(hierarchy, path);
        for pid in pids.map_err(|error| failed("read", hierarchy, path, error))? {
            tracing::info!(pid, path, "killed process left in a pod cgroup");
            tree.kill(pid);
        }
        result?;
        match tree.remove(hierarchy, path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Err(CgroupError::Busy {
                path: format!("{hierarchy}:{path}"),
            }),
            removed => removed.map_err(|error| failed("remove", hierarchy, path, error)),
        }
    }

    /// Hierarchies with values for pods.
    fn pod_hierarchies(&self) -> Vec<String> {
        let usable = self.usable();
        let mut hierarchies: Vec<String> = POD_CONTROLLERS
            .iter()
            .filter_map(|controller| self.0.tree.hierarchy_of(controller))
            .filter(|hierarchy| usable.contains(hierarchy))
            .collect();
        hierarchies.sort();
        hierarchies.dedup();
        hierarchies
    }

    fn by_systemd(&self) -> bool {
        self.0.layout.driver() == CgroupDriver::Systemd
    }

    fn usable(&self) -> Vec<String> {
        self.0.state.lock().usable.clone()
    }
}

/// Unit name of a slice: the last part of its path.
fn unit(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, unit)| unit)
}

fn failed(action: &'static str, hierarchy: &str, path: &str, source: io::Error) -> CgroupError {
    CgroupError::Io {
        action,
        path: format!("{hierarchy}:{path}"),
        source,
    }
}
