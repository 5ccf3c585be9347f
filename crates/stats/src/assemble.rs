//! Local storage usage of a pod, assembled from its parts.

use std::collections::HashMap;

use windlass_cri::RuntimeFs;
use windlass_types::pod::is_local_ephemeral;
use windlass_types::{ContainerId, Pod, PodExt, Timestamp};

use crate::disk::{DiskUsageTotal, PodFiles};
use crate::pods::VolumeStatsEntry;
use crate::usage::{FsUsage, PodUsage, VolumeUsage};

/// Disk usage common to all pods.
#[derive(Debug)]
pub(crate) struct DiskFacts<'a> {
    /// The file system of `--root-dir`.
    pub(crate) node_fs: Option<&'a FsUsage>,
    /// The file system of writable layers.
    pub(crate) container_fs: Option<&'a FsUsage>,
    /// Writable layers; `None` if not reported.
    pub(crate) layers: Option<&'a HashMap<ContainerId, RuntimeFs>>,
    /// Time of the measurement.
    pub(crate) at: Timestamp,
}

/// Adds the disk usage of a pod (upstream `makePodStorageStats`).
pub(crate) fn add_disk(
    usage: &mut PodUsage,
    pod: Option<&Pod>,
    facts: &DiskFacts<'_>,
    files: Option<&PodFiles>,
    volumes: &[VolumeStatsEntry],
) {
    let mut sum = Sum::default();
    for container in &mut usage.containers {
        let layer = facts.layers.and_then(|layers| layers.get(&container.id));
        container.rootfs = layer.map(|layer| FsUsage {
            used: layer.used_bytes,
            inodes_used: layer.inodes_used,
            ..on(facts.container_fs, facts.at)
        });
        if let Some(layer) = layer {
            sum.add(layer.used_bytes, layer.inodes_used);
        }
        let logs = files.and_then(|files| files.logs.get(&container.name));
        container.logs = logs.map(|taken| FsUsage {
            used: Some(taken.bytes),
            inodes_used: Some(taken.inodes),
            ..on(facts.node_fs, facts.at)
        });
    }
    if let Some(files) = files {
        // including logs of containers that do not run
        let all = files.logs.values().chain([&files.others]);
        for DiskUsageTotal { bytes, inodes } in all {
            sum.add(Some(*bytes), Some(*inodes));
        }
    }
    let specs = pod.and_then(|pod| PodExt::spec(pod).volumes.as_deref());
    for figure in volumes {
        let mut specs = specs.unwrap_or_default().iter();
        let spec = specs.find(|spec| spec.name == figure.name);
        if spec.is_some_and(is_local_ephemeral) {
            sum.add(figure.fs.used, figure.fs.inodes_used);
        }
        let claim = figure.claim.clone();
        usage.volumes.push(VolumeUsage {
            name: figure.name.clone(),
            claim: claim.map(|claim| (usage.namespace.clone(), claim)),
            fs: figure.fs.clone(),
            abnormal: figure.abnormal,
        });
    }
    usage.ephemeral = Some(FsUsage {
        used: sum.bytes,
        inodes_used: sum.inodes,
        ..on(facts.node_fs, facts.at)
    });
}

/// Returns size and free space of a file system, without its usage.
fn on(fs: Option<&FsUsage>, at: Timestamp) -> FsUsage {
    FsUsage {
        at,
        device: fs.and_then(|fs| fs.device.clone()),
        capacity: fs.and_then(|fs| fs.capacity),
        available: fs.and_then(|fs| fs.available),
        used: None,
        inodes: fs.and_then(|fs| fs.inodes),
        inodes_free: fs.and_then(|fs| fs.inodes_free),
        inodes_used: None,
    }
}

/// `None` until something known was added.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    bytes: Option<u64>,
    inodes: Option<u64>,
}

