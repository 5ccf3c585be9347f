//! The actor against an API server in the same process, on paused time, and the state machine's
//! effects as text.

use std::sync::Mutex;

use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};
use windlass_actors::{PluginResourceUpdate, Pressure};
use windlass_fake_api::{FakeApiServer, On, RequestRecord};
use windlass_mailboxes::{SimClock, start_actor};
use windlass_node_rules::node_conditions::NodeHealth;
use windlass_node_rules::node_object::{MachineFacts, ResourceSettings};
use windlass_testing::FakeRuntime;
use windlass_testing::fake_runtime::{Fault, Operation};
use windlass_types::corev1::{Node, NodeCondition, Taint};
use windlass_types::view::EventType;
use windlass_types::{DeviceName, Pod, Reason, Timestamp};

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

/// Keeps the reasons of node events.
#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl EventRecorder for Events {
    fn record(&self, _: &Pod, _: Option<&str>, _: EventType, _: Reason, _: &str) {}

    fn record_node(&self, _: EventType, reason: Reason, _: &str) {
        let mut reasons = self.0.lock().expect("not poisoned");
        reasons.push(reason.as_str().to_owned());
    }
}

struct TestEnv {
    server: FakeApiServer,
    runtime: FakeRuntime,
    state: watch::Sender<RuntimeState>,
    shutdown: watch::Sender<ShutdownState>,
    pressure: watch::Sender<NodePressure>,
    in_use: watch::Sender<Option<VolumesInUse>>,
    csi_node: watch::Sender<CsiNodeStatus>,
    hung_pods: watch::Sender<HungPodsMessage>,
    seen: watch::Receiver<NodeUpdate>,
    events: Arc<Events>,
}

fn ready() -> RuntimeState {
    RuntimeState {
        runtime_error: None,
        network_error: None,
        pleg_error: None,
        answered: true,
    }
}

fn settings() -> NodeStatusSettings {
    NodeStatusSettings {
        node: Arc::new(NodeSettings {
            name: "n1".into(),
            hostname: "n1".into(),
            ips: vec!["10.0.0.5".parse().expect("ip")],
            controller_attach_detach: true,
            kubelet_version: "v1.36.0+windlass.0.1.0".into(),
            kubelet_port: 10250,
            max_images: Some(50),
            resources: ResourceSettings {
                max_pods: 110,
                local_storage: true,
                ..ResourceSettings::default()
            },
            ..NodeSettings::default()
        }),
        register: true,
        reset_extended_resources: true,
        update_frequency: Duration::from_secs(10),
        report_frequency: 5 * MINUTE,
    }
}

fn machine() -> MachineFacts {
    MachineFacts {
        boot_id: "b1".into(),
        cpus: 2,
        memory: 4 << 30,
        storage: 10 << 30,
        ..crate::machine::platform_facts()
    }
}

impl TestEnv {
    /// An agent on a server; `prepare` happens before it starts.
    fn begin(settings: NodeStatusSettings, prepare: impl FnOnce(&FakeApiServer)) -> Self {
        let clock = SimClock::starting_at(Timestamp::from_second(1_700_000_000).expect("time"));
        let clock: Arc<dyn Clock> = Arc::new(clock);
        let server = FakeApiServer::with_clock(Arc::clone(&clock));
        prepare(&server);
        let runtime = FakeRuntime::new(Arc::clone(&clock), 1);
        let (state, runtime_state) = watch::channel(RuntimeState::unknown());
        let (shutdown, shutting_down) = watch::channel(ShutdownState::default());
        let (pressure_sender, pressure) = watch::channel(NodePressure::default());
        let (in_use, volumes_in_use) = watch::channel(None);
        let (csi_node_sender, csi_node) = watch::channel(CsiNodeStatus::Initialized);
        let (hung_sender, hung_pods) = watch::channel(None);
        let (seen_sender, seen) = watch::channel(NodeUpdate(None));
        let events = Arc::new(Events::default());
        start_actor(NodeStatus::new(NodeStatusDeps {
            settings,
            machine: Machine::Fixed(machine()),
            clients: server.clients_of_node("n1"),
            runtime: Arc::new(runtime.clone()),
            images: Arc::new(runtime.clone()),
            runtime_state,
            shutdown: shutting_down,
            pressure,
            volumes_in_use,
            plugin_resources: watch::channel(PluginResourceUpdate::default()).1,
            csi_node,
            hung_pods,
            seen: seen_sender,
            clock,
            events: Arc::clone(&events) as Arc<dyn EventRecorder>,
            metrics: Metrics::new().expect("metrics"),
        }));
        Self {
            server,
            runtime,
            state,
            shutdown,
            pressure: pressure_sender,
            in_use,
            csi_node: csi_node_sender,
            hung_pods: hung_sender,
            seen,
            events,
        }
    }

