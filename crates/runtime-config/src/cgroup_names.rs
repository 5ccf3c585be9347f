//! Names of the cgroups of pods, as in the Go kubelet.
//!
//! ```text
//! kubepods                      all pods
//! kubepods/pod<uid>             a Guaranteed pod
//! kubepods/burstable/pod<uid>
//! kubepods/besteffort/pod<uid>
//! ```
//! The systemd driver names each one as nested slices, so that
//! `kubepods/burstable/pod1-2` is
//! `kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice`.

use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

use windlass_pod_inputs::resources::QosClass;

/// Cgroup of all pods below `cgroupRoot`.
const KUBEPODS: &str = "kubepods";
/// Prefix of the cgroup name of a pod.
const POD: &str = "pod";
const SLICE: &str = ".slice";

/// Layout of the cgroups of pods for a driver and a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupLayout {
    driver: CgroupDriver,
    /// Parts of `cgroupRoot` and [`KUBEPODS`].
    kubepods: Vec<String>,
}

impl CgroupLayout {
    /// Creates the layout below `cgroupRoot`; empty is the root of the hierarchy.
    pub fn new(driver: CgroupDriver, cgroup_root: &str) -> Self {
        let root = cgroup_root.split('/').filter(|part| !part.is_empty());
        Self {
            driver,
            kubepods: root.chain([KUBEPODS]).map(str::to_owned).collect(),
        }
    }

    /// Returns the driver.
    pub fn driver(&self) -> CgroupDriver {
        self.driver
    }

    /// Returns the parts of the name of the cgroup of all pods, such as `kubepods`.
    pub fn name(&self) -> &[String] {
        &self.kubepods
    }

    /// Returns the path of the cgroup with a name of the configuration, such as
    /// `kubeReservedCgroup`. The systemd driver reads the last part as a slice.
    pub fn named(&self, name: &str) -> String {
        let mut parts = name.split('/').filter(|part| !part.is_empty());
        match self.driver {
            CgroupDriver::Cgroupfs => parts.map(|part| format!("/{part}")).collect(),
            CgroupDriver::Systemd => {
                let slice = parts.next_back().unwrap_or_default();
                slices(slice.strip_suffix(SLICE).unwrap_or(slice).split('-'))
            }
        }
    }

    /// Returns the path of the cgroup of all pods, from the root of a hierarchy.
    pub fn kubepods(&self) -> String {
        self.path(&[])
    }

    /// Returns the parent path of a QoS class; that of Guaranteed pods is [`Self::kubepods`].
    pub fn qos(&self, class: QosClass) -> String {
        self.path(class_part(class).as_slice())
    }

    /// Returns the path of a pod's cgroup, the cgroup parent for the runtime.
    pub fn pod(&self, class: QosClass, uid: &PodUid) -> String {
        let pod = format!("{POD}{uid}");
        let parts: Vec<&str> = class_part(class).into_iter().chain([&*pod]).collect();
        self.path(&parts)
    }

    /// Returns the pod of a cgroup directory directly below [`Self::qos`].
    pub fn pod_of(&self, class: QosClass, name: &str) -> Option<PodUid> {
        let uid = match self.driver {
            CgroupDriver::Cgroupfs => name.strip_prefix(POD)?.to_owned(),
            CgroupDriver::Systemd => {
                let class = self.qos(class);
                let prefix = class.rsplit('/').next()?.strip_suffix(SLICE)?;
                let pod = name.strip_prefix(prefix)?.strip_prefix('-')?;
                pod.strip_suffix(SLICE)?
                    .strip_prefix(POD)?
                    .replace('_', "-")
            }
        };
        (!uid.is_empty()).then(|| PodUid::from(uid))
    }

    fn path(&self, below: &[&str]) -> String {
        let parts = self.kubepods.iter().map(String::as_str);
        let parts = parts.chain(below.iter().copied());
        match self.driver {
            CgroupDriver::Cgroupfs => parts.map(|part| format!("/{part}")).collect(),
            CgroupDriver::Systemd => slices(parts),
        }
    }
}

/// Returns the path of nested slices. Dashes separate the parts of a name, so they are escaped.
fn slices<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let (mut path, mut name) = (String::new(), String::new());
    for part in parts {
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(&part.replace('-', "_"));
        path.push('/');
        path.push_str(&name);
        path.push_str(SLICE);
    }
    path
}

fn class_part(class: QosClass) -> Option<&'static str> {
    match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use CgroupDriver::{Cgroupfs, Systemd};
    use QosClass::{BestEffort, Burstable, Guaranteed};

    #[test]
    fn cgroup_names_match_go_kubelet() {
        fn check(driver: CgroupDriver, root: &str, class: QosClass, expected: &str) {
            let uid = PodUid::from("8a7c-11");
            let layout = CgroupLayout::new(driver, root);
            let path = layout.pod(class, &uid);
            assert_eq!(path, expected);
            let (parent, name) = path.rsplit_once('/').expect("a path");
            assert_eq!(layout.qos(class), parent);
            assert_eq!(layout.pod_of(class, name), Some(uid), "{path}");
        }
        check(Cgroupfs, "/", Guaranteed, "/kubepods/pod8a7c-11");
        check(Cgroupfs, "", Burstable, "/kubepods/burstable/pod8a7c-11");
        check(
            Cgroupfs,
            "/a/b",
            BestEffort,
            "/a/b/kubepods/besteffort/pod8a7c-11",
        );
        check(
            Systemd,
            "/",
            Guaranteed,
            "/kubepods.slice/kubepods-pod8a7c_11.slice",
        );
        check(
            Systemd,
            "",
            Burstable,
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod8a7c_11.slice",
        );
        check(
            Systemd,
            "/a-b",
            BestEffort,
            "/a_b.slice/a_b-kubepods.slice/a_b-kubepods-besteffort.slice/\
             a_b-kubepods-besteffort-pod8a7c_11.slice",
        );
    }

    #[test]
    fn configured_cgroups_have_the_path_of_their_driver() {
        fn check(driver: CgroupDriver, name: &str, expected: &str) {
            let path = CgroupLayout::new(driver, "/pods").named(name);
            assert_eq!(path, expected, "{name}");
        }
        check(Cgroupfs, "/kube/reserved", "/kube/reserved");
        check(Cgroupfs, "kube-reserved", "/kube-reserved");
        check(Systemd, "/system.slice", "/system.slice");
        check(Systemd, "system", "/system.slice");
        check(Systemd, "/a.slice/a-b.slice", "/a.slice/a-b.slice");
        check(Systemd, "/kube_reserved.slice", "/kube_reserved.slice");
        check(Systemd, "/a-b-c", "/a.slice/a-b.slice/a-b-c.slice");
    }

    #[test]
    fn other_cgroups_belong_to_no_pod() {
        fn check(driver: CgroupDriver, class: QosClass, name: &str) {
            let layout = CgroupLayout::new(driver, "");
            assert_eq!(layout.pod_of(class, name), None, "{name}");
        }
        check(Cgroupfs, Guaranteed, "burstable");
        check(Cgroupfs, Guaranteed, "pod");
        check(Cgroupfs, Burstable, "some-pod1");
        check(Systemd, Guaranteed, "kubepods-burstable.slice");
        check(Systemd, Burstable, "kubepods-pod1.slice");
        check(Systemd, Burstable, "kubepods-burstable-pod1.scope");
    }
}
