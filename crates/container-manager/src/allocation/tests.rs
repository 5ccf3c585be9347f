//! Tables of allocations, and of what a pod's status means for its resources.

use std::sync::Arc;

use serde_json::json;
use windlass_resource_managers::cpu::{CpuManager, CpuSettings};
use windlass_resource_managers::devices::{Devices, PluginDevice, PluginOptions};
use windlass_resource_managers::memory::{MemoryConfig, MemoryManager};
use windlass_resource_managers::topology::{TopologyConfig, TopologyManager};
use windlass_topology::fake::FakeMachine;
use windlass_types::{ContainerState, ObservedContainer};

use super::*;
use crate::managers::ManagerParts;

const GPU: &str = "vendor.com/gpu";

/// A node with one device, `gpu0`, if its plugin has listed it.
fn node(is_listed: bool) -> Managers {
    let machine = FakeMachine::default().build();
    let mut devices = Devices::default();
    assert!(devices.registered(GPU, 1, PluginOptions::default()));
    let device = PluginDevice {
        healthy: true,
        ..PluginDevice::default()
    };
    if is_listed {
        let all = [("gpu0".to_owned(), device)].into();
        assert!(devices.listed(GPU, 1, all).is_some());
    }
    let topology = TopologyManager::new(TopologyConfig::default(), &machine).expect("a policy");
    let cpus = CpuManager::new(&CpuSettings::default(), Arc::new(machine.clone()));
    let mut managers = Managers::new(ManagerParts {
        topology,
        cpus: cpus.expect("settings"),
        unlimited_exclusive_cpus: true,
        reports_health: true,
        cpu_retry: Duration::from_secs(10),
        memory: MemoryManager::new(MemoryConfig::default(), &machine),
        devices,
        machine,
    });
    managers.listed.extend(is_listed.then(|| GPU.to_owned()));
    managers
}

/// A pod with one device.
fn pod() -> SharedPod {
    let pod = json!({
        "metadata": { "name": "web", "uid": "a" },
        "spec": { "containers": [
            { "name": "app", "resources": { "limits": { GPU: "1" } } },
        ]},
    });
    SharedPod::new(serde_json::from_value(pod).expect("a pod"))
}

/// An entry of the pod status store: `waits` is published by the SyncLoop, others by a worker.
fn entry(state: &str) -> Option<PodStatusEntry> {
    let worker_state = match state {
        "" => return None,
        "waits" | "syncs" | "observed" => PodWorkerState::SyncPod,
        "terminating" => PodWorkerState::TerminatingPod,
        "terminated" => PodWorkerState::TerminatedPod,
        other => panic!("{other}"),
    };
    Some(PodStatusEntry {
        has_worker: state != "waits",
        observed: state == "observed",
        worker_state,
        ..PodStatusEntry::new(pod())
    })
}

fn observed(is_alive: bool) -> ObservedPod {
    let container = is_alive.then(|| ObservedContainer {
        state: ContainerState::Running,
        ..ObservedContainer::default()
    });
    ObservedPod {
        containers: container.into_iter().collect(),
        ..ObservedPod::default()
    }
}

/// Advances an allocation to its next step.
fn next(allocation: &mut Allocation, managers: &mut Managers, published: &str) -> String {
    let now = Duration::from_secs(1);
    let published = entry(published);
    let step = allocation.advance(managers, published.as_ref(), now);
    step.to_string()
}

#[test]
fn allocation_begins_after_the_previous_pod_with_its_uid() {
    for (published, expected) in [
        ("", "observe"),
        ("waits", "observe"),
        ("syncs", "wait for end"),
        ("terminating", "wait for end"),
        ("terminated", "observe"),
    ] {
        let mut allocation = Allocation::new(pod(), None);
        let step = next(&mut allocation, &mut node(true), published);
        assert_eq!(step, expected, "{published}");
    }
    let (mut managers, mut allocation) = (node(true), Allocation::new(pod(), None));
    for published in ["syncs", "syncs", "terminating"] {
        assert_eq!(
            next(&mut allocation, &mut managers, published),
            "wait for end"
        );
        assert!(!allocation.has_begun());
    }
    // its containers have ended, so they need not be observed
    assert_eq!(
        next(&mut allocation, &mut managers, "terminated"),
        "Allocate(vendor.com/gpu gpu0)"
    );
    assert!(allocation.has_begun());
}