impl Sum {
    fn add(&mut self, bytes: Option<u64>, inodes: Option<u64>) {
        let add = |sum: Option<u64>, more: Option<u64>| match (sum, more) {
            (Some(sum), Some(more)) => Some(sum.saturating_add(more)),
            (sum, more) => sum.or(more),
        };
        self.bytes = add(self.bytes, bytes);
        self.inodes = add(self.inodes, inodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::ContainerUsage;

    fn fs(capacity: u64) -> FsUsage {
        FsUsage {
            capacity: Some(capacity),
            used: Some(capacity / 2),
            ..on(None, Timestamp::UNIX_EPOCH)
        }
    }

    fn volume(name: &str, used: u64) -> VolumeStatsEntry {
        VolumeStatsEntry {
            name: name.to_owned(),
            claim: (name == "claimed").then(|| "c1".to_owned()),
            fs: FsUsage {
                used: Some(used),
                inodes_used: Some(1),
                ..fs(9)
            },
            abnormal: None,
        }
    }

    fn usage(containers: &[&str]) -> PodUsage {
        let container = |name: &&str| ContainerUsage {
            name: (*name).to_owned(),
            id: ContainerId::from(*name),
            image: String::new(),
            started_at: Timestamp::UNIX_EPOCH,
            cgroup: None,
            rootfs: None,
            logs: None,
        };
        PodUsage {
            uid: "u1".into(),
            namespace: "ns".to_owned(),
            name: "pod".to_owned(),
            present: true,
            started_at: Timestamp::UNIX_EPOCH,
            cgroup: None,
            sandbox: None,
            network: None,
            containers: containers.iter().map(container).collect(),
            oom_killed: Vec::new(),
            volumes: Vec::new(),
            ephemeral: None,
        }
    }

    #[test]
    fn layers_logs_and_disk_volumes_count_for_pod() {
        let pod = serde_json::json!({"spec": {"containers": [], "volumes": [
            {"name": "scratch", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory"}},
            {"name": "config", "configMap": {"name": "c"}},
            {"name": "secret", "secret": {"secretName": "s"}},
            {"name": "claimed", "persistentVolumeClaim": {"claimName": "c1"}},
        ]}});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let layer = RuntimeFs {
            mountpoint: "/x".to_owned(),
            used_bytes: Some(1),
            inodes_used: Some(10),
        };
        let layers = [(ContainerId::from("web"), layer)].into();
        let (node_fs, container_fs) = (fs(1000), fs(2000));
        let facts = DiskFacts {
            node_fs: Some(&node_fs),
            container_fs: Some(&container_fs),
            layers: Some(&layers),
            at: Timestamp::UNIX_EPOCH,
        };
        let taken = |bytes| DiskUsageTotal { bytes, inodes: 1 };
        let files = PodFiles {
            logs: [
                ("web".to_owned(), taken(20)),
                ("ended".to_owned(), taken(400)),
            ]
            .into(),
            others: taken(8000),
        };
        let volumes = [
            ("claimed", 1 << 20),
            ("config", 16_000),
            ("memory", 1 << 21),
            ("scratch", 320_000),
            ("secret", 1 << 22),
        ]
        .map(|(name, used)| volume(name, used));
        let mut usage = usage(&["side", "web"]);
        add_disk(&mut usage, Some(&pod), &facts, Some(&files), &volumes);
        let ephemeral = usage.ephemeral.expect("local storage");
        assert_eq!(ephemeral.used, Some(344_421));
        assert_eq!(ephemeral.inodes_used, Some(15));
        assert_eq!(ephemeral.capacity, Some(1000));
        let [side, web] = &usage.containers[..] else {
            panic!("two containers");
        };
        assert_eq!((side.rootfs.as_ref(), side.logs.as_ref()), (None, None));
        let rootfs = web.rootfs.as_ref().expect("its layer");
        assert_eq!((rootfs.used, rootfs.capacity), (Some(1), Some(2000)));
        let logs = web.logs.as_ref().expect("its logs");
        assert_eq!((logs.used, logs.capacity), (Some(20), Some(1000)));
        let claims: Vec<_> = usage.volumes.iter().map(|it| it.claim.is_some()).collect();
        assert_eq!(claims, [true, false, false, false, false]);
    }

    #[test]
    fn unknown_values_are_absent() {
        let facts = DiskFacts {
            node_fs: None,
            container_fs: None,
            layers: None,
            at: Timestamp::UNIX_EPOCH,
        };
        let mut usage = usage(&["web"]);
        add_disk(&mut usage, None, &facts, None, &[]);
        let ephemeral = usage.ephemeral.expect("local storage");
        assert_eq!((ephemeral.used, ephemeral.capacity), (None, None));
        assert_eq!(usage.containers[0].rootfs, None);
    }
}
