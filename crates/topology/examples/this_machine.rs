//! Prints CPUs and memory of each NUMA node of this machine.
//!
//! Runs without a container runtime.

use std::path::Path;

use windlass_topology::Machine;

fn main() -> Result<(), windlass_topology::TopologyError> {
    let machine = Machine::read(Path::new("/sys"))?;
    for (number, node) in &machine.nodes {
        let cpus = machine.cpus_of_nodes([*number].into_iter().collect());
        println!("node {number}: CPUs {cpus}, {} MiB", node.memory >> 20);
    }
    Ok(())
}
