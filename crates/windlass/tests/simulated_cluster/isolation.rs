//! One sick pod stays one sick pod: an operation of it hangs, the node says so and stays ready, and
//! the other pods start and are probed as in the same run without the hang.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use windlass_testing::fake_runtime::{Behavior, Exec, Fault, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::Timestamp;
use windlass_types::corev1::{Event, Node};
use windlass_volumes::VolumeStep;

use crate::fixture::*;
use crate::resources::pod_with;
use crate::{MINUTE, SECOND, dra, volumes};

/// Pods that run when the operation begins to hang, and as many that start after that.
const OTHERS: usize = 60;
/// Time between two starts of other pods.
const START_INTERVAL: Duration = Duration::from_millis(200);
/// Period of their probes.
const PROBE_PERIOD: Duration = SECOND;
/// Time within which a sick pod is named.
const NAMED_WITHIN: f64 = 5.0;
/// Time after the end of a hang within which the node no longer names it: the interval between two
/// changes of the message, and the checks of the fakes.
const CLEARED_WITHIN: Duration = Duration::from_secs(20);
/// By this factor starts and probes may take longer than without the hang.
const MAX_FACTOR: f64 = 1.1;

const WELL: &str = "kubelet is posting ready status";
const GPU: &str = "vendor.com/gpu";

/// A hang of one kind.
struct Hang {
    /// How the node names it, after the name of the pod.
    named: &'static str,
    /// Kind in the metric.
    kind: &'static str,
    /// Time that the operation has before it counts as hung.
    own_time: Duration,
    /// A slow pull causes no event.
    has_event: bool,
    /// Before the agent starts.
    prepare: fn(&NodeSim),
    /// The sick pod, before it is sick.
    before: fn(&NodeSim),
    /// The operation begins; it hangs if `true`.
    begin: fn(&NodeSim, bool),
    /// The hang ends.
    end: fn(&NodeSim),
}

impl Default for Hang {
    fn default() -> Self {
        Self {
            named: "",
            kind: "",
            own_time: Duration::ZERO,
            has_event: true,
            prepare: |_| (),
            before: |_| (),
            begin: |_, _| (),
            end: |_| (),
        }
    }
}

/// What the other pods saw.
#[derive(Debug)]
struct Timing {
    /// 99th percentile of the time from a pod's creation to the report that it runs.
    start: f64,
    /// 99th percentile of the time between two attempts of a probe.
    probe: f64,
    attempts: usize,
}

/// Seconds after which the pod was first named.
#[derive(Debug, Default)]
struct FirstNamed {
    status: Option<f64>,
    message: Option<f64>,
    event: Option<f64>,
}