#[test]
fn pod_that_runs_waits_for_no_plugin_that_it_needs_not() {
    // (the plugin has listed, the pod runs, has its device, will be rejected)
    for (case, expected) in [
        ((true, false, false, false), "Allocate(vendor.com/gpu gpu0)"),
        ((true, false, true, false), "done"),
        ((false, false, false, false), "wait(vendor.com/gpu)"),
        ((false, false, true, false), "wait(vendor.com/gpu)"),
        ((false, true, false, false), "wait(vendor.com/gpu)"),
        ((false, true, true, false), "done"),
        ((true, false, false, true), "Allocate(vendor.com/gpu gpu0)"),
        (
            (false, false, false, true),
            "reject(UnexpectedAdmissionError: Allocate failed due to no healthy devices present; \
             cannot allocate unhealthy devices vendor.com/gpu, which is unexpected)",
        ),
    ] {
        let (is_listed, runs, has_device, is_rejected) = case;
        let mut managers = node(is_listed);
        if has_device {
            let ids = ["gpu0".to_owned()].into();
            managers.devices.reserve(&"a".into(), "app", GPU, &ids);
        }
        let rejection = is_rejected.then(|| NotAdmitted::unexpected("no room"));
        let mut allocation = Allocation::new(pod(), rejection);
        allocation.observed(&observed(runs), Duration::from_secs(1));
        assert_eq!(
            next(&mut allocation, &mut managers, ""),
            expected,
            "{case:?}"
        );
    }
}

#[test]
fn managers_reject_before_other_checks_and_no_running_pod() {
    // (the pod runs, the managers reject it, another check does)
    for (case, expected) in [
        ((false, false, false), "runs"),
        ((false, true, false), "rejected by managers"),
        ((false, false, true), "rejected by a check"),
        ((false, true, true), "rejected by managers"),
        ((true, false, false), "runs"),
        ((true, true, false), "runs without: managers"),
        ((true, false, true), "runs"),
        ((true, true, true), "runs without: managers"),
    ] {
        let (runs, by_managers, by_check) = case;
        let error = |message: &str| NotAdmitted {
            reason: String::new(),
            message: message.to_owned(),
        };
        let mut allocation = Allocation::new(pod(), by_check.then(|| error("a check")));
        allocation.observed(&observed(runs), Duration::ZERO);
        let result = match by_managers {
            true => Err(error("managers")),
            false => Ok(()),
        };
        let line = match allocation.outcome(result) {
            Ok(None) => "runs".to_owned(),
            Ok(Some(error)) => format!("runs without: {error}"),
            Err(error) => format!("rejected by {error}"),
        };
        assert_eq!(line, expected, "{case:?}");
    }
}

#[test]
fn resources_are_released_when_no_container_can_run() {
    let (alive, dead) = (Some(true), Some(false));
    // (published by a worker, starting, observed alive)
    for (case, expected) in [
        (("", false, dead), End::Ended),
        (("", false, alive), End::Open),
        (("", true, dead), End::Open),
        (("", true, None), End::Open),
        // a pod of the previous agent run, while the runtime does not respond
        (("", false, None), End::Unknown),
        (("syncs", false, dead), End::Open),
        (("terminating", false, dead), End::Open),
        (("terminated", false, dead), End::Ended),
        (("terminated", false, None), End::Ended),
        // the cache may be older than the worker's own inspection
        (("terminated", false, alive), End::Ended),
        // of the previous pod with this UID
        (("terminated", true, dead), End::Open),
    ] {
        let (published, is_starting, is_alive) = case;
        let observed = is_alive.map(observed);
        let end = end_of(entry(published).as_ref(), is_starting, observed.as_ref());
        assert_eq!(end, expected, "{case:?}");
    }
}

#[test]
fn running_pod_that_lost_its_devices_gets_them_again() {
    // (published, an allocation is in progress, has its device)
    for (case, expected) in [
        (("observed", false, false), true),
        (("observed", true, false), false),
        (("observed", false, true), false),
        (("syncs", false, false), false),
        (("terminating", false, false), false),
        (("terminated", false, false), false),
    ] {
        let (published, allocates, has_device) = case;
        let mut managers = node(true);
        if has_device {
            let ids = ["gpu0".to_owned()].into();
            managers.devices.reserve(&"a".into(), "app", GPU, &ids);
            let response = DeviceResponse::default();
            managers.devices.assign(&"a".into(), "app", GPU, response);
        }
        let entry = entry(published).expect("an entry");
        let is_reallocated = is_reallocated(&entry, allocates, &managers);
        assert_eq!(is_reallocated, expected, "{case:?}");
    }
    let mut allocation = Allocation::of_running(pod(), Duration::ZERO);
    assert_eq!(
        next(&mut allocation, &mut node(true), "observed"),
        "Allocate(vendor.com/gpu gpu0)"
    );
}
