//! Device plugins and the state files of the resource managers of a simulated node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use windlass_container_manager::{
    DeviceEvent, ManagerParts, Managers, PluginCalls, StateFile, StateFiles,
};
use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_resource_managers::devices::{
    DeviceNode, DeviceResponse, PluginDevice, PluginOptions, PreferredQuestion,
};
use windlass_resource_managers::memory::{MemoryConfig, MemoryManager};
use windlass_resource_managers::topology::{TopologyConfig, TopologyManager};
use windlass_topology::Machine;

/// Events that the agent has not read.
const EVENT_BOUND: usize = 256;
/// Time after which a call of a hung plugin fails.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval at which a hung call checks whether it may continue.
const HANG_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Machine and policies of a simulated node.
#[derive(Clone, Debug, Default)]
pub struct ResourcePolicies {
    /// The machine.
    pub machine: Machine,
    /// CPU manager.
    pub cpus: CpuSettings,
    /// Memory manager.
    pub memory: MemoryConfig,
    /// Topology manager.
    pub topology: TopologyConfig,
}

impl ResourcePolicies {
    /// Returns the managers with the assignments of state files.
    #[expect(clippy::expect_used, reason = "a test requires valid settings")]
    pub(crate) fn managers(&self, files: &dyn StateFiles) -> Managers {
        let machine = self.machine.clone();
        let mut cpus = CpuManager::new(&self.cpus, Arc::new(machine.clone())).expect("settings");
        let mut memory = MemoryManager::new(self.memory.clone(), &machine);
        Managers::restore_files(&mut cpus, &mut memory, files).expect("state files");
        let topology = TopologyManager::new(self.topology.clone(), &machine);
        Managers::new(ManagerParts {
            topology: topology.expect("settings"),
            cpus,
            unlimited_exclusive_cpus: true,
            reports_health: true,
            cpu_retry: Duration::from_secs(10),
            memory,
            devices: Managers::restore_devices(files).expect("a state file"),
            machine,
        })
    }
}

/// Device plugins and state files. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeDevices(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    events: Option<mpsc::Sender<DeviceEvent>>,
    registrations: u64,
    registered: BTreeMap<String, u64>,
    files: BTreeMap<StateFile, String>,
    hung: BTreeSet<String>,
    failing: BTreeMap<String, String>,
    allocations: Vec<String>,
}

impl FakeDevices {
    /// A plugin registers and lists these devices, with their health.
    pub fn register(&self, resource: &str, devices: &[(&str, bool)]) {
        let mut state = self.lock();
        state.registrations += 1;
        let registration = state.registrations;
        state.registered.insert(resource.to_owned(), registration);
        let plugin = FakePlugin {
            resource: resource.to_owned(),
            devices: self.clone(),
        };
        state.send(DeviceEvent::Registered {
            resource: resource.to_owned(),
            registration,
            options: PluginOptions::default(),
            calls: Arc::new(plugin),
        });
        drop(state);
        self.list(resource, devices);
    }

    /// A registered plugin lists these devices, with their health.
    pub fn list(&self, resource: &str, devices: &[(&str, bool)]) {
        let devices = devices.iter().map(|(id, healthy)| {
            let device = PluginDevice {
                healthy: *healthy,
                ..PluginDevice::default()
            };
            ((*id).to_owned(), device)
        });
        let state = self.lock();
        state.send(DeviceEvent::Listed {
            resource: resource.to_owned(),
            registration: state.registered.get(resource).copied().unwrap_or(0),
            devices: devices.collect(),
        });
    }

    /// A plugin ends.
    pub fn stop(&self, resource: &str) {
        let state = self.lock();
        state.send(DeviceEvent::Gone {
            resource: resource.to_owned(),
            registration: state.registered.get(resource).copied().unwrap_or(0),
        });
    }

    /// Calls of a plugin do not return before their timeout, or do again.
    pub fn hang(&self, resource: &str, hangs: bool) {
        let mut state = self.lock();
        match hangs {
            true => drop(state.hung.insert(resource.to_owned())),
            false => drop(state.hung.remove(resource)),
        }
    }

    /// Calls of a plugin fail with this text.
    pub fn fail(&self, resource: &str, error: &str) {
        let mut state = self.lock();
        state.failing.insert(resource.to_owned(), error.to_owned());
    }

    /// The calls of Allocate: the resource and the devices.
    pub fn allocations(&self) -> Vec<String> {
        self.lock().allocations.clone()
    }

    /// Content of a state file.
    pub fn file(&self, file: StateFile) -> Option<String> {
        self.lock().files.get(&file).cloned()
    }

    /// Replaces a state file.
    pub fn set_file(&self, file: StateFile, content: &str) {
        self.lock().files.insert(file, content.to_owned());
    }

    /// Removes a state file.
    pub fn remove_file(&self, file: StateFile) {
        self.lock().files.remove(&file);
    }

    /// Returns the events for a new agent run, in which no plugin is registered.
    pub(crate) fn new_agent_run(&self) -> mpsc::Receiver<DeviceEvent> {
        let (sender, receiver) = mpsc::channel(EVENT_BOUND);
        self.lock().events = Some(sender);
        receiver
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn send(&self, event: DeviceEvent) {
        if let Some(events) = &self.events {
            // a killed agent receives nothing
            let _ = events.try_send(event);
        }
    }
}

impl StateFiles for FakeDevices {
    fn load(&self, file: StateFile) -> Result<Option<String>, String> {
        Ok(self.file(file))
    }

    fn save(&self, file: StateFile, content: &str) -> Result<(), String> {
        self.set_file(file, content);
        Ok(())
    }

    fn set_aside(&self, file: StateFile, _: &str) {
        self.lock().files.remove(&file);
    }
}

/// A plugin that gives each device a device node of its name.
#[derive(Clone, Debug)]
struct FakePlugin {
    resource: String,
    devices: FakeDevices,
}

impl FakePlugin {
    async fn call(&self) -> Result<(), String> {
        let began = Instant::now();
        while self.devices.lock().hung.contains(&self.resource) {
            if began.elapsed() >= CALL_TIMEOUT {
                return Err("context deadline exceeded".to_owned());
            }
            sleep(HANG_CHECK_INTERVAL).await;
        }
        match self.devices.lock().failing.get(&self.resource) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl PluginCalls for FakePlugin {
    async fn preferred(&self, _: &PreferredQuestion) -> Result<BTreeSet<String>, String> {
        self.call().await.map(|()| BTreeSet::new())
    }

    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<DeviceResponse, String> {
        let list: Vec<&str> = ids.iter().map(String::as_str).collect();
        let line = format!("{} {}", self.resource, list.join(","));
        self.devices.lock().allocations.push(line);
        self.call().await?;
        let devices = ids.iter().map(|id| DeviceNode {
            container_path: format!("/dev/{id}"),
            host_path: format!("/dev/{id}"),
            permissions: "rw".to_owned(),
        });
        Ok(DeviceResponse {
            devices: devices.collect(),
            ..DeviceResponse::default()
        })
    }

    async fn pre_start(&self, _: &BTreeSet<String>) -> Result<(), String> {
        self.call().await
    }
}