impl FirstNamed {
    fn is_complete(&self, hang: &Hang) -> bool {
        let event = self.event.is_some() || !hang.has_event;
        self.status.is_some() && self.message.is_some() && event
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    assert!(values.len() >= OTHERS, "{} values", values.len());
    values[values.len() * 99 / 100]
}

fn other(number: usize) -> PodBuilder {
    let name = format!("other-{number}");
    let probe = json!({
        "exec": {"command": ["alive"]},
        "periodSeconds": PROBE_PERIOD.as_secs(),
    });
    PodBuilder::new(&name)
        .bound_to(NODE)
        .grace(5)
        .container_with("app", "busybox:1", |container| {
            container.readiness_probe = serde_json::from_value(probe).expect("a probe");
        })
}

/// Status and message of the ready condition.
fn ready_condition(sim: &NodeSim) -> (String, String) {
    let conditions = node(sim).and_then(|node: Node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    let ready = conditions
        .find(|c| c.type_ == "Ready")
        .expect("a condition");
    (ready.status, ready.message.unwrap_or_default())
}

fn is_named(sim: &NodeSim, text: &str) -> [bool; 3] {
    let hung = sim.agent().expect("runs").hung_operations.list();
    let status = hung.iter().any(|it| {
        let uid = get(sim, "sick").map(|pod| windlass_types::PodExt::uid(&pod));
        it.to_string().starts_with(text) && it.operation.pod == uid
    });
    let named = format!("default/sick: {text}");
    let (_, message) = ready_condition(sim);
    let events = sim.api.list::<Event>();
    let event = events.iter().any(|event| {
        let message = event.message.as_deref().unwrap_or_default();
        event.involved_object.kind.as_deref() == Some("Node")
            && event.reason.as_deref() == Some("PodOperationHung")
            && message.starts_with(&named)
    });
    [status, message.contains(&named), event]
}

/// Time from creation to the report that the pod runs.
fn start_times(sim: &NodeSim) -> Vec<f64> {
    let started = (OTHERS..2 * OTHERS).map(|number| {
        let timings = sim.view(&format!("other-{number}")).expect("a pod").timings;
        seconds(timings.seen.expect("seen"), timings.running.expect("runs"))
    });
    started.collect()
}

/// Times between the attempts of the probes of all other pods from then on.
fn probe_intervals(sim: &NodeSim, since: Timestamp) -> Vec<f64> {
    let calls = sim.runtime.calls_of(Operation::ExecSync, "default/other-");
    let mut times: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for call in calls.into_iter().filter(|call| call.at >= since) {
        times.entry(call.subject).or_default().push(call.at);
    }
    let pairs = times.values().flat_map(|times| times.windows(2));
    pairs.map(|pair| seconds(pair[0], pair[1])).collect()
}

/// A run of a minute with 120 other pods, half of which start after the operation began.
fn run(seed: u64, hang: &Hang, hangs: bool) -> Timing {
    windlass_testing::simulate_cluster(seed, async |sim| {
        latencies(sim);
        (hang.prepare)(sim);
        sim.start_agent().await;
        sim.until("the node is ready", 2 * SECOND, node_ready).await;
        (hang.before)(sim);
        for number in 0..OTHERS {
            create(sim, other(number));
        }
        sim.pass(MINUTE / 2).await;

        let began = sim.now();
        (hang.begin)(sim, hangs);
        let mut named = FirstNamed::default();
        for number in OTHERS..2 * OTHERS {
            create(sim, other(number));
            sim.pass(START_INTERVAL).await;
            assert_eq!(ready_condition(sim).0, "True", "the node stays ready");
            if hangs && !named.is_complete(hang) {
                let now = seconds(began, sim.now());
                let [status, message, event] = is_named(sim, hang.named);
                for (is_named, first) in [
                    (status, &mut named.status),
                    (message, &mut named.message),
                    (event, &mut named.event),
                ] {
                    *first = first.or(is_named.then_some(now));
                }
            }
        }
        sim.pass(MINUTE / 3).await;
        assert_eq!(ready_condition(sim).0, "True");
        let intervals = probe_intervals(sim, began);
        let timing = Timing {
            start: p99(start_times(sim)),
            attempts: intervals.len(),
            probe: p99(intervals),
        };
        if !hangs {
            assert_eq!(ready_condition(sim).1, WELL);
            assert_eq!(sim.agent().expect("runs").hung_operations.list(), []);
            return timing;
        }

        println!("{}: {named:?}", hang.named);
        let limit = hang.own_time.as_secs_f64() + NAMED_WITHIN;
        assert!(named.status.expect("in the status") <= limit, "{named:?}");
        assert!(named.message.expect("in the message") <= limit, "{named:?}");
        match hang.has_event {
            true => assert!(named.event.expect("an event") <= limit, "{named:?}"),
            false => assert_eq!(named.event, None),
        }
        let gauge = sim
            .metrics
            .node
            .hung_operations
            .with_label_values(&[hang.kind]);
        if is_named(sim, hang.named)[0] {
            assert_eq!(gauge.get(), 1.0);
        }
        (hang.end)(sim);
        sim.until("the node is well", CLEARED_WITHIN, |sim| {
            ready_condition(sim).1 == WELL
        })
        .await;
        assert_eq!(sim.agent().expect("runs").hung_operations.list(), []);
        assert_eq!(gauge.get(), 0.0);
        sim.runtime.assert_invariants();
        timing
    })
}

/// Runs a scenario with and without its hang.
fn check(seed: u64, hang: &Hang) {
    let without = run(seed, hang, false);
    let with = run(seed, hang, true);
    println!("without: {without:?}\nwith:    {with:?}");
    assert!(
        with.start <= without.start * MAX_FACTOR,
        "starts take {} s instead of {} s",
        with.start,
        without.start
    );
    assert!(
        with.probe <= without.probe * MAX_FACTOR,
        "probes are {} s apart instead of {} s",
        with.probe,
        without.probe
    );
    let fewer = without.attempts.saturating_sub(with.attempts);
    assert!(fewer * 10 <= without.attempts, "{with:?}");
}

fn sick() -> PodBuilder {
    pod("sick")
}

/// A sick pod with an NFS volume.
fn with_nfs() -> PodBuilder {
    sick().with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        let volumes = json!([{"name": "data", "nfs": {"server": "dead", "path": "/x"}}]);
        spec.volumes = serde_json::from_value(volumes).expect("volumes");
        let mounts = json!([{"name": "data", "mountPath": "/data"}]);
        spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
    })
}

