//! Pod statuses on a virtual clock, from runtime and probes to the API server and back.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::time::Duration;

use serde_json::{Value, json};
use windlass_cri::CriCode;
use windlass_pod_status::status::last_probe_failure;
use windlass_testing::fake_runtime::{Behavior, Exec, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{ContainerStatus, Node, PodCondition, PodStatus};
use windlass_types::{Pod, PodExt, PodUid};

const NODE: &str = "sim";
const SECOND: Duration = Duration::from_secs(1);

fn on_a_ready_node<R>(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim) -> R) -> R {
    simulate_cluster(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        sim.start_agent().await;
        sim.until("the node is ready", 3 * SECOND, |sim| {
            let node = sim.api.get::<Node>(None, NODE);
            let conditions = node.and_then(|node| node.status?.conditions);
            let mut all = conditions.into_iter().flatten();
            all.any(|c| c.type_ == "Ready" && c.status == "True")
        })
        .await;
        scenario(sim).await
    })
}

/// A pod `web` with these containers and additional spec fields.
fn pod(containers: &Value, more: &Value) -> PodBuilder {
    let mut spec = json!({"containers": containers, "terminationGracePeriodSeconds": 5});
    let object = spec.as_object_mut().expect("an object");
    object.extend(more.as_object().expect("an object").clone());
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            container["image"] = json!("busybox:1");
        }
    }
    PodBuilder::new("web")
        .with(|pod| pod.spec = Some(serde_json::from_value(spec).expect("a pod spec")))
        .bound_to(NODE)
}

/// An exec probe of `true` every second.
fn probe() -> Value {
    json!({"exec": {"command": ["true"]}, "periodSeconds": 1, "failureThreshold": 1})
}

fn create(sim: &NodeSim, pod: PodBuilder) -> PodUid {
    sim.api.create(&pod.build()).uid()
}

fn get(sim: &NodeSim) -> Pod {
    sim.api.get(Some("default"), "web").expect("the pod")
}

fn status(sim: &NodeSim) -> PodStatus {
    get(sim).status.unwrap_or_default()
}

fn condition(sim: &NodeSim, type_: &str) -> Option<PodCondition> {
    let conditions = status(sim).conditions.unwrap_or_default();
    conditions.into_iter().find(|c| c.type_ == type_)
}

fn is_true(sim: &NodeSim, type_: &str) -> bool {
    condition(sim, type_).is_some_and(|c| c.status == "True")
}

fn container(sim: &NodeSim, name: &str) -> Option<ContainerStatus> {
    let status = status(sim);
    let lists = [
        status.init_container_statuses,
        status.container_statuses,
        status.ephemeral_container_statuses,
    ];
    let mut all = lists.into_iter().flatten().flatten();
    all.find(|c| c.name == name)
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    let state = container(sim, name).and_then(|c| c.state);
    state.is_some_and(|s| s.running.is_some())
}

/// Requests that changed the status of the pod.
fn patches(sim: &NodeSim) -> usize {
    let path = "/api/v1/namespaces/default/pods/web/status";
    let requests = sim.api.requests().into_iter();
    requests
        .filter(|r| r.method == "PATCH" && r.path == path)
        .count()
}

fn blocker(sim: &NodeSim) -> String {
    let view = sim.view("web");
    let blocked = view.and_then(|v| Some((v.blocker?, v.status, v.events)));
    blocked.map_or("none".to_owned(), |(blocker, status, events)| {
        let complaint = last_probe_failure(&blocker, &status, &events);
        format!("{blocker}: {}", complaint.unwrap_or_default())
    })
}

