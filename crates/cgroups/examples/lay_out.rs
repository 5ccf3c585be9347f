//! Creates the cgroups of a node and of three pods, and removes the pods' cgroups again.
//!
//! `cargo run -p windlass-cgroups --example lay_out` uses an in-memory cgroup v2 tree.
//! `… --example lay_out -- /sys/fs/cgroup` uses the host's cgroups below `/windlass-example`; run
//! it as root.
//!
//! Runs without a container runtime.

use std::error::Error;
use std::sync::Arc;

use windlass_cgroups::{CgroupTree, HostTree, MemoryTree, PodCgroups};
use windlass_pod_inputs::resources::QosClass;
use windlass_runtime_config::cgroup_names::CgroupLayout;
use windlass_runtime_config::pod_cgroup::{CgroupValues, NodeLimits};
use windlass_types::PodUid;
use windlass_types::cri::CgroupDriver;

fn main() -> Result<(), Box<dyn Error>> {
    let memory = MemoryTree::v2();
    let tree: Arc<dyn CgroupTree> = match std::env::args().nth(1) {
        Some(mount) => {
            let tree = HostTree::open(mount.clone().into());
            Arc::new(tree.map_err(|error| format!("{mount}: {error}"))?)
        }
        None => Arc::new(memory.clone()),
    };
    let layout = CgroupLayout::new(CgroupDriver::Cgroupfs, "/windlass-example");
    let cgroups = PodCgroups::new(layout, tree, None);

    let node = NodeLimits {
        milli_cpu: 4000,
        memory: 8 << 30,
        pids: 10_000,
    };
    for warning in cgroups.set_up(node.values()) {
        println!("warning: {warning}");
    }
    let values = CgroupValues {
        cpu_shares: Some(512),
        memory_limit: Some(256 << 20),
        ..CgroupValues::default()
    };
    for (uid, class, values) in [
        ("a", QosClass::Guaranteed, values),
        ("b", QosClass::Burstable, values),
        ("c", QosClass::BestEffort, CgroupValues::default()),
    ] {
        let uid = PodUid::from(uid);
        let written = cgroups.ensure(&uid, class, values)?;
        let again = cgroups.ensure(&uid, class, values)?;
        let parent = cgroups
            .parent_of(class, &uid)
            .ok_or("no hierarchy can be used")?;
        println!("{class:?} pod {uid}: {parent}, written {written}, again {again}");
    }
    for cgroup in memory.cgroups() {
        println!("  {cgroup}");
    }
    let weight = memory.file("/windlass-example/kubepods/burstable/podb/cpu.weight");
    println!("cpu.weight of pod b in memory: {weight:?}");

    for uid in cgroups.list()? {
        cgroups.remove(&uid)?;
    }
    println!("remaining pods: {:?}", cgroups.list()?);
    Ok(())
}
