//! Makes, sets, lists and removes the cgroups of pods and of their classes.
//!
//! *owns* what this agent has set on each pod's cgroup, and the subtree below the layout's
//! `kubepods` · *invariant* nothing above or beside that subtree is written, what is set already
//! is not written again · *bound* one entry for each pod that has started in this life ·
//! *restart* the file system is the record; what it holds is set once more when it is needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
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
/// Controllers whose values pods have. In the others the runtime makes the pod's cgroup together
/// with its containers'.
const POD_CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
/// The kernel's least shares, which a class without requests gets.
const MIN_SHARES: i64 = 2;
/// What an error of a slice names where one of a cgroup names the hierarchy.
const SYSTEMD: &str = "systemd";
const SYSTEMD_DEFAULTS: &str = "slices have systemd's default values";

/// Something that works without: a hierarchy that cannot be used, a value that was refused.
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
    /// Hierarchies in which the cgroup of all pods could be made; none while systemd is away.
    usable: Vec<String>,
    /// Limits of all pods.
    node: CgroupValues,
    applied: BTreeMap<PodUid, (QosClass, CgroupValues)>,
    burstable: Option<i64>,
}

impl PodCgroups {
    /// Nothing is touched before [`PodCgroups::set_up`]. Under the systemd driver slices are only
    /// named where there is nobody to manage them: systemd makes them then, with its own values.
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

    /// What a sandbox of the pod gets as its parent: `None` where no cgroup can be made.
    pub fn parent_of(&self, class: QosClass, uid: &PodUid) -> Option<String> {
        let named = self.by_systemd() || !self.lock().usable.is_empty();
        named.then(|| self.0.layout.pod(class, uid))
    }

    /// Makes the cgroups of all pods and of each class, and limits all pods to `node`. What a
    /// hierarchy refuses is a warning: pods run without it.
    pub fn set_up(&self, node: CgroupValues) -> Vec<Warning> {
        self.lock().node = node;
        self.open()
    }

    /// Does what [`Self::set_up`] says, again where somebody took it away.
    fn open(&self) -> Vec<Warning> {
        let node = {
            let mut state = self.lock();
            state.burstable = None;
            state.node
        };
        let (tree, layout) = (&self.0.tree, &self.0.layout);
        let (kubepods, burstable) = (layout.kubepods(), layout.qos(QosClass::Burstable));
        let mut had = tree.hierarchies();
        had.retain(|hierarchy| tree.exists(hierarchy, &burstable));
        if let Err(warning) = self.start_classes() {
            self.lock().usable.clear();
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
        self.lock().usable = usable;
        let class = |shares| CgroupValues {
            cpu_shares: Some(shares),
            ..CgroupValues::default()
        };
        let mut values = vec![
            (kubepods, node),
            (layout.qos(QosClass::BestEffort), class(MIN_SHARES)),
        ];
        // after a restart it has what its pods request, which is not known yet
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

    /// Makes a pod's cgroup and sets its values; true if anything was written. While systemd is
    /// away a pod runs without its values.
    ///
    /// # Errors
    /// The kernel refuses, or systemd what it takes for other pods.
    pub fn ensure(
        &self,
        uid: &PodUid,
        class: QosClass,
        values: CgroupValues,
    ) -> Result<bool, CgroupError> {
        self.reopen();
        let path = self.0.layout.pod(class, uid);
        let known = self.lock().applied.get(uid) == Some(&(class, values));
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
        self.lock().applied.insert(uid.clone(), (class, values));
        Ok(true)
    }

    /// True if the cgroup of a pod was there in this life of the agent and is not any more. A pod
    /// that an earlier agent started without one is left as it is.
    pub fn is_removed(&self, uid: &PodUid) -> bool {
        let Some((class, _)) = self.lock().applied.get(uid).copied() else {
            return false;
        };
        let path = self.0.layout.pod(class, uid);
        let hierarchies = self.pod_hierarchies();
        hierarchies.iter().any(|h| !self.0.tree.exists(h, &path))
    }

    /// Removes the cgroups of a pod in every hierarchy, with those of its containers. What still
    /// runs in them is killed; that takes a moment, so ask again.
    ///
    /// # Errors
    /// Something still runs, or the kernel refuses.
    pub fn remove(&self, uid: &PodUid) -> Result<(), CgroupError> {
        self.lock().applied.remove(uid);
        let mut result = Ok(());
        for class in CLASSES {
            let path = self.0.layout.pod(class, uid);
            let mut hierarchies = self.usable();
            hierarchies.retain(|hierarchy| self.0.tree.exists(hierarchy, &path));
            if hierarchies.is_empty() {
                continue;
            }
            // what systemd was not told of stays, to be found again
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

    /// Gives all Burstable pods together this weight; true if it was written.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn update_burstable_shares(&self, burstable: i64) -> Result<bool, CgroupError> {
        if self.usable().is_empty() || self.lock().burstable == Some(burstable) {
            return Ok(false);
        }
        let values = CgroupValues {
            cpu_shares: Some(burstable),
            ..CgroupValues::default()
        };
        self.set(&self.0.layout.qos(QosClass::Burstable), values)?;
        self.lock().burstable = Some(burstable);
        Ok(true)
    }

    /// Tries again what systemd did not answer to.
    fn reopen(&self) {
        if self.0.slices.is_some() && self.usable().is_empty() {
            for warning in self.open() {
                tracing::debug!(%warning, "slices of pods");
            }
        }
    }

    /// Starts a pod's slice. If systemd is away the pod goes without, and if it only lacks the
    /// slices above, because somebody stopped them, they are started again.
    fn start_pod(&self, path: &str, values: CgroupValues) -> Result<(), CgroupError> {
        let Err(error) = self.start_slice(path, values) else {
            return Ok(());
        };
        self.open();
        if self.usable().is_empty() {
            tracing::warn!(%error, "a pod starts without the values of its slice");
            return Ok(());
        }
        self.start_slice(path, values)
    }

    /// Has systemd know of the classes' slices before their cgroups are made; their values follow.
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

    /// Has systemd know of a slice and its values, which it would set back otherwise; nothing
    /// under another driver.
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
        // the parts of `cgroupRoot` first
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
            let Some(hierarchy) = hierarchy.filter(|h| self.lock().usable.contains(h)) else {
                continue;
            };
            match tree.write(&hierarchy, path, file.name, &file.content) {
                // a kernel without, say, CFS quotas
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound && tree.exists(&hierarchy, path) =>
                {
                    tracing::debug!(path, file = file.name, "the kernel has no such file");
                }
                result => {
                    let path = format!("{path}/{}={}", file.name, file.content);
                    result.map_err(|error| failed("set", &hierarchy, &path, error))?;
                }
            }
        }
        Ok(())
    }

    /// Children first. A process that was killed keeps its cgroup until it is gone.
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
            tracing::info!(pid, path, "process left in a pod's cgroup, killed");
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

    /// Where a pod has values.
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
        self.lock().usable.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a slice's unit is the last part of its path.
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
