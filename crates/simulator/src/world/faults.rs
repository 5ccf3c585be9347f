//! Faults with an end.

use std::time::Duration;

use windlass_cri::CriCode;
use windlass_eviction::Signal;
use windlass_fake_api::On;
use windlass_testing::NodeSim;
use windlass_testing::fake_checks::Server;
use windlass_testing::fake_runtime::{EventMode, Fault, Operation};
use windlass_types::{Pod, PodExt};
use windlass_volumes::VolumeStep;

use super::{World, setup};
use crate::pods;
use crate::step::{
    ApiFault, ApiTarget, DeviceAct, PodKind, Response, RuntimeFault, RuntimeTarget, Step,
    VolumeTarget, parse_pod,
};

/// Additional time of slow calls to the API server.
const SLOW_API: Duration = Duration::from_secs(5);
/// Time of slow calls of the runtime: less than that of a hung call.
const SLOW_RUNTIME: Duration = Duration::from_secs(3);
/// Time of slow servers: less than the timeout of probes.
const SLOW_SERVER: Duration = Duration::from_millis(700);
/// Delay of late events.
const LATE_EVENTS: Duration = Duration::from_secs(2);
/// Time by which the authorizer is late.
const INFORMER_LAG: Duration = Duration::from_secs(3);
/// `Retry-After` of 429, in seconds.
const RETRY_AFTER: u64 = 3;
/// Calls that fail.
const FAILURES: usize = 2;
/// Events that are lost or repeated.
const EVENTS: usize = 3;
/// Memory of a pod that uses too much, above the threshold with the rest of the node.
const HOG_MEMORY: u64 = 9200 << 20;

