//! Random pods, objects, faults and agent kills, then convergence.

use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use serde_json::json;
use tokio::time::Instant;
use windlass_fake_api::On;
use windlass_testing::fake_runtime::Behavior;
use windlass_testing::{NodeSim, PodBuilder, simulate_cluster};
use windlass_types::corev1::{ConfigMap, Node};
use windlass_types::{ContainerState, Pod, PodExt, PodUid, names};

use crate::audit::Audit;
use crate::fixture::*;
use crate::{MINUTE, SECOND};

const KINDS: [&str; 7] = ["web", "pair", "job", "fail", "crash", "config", "stubborn"];
const CONFIG_MAPS: [&str; 3] = ["red", "green", "blue"];

/// A pod whose name says how it behaves.
fn of_kind(kind: &str, number: usize) -> PodBuilder {
    let name = format!("{kind}-{number}");
    let builder = PodBuilder::new(&name)
        .bound_to(NODE)
        .container(kind, "busybox:1")
        .grace(5);
    match kind {
        "pair" => builder.container("web", "busybox:1"),
        "job" | "fail" => builder.restart_policy("Never"),
        "config" => builder.with(|pod| {
            let container = &mut pod.spec.as_mut().expect("spec").containers[0];
            let map = CONFIG_MAPS[number % CONFIG_MAPS.len()];
            let from = json!([{ "configMapRef": { "name": map } }]);
            container.env_from = serde_json::from_value(from).expect("envFrom");
        }),
        _ => builder,
    }
}

fn behaviors(sim: &NodeSim) {
    latencies(sim);
    let behaviors = [
        ("job", Behavior::exits(20 * SECOND, 0)),
        ("fail", Behavior::exits(7 * SECOND, 3)),
        ("crash", Behavior::exits(5 * SECOND, 1)),
        ("stubborn", Behavior::stubborn()),
    ];
    for (kind, behaviour) in behaviors {
        sim.runtime.set_behavior(kind, behaviour);
    }
}

async fn storm(sim: &mut NodeSim) -> Vec<String> {
    behaviors(sim);
    let audit = Audit::begin(sim);
    sim.start_agent().await;
    sim.desire([static_pod("etcd").build()]).await;
    for step in 0..60 {
        let time = Duration::from_millis(sim.dice.random_range(0..9000));
        sim.pass(time).await;
        disturb(sim, step).await;
        sim.runtime.assert_invariants();
        audit.assert_clean();
    }
    sim.note("peace");
    let faults = sim.api.faults();
    faults.clear();
    for map in CONFIG_MAPS {
        if sim.api.get::<ConfigMap>(Some("default"), map).is_none() {
            write_config_map(sim, map);
        }
    }
    sim.start_agent().await;
    sim.desire([static_pod("etcd").build(), static_pod("proxy").build()])
        .await;
    let peace = Instant::now();
    while !(node_ready(sim) && differences(sim).is_empty()) {
        let log = sim.log();
        assert!(
            peace.elapsed() < 10 * MINUTE,
            "{:#?}\n{}",
            differences(sim),
            log.join("\n")
        );
        sim.pass(SECOND).await;
    }
    sim.pass(10 * MINUTE).await;
    assert_eq!(differences(sim), Vec::<String>::new());
    sim.runtime.assert_invariants();
    audit.assert_clean();
    assert!(audit.count("PATCH", 200) > 20, "too little happened");
    sim.log().into_iter().chain(audit.requests()).collect()
}

/// Problems after convergence.
fn differences(sim: &NodeSim) -> Vec<String> {
    let pods = sim.api.list::<Pod>();
    let mut wrong = Vec::new();
    for pod in &pods {
        let differs = match pod.annotation(names::ANN_CONFIG_MIRROR) {
            Some(_) => !is_ready(pod),
            None => differs(sim, pod),
        };
        if differs || pod.metadata.deletion_timestamp.is_some() {
            let kind = &pod.containers()[0].name;
            let starts = sim.runtime.starts(&pod.uid(), kind);
            let status = pod.status.clone().unwrap_or_default();
            let line = windlass_pod_status::status::status_line(&status);
            wrong.push(format!("{} {starts} starts: {line}", pod.name()));
        }
    }
    for name in ["etcd", "proxy"] {
        if !pods.iter().any(|pod| pod.name() == name) {
            wrong.push(format!("{name} has no mirror"));
        }
    }
    let wanted: Vec<PodUid> = pods.iter().map(PodExt::uid).collect();
    for container in sim.runtime.all_containers() {
        let is_static = container.uid.as_str().ends_with("-uid");
        if container.state == ContainerState::Running
            && !is_static
            && !wanted.contains(&container.uid)
        {
            wrong.push(format!("{container} of {} runs", container.uid));
        }
    }
    for name in ["etcd", "proxy"] {
        if !runs(sim, &format!("{name}-uid").into()) {
            wrong.push(format!("{name} does not run"));
        }
    }
    wrong
}

fn differs(sim: &NodeSim, pod: &Pod) -> bool {
    let uid = pod.uid();
    let kind = pod.containers()[0].name.clone();
    let starts = sim.runtime.starts(&uid, &kind);
    match &*kind {
        "job" => phase_of(pod) != "Succeeded" || starts != 1,
        "fail" => phase_of(pod) != "Failed" || starts != 1,
        "crash" => phase_of(pod) != "Running" || starts < 2,
        _ => !is_ready(pod) || starts != 1 || !reported_status_matches_runtime(sim, pod),
    }
}