    fn node(&self) -> Option<Node> {
        self.server.get::<Node>(None, "n1")
    }

    /// Status and message of `Ready`.
    fn ready(&self) -> String {
        self.condition("Ready").map_or_else(
            || "none".to_owned(),
            |c| format!("{} {}", c.status, c.message.unwrap_or_default()),
        )
    }

    fn condition(&self, name: &str) -> Option<NodeCondition> {
        let conditions = self.node()?.status?.conditions?;
        conditions.into_iter().find(|c| c.type_ == name)
    }

    async fn until_ready(&self) {
        self.until("ready", Duration::from_secs(40), |env| {
            env.ready().starts_with("True")
        })
        .await;
    }

    /// Waits at most `limit` of virtual time and returns how long it took.
    async fn until(&self, what: &str, limit: Duration, done: impl Fn(&Self) -> bool) -> Duration {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < limit, "not {what} in {limit:?}");
            sleep(Duration::from_millis(10)).await;
        }
        begin.elapsed()
    }

    /// Successful patches.
    fn patches(&self) -> Vec<RequestRecord> {
        let all = self.server.requests();
        let patch = |r: &RequestRecord| r.method == "PATCH" && r.status == 200;
        all.into_iter().filter(patch).collect()
    }

    fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.0.lock().expect("not poisoned"))
    }
}

