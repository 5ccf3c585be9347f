//! Admits pods on a machine with 8 NUMA nodes, 512 CPUs and 256 devices, and measures the CPU time.
//!
//! Each pod requests devices of two plugins, exclusive CPUs, memory and huge pages, so that five
//! lists of hints are merged. Every third pod wants more devices than a NUMA node has, so that no
//! placement is preferred by all and their combinations are compared. Pods are admitted until no
//! device is left, then all end. Prints median and maximum of each step, and fails if an admission
//! takes more than 20 ms:
//!
//! ```sh
//! cargo run --release -p windlass-resource-managers --example admit_on_large_machine
//! ```
//!
//! The time of plugins and of the disk is not part of it. Afterwards 1,000 pods have devices: the
//! time to copy the managers for their readers, and to write the state files.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_resource_managers::devices::{
    Choice, DeviceRequest, DeviceResponse, Devices, PluginDevice, PluginOptions,
};
use windlass_resource_managers::hints::{ProviderHints, ResourceHints};
use windlass_resource_managers::memory::{
    MemoryConfig, MemoryManager, MemoryPolicy, reserved_memory,
};
use windlass_resource_managers::topology::{TopologyConfig, TopologyManager, TopologyPolicy};
use windlass_topology::fake::FakeMachine;
use windlass_topology::{Machine, NumaNode};
use windlass_types::{Pod, PodExt};

/// Max time of an admission.
const MAX_TIME: Duration = Duration::from_millis(20);
/// Step that is all of an admission.
const TOTAL: &str = "admission";
const NODES: u32 = 8;
/// Devices of each of two plugins.
const DEVICES: u32 = 128;
const RESOURCES: [&str; 2] = ["example.com/gpu", "example.com/nic"];
/// Devices of a wide pod: a NUMA node has 16.
const WIDE: usize = 17;
/// Times that the machine is filled.
const ROUNDS: usize = 8;
/// Pods of the copy.
const MANY: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut times = Times::default();
    let mut node = Node::new(DEVICES)?;
    let (mut hints, mut admissions) = (0, 0);
    for round in 0..ROUNDS {
        let mut pods = Vec::new();
        loop {
            let devices = if pods.len() % 3 == 2 { WIDE } else { 1 };
            let pod = pod(&format!("{round}-{}", pods.len()), devices, 4)?;
            let admitted = node.admit(&pod, devices, &mut times, &mut hints)?;
            admissions += 1;
            pods.push(pod);
            if !admitted {
                break;
            }
        }
        pods.iter().for_each(|pod| node.release(pod));
    }
    println!("{admissions} admissions, {} hints each", hints / admissions);
    times.print();
    let slowest = times.max(TOTAL);

    let mut node = Node::new(u32::try_from(MANY)?)?;
    let mut times = Times::default();
    for index in 0..MANY {
        let cpus = usize::from(index % 2 == 0);
        let pod = pod(&format!("many-{index}"), 1, cpus)?;
        node.admit(&pod, 1, &mut Times::default(), &mut hints)?;
    }
    for _ in 0..ROUNDS {
        let begin = cpu_time();
        let (cpus, step) = (node.cpus.clone(), cpu_time());
        times.record("copy of CPUs", begin);
        let (memory, step) = (node.memory.clone(), times.next("copy of memory", step));
        let (devices, step) = (node.devices.clone(), times.next("copy of devices", step));
        let text = [cpus.state_file(), memory.checkpoint()];
        let text = [text.concat(), devices.checkpoint().to_text()].concat();
        times.next("state files", step);
        assert!(text.len() > 3 * MANY, "each pod is in the files");
    }
    println!("{MANY} pods with devices");
    times.print();
    match slowest <= MAX_TIME {
        true => Ok(()),
        false => Err(format!("an admission takes more than {MAX_TIME:?}").into()),
    }
}

