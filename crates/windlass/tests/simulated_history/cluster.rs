//! Pods of the API server: phases, deletion, requests, lists; and the heartbeat of the node.

use serde_json::json;
use windlass_fake_api::On;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{ConfigMap, Node, ServiceAccount};
use windlass_types::mutation::Mutation;
use windlass_types::{Pod, PodExt, PodUid};
use windlass_volumes::VolumeStep;

use crate::history::*;
use crate::invariant::{Invariant, Violation};
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::TerminalPhaseRegresses,
        invariant: Invariant::TerminalPhaseIsFinal,
        run: remains_of_ended_pod_lost,
    },
    Scenario {
        mutation: Mutation::TerminalPhaseTooEarly,
        invariant: Invariant::TerminalPhaseIsTrue,
        run: deadline,
    },
    Scenario {
        mutation: Mutation::TerminatedPodRunsAgain,
        invariant: Invariant::EndedPodStaysEnded,
        run: remains_of_ended_pod_lost,
    },
    Scenario {
        mutation: Mutation::RestartRejectsPods,
        invariant: Invariant::RunningPodStays,
        run: node_label_changed,
    },
    Scenario {
        mutation: Mutation::StaleList,
        invariant: Invariant::EndedPodStaysEnded,
        run: lagging_watch_cache,
    },
    Scenario {
        mutation: Mutation::DeletedPodStays,
        invariant: Invariant::DeletedPodGoes,
        run: deleted_before_its_start,
    },
    Scenario {
        mutation: Mutation::DeletedTooEarly,
        invariant: Invariant::ObjectGoesLast,
        run: hung_tear_down,
    },
    Scenario {
        mutation: Mutation::NoTerminalPhase,
        invariant: Invariant::DeletedPodGoes,
        run: deleted_while_running,
    },
    Scenario {
        mutation: Mutation::WrongPodDeleted,
        invariant: Invariant::UidIsChecked,
        run: late_deletion,
    },
    Scenario {
        mutation: Mutation::StatusOfOldPod,
        invariant: Invariant::UidIsChecked,
        run: late_status,
    },
    Scenario {
        mutation: Mutation::TokenRefusalIsFinal,
        invariant: Invariant::DesiredPodRuns,
        run: lagging_authorizer,
    },
    Scenario {
        mutation: Mutation::NodeWaitsForImages,
        invariant: Invariant::NodeStaysReady,
        run: hung_image_list,
    },
    Scenario {
        mutation: Mutation::NodeNotReadyAtRestart,
        invariant: Invariant::NodeStaysReady,
        run: restart_with_slow_runtime,
    },
    Scenario {
        mutation: Mutation::LeaseWaitsForNode,
        invariant: Invariant::LeaseOnTime,
        run: hung_node_requests,
    },
];

/// A pod has ended, and while the agent is down its containers are removed.
fn remains_of_ended_pod_lost() -> Outcome {
    on_a_node(async |history| {
        let ends = Behavior::exits(SECOND, 0);
        history.sim.runtime.set_behavior("default/job/app", ends);
        let job = pod("job").restart_policy("Never").build();
        let uid = history.sim.api.create(&job).uid();
        let ended = |sim: &NodeSim| phase(sim, "job") == "Succeeded";
        history
            .within(Invariant::DesiredPodRuns, "job has ended", PROMPTLY, ended)
            .await?;
        history.pass(5 * SECOND).await?;
        history.sim.kill_agent().await;
        for container in history.sim.runtime.containers(&uid) {
            history.sim.runtime.lose_container(&container.id);
        }
        history.sim.start_agent().await;
        for _ in 0..60 {
            history.pass(SECOND).await?;
            let starts = history.sim.runtime.starts(&uid, "app");
            let text = format!("{starts} starts of a pod that runs once");
            demand(starts == 1, Invariant::EndedPodStaysEnded, text)?;
        }
        Ok(())
    })
}

/// A pod exceeds its deadline and does not end before its grace period.
fn deadline() -> Outcome {
    on_a_node(async |history| {
        history.stubborn("job");
        let job = pod("job").grace(20).with(|pod| {
            pod.spec.as_mut().expect("a spec").active_deadline_seconds = Some(5);
        });
        history.run(job).await?;
        let failed = |sim: &NodeSim| phase(sim, "job") == "Failed";
        let what = "its deadline is reported";
        history
            .within(Invariant::TerminalPhaseIsTrue, what, MINUTE, failed)
            .await
    })
}