/// True if the status has the running containers.
fn reported_status_matches_runtime(sim: &NodeSim, pod: &Pod) -> bool {
    let statuses = pod.status.clone().and_then(|s| s.container_statuses);
    let statuses = statuses.unwrap_or_default();
    statuses.len() == pod.containers().len()
        && statuses.iter().all(|status| {
            let running = sim.runtime.running(&pod.uid(), &status.name);
            running.is_some_and(|container| {
                let id = status.container_id.as_deref().unwrap_or_default();
                id.ends_with(container.id.as_str()) && status.restart_count == 0 && status.ready
            })
        })
}

async fn disturb(sim: &mut NodeSim, step: usize) {
    let pods = sim.api.list::<Pod>();
    let victim = pods.choose(&mut sim.dice).map(|pod| pod.name().to_owned());
    let map = *CONFIG_MAPS.choose(&mut sim.dice).expect("not empty");
    let faults = sim.api.faults();
    match sim.dice.random_range(0..32) {
        0..=8 => {
            for number in 0..sim.dice.random_range(1..4) {
                let kind = *KINDS.choose(&mut sim.dice).expect("not empty");
                sim.note(format!("create {kind}-{step}-{number}"));
                create(sim, of_kind(kind, step * 10 + number));
            }
        }
        9..=11 => {
            if let Some(name) = victim {
                let grace = *[None, Some(0), Some(1), Some(20)]
                    .choose(&mut sim.dice)
                    .expect("not empty");
                sim.note(format!("delete {name} {grace:?}"));
                delete(sim, &name, grace);
                if sim.dice.random_bool(0.3) && get(sim, &name).is_none() {
                    let (kind, number) = name.split_once('-').unwrap_or((&name, ""));
                    if let Ok(number) = number.parse() {
                        sim.note(format!("create {name} again"));
                        create(sim, of_kind(kind, number));
                    }
                }
            }
        }
        12 => {
            if let Some(name) = victim {
                sim.note(format!("label {name}"));
                sim.api.modify::<Pod>(Some("default"), &name, |pod| {
                    let labels = pod.metadata.labels.get_or_insert_default();
                    labels.insert("step".to_owned(), step.to_string());
                });
            }
        }
        13 => write_config_map(sim, map),
        14 => {
            sim.note(format!("delete {map}"));
            sim.api.delete::<ConfigMap>(Some("default"), map, None);
        }
        15 | 16 => sim.kill_agent().await,
        17 | 18 => sim.start_agent().await,
        19 => {
            let names = ["etcd", "proxy"].into_iter();
            let kept: Vec<_> = names.filter(|_| sim.dice.random_bool(0.6)).collect();
            sim.desire(kept.into_iter().map(|name| static_pod(name).build()))
                .await;
        }
        20 => {
            sim.note("delete the node");
            sim.api.delete::<Node>(None, NODE, None);
        }
        21 | 22 => {
            sim.note("faults lifted");
            faults.clear();
        }
        _ => fault(sim),
    }
}

fn fault(sim: &mut NodeSim) {
    let faults = sim.api.faults();
    let on = match sim.dice.random_range(0..4) {
        0 => On::any(),
        1 => On::path("*/status"),
        2 => On::path("*/pods*"),
        _ => On::any().method("WATCH"),
    };
    let on = match sim.dice.random_bool(0.5) {
        true => on.times(sim.dice.random_range(1..10)),
        false => on,
    };
    let what = sim.dice.random_range(0..15);
    sim.note(format!("fault {what} on {on:?}"));
    match what {
        0 => drop(faults.outage()),
        1 => drop(faults.slow(on, 5 * SECOND)),
        2 => drop(faults.hang(on)),
        3 => drop(faults.error(on, 401)),
        4 => drop(faults.error(on, 500)),
        5 => drop(faults.error_retry_after(on, 429, 3)),
        6 => drop(faults.drop_reply(on)),
        7 | 8 => faults.close_watches(),
        9 => faults.silence_watches(),
        10 => faults.expire_versions(),
        11 => faults.stale_reads(sim.dice.random_bool(0.5)),
        12 => faults.repeat_events(sim.dice.random_bool(0.7)),
        13 => faults.reorder_events(sim.dice.random_bool(0.7)),
        _ => faults.no_streaming_lists(sim.dice.random_bool(0.5)),
    }
}

fn write_config_map(sim: &NodeSim, name: &str) {
    let data = Some([("NOW".to_owned(), sim.now().to_string())].into());
    if sim.api.get::<ConfigMap>(Some("default"), name).is_some() {
        sim.api
            .modify::<ConfigMap>(Some("default"), name, |map| map.data = data);
        return;
    }
    let mut map = ConfigMap {
        data,
        ..ConfigMap::default()
    };
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("default".to_owned());
    sim.api.create(&map);
}

#[test]
fn random_storm_converges_with_correct_statuses() {
    for seed in 0..20 {
        eprintln!("seed {seed}");
        simulate_cluster(seed, storm);
    }
}

#[test]
fn same_seed_produces_same_calls_and_requests() {
    let first = simulate_cluster(42, storm);
    let second = simulate_cluster(42, storm);
    for (line, (a, b)) in first.iter().zip(&second).enumerate() {
        let before = first[line.saturating_sub(10)..line].join("\n");
        assert_eq!(a, b, "line {line}, after\n{before}");
    }
    assert_eq!(first.len(), second.len());
    assert!(first.len() > 300, "too little happened");
}