/// CPU time of the steps.
#[derive(Default)]
struct Times(BTreeMap<&'static str, Vec<Duration>>);

impl Times {
    fn record(&mut self, step: &'static str, begin: Duration) {
        let times = self.0.entry(step).or_default();
        times.push(cpu_time().saturating_sub(begin));
    }

    /// Records a step and returns the begin of the next.
    fn next(&mut self, step: &'static str, begin: Duration) -> Duration {
        self.record(step, begin);
        cpu_time()
    }

    fn max(&self, step: &str) -> Duration {
        let times = self.0.get(step).into_iter().flatten();
        times.max().copied().unwrap_or(Duration::MAX)
    }

    fn print(&mut self) {
        for (step, times) in &mut self.0 {
            times.sort_unstable();
            let median = times.get(times.len() / 2).copied().unwrap_or_default();
            let max = times.last().copied().unwrap_or_default();
            println!("  {step}: median {median:?}, max {max:?}");
        }
    }
}

/// CPU time of this thread: other programs do not change it.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The managers of the machine.
struct Node {
    machine: Machine,
    topology: TopologyManager,
    cpus: CpuManager,
    memory: MemoryManager,
    devices: Devices,
}

impl Node {
    /// A machine with this number of devices of each plugin.
    fn new(devices_of_each: u32) -> Result<Self, Box<dyn Error>> {
        let machine = FakeMachine {
            nodes: NODES,
            sockets: 2,
            uncores: 32,
            cores: 256,
            threads: 2,
            memory: NumaNode {
                memory: 1 << 40,
                huge_pages: [(2 << 20, 1 << 17)].into(),
                ..NumaNode::default()
            },
            ..FakeMachine::default()
        }
        .build();
        let topology = TopologyConfig {
            policy: TopologyPolicy::BestEffort,
            prefer_closest: true,
            ..TopologyConfig::default()
        };
        let cpus = CpuSettings {
            is_static: true,
            reserved_milli: 2000,
            ..CpuSettings::default()
        };
        let amounts = BTreeMap::from([("memory".to_owned(), "4Gi".parse()?)]);
        let memory = MemoryConfig {
            policy: MemoryPolicy::Static,
            reserved: reserved_memory(&[(0, amounts.clone())], &amounts, &machine)?,
            pod_level: false,
        };
        let mut devices = Devices::default();
        for resource in RESOURCES {
            devices.registered(resource, 1, PluginOptions::default());
            let device = |index: u32| PluginDevice {
                healthy: true,
                nodes: [index * NODES / devices_of_each].into_iter().collect(),
            };
            let all = (0..devices_of_each).map(|it| (format!("{resource}-{it}"), device(it)));
            devices.listed(resource, 1, all.collect());
        }
        Ok(Self {
            topology: TopologyManager::new(topology, &machine)?,
            cpus: CpuManager::new(&cpus, Arc::new(machine.clone()))?,
            memory: MemoryManager::new(memory, &machine),
            devices,
            machine,
        })
    }

    /// Admits the only container of a pod; false if the machine has too few devices for it.
    fn admit(
        &mut self,
        pod: &Pod,
        devices: usize,
        times: &mut Times,
        hint_count: &mut usize,
    ) -> Result<bool, Box<dyn Error>> {
        let uid = pod.uid();
        let container = pod.containers().first().ok_or("no container")?;
        let amounts = [devices, 1];
        let begin = cpu_time();
        let of_devices = RESOURCES.iter().zip(amounts).map(|(resource, amount)| {
            let (nodes, owner) = (self.machine.all_nodes(), (&uid, container.name.as_str()));
            let (request, none) = ((*resource, amount), Default::default());
            let hints = self.devices.container_hints(nodes, owner, request, &none);
            ((*resource).to_owned(), hints)
        });
        let of_devices: ProviderHints = of_devices.collect();
        times.record("1 hints of devices", begin);
        let step = cpu_time();
        let of_cpus = self.cpus.container_hints(pod, container);
        times.record("2 hints of CPUs", step);
        let step = cpu_time();
        let of_memory = self.memory.hints(pod, container);
        times.record("3 hints of memory", step);
        let hints = [of_devices, of_cpus, of_memory];
        *hint_count += hints
            .iter()
            .flat_map(|it| it.values())
            .map(count)
            .sum::<usize>();
        let step = cpu_time();
        let hint = self.topology.place(&hints, false)?;
        times.record("4 merge", step);
        let step = cpu_time();
        for (resource, amount) in RESOURCES.iter().zip(amounts) {
            let request = DeviceRequest {
                pod: uid.clone(),
                container: container.name.clone(),
                resource: (*resource).to_owned(),
                amount,
                reusable: Default::default(),
                affinity: hint.nodes,
                runs: false,
            };
            let Ok(Choice::Take(ids)) = self.devices.choose(&request, None) else {
                return Ok(false);
            };
            let name = &container.name;
            self.devices.reserve(&uid, name, resource, &ids);
            let response = DeviceResponse::default();
            self.devices.assign(&uid, name, resource, response);
        }
        times.record("5 devices", step);
        let step = cpu_time();
        self.cpus.allocate(pod, container, hint.nodes)?;
        times.record("6 CPUs", step);
        let step = cpu_time();
        self.memory.allocate(pod, container, hint)?;
        times.record("7 memory", step);
        times.record(TOTAL, begin);
        Ok(true)
    }

    fn release(&mut self, pod: &Pod) {
        let uid = pod.uid();
        self.cpus.release(&uid);
        self.memory.release(uid.as_str());
        self.devices.release(&uid);
    }
}

fn count(hints: &ResourceHints) -> usize {
    match hints {
        ResourceHints::Any => 1,
        ResourceHints::Of(hints) => hints.len(),
    }
}

/// A Guaranteed pod; without exclusive CPUs if there are none.
fn pod(uid: &str, gpus: usize, cpus: usize) -> Result<Pod, serde_json::Error> {
    let cpus = match cpus {
        0 => "100m".to_owned(),
        cpus => cpus.to_string(),
    };
    let amounts = serde_json::json!({
        "cpu": cpus, "memory": "1Gi", "hugepages-2Mi": "64Mi",
        "example.com/gpu": gpus.to_string(), "example.com/nic": "1",
    });
    serde_json::from_value(serde_json::json!({
        "metadata": { "uid": uid, "name": uid, "namespace": "default" },
        "spec": { "containers": [{
            "name": "app", "resources": { "limits": amounts, "requests": amounts },
        }]},
    }))
}