fn label_zone(sim: &NodeSim, zone: &str) {
    sim.api.modify::<Node>(None, NODE, |node| {
        let labels = node.metadata.labels.get_or_insert_default();
        labels.insert("zone".to_owned(), zone.to_owned());
    });
}

/// The label that a running pod selects is removed; then the agent is restarted.
fn node_label_changed() -> Outcome {
    on_a_node(async |history| {
        label_zone(history.sim, "a");
        history.pass(20 * SECOND).await?;
        let web = pod("web").with(|pod| {
            let selector = [("zone".to_owned(), "a".to_owned())];
            pod.spec.as_mut().expect("a spec").node_selector = Some(selector.into());
        });
        let uid = history.run(web).await?;
        history.must_stay(&uid, "app")?;
        label_zone(history.sim, "b");
        history.restart_agent(SECOND).await?;
        history.pass(2 * MINUTE).await
    })
}

/// The agent restarts at an API server whose watch cache still has a deleted pod.
fn lagging_watch_cache() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web")).await?;
        let faults = history.sim.api.faults();
        faults.stale_reads(true);
        delete(history.sim, "web", None);
        history.until_gone(&uid, "web", PROMPTLY).await?;
        history.sim.kill_agent().await;
        // the cache does not catch up
        faults.no_streaming_lists(true);
        faults.silent_from_start(true);
        history.sim.start_agent().await;
        for _ in 0..30 {
            history.pass(SECOND).await?;
            let calls = history
                .sim
                .runtime
                .calls_of(Operation::RunPodSandbox, "default/web");
            let text = "a sandbox of a deleted pod was requested";
            demand(calls.len() == 1, Invariant::EndedPodStaysEnded, text)?;
        }
        Ok(())
    })
}

/// A pod whose image does not exist.
fn without_image(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .bound_to(NODE)
        .container("app", "missing:1")
        .grace(5)
}

fn deleted_before_its_start() -> Outcome {
    on_a_node(async |history| {
        let missing = Pull::not_found("missing:1");
        history.sim.runtime.set_pull("missing:1", missing);
        let uid = history.sim.api.create(&without_image("web").build()).uid();
        history.pass(20 * SECOND).await?;
        delete(history.sim, "web", None);
        history.until_gone(&uid, "web", MINUTE).await
    })
}

/// A volume of a deleted pod cannot be unmounted for some time.
fn hung_tear_down() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web").empty_dir("data")).await?;
        let volume = format!("{uid}/data");
        history.sim.volumes.hang(VolumeStep::Unmount, &volume, true);
        delete(history.sim, "web", None);
        for _ in 0..300 {
            history.pass(SECOND / 10).await?;
            history.check_removed(&uid, "web")?;
        }
        history
            .sim
            .volumes
            .hang(VolumeStep::Unmount, &volume, false);
        history.until_gone(&uid, "web", MINUTE).await
    })
}

fn deleted_while_running() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web")).await?;
        delete(history.sim, "web", None);
        history.until_gone(&uid, "web", MINUTE).await
    })
}

/// Replaces the object of a pod by another of the same name.
fn replace(sim: &NodeSim, pod: PodBuilder) -> Pod {
    let pod = pod.build();
    delete(sim, pod.name(), Some(0));
    sim.api.create(&pod)
}

/// The final deletion of a pod arrives after a user has replaced the pod.
fn late_deletion() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web")).await?;
        let path = On::path("/api/v1/namespaces/default/pods/web").method("DELETE");
        history.sim.api.faults().slow(path, 10 * SECOND);
        delete(history.sim, "web", Some(1));
        let ended = |sim: &NodeSim| left_of(sim, &uid).is_empty();
        history
            .within(Invariant::DeletedPodGoes, "web has ended", PROMPTLY, ended)
            .await?;
        history.pass(2 * SECOND).await?;
        let next = replace(history.sim, pod("web")).uid();
        history.pass(20 * SECOND).await?;
        let now = get(history.sim, "web").map(|pod| pod.uid());
        let text = format!("{next} was replaced by {now:?}");
        demand(now == Some(next), Invariant::UidIsChecked, text)
    })
}