impl World<'_> {
    /// Injects the fault of a step; false if it has no subject.
    pub(super) fn inject(&mut self, step: &Step) -> bool {
        let text = step.to_string();
        match step {
            Step::Api(fault, target, time) => self.api_fault(&text, *fault, *target, *time),
            Step::Runtime(fault, target, time) => self.runtime_fault(&text, *fault, *target, *time),
            Step::RuntimeRestart(time) => {
                self.sim.runtime.set_down(true);
                self.fault(&text, *time, |sim| sim.runtime.set_down(false));
            }
            Step::Volume(target, hangs, time) => {
                return self.volume_fault(&text, *target, *hangs, *time);
            }
            Step::Disk(fault, time) => {
                let Some(disk) = self.sim.state_disk.clone() else {
                    return false;
                };
                disk.set_fault(Some(*fault));
                self.fault(&text, *time, move |_| disk.set_fault(None));
            }
            Step::Device(act, time) => self.device(&text, *act, *time),
            Step::Pressure(memory, time) => self.pressure(&text, *memory, *time),
            Step::Respond(kind, number, response, time) => {
                let name = format!("{kind}-{number}");
                let pod = self.sim.api.get::<Pod>(Some("default"), &name);
                let Some(ip) = pod.and_then(|pod| pod.status?.pod_ip) else {
                    return false;
                };
                self.sim.checks.set(&ip, pods::PORT, server(*response));
                self.fault(&text, *time, move |sim| {
                    sim.checks.set(&ip, pods::PORT, server(Response::Ok));
                });
            }
            _ => return false,
        }
        true
    }

    fn api_fault(&mut self, text: &str, fault: ApiFault, target: ApiTarget, time: Duration) {
        let faults = self.sim.api.faults();
        let on = match target {
            ApiTarget::Any => On::any(),
            ApiTarget::Status => On::path("*/status"),
            ApiTarget::Pods => On::path("*/pods*"),
            ApiTarget::Watch => On::any().method("WATCH"),
            ApiTarget::Lease => On::path("*/leases*"),
            ApiTarget::Nodes => On::path("*/nodes*"),
            ApiTarget::References => On::path("/api/v1/namespaces/default/configmaps*"),
        };
        let lifted = match fault {
            ApiFault::Outage => Some(faults.outage()),
            ApiFault::Slow => Some(faults.slow(on, SLOW_API)),
            ApiFault::Hung => Some(faults.hang(on)),
            ApiFault::Unauthorized => Some(faults.error(on, 401)),
            ApiFault::Forbidden => Some(faults.error(on, 403)),
            ApiFault::Conflict => Some(faults.error(on, 409)),
            ApiFault::Gone => Some(faults.error(on, 410)),
            ApiFault::TooMany => Some(faults.error_retry_after(on, 429, RETRY_AFTER)),
            ApiFault::Internal => Some(faults.error(on, 500)),
            ApiFault::LostReply => Some(faults.drop_reply(on)),
            ApiFault::ClosedWatches => {
                faults.close_watches();
                None
            }
            ApiFault::SilentWatches => {
                faults.silence_watches();
                None
            }
            ApiFault::FailedWatches => {
                faults.fail_watches(true);
                None
            }
            ApiFault::Compacted => {
                faults.expire_versions();
                None
            }
            ApiFault::StaleReads => {
                faults.stale_reads(true);
                None
            }
            ApiFault::InformerLag => {
                faults.informer_lag(INFORMER_LAG);
                None
            }
            ApiFault::RepeatedEvents => {
                faults.repeat_events(true);
                None
            }
            ApiFault::ReorderedEvents => {
                faults.reorder_events(true);
                None
            }
            ApiFault::NoStreamingLists => {
                faults.no_streaming_lists(true);
                None
            }
        };
        self.fault(text, time, move |_| {
            if let Some(id) = lifted {
                faults.lift(id);
            }
            match fault {
                ApiFault::FailedWatches => faults.fail_watches(false),
                ApiFault::StaleReads => faults.stale_reads(false),
                ApiFault::InformerLag => faults.informer_lag(Duration::ZERO),
                ApiFault::RepeatedEvents => faults.repeat_events(false),
                ApiFault::ReorderedEvents => faults.reorder_events(false),
                ApiFault::NoStreamingLists => faults.no_streaming_lists(false),
                _ => {}
            }
        });
    }

    fn runtime_fault(
        &mut self,
        text: &str,
        fault: RuntimeFault,
        target: RuntimeTarget,
        time: Duration,
    ) {
        let runtime = &self.sim.runtime;
        let operation = operation(target);
        match fault {
            RuntimeFault::Down => runtime.set_down(true),
            RuntimeFault::Hung => runtime.inject(Fault::hang(operation)),
            RuntimeFault::Slow => runtime.set_latency(operation, SLOW_RUNTIME),
            RuntimeFault::Failed => {
                runtime.inject(Fault::fail(operation, FAILURES, CriCode::Other, "injected"));
            }
            RuntimeFault::LostReply => runtime.inject(Fault::lose_reply(operation, 1)),
            RuntimeFault::LostEvents => runtime.drop_events(EVENTS),
            RuntimeFault::RepeatedEvents => runtime.duplicate_events(EVENTS),
            RuntimeFault::ClosedEvents => runtime.disconnect_events(),
            RuntimeFault::LateEvents => runtime.delay_events(LATE_EVENTS),
            RuntimeFault::NoEvents => runtime.set_event_mode(EventMode::Off),
            RuntimeFault::NoNetwork => runtime.set_network_error(Some("cni not ready")),
        }
        self.fault(text, time, move |sim| {
            let runtime = &sim.runtime;
            match fault {
                RuntimeFault::Down => runtime.set_down(false),
                RuntimeFault::Hung => runtime.release(operation),
                RuntimeFault::Slow => runtime.set_latency(operation, latency(operation)),
                RuntimeFault::LateEvents => runtime.delay_events(Duration::ZERO),
                RuntimeFault::NoEvents => runtime.set_event_mode(EventMode::Cri),
                RuntimeFault::NoNetwork => runtime.set_network_error(None),
                RuntimeFault::LostEvents => runtime.drop_events(0),
                RuntimeFault::RepeatedEvents => runtime.duplicate_events(0),
                _ => {}
            }
        });
    }

    /// Affects the pods that exist now and have volumes.
    fn volume_fault(
        &mut self,
        text: &str,
        target: VolumeTarget,
        hangs: bool,
        time: Duration,
    ) -> bool {
        let step = match target {
            VolumeTarget::Mount => VolumeStep::Mount,
            VolumeTarget::Unmount => VolumeStep::Unmount,
            VolumeTarget::Find => VolumeStep::Find,
            VolumeTarget::Stage => VolumeStep::Stage,
            VolumeTarget::Unstage => VolumeStep::Unstage,
        };
        let of_device = matches!(target, VolumeTarget::Stage | VolumeTarget::Unstage);
        let has_volume = |kind| {
            let of_pod = [
                PodKind::Config,
                PodKind::Secret,
                PodKind::Claim,
                PodKind::Disk,
            ];
            of_pod.contains(&kind)
        };
        let listed = self.sim.api.list::<Pod>();
        let pods = listed.iter().filter(|pod| {
            let kind = parse_pod(pod.name()).map(|(kind, _)| kind);
            kind.is_some_and(has_volume)
        });
        let subjects: Vec<String> = match of_device {
            true => (0..pods::DISKS).map(pods::device_name).collect(),
            false => pods.map(|pod| PodExt::uid(pod).to_string()).collect(),
        };
        if subjects.is_empty() {
            return false;
        }
        let set = move |sim: &NodeSim, on: bool| {
            for subject in &subjects {
                match hangs {
                    true => sim.volumes.hang(step, subject, on),
                    false => sim.volumes.fail(step, subject, on.then_some("injected")),
                }
            }
        };
        set(self.sim, true);
        self.fault(text, time, move |sim| set(sim, false));
        true
    }

    fn device(&mut self, text: &str, act: DeviceAct, time: Duration) {
        let devices = self.sim.devices.clone();
        let list = |healthy| {
            [
                ("gpu0", healthy),
                ("gpu1", true),
                ("gpu2", true),
                ("gpu3", true),
            ]
        };
        match act {
            DeviceAct::Registered => devices.register(pods::DEVICE, &list(true)),
            DeviceAct::Unhealthy => devices.list(pods::DEVICE, &list(false)),
            DeviceAct::Stopped => devices.stop(pods::DEVICE),
            DeviceAct::Hung => devices.hang(pods::DEVICE, true),
        }
        self.fault(text, time, move |_| match act {
            DeviceAct::Registered => {}
            DeviceAct::Unhealthy => devices.list(pods::DEVICE, &list(true)),
            DeviceAct::Stopped => devices.register(pods::DEVICE, &list(true)),
            DeviceAct::Hung => devices.hang(pods::DEVICE, false),
        });
    }

    /// A pod that uses too much memory, or the rest of the node does.
    fn pressure(&mut self, text: &str, memory: bool, time: Duration) {
        if !memory {
            let used = setup::DISK - setup::SHORT_DISK;
            self.sim
                .pressure
                .set(Signal::NodeFsAvailable, setup::DISK, used);
            return self.fault(text, time, |sim| setup::end_pressure(sim));
        }
        let pods = self.sim.api.list::<Pod>();
        let is_hog = |pod: &&Pod| {
            let kind = parse_pod(pod.name()).map(|(kind, _)| kind);
            kind == Some(PodKind::Hog)
        };
        let Some(uid) = pods.iter().find(is_hog).map(PodExt::uid) else {
            let used = setup::MEMORY - setup::SHORT_MEMORY;
            self.sim
                .pressure
                .set(Signal::MemoryAvailable, setup::MEMORY, used);
            return self.fault(text, time, |sim| setup::end_pressure(sim));
        };
        let signal = Signal::MemoryAvailable;
        self.sim.pressure.pod_uses(signal, &uid, HOG_MEMORY);
        self.fault(text, time, move |sim| {
            sim.pressure.pod_uses(signal, &uid, 0)
        });
    }
}

