//! Features that a container runtime lacks, from its status or, without one, from its version.

use windlass_types::cri::{CgroupDriver, RuntimeStatus, RuntimeVersion};

use crate::image_volumes;

/// Runtimes that support `lifecycle.stopSignal`, with their first version.
const STOP_SIGNALS: [(&str, [u64; 2]); 2] = [("containerd", [2, 3]), ("cri-o", [1, 33])];

windlass_types::text_enum! {
    /// A feature that a runtime lacks. `Display` prints the field of the pod.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum RuntimeGap {
        /// No handler supports user namespaces.
        UserNamespaces = "user namespaces (hostUsers: false)",
        /// No handler supports recursive read-only mounts.
        RecursiveReadOnlyMounts = "recursive read-only mounts",
        /// The groups of the image user are always added.
        StrictSupplementalGroups = "supplementalGroupsPolicy: Strict",
        /// No image volumes.
        ImageVolumes = "image volumes",
        /// No subpaths of image volumes.
        ImageVolumeSubPaths = "subPath of image volumes",
        /// The stop signal is always that of the image.
        StopSignals = "lifecycle.stopSignal",
        /// The runtime does not report its cgroup driver; `cgroupDriver` of the configuration applies.
        CgroupDriver = "reporting its cgroup driver",
    }
}

/// Returns the gaps of a runtime; for an unknown one only those in its status.
pub fn runtime_gaps(
    version: &RuntimeVersion,
    status: &RuntimeStatus,
    cgroup_driver: Option<CgroupDriver>,
) -> Vec<RuntimeGap> {
    let handlers = &status.handlers;
    let image_volumes = image_volumes::missing(version);
    let stop_signals = STOP_SIGNALS
        .iter()
        .find(|(name, _)| *name == version.name)
        .zip(image_volumes::major_and_minor(&version.version))
        .is_some_and(|((_, since), version)| version < *since);
    let all = [
        (
            !handlers.iter().any(|handler| handler.user_namespaces),
            RuntimeGap::UserNamespaces,
        ),
        (
            !handlers.iter().any(|it| it.recursive_read_only_mounts),
            RuntimeGap::RecursiveReadOnlyMounts,
        ),
        (
            status.supplemental_groups_policy != Some(true),
            RuntimeGap::StrictSupplementalGroups,
        ),
        (image_volumes.whole, RuntimeGap::ImageVolumes),
        (
            image_volumes.part && !image_volumes.whole,
            RuntimeGap::ImageVolumeSubPaths,
        ),
        (stop_signals, RuntimeGap::StopSignals),
        (cgroup_driver.is_none(), RuntimeGap::CgroupDriver),
    ];
    let lacking = all.into_iter().filter(|(lacks, _)| *lacks);
    lacking.map(|(_, gap)| gap).collect()
}

#[cfg(test)]
mod tests {
    use windlass_types::cri::RuntimeHandler;

    use super::*;

    #[test]
    fn runtime_gaps_follow_status_and_version() {
        let check = |name: &str, version: &str, new: bool, expected: &[&str]| {
            let version = RuntimeVersion {
                name: name.to_owned(),
                version: version.to_owned(),
                ..RuntimeVersion::default()
            };
            let status = RuntimeStatus {
                handlers: vec![RuntimeHandler {
                    name: "runc".to_owned(),
                    recursive_read_only_mounts: new,
                    user_namespaces: new,
                }],
                supplemental_groups_policy: new.then_some(true),
                ..RuntimeStatus::default()
            };
            let driver = new.then_some(CgroupDriver::Systemd);
            let gaps = runtime_gaps(&version, &status, driver);
            let lines: Vec<String> = gaps.iter().map(ToString::to_string).collect();
            assert_eq!(lines, expected, "{version:?}");
        };
        let answers = [
            "user namespaces (hostUsers: false)",
            "recursive read-only mounts",
            "supplementalGroupsPolicy: Strict",
        ];
        let driver = "reporting its cgroup driver";
        let [users, read_only, strict] = answers;
        let versions = ["image volumes", "lifecycle.stopSignal"];
        let [volumes, signals] = versions;
        let old = [users, read_only, strict, volumes, signals, driver];
        check("containerd", "1.6.20~ds1", false, &old);
        check(
            "containerd",
            "v2.1.4",
            true,
            &["subPath of image volumes", "lifecycle.stopSignal"],
        );
        check("containerd", "v2.3.4", true, &[]);
        check("cri-o", "1.36.3", true, &[]);
        check(
            "cri-o",
            "1.32.0",
            true,
            &["subPath of image volumes", signals],
        );
        // an unknown runtime
        check("other", "0.1", false, &[users, read_only, strict, driver]);
    }
}
