//! Probes on a virtual clock, from the response of a container to the reaction of its pod.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::time::Duration;

use serde_json::{Value, json};
use windlass_testing::fake_checks::Server;
use windlass_testing::fake_runtime::{Behavior, Exec, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate, simulate_cluster};
use windlass_types::corev1::{ContainerStatus, Node, PodCondition};
use windlass_types::{Pod, PodExt, PodUid};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const IMAGE: &str = "busybox:1";

/// A static pod with these containers.
fn pod(name: &str, containers: &Value) -> PodBuilder {
    let mut spec = json!({"containers": containers});
    for container in spec["containers"].as_array_mut().expect("a list") {
        container["image"] = json!(IMAGE);
    }
    let spec = serde_json::from_value(spec).expect("a pod spec");
    PodBuilder::new(name).with(|pod| pod.spec = Some(spec))
}

/// A probe with a command, every second.
fn exec(command: &str) -> Value {
    json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 2})
}

/// A probe by TCP.
fn tcp(port: u16, period: u32) -> Value {
    json!({"tcpSocket": {"port": port}, "periodSeconds": period})
}

fn uid(name: &str) -> PodUid {
    PodUid::from(format!("{name}-uid"))
}

fn container(sim: &NodeSim, name: &str) -> Option<ContainerStatus> {
    let statuses = sim.view(name)?.status.container_statuses.clone()?;
    statuses.into_iter().next()
}

fn is_ready(sim: &NodeSim, name: &str) -> bool {
    let view = sim.view(name);
    let conditions = view.and_then(|view| view.status.conditions.clone());
    let mut all = conditions.into_iter().flatten();
    all.any(|c| c.type_ == "Ready" && c.status == "True")
}

fn ip(sim: &NodeSim, name: &str) -> String {
    let view = sim.view(name).expect("on the status_store");
    view.status.pod_ip.clone().expect("an address")
}

/// Count and message of each event of a pod with this reason.
fn events(sim: &NodeSim, name: &str, reason: &str) -> Vec<(u32, String)> {
    let events = sim.view(name).map(|view| view.events).unwrap_or_default();
    let of_reason = events.into_iter().filter(|e| e.reason.as_str() == reason);
    of_reason.map(|e| (e.count, e.message)).collect()
}

/// Seconds between the calls of one operation on a container.
fn gaps(sim: &NodeSim, operation: Operation, subject: &str) -> Vec<i64> {
    let calls = sim.runtime.calls_of(operation, subject);
    let pairs = calls.windows(2);
    pairs
        .map(|pair| pair[1].at.duration_since(pair[0].at).as_secs())
        .collect()
}

