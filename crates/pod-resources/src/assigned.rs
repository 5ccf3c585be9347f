//! CPUs, memory and devices of containers as messages.

use windlass_container_manager::Managers;
use windlass_node_proto::podresources_v1::{
    AllocatableResourcesResponse, ContainerDevices, ContainerMemory, NumaNode, TopologyInfo,
};
use windlass_resource_managers::memory::Block;
use windlass_topology::{CpuSet, NumaSet};
use windlass_types::PodExt;
use windlass_types::corev1::{Container, Pod};

/// Devices of a container: one message for each device and NUMA node.
pub(crate) fn devices(
    managers: Option<&Managers>,
    pod: &Pod,
    container: &Container,
) -> Vec<ContainerDevices> {
    let assigned = managers.and_then(|it| it.devices.container(&pod.uid(), &container.name));
    let resources = assigned.into_iter().flatten();
    let devices = resources.flat_map(|(resource, assigned)| {
        let nodes = assigned.devices.iter();
        let devices = nodes.flat_map(|(node, ids)| ids.iter().map(|id| (*node, id)));
        devices.map(|(node, id)| device(resource, id, (node >= 0).then_some(node)))
    });
    devices.collect()
}

/// Exclusive CPUs of a container.
pub(crate) fn cpus(managers: Option<&Managers>, pod: &Pod, container: &Container) -> Vec<i64> {
    let cpus = managers.and_then(|it| it.cpus.assigned_to(&pod.uid(), &container.name));
    cpus.map(cpu_ids).unwrap_or_default()
}

/// Memory of a container.
pub(crate) fn memory(
    managers: Option<&Managers>,
    pod: &Pod,
    container: &Container,
) -> Vec<ContainerMemory> {
    let uid = pod.uid();
    let blocks = managers.map(|it| it.memory.blocks(uid.as_str(), &container.name));
    blocks.into_iter().flatten().map(block).collect()
}

/// What containers can get.
pub(crate) fn allocatable(managers: &Managers) -> AllocatableResourcesResponse {
    let resources = managers.devices.allocatable().into_iter();
    let devices = resources.flat_map(|(resource, devices)| {
        let devices = devices.into_iter();
        devices.flat_map(move |(id, nodes)| of_nodes(&resource, &id, nodes))
    });
    AllocatableResourcesResponse {
        devices: devices.collect(),
        cpu_ids: cpu_ids(&managers.cpus.allocatable()),
        memory: managers.memory.allocatable().iter().map(block).collect(),
    }
}

fn of_nodes(resource: &str, id: &str, nodes: NumaSet) -> Vec<ContainerDevices> {
    match nodes.is_empty() {
        true => vec![device(resource, id, None)],
        false => {
            let nodes = nodes.iter();
            nodes
                .map(|node| device(resource, id, Some(node.into())))
                .collect()
        }
    }
}

fn device(resource: &str, id: &str, node: Option<i64>) -> ContainerDevices {
    ContainerDevices {
        resource_name: resource.to_owned(),
        device_ids: vec![id.to_owned()],
        topology: node.map(|id| TopologyInfo {
            nodes: vec![NumaNode { id }],
        }),
    }
}

fn block(block: &Block) -> ContainerMemory {
    let nodes = block.nodes.iter();
    ContainerMemory {
        memory_type: block.resource.clone(),
        size: block.size,
        topology: Some(TopologyInfo {
            nodes: nodes.map(|node| NumaNode { id: node.into() }).collect(),
        }),
    }
}

fn cpu_ids(cpus: &CpuSet) -> Vec<i64> {
    cpus.iter().map(i64::from).collect()
}
