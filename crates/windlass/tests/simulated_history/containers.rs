//! Containers: starts, exits, restarts, probes, and what the runtime loses.

use serde_json::{Value, json};
use windlass_cri::CriCode;
use windlass_testing::fake_runtime::{Behavior, Exec, Fault, Operation};
use windlass_testing::{FakeStateDisk, NodeSim};
use windlass_types::mutation::{ActiveMutation, Mutation};
use windlass_types::{ContainerState, PodUid};

use crate::history::*;
use crate::invariant::Invariant;
use crate::{MINUTE, SECOND};

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario {
        mutation: Mutation::HungCallStopsPleg,
        invariant: Invariant::NodeStaysReady,
        run: hung_status_call,
    },
    Scenario {
        mutation: Mutation::MissedEventIsLost,
        invariant: Invariant::ExitIsNoticed,
        run: lost_exit_event,
    },
    Scenario {
        mutation: Mutation::SecondSandbox,
        invariant: Invariant::OneInstance,
        run: lost_reply_of_sandbox,
    },
    Scenario {
        mutation: Mutation::CreatedContainerStays,
        invariant: Invariant::DesiredPodRuns,
        run: created_container,
    },
    Scenario {
        mutation: Mutation::InitContainersRerun,
        invariant: Invariant::ContainersInOrder,
        run: removed_init_container,
    },
    Scenario {
        mutation: Mutation::AppStartsBeforeInit,
        invariant: Invariant::ContainersInOrder,
        run: reboot,
    },
    Scenario {
        mutation: Mutation::HashChangesWithVersion,
        invariant: Invariant::RunningPodStays,
        run: upgrade,
    },
    Scenario {
        mutation: Mutation::RestartCountFromRemains,
        invariant: Invariant::RestartCountGrows,
        run: collected_containers,
    },
    Scenario {
        mutation: Mutation::BackoffResetByRestart,
        invariant: Invariant::BackoffHolds,
        run: restart_in_back_off,
    },
    Scenario {
        mutation: Mutation::ProbeResultOfOldInstance,
        invariant: Invariant::RunningPodStays,
        run: healthy_after_restart,
    },
    Scenario {
        mutation: Mutation::ReadyWithoutProbe,
        invariant: Invariant::ReadinessIsProbed,
        run: restart_of_unready_pod,
    },
    Scenario {
        mutation: Mutation::NotReadyAfterRestart,
        invariant: Invariant::ReadinessIsProbed,
        run: restart_of_ready_pod,
    },
];

/// Limit of a relist while events are received, twice.
const UNTIL_NOTICED: std::time::Duration = MINUTE;

/// A call about one container hangs for longer than the PLEG may be silent.
fn hung_status_call() -> Outcome {
    on_a_node(async |history| {
        let hung = history.run(pod("hung")).await?;
        history.run(pod("other")).await?;
        let fault = Fault::hang(Operation::ContainerStatus).on("default/hung");
        history.sim.runtime.inject(fault);
        let app = history.sim.runtime.running(&hung, "app").expect("it runs");
        history.sim.runtime.kill_container(&app.id, 1);
        for _ in 0..300 {
            history.pass(SECOND).await?;
            let text = "one hung call of the runtime";
            demand(node_ready(history.sim), Invariant::NodeStaysReady, text)?;
        }
        Ok(())
    })
}

fn lost_exit_event() -> Outcome {
    on_a_node(async |history| {
        let uid = history.run(pod("web")).await?;
        history.pass(5 * SECOND).await?;
        history.sim.runtime.drop_events(10);
        let app = history.sim.runtime.running(&uid, "app").expect("it runs");
        history.sim.runtime.kill_container(&app.id, 1);
        let restarted = |sim: &NodeSim| sim.runtime.starts(&uid, "app") == 2;
        let what = "the container is restarted";
        history
            .within(Invariant::ExitIsNoticed, what, UNTIL_NOTICED, restarted)
            .await
    })
}

