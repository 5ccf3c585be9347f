//! Paths of the cgroups of pods and containers.
//!
//! Pods are where this agent puts them (`windlass_runtime_config::cgroup_names`), with either
//! cgroup driver. Containers are below their pod, under a name that contains their ID. Paths are
//! cached until the cgroup is removed.

use std::collections::{HashMap, HashSet};

use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use crate::cgroup::Cgroups;

/// Default parent of containers in containerd.
const CONTAINERD_DEFAULT: &str = "/k8s.io";
/// Default parent with the systemd driver.
const SYSTEM_SLICE: &str = "/system.slice";
/// Minimum length of an ID; a shorter one may be part of another name.
const MIN_ID_LENGTH: usize = 8;

/// Cached cgroup paths.
#[derive(Debug)]
pub(crate) struct CgroupPaths {
    layouts: [CgroupLayout; 2],
    root: String,
    pods: HashMap<PodUid, String>,
    /// By the ID of a container or sandbox.
    containers: HashMap<String, String>,
    used: HashSet<String>,
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
            used: HashSet::new(),
        }
    }

    /// Returns the cgroup of all pods.
    pub(crate) fn kubepods(&self, cgroups: &Cgroups) -> Option<String> {
        let mut paths = self.layouts.iter().map(CgroupLayout::kubepods);
        paths.find(|path| cgroups.exists(path))
    }

    /// Returns the cgroup of a QoS class.
    pub(crate) fn class(&self, cgroups: &Cgroups, class: QosClass) -> Option<String> {
        let mut paths = self.layouts.iter().map(|layout| layout.qos(class));
        paths.find(|path| cgroups.exists(path))
    }

    /// Returns the cgroup of a pod.
    pub(crate) fn pod(&mut self, cgroups: &Cgroups, uid: &PodUid) -> Option<String> {
        self.used.insert(uid.to_string());
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

    /// Returns the cgroup of a container or sandbox of a pod with the cgroup `pod`.
    pub(crate) fn container(
        &mut self,
        cgroups: &Cgroups,
        pod: Option<&str>,
        id: &str,
    ) -> Option<String> {
        self.used.insert(id.to_owned());
        if let Some(path) = self.containers.get(id) {
            return Some(path.clone());
        }
        if id.len() < MIN_ID_LENGTH || id.contains('/') {
            return None;
        }
        let path = match pod {
            Some(pod) => below(cgroups, pod, id),
            None => {
                let parents = [self.root.as_str(), CONTAINERD_DEFAULT, SYSTEM_SLICE];
                let mut paths = parents
                    .iter()
                    .flat_map(|parent| known_names(id).map(|name| format!("{parent}/{name}")));
                paths.find(|path| cgroups.exists(path))
            }
        };
        let path = path?;
        self.containers.insert(id.to_owned(), path.clone());
        Some(path)
    }

    /// Removes the entries of a removed cgroup.
    pub(crate) fn remove_path(&mut self, path: &str) {
        self.pods.retain(|_, known| known != path);
        self.containers.retain(|_, known| known != path);
    }

    /// Keeps the entry of a container that this collection does not use.
    pub(crate) fn retain(&mut self, id: &str) {
        self.used.insert(id.to_owned());
    }

    /// Ends a collection; removes entries that it did not use.
    pub(crate) fn end_collection(&mut self) {
        let used = std::mem::take(&mut self.used);
        self.pods.retain(|uid, _| used.contains(uid.as_str()));
        self.containers.retain(|id, _| used.contains(id));
    }
}

/// Returns the cgroup names of a container in containerd and CRI-O, with both cgroup drivers.
fn known_names(id: &str) -> [String; 4] {
    [
        id.to_owned(),
        format!("cri-containerd-{id}.scope"),
        format!("crio-{id}.scope"),
        format!("crio-{id}"),
    ]
}

fn below(cgroups: &Cgroups, pod: &str, id: &str) -> Option<String> {
    let usual = known_names(id).map(|name| format!("{pod}/{name}"));
    let usual = usual.into_iter().find(|path| cgroups.exists(path));
    usual.or_else(|| {
        let mut names = cgroups.children(pod).into_iter();
        let name = names.find(|name| name.contains(id))?;
        Some(format!("{pod}/{name}"))
    })
}