/// A status patch arrives after a user has replaced the pod.
fn late_status() -> Outcome {
    on_a_node(async |history| {
        let missing = Pull::not_found("missing:1");
        history.sim.runtime.set_pull("missing:1", missing);
        let uid = history.run(pod("web")).await?;
        history.pass(5 * SECOND).await?;
        let path = On::path("/api/v1/namespaces/default/pods/web/status").method("PATCH");
        history.sim.api.faults().slow(path, 10 * SECOND);
        let app = history.sim.runtime.running(&uid, "app").expect("it runs");
        history.sim.runtime.kill_container(&app.id, 1);
        history.pass(2 * SECOND).await?;
        replace(history.sim, without_image("web"));
        for _ in 0..40 {
            history.pass(SECOND).await?;
            let status = container_status(history.sim, "web");
            let id = status.and_then(|it| it.container_id);
            let text = format!("a pod that never ran has container {id:?}");
            demand(id.is_none(), Invariant::UidIsChecked, text)?;
        }
        Ok(())
    })
}

fn with_token(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .container("app", "busybox:1")
        .grace(5)
        .with(|pod| {
            let spec = pod.spec.as_mut().expect("a spec");
            spec.service_account_name = Some("robot".to_owned());
            let sources = json!([
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": { "name": "kube-root-ca.crt" } },
            ]);
            let volumes = json!([{ "name": "api", "projected": { "sources": sources } }]);
            spec.volumes = serde_json::from_value(volumes).expect("volumes");
            let mounts = json!([{ "name": "api", "mountPath": "/var/run/secrets" }]);
            spec.containers[0].volume_mounts = serde_json::from_value(mounts).expect("mounts");
        })
}

fn meta<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let meta = json!({ "metadata": { "namespace": "default", "name": name } });
    serde_json::from_value(meta).expect("an object")
}

/// Binds a pod as a scheduler.
async fn schedule(history: &mut History<'_>, name: &str) -> Result<PodUid, Violation> {
    let uid = history.sim.api.create(&with_token(name).build()).uid();
    history.pass(SECOND).await?;
    history.sim.api.modify::<Pod>(Some("default"), name, |pod| {
        pod.spec.as_mut().expect("a spec").node_name = Some(NODE.to_owned());
    });
    Ok(uid)
}

/// The node authorizer observes the binding of a pod seconds later.
fn lagging_authorizer() -> Outcome {
    on_a_node(async |history| {
        history.sim.api.create::<ServiceAccount>(&meta("robot"));
        history
            .sim
            .api
            .create::<ConfigMap>(&meta("kube-root-ca.crt"));
        history.sim.api.faults().informer_lag(5 * SECOND);
        schedule(history, "web").await?;
        let ready = |sim: &NodeSim| is_ready(sim, "web");
        history
            .within(Invariant::DesiredPodRuns, "web is ready", MINUTE, ready)
            .await
    })
}

fn hung_image_list() -> Outcome {
    let hung = |sim: &mut NodeSim| sim.runtime.inject(Fault::hang(Operation::ListImages));
    before_start(hung, async |history| {
        history.run(pod("web")).await?;
        history.pass(MINUTE).await
    })
}

fn restart_with_slow_runtime() -> Outcome {
    on_a_node(async |history| {
        history
            .sim
            .runtime
            .set_latency(Operation::Status, 3 * SECOND);
        history.restart_agent(SECOND).await?;
        for _ in 0..300 {
            history.pass(SECOND / 10).await?;
            let text = "an agent restart";
            demand(node_ready(history.sim), Invariant::NodeStaysReady, text)?;
        }
        Ok(())
    })
}

/// Requests for the Node object hang.
fn hung_node_requests() -> Outcome {
    on_a_node(async |history| {
        history.pass(MINUTE).await?;
        history.sim.api.faults().hang(On::path("/api/v1/nodes/*"));
        history.pass(2 * MINUTE).await?;
        let mut times = renewals(&history.sim.api);
        times.push(history.sim.now());
        let gaps = times
            .windows(2)
            .map(|two| two[1].duration_since(two[0]).as_secs());
        let longest = gaps.max().unwrap_or_default();
        let text = format!("{longest} s without a renewal");
        demand(longest <= 15, Invariant::LeaseOnTime, text)
    })
}