fn server(response: Response) -> Server {
    match response {
        Response::Ok => Server::Answers(200),
        Response::Error => Server::Answers(500),
        Response::Refused => Server::Refuses,
        Response::Hung => Server::Hangs,
        Response::Slow => Server::Slow(SLOW_SERVER, 200),
    }
}

/// Latency of an operation without a fault.
fn latency(operation: Operation) -> Duration {
    let mut all = setup::LATENCIES.into_iter();
    let found = all.find(|(of, _)| *of == operation);
    found.map_or(Duration::ZERO, |(_, latency)| latency)
}

fn operation(target: RuntimeTarget) -> Operation {
    match target {
        RuntimeTarget::RunSandbox => Operation::RunPodSandbox,
        RuntimeTarget::StopSandbox => Operation::StopPodSandbox,
        RuntimeTarget::RemoveSandbox => Operation::RemovePodSandbox,
        RuntimeTarget::Create => Operation::CreateContainer,
        RuntimeTarget::Start => Operation::StartContainer,
        RuntimeTarget::Stop => Operation::StopContainer,
        RuntimeTarget::Remove => Operation::RemoveContainer,
        RuntimeTarget::ContainerStatus => Operation::ContainerStatus,
        RuntimeTarget::SandboxStatus => Operation::PodSandboxStatus,
        RuntimeTarget::ListContainers => Operation::ListContainers,
        RuntimeTarget::ListSandboxes => Operation::ListPodSandboxes,
        RuntimeTarget::Update => Operation::UpdateContainer,
        RuntimeTarget::ListImages => Operation::ListImages,
    }
}
