//! Where the cgroups of pods and containers are.
//!
//! Pods are where this agent puts them (`windlass_runtime_config::cgroup_names`), with either driver; only
//! the runtime knows which it uses. Containers are below their pod under a name that contains
//! their ID, whatever the runtime calls them. What was found is remembered until it is gone.

use std::collections::{HashMap, HashSet};

use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_pod_inputs::resources::QosClass;
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::cgroup::Cgroups;

/// Where containerd puts containers of a pod without a cgroup.
const CONTAINERD_DEFAULT: &str = "/k8s.io";
/// Where the systemd driver puts them.
const SYSTEM_SLICE: &str = "/system.slice";
/// An ID that is shorter is no runtime's, and might be in another's name.
const SHORTEST_ID: usize = 8;

/// What was found.
#[derive(Debug)]
pub(crate) struct CgroupPaths {
    layouts: [CgroupLayout; 2],
    root: String,
    pods: HashMap<PodUid, String>,
    /// By the ID of a container or sandbox.
    containers: HashMap<String, String>,
    seen: HashSet<String>,
}

impl CgroupPaths {
    /// `cgroup_root` is `cgroupRoot`.
    pub(crate) fn new(cgroup_root: &str) -> Self {
        let drivers = [CgroupDriver::Cgroupfs, CgroupDriver::Systemd];
        Self {
            layouts: drivers.map(|driver| CgroupLayout::new(driver, cgroup_root)),
            root: cgroup_root.trim_end_matches('/').to_owned(),
            pods: HashMap::new(),
            containers: HashMap::new(),
            seen: HashSet::new(),
        }
    }

    /// The cgroup of all pods.
    pub(crate) fn kubepods(&self, cgroups: &Cgroups) -> Option<String> {
        let mut paths = self.layouts.iter().map(CgroupLayout::kubepods);
        paths.find(|path| cgroups.exists(path))
    }

    /// The cgroup of a class' pods.
    pub(crate) fn class(&self, cgroups: &Cgroups, class: QosClass) -> Option<String> {
        let mut paths = self.layouts.iter().map(|layout| layout.qos(class));
        paths.find(|path| cgroups.exists(path))
    }

    /// The cgroup of a pod.
    pub(crate) fn pod(&mut self, cgroups: &Cgroups, uid: &PodUid) -> Option<String> {
        self.seen.insert(uid.to_string());
        if let Some(path) = self.pods.get(uid) {
            return Some(path.clone());
        }
        let classes = [
            QosClass::Burstable,
            QosClass::BestEffort,
            QosClass::Guaranteed,
        ];
        let layouts = self.layouts.iter();
        let mut paths =
            layouts.flat_map(|layout| classes.iter().map(|class| layout.pod(*class, uid)));
        let path = paths.find(|path| cgroups.exists(path))?;
        self.pods.insert(uid.clone(), path.clone());
        Some(path)
    }

    /// The cgroup of a container or sandbox of a pod whose cgroup is `pod`.
    pub(crate) fn container(
        &mut self,
        cgroups: &Cgroups,
        pod: Option<&str>,
        id: &str,
    ) -> Option<String> {
        self.seen.insert(id.to_owned());
        if let Some(path) = self.containers.get(id) {
            return Some(path.clone());
        }
        if id.len() < SHORTEST_ID || id.contains('/') {
            return None;
        }
        let path = match pod {
            Some(pod) => below(cgroups, pod, id),
            None => {
                let parents = [self.root.as_str(), CONTAINERD_DEFAULT, SYSTEM_SLICE];
                let mut paths = parents
                    .iter()
                    .flat_map(|parent| usual_names(id).map(|name| format!("{parent}/{name}")));
                paths.find(|path| cgroups.exists(path))
            }
        };
        let path = path?;
        self.containers.insert(id.to_owned(), path.clone());
        Some(path)
    }

    /// What was found at `path` is not there any more.
    pub(crate) fn lost(&mut self, path: &str) {
        self.pods.retain(|_, known| known != path);
        self.containers.retain(|_, known| known != path);
    }

    /// This look does not ask where the container is, but another may.
    pub(crate) fn keep(&mut self, id: &str) {
        self.seen.insert(id.to_owned());
    }

    /// Ends a look: forgets what it did not ask for.
    pub(crate) fn end_collection(&mut self) {
        let seen = std::mem::take(&mut self.seen);
        self.pods.retain(|uid, _| seen.contains(uid.as_str()));
        self.containers.retain(|id, _| seen.contains(id));
    }
}

/// Names that runtimes give to the cgroup of a container: containerd and CRI-O, with the cgroupfs
/// and with the systemd driver.
fn usual_names(id: &str) -> [String; 4] {
    [
        id.to_owned(),
        format!("cri-containerd-{id}.scope"),
        format!("crio-{id}.scope"),
        format!("crio-{id}"),
    ]
}

fn below(cgroups: &Cgroups, pod: &str, id: &str) -> Option<String> {
    let usual = usual_names(id).map(|name| format!("{pod}/{name}"));
    let usual = usual.into_iter().find(|path| cgroups.exists(path));
    usual.or_else(|| {
        let mut names = cgroups.children(pod).into_iter();
        let name = names.find(|name| name.contains(id))?;
        Some(format!("{pod}/{name}"))
    })
}