/// A sick pod whose container has these fields too.
fn with_fields(fields: &serde_json::Value) -> PodBuilder {
    sick().with(|pod| {
        let spec = pod.spec.as_mut().expect("spec");
        let mut container = serde_json::to_value(&spec.containers[0]).expect("a container");
        for (field, value) in fields.as_object().expect("fields") {
            container[field] = value.clone();
        }
        spec.containers[0] = serde_json::from_value(container).expect("a container");
    })
}

fn sick_uid(sim: &NodeSim) -> String {
    let sick = get(sim, "sick").expect("a pod");
    sick.metadata.uid.expect("a UID")
}

#[test]
fn hung_mount_is_named_and_moves_no_other_pod() {
    check(
        7001,
        &Hang {
            named: "mount of volume data (kubernetes.io/nfs) hung since",
            kind: "volume",
            begin: |sim, hangs| {
                let uid = create(sim, with_nfs());
                sim.volumes.hang(VolumeStep::Mount, uid.as_str(), hangs);
            },
            end: |sim| sim.volumes.hang(VolumeStep::Mount, &sick_uid(sim), false),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_csi_call_is_named_and_moves_no_other_pod() {
    const DEVICE: &str = "kubernetes.io/csi/disks.example.com^disk";
    check(
        7002,
        &Hang {
            named: "stage of volume data by CSI driver disks.example.com hung since",
            kind: "csi",
            prepare: |sim| volumes::disk(sim, false),
            begin: |sim, hangs| {
                sim.volumes.hang(VolumeStep::Stage, DEVICE, hangs);
                create(sim, volumes::with_disk("sick"));
            },
            end: |sim| sim.volumes.hang(VolumeStep::Stage, DEVICE, false),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_runtime_call_is_named_and_moves_no_other_pod() {
    check(
        7003,
        &Hang {
            named: "RunPodSandbox hung since",
            kind: "runtime_call",
            begin: |sim, hangs| {
                if hangs {
                    let fault = Fault::hang(Operation::RunPodSandbox);
                    sim.runtime.inject(fault.on("default/sick"));
                }
                create(sim, sick());
            },
            end: |sim| sim.runtime.release(Operation::RunPodSandbox),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_device_plugin_is_named_and_moves_no_other_pod() {
    check(
        7004,
        &Hang {
            named: "Allocate of device plugin vendor.com/gpu hung since",
            kind: "device_plugin",
            before: |sim| sim.devices.register(GPU, &[("gpu0", true)]),
            begin: |sim, hangs| {
                sim.devices.hang(GPU, hangs);
                create(sim, pod_with("sick", &[(GPU, "1")]));
            },
            end: |sim| sim.devices.hang(GPU, false),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_dra_driver_is_named_and_moves_no_other_pod() {
    thread_local! {
        static DRIVER: std::cell::RefCell<Option<std::sync::Arc<dra::Driver>>> =
            const { std::cell::RefCell::new(None) };
    }
    fn hang(hangs: bool) {
        DRIVER.with_borrow(|driver| driver.as_ref().expect("a driver").hang(hangs));
    }
    check(
        7005,
        &Hang {
            named: "NodePrepareResources of DRA driver gpu.example.com hung since",
            kind: "dra_driver",
            prepare: |sim| {
                let driver = dra::driver(sim);
                DRIVER.set(Some(driver));
            },
            begin: |sim, hangs| {
                hang(hangs);
                let uid = create(sim, dra::with_claim("sick", "gpu"));
                dra::claim(sim, "gpu", &[&uid]);
            },
            end: |_| hang(false),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_post_start_hook_is_named_and_moves_no_other_pod() {
    check(
        7006,
        &Hang {
            named: "postStart hook of container app hung since",
            kind: "hook",
            begin: |sim, hangs| {
                if hangs {
                    sim.runtime.set_exec("app warm", Exec::hangs());
                }
                let hook = json!({"postStart": {"exec": {"command": ["warm"]}}});
                create(sim, with_fields(&json!({ "lifecycle": hook })));
            },
            // it ends with its pod
            end: |sim| delete(sim, "sick", Some(1)),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_pre_stop_hook_is_named_and_moves_no_other_pod() {
    check(
        7007,
        &Hang {
            named: "preStop hook of container app hung since",
            kind: "hook",
            // its grace period
            own_time: 8 * SECOND,
            before: |sim| {
                // its stop takes two seconds more
                sim.runtime.set_behavior("app", Behavior::stubborn());
                let hook = json!({"preStop": {"exec": {"command": ["drain"]}}});
                let fields = json!({ "lifecycle": hook });
                create(sim, with_fields(&fields).grace(8));
            },
            begin: |sim, hangs| {
                if hangs {
                    sim.runtime.set_exec("app drain", Exec::hangs());
                }
                delete(sim, "sick", None);
            },
            ..Hang::default()
        },
    );
}

#[test]
fn hung_probe_is_named_and_moves_no_other_pod() {
    check(
        7008,
        &Hang {
            named: "Readiness probe of container app hung since",
            kind: "probe",
            // its timeout, and the time to the next attempt
            own_time: 4 * SECOND,
            before: |sim| {
                let probe = json!({
                    "exec": {"command": ["ready"]}, "periodSeconds": 2, "timeoutSeconds": 2,
                });
                create(sim, with_fields(&json!({ "readinessProbe": probe })));
            },
            begin: |sim, hangs| {
                if hangs {
                    sim.runtime.set_exec("app ready", Exec::hangs());
                }
            },
            end: |sim| sim.runtime.set_exec("app ready", Exec::exits(0)),
            ..Hang::default()
        },
    );
}

#[test]
fn hung_statfs_is_named_and_moves_no_other_pod() {
    check(
        7009,
        &Hang {
            named: "usage of volume data (kubernetes.io/nfs) hung since",
            kind: "volume_usage",
            before: |sim| drop(create(sim, with_nfs())),
            begin: |sim, hangs| {
                let uid = sick_uid(sim);
                sim.volumes.hang(VolumeStep::Usage, &uid, hangs);
                // as a request of `/stats/summary`
                let usages = sim.agent().expect("runs").volume_usages.clone();
                tokio::task::spawn_local(async move {
                    let uid = windlass_types::PodUid::from(uid.as_str());
                    usages.stats(&uid, Duration::ZERO).await;
                });
            },
            end: |sim| sim.volumes.hang(VolumeStep::Usage, &sick_uid(sim), false),
            ..Hang::default()
        },
    );
}

#[test]
fn pull_without_an_end_is_named_and_moves_no_other_pod() {
    const IMAGE: &str = "registry.local/large:1";
    check(
        7010,
        &Hang {
            named: "pull of image registry.local/large:1 in progress since",
            kind: "image_pull",
            has_event: false,
            begin: |sim, hangs| {
                let takes = match hangs {
                    true => 10 * MINUTE,
                    false => SECOND,
                };
                let pull = Pull {
                    takes,
                    ..Pull::default()
                };
                sim.runtime.set_pull(IMAGE, pull);
                create(
                    sim,
                    PodBuilder::new("sick")
                        .bound_to(NODE)
                        .grace(1)
                        .container("app", IMAGE),
                );
            },
            // it ends with its pod
            end: |sim| delete(sim, "sick", Some(1)),
            ..Hang::default()
        },
    );
}

/// Sixty sick pods: the message has a bound, the node stays ready, and the API server gets few
/// requests.
#[test]
fn many_sick_pods_cost_a_bounded_message_and_few_requests() {
    on_a_ready_node(7011, async |sim| {
        let fault = Fault::hang(Operation::RunPodSandbox);
        sim.runtime.inject(fault.on("default/sick"));
        let patches = |sim: &NodeSim| {
            let requests = sim.api.requests().into_iter();
            let path = format!("/api/v1/nodes/{NODE}/status");
            requests
                .filter(|r| r.method == "PATCH" && r.path == path)
                .count()
        };
        let before = patches(sim);
        for number in 0..60 {
            create(sim, pod(&format!("sick-{number}")));
        }
        sim.pass(2 * MINUTE).await;
        let (status, message) = ready_condition(sim);
        assert_eq!(status, "True");
        assert!(message.ends_with("; and 55 more"), "{message}");
        assert!(message.len() < 1024, "{}", message.len());
        let all = sim.agent().expect("runs").hung_operations.list();
        assert_eq!(all.len(), 60);
        let written = patches(sim) - before;
        // three at once, then one in ten seconds while more of them become sick
        assert!(written <= 10, "{written} patches");
        let events = sim.api.list::<Event>().into_iter();
        let events = events.filter(|it| it.reason.as_deref() == Some("PodOperationHung"));
        assert!((1..=11).contains(&events.count()));
        sim.runtime.release(Operation::RunPodSandbox);
        sim.until("the node is well", MINUTE, |sim| {
            ready_condition(sim).1 == WELL
        })
        .await;
    });
}
