//! Registers a device plugin, and gives one of its devices to a pod.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt;
use tokio::sync::{mpsc, watch};
use tokio::task::LocalSet;
use windlass_actors::{
    AllocationsHandle, PlegHandle, PlegMessage, PluginResourceUpdate, StatusCache,
};
use windlass_container_manager::{
    CONTAINER_MANAGER, ContainerManager, ContainerManagerDeps, DeviceEvent, ManagerParts, Managers,
    PluginCalls,
};
use windlass_hung_operations::HungOperations;
use windlass_mailboxes::{Mailbox, SystemClock, mailbox, slots, start_actor};
use windlass_metrics::Metrics;
use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_resource_managers::devices::{
    DeviceResponse, Devices, PluginDevice, PluginOptions, PreferredQuestion,
};
use windlass_resource_managers::memory::{MemoryConfig, MemoryManager};
use windlass_resource_managers::topology::{TopologyConfig, TopologyManager};
use windlass_status::PodStatusStore;
use windlass_testing::fake_runtime::FakeRuntime;
use windlass_topology::fake::FakeMachine;
use windlass_types::{Pod, SharedPod};

const GPU: &str = "example.com/gpu";

/// A plugin whose devices need no settings.
#[derive(Debug)]
struct Plugin;

#[async_trait]
impl PluginCalls for Plugin {
    async fn preferred(&self, _: &PreferredQuestion) -> Result<BTreeSet<String>, String> {
        Ok(BTreeSet::new())
    }

    async fn allocate(&self, ids: &BTreeSet<String>) -> Result<DeviceResponse, String> {
        println!("Allocate {ids:?}");
        Ok(DeviceResponse::default())
    }

    async fn pre_start(&self, _: &BTreeSet<String>) -> Result<(), String> {
        Ok(())
    }
}

fn managers() -> Result<Managers, Box<dyn std::error::Error>> {
    let machine = FakeMachine::default().build();
    Ok(Managers::new(ManagerParts {
        topology: TopologyManager::new(TopologyConfig::default(), &machine)?,
        cpus: CpuManager::new(&CpuSettings::default(), Arc::new(machine.clone()))?,
        unlimited_exclusive_cpus: true,
        reports_health: true,
        cpu_retry: std::time::Duration::from_secs(10),
        memory: MemoryManager::new(MemoryConfig::default(), &machine),
        devices: Devices::default(),
        machine,
    }))
}

/// Replies that the runtime has nothing of any pod.
async fn no_containers(mut requests: Mailbox<PlegMessage>) {
    while let Some(delivery) = requests.next().await {
        delivery.open(|message| {
            if let PlegMessage::Observed(query) = message {
                let _ = query.reply.send(Ok(Arc::default()));
            }
        });
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    LocalSet::new().run_until(run()).await
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let metrics = Metrics::new()?;
    let (requests, requests_end) = slots(CONTAINER_MANAGER, &metrics.mailboxes);
    let (answers, mut answers_end) = slots(CONTAINER_MANAGER, &metrics.mailboxes);
    let (scope_end, mut scope) = watch::channel(Arc::default());
    let (events, events_end) = mpsc::channel(8);
    let (pleg_mailbox, pleg_end) = mailbox(CONTAINER_MANAGER, &metrics.mailboxes);
    tokio::spawn(no_containers(pleg_end));
    let pleg = PlegHandle {
        mailbox: pleg_mailbox,
        cache: StatusCache::new(),
    };
    let deps = ContainerManagerDeps {
        managers: managers()?,
        files: None,
        answers,
        scope: scope_end,
        plugin_resources: watch::channel(PluginResourceUpdate::default()).0,
        status_store: PodStatusStore::new(),
        pleg,
        runtime: Arc::new(FakeRuntime::new(Arc::new(SystemClock), 1)),
        metrics: metrics.resource_managers.clone(),
        hung: HungOperations::new(Arc::new(SystemClock)),
    };
    let (manager, reader) = ContainerManager::new(deps, requests_end, events_end);
    start_actor(manager);
    let (resource, registration) = (GPU.to_owned(), 1);
    let device = PluginDevice {
        healthy: true,
        ..PluginDevice::default()
    };
    let registered = DeviceEvent::Registered {
        resource: resource.clone(),
        registration,
        options: PluginOptions::default(),
        calls: Arc::new(Plugin),
    };
    events.send(registered).await?;
    let listed = DeviceEvent::Listed {
        resource,
        registration,
        devices: [("gpu0".to_owned(), device)].into(),
    };
    events.send(listed).await?;
    scope
        .wait_for(|scope| scope.resources.contains(GPU))
        .await?;
    let pod: Pod = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "train", "uid": "1"},
        "spec": {"containers": [{"name": "app", "resources": {"limits": {GPU: "1"}}}]},
    }))?;
    let pod = SharedPod::new(pod);
    let handle = AllocationsHandle { requests, scope };
    handle.allocate(&pod);
    while let Some((uid, answer)) = answers_end.next().await {
        println!("pod {uid}: {answer:?}");
        let managers = reader.managers();
        if let Some(devices) = managers.devices.container(&uid, "app") {
            println!("{:?}", devices.keys());
            break;
        }
    }
    Ok(())
}