#[test]
fn failed_liveness_uses_probe_grace_period_and_back_off() {
    simulate(1, async |sim| {
        sim.runtime.add_image(IMAGE);
        sim.runtime.set_behavior("app", Behavior::stubborn());
        sim.runtime.set_exec("app", Exec::prints(1, "deadlock"));
        let mut liveness = exec("alive");
        liveness["terminationGracePeriodSeconds"] = json!(7);
        let app = json!([{"name": "app", "livenessProbe": liveness}, {"name": "other"}]);
        sim.desire([pod("web", &app).grace(100).build()]).await;
        sim.until("five starts", 10 * MINUTE, |sim| {
            sim.runtime.starts(&uid("web"), "app") == 5
        })
        .await;
        // one second to the second failure, seven to stop, then the delay; as upstream none before
        // the first two restarts
        assert_eq!(
            gaps(sim, Operation::StartContainer, "default/web/app"),
            [8, 8, 18, 28],
            "{:#?}",
            sim.log()
        );
        assert_eq!(sim.runtime.starts(&uid("web"), "other"), 1);
        let unhealthy = events(sim, "web", "Unhealthy");
        assert_eq!(unhealthy.len(), 1, "{unhealthy:?}");
        assert_eq!(unhealthy[0].1, "Liveness probe failed: deadlock");
        let killing = events(sim, "web", "Killing");
        let words = "Container app failed liveness probe, will be restarted";
        assert!(killing.iter().all(|(_, text)| text == words), "{killing:?}");
        assert_eq!(sim.runtime.max_execs_in_flight(&uid("web"), "app"), 1);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn readiness_changes_restart_no_container() {
    simulate(2, async |sim| {
        sim.runtime.add_image(IMAGE);
        sim.runtime.set_exec("app", Exec::exits(1));
        let app = json!([{"name": "app", "readinessProbe": exec("ready")}]);
        sim.desire([pod("web", &app).build()]).await;
        sim.until("it runs", SECOND, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(5 * SECOND).await;
        for _ in 0..3 {
            assert!(!is_ready(sim, "web"));
            sim.runtime.set_exec("app", Exec::exits(0));
            sim.until("it is ready", Duration::from_millis(1_500), |sim| {
                is_ready(sim, "web")
            })
            .await;
            sim.runtime.set_exec("app", Exec::exits(1));
            sim.pass(Duration::from_millis(500)).await;
            assert!(is_ready(sim, "web"), "one failure is below the threshold");
            sim.until("it is not ready", 3 * SECOND, |sim| !is_ready(sim, "web"))
                .await;
        }
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
    });
}

#[test]
fn startup_probe_gates_others_and_failure_restarts_container() {
    simulate(3, async |sim| {
        sim.runtime.add_image(IMAGE);
        sim.runtime.set_exec("app start", Exec::exits(1));
        sim.runtime.set_exec("app alive", Exec::exits(1));
        let app = json!([{
            "name": "app",
            "startupProbe": exec("start"),
            "livenessProbe": exec("alive"),
            "readinessProbe": exec("ready"),
        }]);
        sim.desire([pod("web", &app).build()]).await;
        sim.until("it was restarted", MINUTE, |sim| {
            sim.runtime.starts(&uid("web"), "app") == 2
        })
        .await;
        let words = "Container app failed startup probe, will be restarted";
        assert_eq!(events(sim, "web", "Killing"), [(1, words.to_owned())]);
        let liveness = |sim: &NodeSim| {
            let events = events(sim, "web", "Unhealthy");
            events.iter().any(|(_, text)| text.starts_with("Liveness"))
        };
        assert!(!liveness(sim), "no attempt");
        sim.runtime.set_exec("app start", Exec::exits(0));
        sim.until("it has started", MINUTE, |sim| {
            container(sim, "web").and_then(|c| c.started) == Some(true)
        })
        .await;
        sim.until("the others are probed", SECOND / 2, liveness)
            .await;
    });
}

#[test]
fn probes_of_200_pods_run_on_time_despite_20_hung() {
    simulate(4, async |sim| {
        sim.runtime.add_image(IMAGE);
        let name = |i: usize| format!("p{i}");
        let app = json!([{
            "name": "app",
            "livenessProbe": tcp(1, 5),
            "readinessProbe": tcp(2, 2),
            "startupProbe": tcp(3, 1),
        }]);
        let mut slow = app.clone();
        for probe in ["livenessProbe", "readinessProbe"] {
            slow[0][probe]["timeoutSeconds"] = json!(30);
        }
        let pods = (0..200).map(|i| pod(&name(i), if i < 20 { &slow } else { &app }).build());
        sim.desire(pods.collect::<Vec<_>>()).await;
        sim.until("all are ready", 2 * MINUTE, |sim| {
            (0..200).all(|i| is_ready(sim, &name(i)))
        })
        .await;
        for i in 0..20 {
            for port in [1, 2] {
                sim.checks.set(&ip(sim, &name(i)), port, Server::Hangs);
            }
        }
        sim.pass(MINUTE).await;
        sim.checks.clear_requests();
        sim.pass(MINUTE).await;
        for i in 20..200 {
            let address = ip(sim, &name(i));
            for (port, period) in [(1, 5), (2, 2)] {
                let asked = sim.checks.request_times(&address, port);
                let expected = 60 / period;
                let count = u64::try_from(asked.len()).expect("small");
                assert!(count.abs_diff(expected) <= 1, "{} {port}: {count}", name(i));
                for pair in asked.windows(2) {
                    let gap = (pair[1] - pair[0])
                        .as_millis()
                        .abs_diff(u128::from(period) * 1000);
                    assert!(gap <= 20, "{} {port}: {gap} ms off", name(i));
                }
            }
            assert!(is_ready(sim, &name(i)));
        }
        for i in 0..20 {
            let address = ip(sim, &name(i));
            assert!(
                sim.checks.request_count(&address, 1) <= 2,
                "no queue before what hangs"
            );
            assert_eq!(sim.checks.max_in_flight(&address, 1), 1);
            assert!(!is_ready(sim, &name(i)));
        }
        sim.runtime.assert_invariants();
    });
}

#[test]
fn hung_exec_probe_has_one_attempt_in_flight() {
    simulate(5, async |sim| {
        sim.runtime.add_image(IMAGE);
        sim.runtime.set_request_timeout(MINUTE);
        let app = json!([{"name": "app", "readinessProbe": exec("ready")}]);
        sim.desire([
            pod("web", &app).build(),
            pod("well", &json!([{"name": "a"}])).build(),
        ])
        .await;
        sim.until("it is ready", 3 * SECOND, |sim| is_ready(sim, "web"))
            .await;
        sim.runtime
            .inject(Fault::hang(Operation::ExecSync).on("default/web"));
        sim.pass(5 * MINUTE).await;
        let execs = sim.runtime.execs(&uid("web"), "app");
        assert!(execs < 12, "{execs} commands in five minutes");
        assert_eq!(sim.runtime.max_execs_in_flight(&uid("web"), "app"), 1);
        assert!(!is_ready(sim, "web"), "what does not answer is not ready");
        assert!(is_ready(sim, "well"));
        sim.runtime.release(Operation::ExecSync);
        sim.until("it is ready again", 3 * SECOND, |sim| is_ready(sim, "web"))
            .await;
    });
}

#[test]
fn agent_kill_keeps_readiness_and_startup_results() {
    simulate(6, async |sim| {
        sim.runtime.add_image(IMAGE);
        let app = json!([{
            "name": "app",
            "startupProbe": exec("start"),
            "livenessProbe": exec("alive"),
            "readinessProbe": exec("ready"),
        }]);
        let names: Vec<String> = (0..20).map(|i| format!("p{i}")).collect();
        sim.desire(names.iter().map(|name| pod(name, &app).build()))
            .await;
        let all_ready = |sim: &NodeSim| names.iter().all(|name| is_ready(sim, name));
        sim.until("all are ready", MINUTE, all_ready).await;
        // a repeated startup probe would fail
        sim.runtime.set_exec("app start", Exec::exits(1));
        for _ in 0..5 {
            sim.kill_agent().await;
            sim.pass(SECOND).await;
            sim.start_agent().await;
            let end = sim.now().saturating_add(15 * SECOND).expect("in range");
            while sim.now() < end {
                sim.pass(Duration::from_millis(20)).await;
                for name in &names {
                    let shown = sim.view(name).is_some_and(|view| view.observed);
                    assert!(
                        !shown || is_ready(sim, name),
                        "{name}\n{:#?}",
                        sim.view(name)
                    );
                }
            }
            assert!(all_ready(sim));
        }
        assert!(
            names
                .iter()
                .all(|name| sim.runtime.starts(&uid(name), "app") == 1)
        );
    });
}

#[test]
fn restored_probe_failures_restart_or_stay_not_ready() {
    simulate(7, async |sim| {
        sim.runtime.add_image(IMAGE);
        sim.runtime.set_exec("app", Exec::exits(0));
        sim.runtime.set_exec("app ready", Exec::exits(1));
        let app = json!([{
            "name": "app",
            "livenessProbe": exec("alive"),
            "readinessProbe": exec("ready"),
        }]);
        sim.desire([pod("web", &app).build()]).await;
        sim.until("it runs", SECOND, |sim| sim.phase("web") == "Running")
            .await;
        sim.pass(MINUTE).await;
        // the runtime does not stop the container before the agent is killed
        sim.runtime.inject(Fault::hang(Operation::StopContainer));
        sim.runtime.set_exec("app alive", Exec::exits(1));
        sim.until("it is to be restarted", 10 * SECOND, |sim| {
            !events(sim, "web", "Killing").is_empty()
        })
        .await;
        sim.kill_agent().await;
        sim.runtime.release(Operation::StopContainer);
        sim.runtime.set_exec("app alive", Exec::exits(0));
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
        sim.start_agent().await;
        sim.until("it is restarted", 5 * SECOND, |sim| {
            sim.runtime.starts(&uid("web"), "app") == 2
        })
        .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 2);
        assert!(!is_ready(sim, "web"));
    });
}

fn api_condition(sim: &NodeSim, type_: &str) -> Option<PodCondition> {
    let pod: Pod = sim.api.get(Some("default"), "web")?;
    let conditions = pod.status?.conditions?;
    conditions.into_iter().find(|c| c.type_ == type_)
}

fn api_ready(sim: &NodeSim) -> Option<bool> {
    api_condition(sim, "Ready").map(|c| c.status == "True")
}

async fn in_a_cluster(sim: &mut NodeSim, builder: PodBuilder) -> PodUid {
    sim.runtime.add_image(IMAGE);
    sim.start_agent().await;
    sim.until("the node is there", 3 * SECOND, |sim| {
        sim.api.get::<Node>(None, "sim").is_some()
    })
    .await;
    let uid = sim.api.create(&builder.bound_to("sim").build()).uid();
    sim.until("it is ready", 10 * SECOND, |sim| {
        api_ready(sim) == Some(true)
    })
    .await;
    uid
}

#[test]
fn readiness_is_reported_until_last_container_exits() {
    simulate_cluster(8, async |sim| {
        sim.runtime.set_behavior("app", Behavior::stubborn());
        let app = json!([{
            "name": "app",
            "readinessProbe": exec("ready"),
            "livenessProbe": exec("alive"),
        }]);
        let uid = Box::pin(in_a_cluster(sim, pod("web", &app).grace(30))).await;
        assert!(sim.api.delete::<Pod>(Some("default"), "web", Some(30)));
        sim.pass(5 * SECOND).await;
        assert_eq!(
            api_ready(sim),
            Some(true),
            "a deletion alone changes nothing"
        );
        sim.runtime.set_exec("app", Exec::exits(1));
        sim.until("it is not ready", 5 * SECOND, |sim| {
            api_ready(sim) == Some(false)
        })
        .await;
        sim.runtime.set_exec("app", Exec::exits(0));
        sim.until("it is ready again", 5 * SECOND, |sim| {
            api_ready(sim) == Some(true)
        })
        .await;
        sim.until("it is gone", MINUTE, |sim| {
            sim.api.get::<Pod>(Some("default"), "web").is_none()
        })
        .await;
        assert_eq!(
            sim.runtime.starts(&uid, "app"),
            1,
            "its liveness restarted nothing"
        );
        let execs = sim.runtime.execs(&uid, "app");
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.execs(&uid, "app"), execs);
    });
}

#[test]
fn reported_readiness_stands_until_first_probe_result() {
    simulate_cluster(9, async |sim| {
        let mut startup = tcp(1, 1);
        startup["failureThreshold"] = json!(1000);
        let mut readiness = tcp(2, 10);
        readiness["failureThreshold"] = json!(2);
        let app = json!([{
            "name": "app",
            "startupProbe": startup,
            "readinessProbe": readiness,
        }]);
        let uid = Box::pin(in_a_cluster(sim, pod("web", &app))).await;
        sim.pass(MINUTE).await;
        let address = ip(sim, "web");
        sim.checks.set(&address, 1, Server::Refuses);
        let checkpoint: Pod = sim.api.get(Some("default"), "web").expect("the pod");
        sim.kill_agent().await;
        // there was a previous run
        sim.probe_results.clear();
        sim.checkpoint = vec![checkpoint.into()];
        sim.start_agent().await;
        let end = sim.now().saturating_add(MINUTE).expect("in range");
        while sim.now() < end {
            sim.pass(SECOND / 20).await;
            assert_eq!(api_ready(sim), Some(true), "{:#?}", sim.view("web"));
        }
        assert!(is_ready(sim, "web"));
        sim.checks.set(&address, 2, Server::Refuses);
        sim.until("it is not ready", 25 * SECOND, |sim| {
            api_ready(sim) == Some(false)
        })
        .await;
        assert_eq!(sim.runtime.starts(&uid, "app"), 1);
    });
}

#[test]
fn probe_without_settings_has_defaults() {
    simulate(12, async |sim| {
        sim.runtime.add_image(IMAGE);
        let app = json!([{"name": "app", "livenessProbe": {"tcpSocket": {"port": 80}}}]);
        let mut web = pod("web", &app).grace(1).build();
        // as created by a client that sets no defaults
        let probe = serde_json::from_value(app[0]["livenessProbe"].clone()).expect("a probe");
        web.spec.as_mut().expect("a spec").containers[0].liveness_probe = Some(probe);
        sim.desire([web]).await;
        sim.until("it runs", 5 * SECOND, |sim| sim.phase("web") == "Running")
            .await;
        let ip = ip(sim, "web");
        sim.checks.set(&ip, 80, Server::Slow(SECOND / 2, 200));
        sim.pass(MINUTE).await;
        let answered = sim.checks.request_times(&ip, 80);
        let gaps = |times: &[tokio::time::Instant]| -> Vec<u64> {
            let pairs = times.windows(2);
            pairs.map(|pair| (pair[1] - pair[0]).as_secs()).collect()
        };
        assert!(answered.len() >= 6, "{answered:?}");
        assert!(gaps(&answered[1..]).iter().all(|gap| *gap == 10));
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);

        sim.checks.set(&ip, 80, Server::Hangs);
        sim.checks.clear_requests();
        sim.until("it is killed", MINUTE, |sim| {
            !events(sim, "web", "Killing").is_empty()
        })
        .await;
        let hung = sim.checks.request_times(&ip, 80);
        assert_eq!(gaps(&hung[..3]), [10, 10], "the third failure counts");
        let timeout = hung[2].elapsed();
        assert!((SECOND..SECOND * 3 / 2).contains(&timeout), "{timeout:?}");
    });
}
