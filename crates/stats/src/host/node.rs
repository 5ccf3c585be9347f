//! Stats of the node.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use windlass_pod_inputs::resources::QosClass;
use windlass_types::Timestamp;

use super::{HostStats, HostStatsConfig, NodeState};
use crate::cgroup::{Cgroups, Depth, read_all};
use crate::machine::Machine;
use crate::network::read_network;
use crate::parse::{parse_diskstats, parse_proc_cgroup};
use crate::source::{StatsError, StatsSelection, StatsUnavailable};
use crate::usage::{FsUsage, NodeUsage, SystemUsage};

impl HostStats {
    pub(super) async fn measure_node(
        &self,
        selection: StatsSelection,
    ) -> Result<NodeUsage, StatsError> {
        let config = Arc::clone(&self.config);
        let at = config.clock.now();
        let task = self
            .node
            .run(move |state| state.collect(&config, selection, at));
        let mut usage = task.await.map_err(StatsError::Node)?;
        if usage.cgroup.cpu.is_none() && usage.cgroup.memory.is_none() {
            return Err(StatsError::Node(StatsUnavailable::Unknown));
        }
        if !selection.disk {
            return Ok(usage);
        }
        let (fs, info) = tokio::join!(self.node_fs(), self.image_info());
        let info = info.as_deref();
        let systems = self.runtime_fs(info).await;
        usage.fs = fs.as_deref().cloned();
        let images = info.and_then(|info| info.images.as_ref());
        let used = |fs: &FsUsage, used: Option<u64>| FsUsage { used, ..fs.clone() };
        if let Some(systems) = &systems {
            let image_fs = systems.images.as_ref();
            usage.image_fs =
                image_fs.map(|fs| used(fs, images.and_then(|images| images.used_bytes)));
            let containers = info.and_then(|info| info.containers.as_ref());
            usage.container_fs = match (&systems.containers, image_fs) {
                // as upstream, one file system has the same usage for images and layers
                (Some(containers), Some(images)) if containers.device == images.device => {
                    usage.image_fs.clone()
                }
                (fs, _) => fs
                    .as_ref()
                    .map(|fs| used(fs, containers.and_then(|fs| fs.used_bytes))),
            };
        }
        Ok(usage)
    }
}

impl NodeState {
    fn collect(
        &mut self,
        config: &HostStatsConfig,
        selection: StatsSelection,
        at: Timestamp,
    ) -> NodeUsage {
        let proc = &config.roots.proc;
        let machine = Machine::read(proc);
        let more = selection != StatsSelection::CPU_AND_MEMORY;
        let depth = Depth {
            details: more,
            io: selection.io,
            processes: selection.processes,
            descriptors: false,
        };
        let mut root = None;
        let (mut system, mut classes) = (Vec::new(), Vec::new());
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.begin_collection(selection.io);
            root = cgroups.read("/", depth, at);
            let own = own_cgroup(cgroups, proc);
            let or = |configured: &str, found: Option<String>| match configured {
                "" => found,
                path => Some(format!("/{}", path.trim_matches('/'))),
            };
            let paths = [
                ("kubelet", or(&config.system.kubelet, own)),
                ("runtime", or(&config.system.runtime, None)),
                ("misc", or(&config.system.misc, None)),
                ("pods", self.cgroup_paths.kubepods(cgroups)),
            ];
            let read = |cgroups: &mut Cgroups, name, path: Option<String>| {
                let path = path?;
                let started_at = match name {
                    "kubelet" => config.started_at,
                    _ => cgroups.created_at(&path)?.max(machine.booted_at),
                };
                Some(SystemUsage {
                    name,
                    started_at,
                    cgroup: cgroups.read(&path, depth, at)?,
                })
            };
            for (name, path) in paths {
                system.extend(read(cgroups, name, path));
            }
            if more {
                for (name, class) in [
                    ("burstable", QosClass::Burstable),
                    ("besteffort", QosClass::BestEffort),
                ] {
                    let path = self.cgroup_paths.class(cgroups, class);
                    classes.extend(read(cgroups, name, path));
                }
            }
            cgroups.end_collection(at);
        }
        NodeUsage {
            started_at: machine.booted_at,
            cgroup: machine.complete(root, proc, at),
            network: selection
                .network
                .then(|| read_network(&proc.join("net"), at))
                .flatten(),
            max_pid: machine.max_pid,
            running_processes: machine.running_processes,
            system,
            classes,
            fs: None,
            image_fs: None,
            container_fs: None,
            disks: match selection.io {
                true => parse_diskstats(&read_all(&proc.join("diskstats")).unwrap_or_default()),
                false => BTreeMap::new(),
            },
        }
    }
}

/// Returns the cgroup of this process; `None` for the root, or if controllers have different ones.
fn own_cgroup(cgroups: &Cgroups, proc: &Path) -> Option<String> {
    let text = read_all(&proc.join("self/cgroup")).ok()?;
    let path = match cgroups.unified() {
        true => parse_proc_cgroup(&text, None)?,
        false => {
            let memory = parse_proc_cgroup(&text, Some("memory"))?;
            let cpu = parse_proc_cgroup(&text, Some("cpuacct"))?;
            (memory == cpu).then_some(memory)?
        }
    };
    (path != "/").then_some(path)
}
