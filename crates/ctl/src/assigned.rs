//! `get devices`, `get cpus`: what containers have, from PodResources.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{self, Write};

use windlass_node_proto::podresources_v1::{
    AllocatableResourcesRequest, AllocatableResourcesResponse, ContainerDevices,
    ContainerResources, GetPodResourcesRequest, ListPodResourcesRequest, PodResources,
    TopologyInfo,
};

use crate::client::Client;
use crate::error::Error;
use crate::table;

/// Kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Devices,
    Cpus,
}

pub(crate) async fn run(client: &Client, resource: Resource) -> Result<(), Error> {
    let mut resources = client.pod_resources().await?;
    let pods = resources
        .list(ListPodResourcesRequest {})
        .await?
        .into_inner();
    let allocatable = resources.get_allocatable_resources(AllocatableResourcesRequest {});
    let allocatable = allocatable.await?.into_inner();
    let text = match resource {
        Resource::Devices => devices(&pods.pod_resources, &allocatable),
        Resource::Cpus => cpus(&pods.pod_resources, &allocatable),
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

/// Returns what the containers of a pod have; nothing for a pod that has ended.
pub(crate) async fn of_pod(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Vec<ContainerResources>, Error> {
    let mut resources = client.pod_resources().await?;
    let request = GetPodResourcesRequest {
        pod_name: name.to_owned(),
        pod_namespace: namespace.to_owned(),
    };
    let pod = match resources.get(request).await {
        Ok(response) => response.into_inner().pod_resources,
        // upstream's answer for a pod that is not active
        Err(status) if status.code() == tonic::Code::Unknown => None,
        Err(status) => return Err(status.into()),
    };
    Ok(pod.map(|pod| pod.containers).unwrap_or_default())
}

/// Formats the resources of a container as names and values; empty without any.
pub(crate) fn fields(container: &ContainerResources) -> Vec<(&'static str, String)> {
    let mut fields = Vec::new();
    if !container.cpu_ids.is_empty() {
        fields.push(("Exclusive CPUs", list(&container.cpu_ids)));
    }
    for memory in &container.memory {
        let nodes = nodes(memory.topology.as_ref());
        let text = format!(
            "{} {} on NUMA nodes {nodes}",
            memory.size, memory.memory_type
        );
        fields.push(("Memory", text));
    }
    for device in &container.devices {
        let mut text = format!("{}: {}", device.resource_name, device.device_ids.join(", "));
        if device.topology.is_some() {
            let nodes = nodes(device.topology.as_ref());
            // writing to a String never fails
            let _ = write!(text, " (NUMA node {nodes})");
        }
        fields.push(("Device", text));
    }
    for claim in &container.dynamic_resources {
        let devices = claim.claim_resources.iter();
        let devices = devices.map(|it| {
            [&it.driver_name, &it.pool_name, &it.device_name]
                .map(String::as_str)
                .join("/")
        });
        let devices: Vec<_> = devices.collect();
        let name = &claim.claim_name;
        fields.push(("Claim", format!("{name}: {}", devices.join(", "))));
    }
    fields
}

fn devices(pods: &[PodResources], allocatable: &AllocatableResourcesResponse) -> String {
    let mut rows = BTreeSet::new();
    let mut assigned = BTreeSet::new();
    let mut row = |device: &ContainerDevices, owner: [&str; 3], state: &str| {
        for id in &device.device_ids {
            let node = nodes(device.topology.as_ref());
            let cells = [&device.resource_name, id.as_str(), &node, state];
            rows.insert(
                cells
                    .iter()
                    .chain(&owner)
                    .map(ToString::to_string)
                    .collect::<Vec<_>>(),
            );
        }
    };
    let healthy: BTreeSet<_> = allocatable.devices.iter().flat_map(keys).collect();
    for pod in pods {
        for container in &pod.containers {
            for device in &container.devices {
                assigned.extend(keys(device));
                let state = match keys(device).all(|key| healthy.contains(&key)) {
                    true => "Healthy",
                    false => "Unhealthy",
                };
                row(device, [&pod.namespace, &pod.name, &container.name], state);
            }
        }
    }
    for device in &allocatable.devices {
        if keys(device).all(|key| !assigned.contains(&key)) {
            row(device, ["-"; 3], "Healthy");
        }
    }
    let heading = [
        "RESOURCE",
        "DEVICE",
        "NUMA",
        "HEALTH",
        "NAMESPACE",
        "POD",
        "CONTAINER",
    ];
    match rows.is_empty() {
        true => "No devices found.\n".to_owned(),
        false => table::render(&heading, &rows.into_iter().collect::<Vec<_>>()),
    }
}

fn cpus(pods: &[PodResources], allocatable: &AllocatableResourcesResponse) -> String {
    if allocatable.cpu_ids.is_empty() {
        return "No exclusive CPUs (cpuManagerPolicy: none).\n".to_owned();
    }
    let mut free: BTreeSet<i64> = allocatable.cpu_ids.iter().copied().collect();
    let mut rows = Vec::new();
    for pod in pods {
        for container in pod.containers.iter().filter(|it| !it.cpu_ids.is_empty()) {
            for cpu in &container.cpu_ids {
                free.remove(cpu);
            }
            let cells = [
                &list(&container.cpu_ids),
                &pod.namespace,
                &pod.name,
                &container.name,
            ];
            rows.push(cells.map(String::clone).to_vec());
        }
    }
    let free: Vec<i64> = free.into_iter().collect();
    let unassigned = [list(&free).as_str(), "-", "-", "-"].map(str::to_owned);
    rows.push(unassigned.to_vec());
    table::render(&["CPUS", "NAMESPACE", "POD", "CONTAINER"], &rows)
}

fn keys(device: &ContainerDevices) -> impl Iterator<Item = (&str, &str)> {
    let ids = device.device_ids.iter();
    ids.map(|id| (device.resource_name.as_str(), id.as_str()))
}

fn nodes(topology: Option<&TopologyInfo>) -> String {
    let nodes = topology.map(|it| it.nodes.as_slice()).unwrap_or_default();
    let nodes: Vec<i64> = nodes.iter().map(|node| node.id).collect();
    list(&nodes)
}

/// Formats numbers as in `0-2,7`; `-` without any.
fn list(numbers: &[i64]) -> String {
    let numbers: BTreeSet<i64> = numbers.iter().copied().collect();
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => ranges.push((number, number)),
        }
    }
    let ranges = ranges.into_iter().map(|(start, end)| match start == end {
        true => start.to_string(),
        false => format!("{start}-{end}"),
    });
    match ranges.collect::<Vec<_>>() {
        ranges if ranges.is_empty() => "-".to_owned(),
        ranges => ranges.join(","),
    }
}

#[cfg(test)]
mod tests {
    //! Tables of devices and CPUs.

    use windlass_node_proto::podresources_v1::NumaNode;

    use super::*;

    fn device(id: &str, node: Option<i64>) -> ContainerDevices {
        ContainerDevices {
            resource_name: "vendor.com/gpu".to_owned(),
            device_ids: vec![id.to_owned()],
            topology: node.map(|id| TopologyInfo {
                nodes: vec![NumaNode { id }],
            }),
        }
    }

    #[test]
    fn devices_and_cpus_are_shown_with_their_containers() {
        let container = ContainerResources {
            name: "app".to_owned(),
            devices: vec![device("gpu0", Some(1)), device("gpu2", None)],
            cpu_ids: vec![3, 1, 2, 7],
            ..ContainerResources::default()
        };
        let shown: Vec<_> = fields(&container)
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        let expected = [
            "1-3,7",
            "vendor.com/gpu: gpu0 (NUMA node 1)",
            "vendor.com/gpu: gpu2",
        ];
        assert_eq!(shown, expected);
        let pods = [PodResources {
            name: "web".to_owned(),
            namespace: "default".to_owned(),
            containers: vec![container],
        }];
        let allocatable = AllocatableResourcesResponse {
            devices: vec![device("gpu0", Some(1)), device("gpu1", Some(0))],
            cpu_ids: (1..10).collect(),
            memory: Vec::new(),
        };
        let text = devices(&pods, &allocatable);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let gpu = "vendor.com/gpu";
        let (ours, free) = (["default", "web", "app"], ["-"; 3]);
        for (line, (row, owner)) in [
            ([gpu, "gpu0", "1", "Healthy"], ours),
            ([gpu, "gpu1", "0", "Healthy"], free),
            ([gpu, "gpu2", "-", "Unhealthy"], ours),
        ]
        .iter()
        .enumerate()
        {
            assert_eq!(lines[line + 1], [row.as_slice(), owner].concat());
        }
        let text = cpus(&pods, &allocatable);
        assert!(text.contains("1-3,7") && text.contains("4-6,8-9"), "{text}");
        let none = AllocatableResourcesResponse::default();
        assert_eq!(devices(&[], &none), "No devices found.\n");
        assert!(cpus(&[], &none).starts_with("No exclusive CPUs"));
    }
}