#[test]
fn readiness_requires_probe_success_and_readiness_gate() {
    on_a_ready_node(1, async |sim| {
        let ready = "default/web/app";
        let fails = || Exec::prints(1, "not yet");
        sim.runtime.set_exec(ready, fails());
        sim.runtime.set_behavior(ready, Behavior::stubborn());
        let app = json!([{"name": "app", "readinessProbe": probe()}]);
        let gate = json!({"readinessGates": [{"conditionType": "example.com/lb"}]});
        create(sim, pod(&app, &gate));
        let told = "ContainersNotReady container=app: its readiness probe does not pass: not yet";
        sim.until("its probe fails", 5 * SECOND, |sim| blocker(sim) == told)
            .await;
        assert!(!is_true(sim, "ContainersReady"));

        sim.runtime.set_exec(ready, Exec::exits(0));
        sim.until("its containers are ready", 3 * SECOND, |sim| {
            is_true(sim, "ContainersReady")
        })
        .await;
        let closed = condition(sim, "Ready").expect("Ready");
        assert_eq!(
            (closed.status.as_str(), closed.reason.as_deref()),
            ("False", Some("ReadinessGatesNotReady"))
        );
        sim.api.modify::<Pod>(Some("default"), "web", |pod| {
            let conditions = &mut pod.status.as_mut().expect("a status").conditions;
            conditions.get_or_insert_default().push(PodCondition {
                type_: "example.com/lb".to_owned(),
                status: "True".to_owned(),
                ..PodCondition::default()
            });
        });
        sim.until("it is ready", 2 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        assert_eq!(blocker(sim), "none");

        // A terminating pod is ready until its probe fails.
        assert!(sim.api.delete::<Pod>(Some("default"), "web", Some(60)));
        sim.pass(2 * SECOND).await;
        assert!(is_true(sim, "Ready"));
        sim.runtime.set_exec(ready, fails());
        sim.until("it is not ready", 2 * SECOND, |sim| !is_true(sim, "Ready"))
            .await;
        assert!(runs(sim, "app"), "it is still being stopped");
    });
}

#[test]
fn readiness_survives_restart_until_next_probe() {
    on_a_ready_node(2, async |sim| {
        let app = json!([
            {"name": "app", "readinessProbe": probe(), "startupProbe": probe()}
        ]);
        let uid = create(sim, pod(&app, &json!({})));
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        sim.pass(2 * SECOND).await;
        let before = status(sim);

        sim.kill_agent().await;
        let key = "default/web/app";
        let unavailable = Exec::fails(CriCode::Unavailable, "unreachable");
        sim.runtime.set_exec(key, unavailable);
        let sent = patches(sim);
        sim.start_agent().await;
        sim.pass(20 * SECOND).await;
        assert_eq!(status(sim), before, "no probe result that it is not ready");
        assert_eq!(patches(sim), sent);

        sim.runtime.set_exec(key, Exec::exits(1));
        sim.until("the probe result is reported", 3 * SECOND, |sim| {
            !is_true(sim, "Ready")
        })
        .await;

        // The new instance has to be probed first.
        sim.runtime.set_exec(key, Exec::exits(0));
        sim.until("it is ready again", 3 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        sim.kill_agent().await;
        sim.runtime
            .set_exec(key, Exec::fails(CriCode::Unavailable, "unreachable"));
        let first = sim.runtime.running(&uid, "app").expect("runs");
        sim.runtime.kill_container(&first.id, 3);
        sim.start_agent().await;
        sim.until("another one runs", 30 * SECOND, |sim| {
            container(sim, "app").is_some_and(|c| c.restart_count == 1) && runs(sim, "app")
        })
        .await;
        let app = container(sim, "app").expect("app");
        assert_eq!((app.started, app.ready), (Some(false), false));
        assert!(!is_true(sim, "Ready"));
        let last = app.last_state.and_then(|s| s.terminated).expect("an end");
        assert_eq!(last.exit_code, 3);
    });
}

#[test]
fn failed_pull_is_reported_as_back_off() {
    const IMAGE: &str = "registry.local/missing:1";
    on_a_ready_node(45, async |sim| {
        sim.runtime.set_pull(IMAGE, Pull::not_found(IMAGE));
        let web = pod(&json!([{"name": "app"}]), &json!({}));
        create(
            sim,
            web.with(|pod| {
                pod.spec.as_mut().expect("spec").containers[0].image = Some(IMAGE.to_owned());
            }),
        );
        let waiting = |sim: &NodeSim| {
            let state = container(sim, "app").and_then(|status| status.state);
            let waiting = state.and_then(|state| state.waiting).unwrap_or_default();
            let [reason, message] = [waiting.reason, waiting.message];
            (reason.unwrap_or_default(), message.unwrap_or_default())
        };
        let expected = format!("Back-off pulling image {IMAGE:?}: ErrImagePull: ");
        let backs_off = |sim: &NodeSim| {
            let (reason, message) = waiting(sim);
            reason == "ImagePullBackOff" && message.starts_with(&expected)
        };
        // the sandbox start is an event, too; either sync may report it
        sim.until("the first back-off is shown", 3 * SECOND, backs_off)
            .await;
        sim.until("the second pull failed", 12 * SECOND, |sim| {
            waiting(sim).0 == "ErrImagePull"
        })
        .await;
        // the third pull is due after 20 s only
        sim.until("the second back-off is shown", 12 * SECOND, backs_off)
            .await;
    });
}

#[test]
fn container_ids_start_with_runtime_name() {
    on_a_ready_node(46, async |sim| {
        create(sim, pod(&json!([{"name": "app"}]), &json!({})));
        sim.until("it runs", 5 * SECOND, |sim| runs(sim, "app"))
            .await;
        let id = container(sim, "app").and_then(|status| status.container_id);
        let id = id.expect("an ID");
        assert!(id.starts_with("fake://"), "{id}");
    });
}

#[test]
fn status_has_observed_generation() {
    on_a_ready_node(3, async |sim| {
        create(sim, pod(&json!([{"name": "app"}]), &json!({})));
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        assert_eq!(status(sim).observed_generation, Some(1));
        for generation in 2..5 {
            sim.api.modify::<Pod>(Some("default"), "web", |pod| {
                let spec = pod.spec.as_mut().expect("a spec");
                spec.active_deadline_seconds = Some(10_000 - generation);
            });
            sim.until("it is acted on", 2 * SECOND, |sim| {
                status(sim).observed_generation == Some(generation)
            })
            .await;
            let owned = ["Ready", "Initialized", "ContainersReady", "PodScheduled"];
            for type_ in owned {
                let condition = condition(sim, type_).expect(type_);
                assert_eq!(condition.observed_generation, Some(generation), "{type_}");
            }
        }
    });
}

#[test]
fn container_status_has_user_and_resources() {
    on_a_ready_node(4, async |sim| {
        let app = json!([{
            "name": "app",
            "resources": {
                "requests": {"cpu": "250m", "memory": "64M"},
                "limits": {"cpu": "500m", "memory": "64M"},
            },
            "securityContext": {"runAsUser": 1000, "runAsGroup": 3000},
        }]);
        let groups = json!({"securityContext": {"supplementalGroups": [4000]}});
        create(sim, pod(&app, &groups));
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        let app = serde_json::to_value(container(sim, "app")).expect("JSON");
        assert_eq!(
            app["user"]["linux"],
            json!({"uid": 1000, "gid": 3000, "supplementalGroups": [3000, 4000]})
        );
        assert_eq!(
            app["resources"],
            json!({
                "requests": {"cpu": "250m", "memory": "64M"},
                "limits": {"cpu": "500m", "memory": "64M"},
            })
        );
        assert_eq!(
            app["allocatedResources"],
            json!({"cpu": "250m", "memory": "64M"})
        );
        assert_eq!(app["stopSignal"], Value::Null, "its gate is off");
    });
}

#[test]
fn ephemeral_container_status_is_reported() {
    on_a_ready_node(5, async |sim| {
        create(sim, pod(&json!([{"name": "app"}]), &json!({})));
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        let key = "default/web/debug";
        sim.runtime
            .set_behavior(key, Behavior::exits(10 * SECOND, 7));
        sim.api.modify::<Pod>(Some("default"), "web", |pod| {
            let debug = json!([{
                "name": "debug", "image": "busybox:1", "targetContainerName": "app",
                "imagePullPolicy": "IfNotPresent", "terminationMessagePolicy": "File",
                "terminationMessagePath": "/dev/termination-log",
            }]);
            pod.spec.as_mut().expect("a spec").ephemeral_containers =
                serde_json::from_value(debug).expect("a container");
        });
        sim.until("it runs", 5 * SECOND, |sim| runs(sim, "debug"))
            .await;
        let debug = container(sim, "debug").expect("debug");
        assert_eq!((debug.ready, debug.started), (false, None));
        let end = |sim: &NodeSim| container(sim, "debug")?.state?.terminated;
        sim.until("it has ended", 15 * SECOND, |sim| end(sim).is_some())
            .await;
        sim.pass(30 * SECOND).await;
        assert_eq!(end(sim).map(|end| end.exit_code), Some(7));
        let debug = container(sim, "debug").expect("debug");
        assert_eq!(debug.restart_count, 0, "it is not started again");
        assert!(is_true(sim, "Ready"));

        // Only the restarted agent knows that it has run.
        let uid = get(sim).uid();
        sim.kill_agent().await;
        let all = sim.runtime.containers(&uid).into_iter();
        let dead = all.filter(|c| c.name == "debug").map(|c| c.id);
        dead.for_each(|id| sim.runtime.lose_container(&id));
        sim.start_agent().await;
        sim.pass(10 * SECOND).await;
        assert_eq!(end(sim).map(|end| end.exit_code), Some(7));
        assert_eq!(sim.runtime.starts(&uid, "debug"), 1);
    });
}

#[test]
fn restart_of_all_containers_is_reported() {
    on_a_ready_node(6, async |sim| {
        let rules = json!([{
            "action": "RestartAllContainers",
            "exitCodes": {"operator": "In", "values": [42]},
        }]);
        let apps = json!([
            {"name": "app", "restartPolicy": "Never", "restartPolicyRules": rules},
            {"name": "other"},
        ]);
        let more = json!({"restartPolicy": "Never", "initContainers": [{"name": "init"}]});
        sim.runtime
            .set_behavior("default/web/init", Behavior::exits(SECOND, 0));
        let uid = create(sim, pod(&apps, &more));
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        let resting = condition(sim, "AllContainersRestarting").expect("it could happen");
        assert_eq!(resting.status, "False");
        let before = status(sim);

        let app = sim.runtime.running(&uid, "app").expect("runs");
        sim.runtime.kill_container(&app.id, 42);
        sim.until("all have been restarted", 60 * SECOND, |sim| {
            let again = |name| {
                container(sim, name).is_some_and(|c| c.restart_count == 1) && runs(sim, name)
            };
            again("app") && again("other")
        })
        .await;
        sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        let after = status(sim);
        assert_eq!(after.phase.as_deref(), Some("Running"));
        assert_eq!(after.pod_ip, before.pod_ip, "in the same sandbox");
        let over = condition(sim, "AllContainersRestarting").expect("it could happen again");
        assert_eq!(over.status, "False");
        for name in ["init", "app", "other"] {
            let again = container(sim, name).expect(name);
            assert_eq!(again.restart_count, 1, "{name}");
            let last = again.last_state.and_then(|s| s.terminated).expect(name);
            assert_eq!(last.reason.as_deref(), Some("RestartingAllContainers"));
        }
        let told: Vec<String> = sim
            .api
            .requests()
            .into_iter()
            .filter(|r| r.path.ends_with("/pods/web/status"))
            .map(|r| r.body.to_string())
            .collect();
        let phases = ["\"Failed\"", "\"Succeeded\""];
        let over = told.iter().find(|b| phases.iter().any(|p| b.contains(p)));
        assert_eq!(over, None, "the pod was never over");
    });
}

#[test]
fn rerunning_init_container_does_not_block_status() {
    on_a_ready_node(7, async |sim| {
        let more = json!({"restartPolicy": "OnFailure", "initContainers": [{"name": "init"}]});
        sim.runtime
            .set_behavior("default/web/init", Behavior::exits(10 * SECOND, 0));
        let uid = create(sim, pod(&json!([{"name": "app"}]), &more));
        sim.until("it is ready", 20 * SECOND, |sim| is_true(sim, "Ready"))
            .await;
        let (sandbox, ..) = sim.runtime.sandboxes().remove(0);
        sim.runtime.kill_sandbox(&sandbox);
        sim.until("init runs again", 10 * SECOND, |sim| {
            sim.runtime.running(&uid, "init").is_some()
        })
        .await;
        sim.pass(2 * SECOND).await;
        assert!(!is_true(sim, "Ready"), "reported while init runs");
        let init = container(sim, "init").and_then(|c| c.state).expect("init");
        assert!(init.terminated.is_some(), "the server takes nothing else");
        sim.until("it is ready again", 20 * SECOND, |sim| {
            is_true(sim, "Ready") && container(sim, "init").is_some_and(|c| c.restart_count == 1)
        })
        .await;
        let requests = sim.api.requests();
        let refused = requests.iter().find(|r| r.status == 422);
        assert!(refused.is_none(), "{refused:?}");
    });
}

#[test]
fn lost_run_once_container_is_not_restarted() {
    for agent_is_away in [false, true] {
        on_a_ready_node(8, async |sim| {
            let once = json!({"restartPolicy": "Never"});
            let uid = create(sim, pod(&json!([{"name": "app"}]), &once));
            sim.until("it is ready", 5 * SECOND, |sim| is_true(sim, "Ready"))
                .await;
            if agent_is_away {
                sim.kill_agent().await;
            }
            let app = sim.runtime.running(&uid, "app").expect("runs");
            sim.runtime.lose_container(&app.id);
            if agent_is_away {
                sim.start_agent().await;
            }
            sim.until("it has failed", 60 * SECOND, |sim| {
                status(sim).phase.as_deref() == Some("Failed")
            })
            .await;
            sim.pass(60 * SECOND).await;
            assert_eq!(sim.runtime.starts(&uid, "app"), 1, "{agent_is_away}");
            let end = container(sim, "app").and_then(|c| c.state?.terminated);
            let reason = end.and_then(|end| end.reason);
            assert_eq!(reason.as_deref(), Some("ContainerStatusUnknown"));
        });
    }
}

#[test]
fn termination_message_is_not_removed_from_status() {
    on_a_ready_node(9, async |sim| {
        let words = json!({
            "name": "init", "terminationMessagePolicy": "File",
            "terminationMessagePath": "/dev/termination-log",
        });
        let more = json!({"initContainers": [words]});
        sim.runtime
            .set_behavior("default/web/init", Behavior::exits(2 * SECOND, 0));
        sim.runtime
            .set_behavior("default/web/app", Behavior::exits(SECOND, 1));
        sim.runtime
            .set_latency(Operation::CreateContainer, Duration::from_millis(500));
        let uid = create(sim, pod(&json!([{"name": "app"}]), &more));
        sim.until("init runs", 5 * SECOND, |sim| {
            sim.runtime.running(&uid, "init").is_some()
        })
        .await;
        let log = sim.files.paths().into_iter();
        let mut log = log.filter(|p| p.to_string_lossy().contains("/containers/init/"));
        sim.files.put(log.next().expect("its log"), "all set");
        let message = |sim: &NodeSim| {
            let end = container(sim, "init")?.state?.terminated;
            end?.message
        };
        sim.until("it is reported", 10 * SECOND, |sim| message(sim).is_some())
            .await;
        sim.api.clear_requests();
        sim.until("app was restarted often", 120 * SECOND, |sim| {
            container(sim, "app").is_some_and(|c| c.restart_count == 3)
        })
        .await;
        let patches = sim.api.requests().into_iter();
        let of_init = patches.filter(|r| !r.body["status"]["initContainerStatuses"].is_null());
        assert_eq!(of_init.count(), 0, "nothing happened to it");
        assert_eq!(message(sim).as_deref(), Some("all set"));
    });
}