async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn new_node_is_ready_within_two_seconds_of_runtime() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        let limit = Duration::from_secs(2);
        env.until("registered", limit, |w| w.node().is_some()).await;
        assert_eq!(
            env.ready(),
            "False container runtime status check may not have completed yet"
        );
        sleep(MINUTE / 4).await;
        env.state.send_replace(ready());
        let took = env
            .until("ready", limit, |w| w.ready().starts_with("True"))
            .await;
        assert!(took < Duration::from_millis(100), "{took:?}");
        let patches = env.patches();
        assert_eq!(patches.len(), 1, "one change, one patch: {patches:#?}");
        assert_eq!(patches[0].path, "/api/v1/nodes/n1/status");
        let info = env.node().and_then(|n| n.status?.node_info);
        let version = info.expect("node info").container_runtime_version;
        assert_eq!(version, "fake://1.0.0");
        assert_eq!(
            env.events(),
            [
                "Starting",
                "NodeHasSufficientMemory",
                "NodeHasNoDiskPressure",
                "NodeHasSufficientPID",
                "NodeReady"
            ]
        );
        let seen = env.seen.borrow().0.clone().expect("seen");
        assert!(seen.metadata.uid.is_some());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_pods_change_the_ready_message_and_nothing_else() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let before = env.condition("Ready").expect("ready");
        let patches = env.patches().len();
        env.events();
        sleep(MINUTE / 2).await;
        let name = "pods with hung operations: default/web: mount of volume data hung since T";
        env.hung_pods.send_replace(Some(Arc::from(name)));
        let limit = Duration::from_secs(1);
        env.until("named", limit, |w| w.ready().ends_with(name))
            .await;
        let message = "True kubelet is posting ready status; ";
        assert_eq!(env.ready(), format!("{message}{name}"));
        let after = env.condition("Ready").expect("ready");
        assert_eq!(after.last_transition_time, before.last_transition_time);
        assert_eq!(after.reason, before.reason);
        env.hung_pods.send_replace(None);
        let well = "True kubelet is posting ready status";
        env.until("well", limit, |w| w.ready() == well).await;
        assert_eq!(env.patches().len(), patches + 2);
        assert_eq!(env.events(), [""; 0]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn hung_runtime_delays_readiness_by_one_second() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        for operation in [Operation::Version, Operation::Status, Operation::ListImages] {
            env.runtime.inject(Fault::hang(operation));
        }
        sleep(MINUTE / 4).await;
        env.state.send_replace(ready());
        let limit = Duration::from_secs(2);
        env.until("ready", limit, |w| w.ready().starts_with("True"))
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn node_status_is_patched_per_change_and_report_interval() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let begun = env.patches().len();
        sleep(MINUTE * 18).await;
        let patches = env.patches();
        let requests = env.server.requests();
        let writes = requests
            .iter()
            .filter(|r| r.method != "GET" && r.method != "WATCH");
        let times: Vec<_> = writes.map(|r| r.at.as_second()).collect();
        let gaps: Vec<_> = times[begun..].windows(2).map(|w| w[1] - w[0]).collect();
        // upstream's jitter after a change: half to one and a half times five minutes
        assert!((150..=461).contains(&gaps[0]), "{gaps:?}");
        assert!(
            gaps[1..].iter().all(|gap| (300..=311).contains(gap)),
            "{gaps:?}"
        );
        assert!(gaps.len() >= 3, "{gaps:?}");
        let heartbeats = &patches[begun].body["status"]["conditions"];
        assert_eq!(heartbeats.as_array().map(Vec::len), Some(4));
        assert!(patches[begun].body["status"]["images"].is_null());
        env.runtime.add_image("busybox:1");
        sleep(MINUTE).await;
        let patches = env.patches();
        let images = |p: &&RequestRecord| !p.body["status"]["images"].is_null();
        let reports: Vec<_> = patches.iter().filter(images).collect();
        assert_eq!(reports.len(), 1);
        let images = &reports[0].body["status"]["images"];
        assert_eq!(images[0]["names"][1], "docker.io/library/busybox:1");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn existing_node_is_adopted_with_foreign_fields() {
    run(async {
        let env = TestEnv::begin(settings(), |server| {
            let mut node: Node = serde_json::from_value(serde_json::json!({
                "metadata": {
                    "name": "n1",
                    "labels": {"team": "a", "kubernetes.io/hostname": "wrong"},
                    "annotations": {"foreign": "1"},
                },
                "spec": {"podCIDR": "10.1.0.0/24", "providerID": "x"},
                "status": {
                    "capacity": {"example.com/dongle": "2", "cpu": "64"},
                    "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}],
                    "conditions": [{
                        "type": "NetworkUnavailable", "status": "False", "reason": "FlannelIsUp",
                    }],
                },
            }))
            .expect("a node");
            let spec = node.spec.get_or_insert_default();
            spec.taints = Some(vec![Taint {
                key: "foreign".into(),
                effect: "NoSchedule".into(),
                ..Taint::default()
            }]);
            server.create(&node);
        });
        env.state.send_replace(ready());
        env.until_ready().await;
        let node = serde_json::to_value(env.node()).expect("json");
        assert_eq!(node["metadata"]["labels"]["team"], "a");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n1");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/os"], "linux");
        assert_eq!(node["metadata"]["annotations"]["foreign"], "1");
        assert_eq!(
            node["metadata"]["annotations"][windlass_node_rules::node_object::ANN_ATTACH_DETACH],
            "true"
        );
        assert_eq!(node["spec"]["podCIDR"], "10.1.0.0/24");
        assert_eq!(node["spec"]["providerID"], "x");
        assert_eq!(node["spec"]["taints"][0]["key"], "foreign");
        let status = &node["status"];
        assert_eq!(status["capacity"]["example.com/dongle"], "0");
        assert_eq!(status["capacity"]["cpu"], "2");
        assert_eq!(
            status["addresses"],
            serde_json::json!([
                {"type": "InternalIP", "address": "10.0.0.5"},
                {"type": "Hostname", "address": "n1"},
            ])
        );
        assert_eq!(status["conditions"][0]["reason"], "FlannelIsUp");
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(5));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn ready_node_stays_ready_across_agent_restart() {
    run(async {
        let first = TestEnv::begin(settings(), |_| {});
        first.state.send_replace(ready());
        first.until_ready().await;
        let mut node = first.node().expect("a node");
        node.metadata.resource_version = None;
        let env = TestEnv::begin(settings(), |server| {
            server.create(&node);
        });
        for _ in 0..80 {
            assert!(env.ready().starts_with("True"), "{}", env.ready());
            sleep(Duration::from_millis(250)).await;
        }
        // a runtime that stays unreachable is down eventually
        let limit = Duration::from_secs(25);
        env.until("down", limit, |w| {
            w.ready() == "False container runtime is down"
        })
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn node_is_not_ready_on_network_error_not_on_runtime_restart() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let silent = RuntimeState {
            runtime_error: Some("connection refused".into()),
            network_error: None,
            pleg_error: None,
            answered: false,
        };
        env.state.send_replace(silent);
        sleep(Duration::from_secs(20)).await;
        assert!(env.ready().starts_with("True"));
        let says = RuntimeState {
            runtime_error: None,
            network_error: Some("NetworkReady=false reason:a message:b".into()),
            pleg_error: None,
            answered: true,
        };
        env.state.send_replace(says);
        let text = "False container runtime network not ready: NetworkReady=false reason:a \
                    message:b";
        let limit = Duration::from_secs(1);
        env.until("not ready", limit, |w| w.ready() == text).await;
        assert!(env.events().contains(&"NodeNotReady".to_owned()));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_is_reported_immediately() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let shutting_down = ShutdownState {
            shutting_down: true,
        };
        env.shutdown.send_replace(shutting_down);
        let limit = Duration::from_secs(1);
        env.until("reported", limit, |w| {
            w.ready() == "False node is shutting down"
        })
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pressure_is_reported_immediately_and_outlives_restart() {
    let pressures = |env: &TestEnv| -> Vec<String> {
        let conditions = env.node().and_then(|node| node.status?.conditions);
        let conditions = conditions.unwrap_or_default().into_iter();
        let is_pressure = |type_: &str| type_.ends_with("Pressure");
        let on = conditions.filter(|it| is_pressure(&it.type_) && it.status == "True");
        on.map(|it| it.type_).collect()
    };
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        assert_eq!(pressures(&env), [""; 0]);
        let disk_and_pid = Pressure {
            memory: false,
            disk: true,
            pid: true,
        };
        env.pressure.send_replace(NodePressure(Some(disk_and_pid)));
        let limit = Duration::from_secs(1);
        env.until("reported", limit, |env| {
            pressures(env) == ["DiskPressure", "PIDPressure"]
        })
        .await;
        assert!(env.events().contains(&"NodeHasDiskPressure".to_owned()));
        let mut node = env.node().expect("a node");
        (node.metadata.resource_version, node.metadata.uid) = (None, None);
        let next = TestEnv::begin(settings(), |server| {
            server.create(&node);
        });
        next.state.send_replace(ready());
        next.until_ready().await;
        tokio::time::sleep(MINUTE).await;
        assert_eq!(pressures(&next), ["DiskPressure", "PIDPressure"]);
        next.pressure
            .send_replace(NodePressure(Some(Pressure::default())));
        next.until("resolved", limit, |env| pressures(env).is_empty())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn deleted_node_is_recreated() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let uid = env.node().and_then(|n| n.metadata.uid);
        env.server.delete::<Node>(None, "n1", None);
        let limit = Duration::from_secs(2);
        env.until("made again", limit, |w| w.node().is_some()).await;
        assert!(env.ready().starts_with("True"), "{}", env.ready());
        assert_ne!(env.node().and_then(|n| n.metadata.uid), uid);
        let seen = || env.seen.borrow().0.clone();
        env.until("seen", limit, |_| {
            seen().is_some_and(|node| node.metadata.uid != uid)
        })
        .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn agent_without_registration_waits_for_node() {
    run(async {
        let settings = NodeStatusSettings {
            register: false,
            ..settings()
        };
        let env = TestEnv::begin(settings, |_| {});
        env.state.send_replace(ready());
        sleep(MINUTE).await;
        assert!(env.node().is_none());
        let mut node = Node::default();
        node.metadata.name = Some("n1".into());
        env.server.create(&node);
        env.until_ready().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn registration_after_outage_takes_one_backoff() {
    run(async {
        let env = TestEnv::begin(settings(), |server| {
            server.faults().down(On::any());
        });
        env.state.send_replace(ready());
        sleep(MINUTE * 10).await;
        let tried = env
            .server
            .requests()
            .iter()
            .filter(|r| r.method == "POST")
            .count();
        assert!((80..110).contains(&tried), "every 7 s: {tried}");
        env.server.faults().clear();
        let limit = Duration::from_secs(8);
        env.until("ready", limit, |w| w.ready().starts_with("True"))
            .await;
        let created = env.server.requests();
        let created = created.iter().filter(|r| r.status == 201).count();
        assert_eq!(created, 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn change_during_outage_is_reported_in_one_patch() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let begun = env.patches().len();
        let outage = env.server.faults().down(On::any());
        env.runtime.add_image("busybox:1");
        sleep(MINUTE * 2).await;
        env.server.faults().lift(outage);
        let limit = Duration::from_secs(11);
        env.until("reported", limit, |w| w.patches().len() > begun)
            .await;
        sleep(MINUTE).await;
        assert_eq!(env.patches().len(), begun + 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn status_update_has_five_attempts_and_hung_one_takes_two_ticks() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let status = "/api/v1/nodes/n1/status";
        let faults = env.server.faults();
        faults.error(On::path(status).method("PATCH").times(4), 500);
        env.runtime.add_image("one:1");
        let patch_count = env.patches().len() + 1;
        let limit = Duration::from_secs(42);
        env.until("reported", limit, |w| w.patches().len() == patch_count)
            .await;
        let refused = env.server.requests();
        assert_eq!(refused.iter().filter(|r| r.status == 500).count(), 4);

        let hung = faults.hang(On::path("/api/v1/nodes/n1*"));
        let shutting_down = ShutdownState {
            shutting_down: true,
        };
        env.shutdown.send_replace(shutting_down);
        sleep(MINUTE).await;
        faults.lift(hung);
        let limit = Duration::from_secs(32);
        env.until("reported", limit, |w| w.ready().contains("shutting down"))
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn lost_patch_reply_is_not_patched_again() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let status = On::path("/api/v1/nodes/n1/status").method("PATCH");
        env.server.faults().drop_reply(status.times(1));
        let begun = env.patches().len();
        let shutting_down = ShutdownState {
            shutting_down: true,
        };
        env.shutdown.send_replace(shutting_down);
        sleep(MINUTE).await;
        assert!(env.ready().contains("shutting down"));
        let patches = env.patches();
        assert_eq!(patches.len(), begun + 1, "{:#?}", &patches[begun..]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn cordon_and_uncordon_record_events() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let set = |to: Option<bool>| {
            env.server.modify::<Node>(None, "n1", |node| {
                node.spec.get_or_insert_default().unschedulable = to;
            });
        };
        env.events();
        set(Some(true));
        sleep(Duration::from_secs(1)).await;
        set(None);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(env.events(), ["NodeNotSchedulable", "NodeSchedulable"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dual_stack_addresses_are_merged() {
    run(async {
        let mut dual = settings();
        let mut node = (*dual.node).clone();
        node.ips.push("2001:db8::5".parse().expect("ip"));
        dual.node = Arc::new(node);
        let first = TestEnv::begin(settings(), |_| {});
        first.state.send_replace(ready());
        first.until_ready().await;
        let mut node = first.node().expect("a node");
        node.metadata.resource_version = None;
        let env = TestEnv::begin(dual, |server| {
            server.create(&node);
        });
        let addresses = |w: &TestEnv| -> Vec<String> {
            let list = w.node().and_then(|n| n.status?.addresses);
            list.unwrap_or_default()
                .into_iter()
                .map(|a| a.address)
                .collect()
        };
        env.until("merged", MINUTE, |w| addresses(w).len() == 3)
            .await;
        assert_eq!(addresses(&env), ["10.0.0.5", "2001:db8::5", "n1"]);
    })
    .await;
}

#[test]
fn modified_patch_is_retried_with_next_tick() {
    use super::fsm::{Effect, Facts, Input, NodeStatusFsm, PatchScope, UpdateResult};

    let settings = NodeStatusSettings {
        register: false,
        ..settings()
    };
    let (mut fsm, _) = NodeStatusFsm::begin(settings);
    let now = Timestamp::from_second(1_700_000_000).expect("time");
    let mut handle_input = |second, input| {
        let effects = fsm.handle(input, Duration::from_secs(second), now);
        let lines: Vec<_> = effects.iter().map(Effect::to_string).collect();
        lines.join(", ")
    };
    let stubborn = Node::default;
    let facts = Facts {
        machine: Some(machine()),
        ..Facts::default()
    };
    let written = || {
        Input::Updated(Ok(Box::new(UpdateResult {
            node: stubborn(),
            events: Vec::new(),
            scope: PatchScope::Status,
            created: false,
        })))
    };
    assert_eq!(handle_input(0, Input::Facts(Box::new(facts))), "");
    let read = Input::Read(Some(Box::new(stubborn())));
    assert_eq!(handle_input(1, read), "publish");
    assert_eq!(handle_input(10, Input::Tick), "update");
    assert_eq!(handle_input(11, written()), "publish");
    assert_eq!(handle_input(20, Input::Tick), "update");
    assert_eq!(handle_input(21, Input::ShuttingDown(true)), "");
    assert_eq!(handle_input(22, written()), "publish, update");
}

#[test]
fn kept_object_is_planned_again_when_its_input_changes() {
    use super::fsm::{KeptPlan, Report, may_differ};

    let node = Arc::new(Node::default());
    let report = Report {
        machine: Arc::new(machine()),
        runtime: Arc::default(),
        health: NodeHealth::default(),
        volumes_in_use: None,
        plugin_resources: Arc::default(),
    };
    let kept = KeptPlan {
        node: Arc::clone(&node),
        report: report.clone(),
    };
    let check = |node: &Arc<Node>, change: &dyn Fn(&mut Report), is_due, expected| {
        let mut changed = report.clone();
        change(&mut changed);
        let kept = Some(&kept);
        assert_eq!(may_differ(kept, node, &changed, is_due), expected);
    };
    let none = |_: &mut Report| {};
    check(&node, &none, false, false);
    // facts that were read again
    let read = |report: &mut Report| report.machine = Arc::new(machine());
    check(&node, &read, false, false);
    check(&node, &none, true, true);
    check(&Arc::new(Node::default()), &none, false, true);
    let pressed = |report: &mut Report| report.health.memory_pressure = true;
    check(&node, &pressed, false, true);
    let attached = |report: &mut Report| report.volumes_in_use = Some([].into());
    check(&node, &attached, false, true);
    let grown = |report: &mut Report| {
        report.machine = Arc::new(MachineFacts {
            cpus: 4,
            ..machine()
        });
    };
    check(&node, &grown, false, true);
    assert!(may_differ(None, &node, &report, false));
}

#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_reported_at_once_and_kept() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.state.send_replace(ready());
        env.until_ready().await;
        let reported = |env: &TestEnv| env.node()?.status?.volumes_in_use;
        let device = "kubernetes.io/csi/d^vol";
        let in_use = VolumesInUse([DeviceName(device.to_owned())].into());
        env.in_use.send_replace(Some(in_use));
        let limit = Duration::from_secs(1);
        env.until("reported", limit, |env| {
            reported(env) == Some(vec![device.to_owned()])
        })
        .await;
        sleep(MINUTE).await;
        assert_eq!(reported(&env), Some(vec![device.to_owned()]));
        env.in_use.send_replace(Some(VolumesInUse::default()));
        env.until("none", limit, |env| reported(env).is_none())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn node_is_ready_after_csi_node_and_stays_ready() {
    run(async {
        let env = TestEnv::begin(settings(), |_| {});
        env.csi_node.send_replace(CsiNodeStatus::Unknown);
        env.state.send_replace(ready());
        let limit = Duration::from_secs(10);
        let unknown = |env: &TestEnv| env.ready() == "False CSINode is not yet initialized";
        env.until("not initialized", limit, unknown).await;
        let failure = CsiNodeStatus::Failed("not today".to_owned());
        env.csi_node.send_replace(failure.clone());
        let failed = |env: &TestEnv| env.ready() == "False failed to initialize CSINode: not today";
        env.until("failed", limit, failed).await;
        env.csi_node.send_replace(CsiNodeStatus::Initialized);
        env.until_ready().await;
        env.csi_node.send_replace(failure);
        sleep(10 * MINUTE).await;
        assert_eq!(env.ready(), "True kubelet is posting ready status");
    })
    .await;
}