/// The sandbox was created, but the agent does not know it.
fn lost_reply_of_sandbox() -> Outcome {
    on_a_node(async |history| {
        let fault = Fault::lose_reply(Operation::RunPodSandbox, 1).on("default/web");
        history.sim.runtime.inject(fault);
        history.sim.api.create(&pod("web").build());
        let limit = MINUTE;
        let ready = |sim: &NodeSim| is_ready(sim, "web");
        history
            .within(Invariant::DesiredPodRuns, "web is ready", limit, ready)
            .await?;
        let calls = history
            .sim
            .runtime
            .calls_of(Operation::RunPodSandbox, "default/web");
        let text = format!("{} requests for a sandbox", calls.len());
        demand(calls.len() == 1, Invariant::OneInstance, text)
    })
}

/// The agent is killed after it created a container and before it started it.
fn created_container() -> Outcome {
    on_a_node(async |history| {
        let refused = Fault::fail(
            Operation::StartContainer,
            usize::MAX,
            CriCode::Unavailable,
            "the runtime restarts",
        );
        history.sim.runtime.inject(refused.on("default/web"));
        let web = pod("web").restart_policy("OnFailure").build();
        let uid = windlass_types::PodExt::uid(&history.sim.api.create(&web));
        let created = |sim: &NodeSim| {
            let containers = sim.runtime.containers(&uid);
            containers
                .iter()
                .any(|it| it.state == ContainerState::Created)
        };
        let what = "a container is created";
        history
            .within(Invariant::DesiredPodRuns, what, PROMPTLY, created)
            .await?;
        history.sim.kill_agent().await;
        history.sim.runtime.clear_faults();
        history.sim.start_agent().await;
        let ready = |sim: &NodeSim| is_ready(sim, "web");
        history
            .within(Invariant::DesiredPodRuns, "web is ready", PROMPTLY, ready)
            .await
    })
}

/// A user removes an init container that has completed.
fn removed_init_container() -> Outcome {
    on_a_node(async |history| {
        history
            .sim
            .runtime
            .set_behavior("setup", Behavior::exits(SECOND, 0));
        let uid = history
            .run(pod("web").init_container("setup", "busybox:1"))
            .await?;
        history.must_stay(&uid, "app")?;
        let all = history.sim.runtime.containers(&uid);
        let setup = all.iter().find(|it| it.name == "setup").expect("it ran");
        history.sim.runtime.lose_container(&setup.id);
        history.pass(3 * MINUTE).await?;
        let starts = history.sim.runtime.starts(&uid, "setup");
        let text = format!("setup was started {starts} times");
        demand(starts == 1, Invariant::ContainersInOrder, text)
    })
}

/// The host reboots; the remains of its containers are still in the runtime.
fn reboot() -> Outcome {
    on_a_node(async |history| {
        history
            .sim
            .runtime
            .set_behavior("setup", Behavior::exits(3 * SECOND, 0));
        let uid = history
            .run(pod("web").init_container("setup", "busybox:1"))
            .await?;
        history.sim.kill_agent().await;
        history.sim.runtime.reboot();
        history.sim.start_agent().await;
        let again = |sim: &NodeSim| runs(sim, &uid);
        history
            .within(Invariant::DesiredPodRuns, "app runs again", PROMPTLY, again)
            .await?;
        let all = history.sim.runtime.containers(&uid);
        let last = |name: &str| {
            all.iter()
                .rfind(|it| it.name == name)
                .expect("it ran")
                .clone()
        };
        let (setup, app) = (last("setup"), last("app"));
        let done = setup.attempt > 0 && setup.exit_code == 0;
        let in_order = done && setup.finished_at <= app.started_at;
        demand(
            in_order,
            Invariant::ContainersInOrder,
            "app started before setup had ended",
        )
    })
}

/// The next version of the agent takes over the containers of this one.
fn upgrade() -> Outcome {
    on_a_node(async |history| {
        let this_version = ActiveMutation::new(None);
        let uid = history.run(pod("web")).await?;
        history.must_stay(&uid, "app")?;
        history.sim.kill_agent().await;
        drop(this_version);
        history.sim.start_agent().await;
        history.pass(3 * MINUTE).await
    })
}

/// A container crashes for longer than its exited instances are kept.
fn collected_containers() -> Outcome {
    on_a_node(async |history| {
        let crash = Behavior::exits(SECOND, 1);
        history.sim.runtime.set_behavior("default/web/app", crash);
        history.run(pod("web")).await?;
        history.pass(10 * MINUTE).await?;
        let count = container_status(history.sim, "web").map_or(0, |it| it.restart_count);
        let text = format!("{count} restarts in 10 min");
        demand(count >= 5, Invariant::RestartCountGrows, text)
    })
}

fn restart_in_back_off() -> Outcome {
    let prepare = |sim: &mut NodeSim| sim.state_disk = Some(FakeStateDisk::default());
    before_start(prepare, async |history| {
        let crash = Behavior::exits(SECOND, 1);
        history.sim.runtime.set_behavior("default/web/app", crash);
        let uid = history.run(pod("web")).await?;
        let starts = |sim: &NodeSim| sim.runtime.starts(&uid, "app");
        let limit = 5 * MINUTE;
        let what = "six starts";
        history
            .within(Invariant::DesiredPodRuns, what, limit, |sim| {
                starts(sim) == 6
            })
            .await?;
        history.pass(10 * SECOND).await?;
        history.restart_agent(SECOND).await?;
        history.pass(MINUTE).await?;
        let text = "the container was started a minute after its sixth exit";
        demand(starts(history.sim) == 6, Invariant::BackoffHolds, text)
    })
}

/// A probe with a command.
fn probe(seconds: u32, delay: u32) -> Value {
    json!({
        "exec": {"command": ["check"]},
        "periodSeconds": seconds,
        "initialDelaySeconds": delay,
        "failureThreshold": 1,
    })
}

/// The liveness probe fails once; the next instance is healthy.
fn healthy_after_restart() -> Outcome {
    on_a_node(async |history| {
        let app = pod("web").with(|pod| {
            let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
            container.liveness_probe = serde_json::from_value(probe(1, 3)).expect("a probe");
        });
        let uid = history.run(app).await?;
        history.pass(5 * SECOND).await?;
        history.sim.runtime.set_exec("app", Exec::exits(1));
        let restarted = |sim: &NodeSim| sim.runtime.starts(&uid, "app") >= 2;
        let what = "the container is restarted";
        history
            .within(Invariant::DesiredPodRuns, what, PROMPTLY, restarted)
            .await?;
        history.sim.runtime.set_exec("app", Exec::exits(0));
        let running = |sim: &NodeSim| runs(sim, &uid);
        history
            .within(Invariant::RunningPodStays, "app runs", SECOND, running)
            .await?;
        history.must_stay(&uid, "app")?;
        history.pass(2 * MINUTE).await
    })
}

fn with_readiness(name: &str) -> windlass_testing::PodBuilder {
    pod(name).with(|pod| {
        let container = &mut pod.spec.as_mut().expect("a spec").containers[0];
        container.readiness_probe = serde_json::from_value(probe(10, 0)).expect("a probe");
    })
}

/// The probe results of the previous run are lost, as after a full disk.
async fn restart_without_results(history: &mut History<'_>) {
    history.sim.kill_agent().await;
    history.sim.probe_results = Default::default();
    history.sim.start_agent().await;
}

async fn readiness_stays(history: &mut History<'_>, name: &str, ready: bool) -> Outcome {
    for _ in 0..300 {
        history.pass(SECOND / 10).await?;
        let text = format!("ready changed from {ready}");
        demand(
            is_ready(history.sim, name) == ready,
            Invariant::ReadinessIsProbed,
            text,
        )?;
    }
    Ok(())
}

fn restart_of_unready_pod() -> Outcome {
    on_a_node(async |history| {
        history.sim.runtime.set_exec("app", Exec::exits(1));
        let created = history.sim.api.create(&with_readiness("web").build());
        let uid: PodUid = windlass_types::PodExt::uid(&created);
        let running = |sim: &NodeSim| runs(sim, &uid);
        history
            .within(Invariant::DesiredPodRuns, "web runs", PROMPTLY, running)
            .await?;
        readiness_stays(history, "web", false).await?;
        restart_without_results(history).await;
        readiness_stays(history, "web", false).await
    })
}

fn restart_of_ready_pod() -> Outcome {
    on_a_node(async |history| {
        history.run(with_readiness("web")).await?;
        history.pass(15 * SECOND).await?;
        restart_without_results(history).await;
        readiness_stays(history, "web", true).await
    })
}
