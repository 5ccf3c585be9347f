//! Orphaned pods on a virtual clock, and what removed pods left in the runtime, on disk and in
//! cgroups.

#![allow(missing_docs, clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use windlass_cgroups::MemoryTree;
use windlass_runtime::CgroupSettings;
use windlass_runtime_config::pod_cgroup::NodeLimits;
use windlass_testing::fake_runtime::{Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::cri::CgroupDriver;
use windlass_types::{ContainerState, PodUid};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// Orphans are removed by housekeeping, before the next garbage collection.
const PROMPTLY: Duration = Duration::from_secs(10);

/// States of leftovers.
const SHAPES: [&str; 6] = ["whole", "dead", "empty", "stopped", "loose", "unknown"];

fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).container("app", "busybox:1").grace(5)
}

fn uid(name: &str) -> PodUid {
    format!("{name}-uid").into()
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    sim.runtime.running(&uid(name), "app").is_some()
}

fn latencies(sim: &NodeSim) {
    sim.runtime.add_image("busybox:1");
    for (operation, milliseconds) in [
        (Operation::RunPodSandbox, 80),
        (Operation::StartContainer, 40),
        (Operation::StopContainer, 30),
        (Operation::StopPodSandbox, 100),
        (Operation::RemoveContainer, 20),
        (Operation::RemovePodSandbox, 20),
    ] {
        let latency = Duration::from_millis(milliseconds);
        sim.runtime.set_latency(operation, latency);
    }
}

/// Leftovers of a pod, one line each.
fn left_of(sim: &NodeSim, name: &str) -> Vec<String> {
    let uid = uid(name);
    let containers = sim.runtime.containers(&uid).into_iter();
    let mut left: Vec<String> = containers.map(|c| format!("{name}: {c}")).collect();
    let sandboxes = sim.runtime.sandboxes().into_iter();
    let sandboxes = sandboxes.filter(|(_, owner, _, _)| *owner == uid);
    left.extend(
        sandboxes.map(|(_, _, attempt, ready)| format!("{name}: sandbox#{attempt} {ready}")),
    );
    let dirs = sim.files.pod_dirs();
    left.extend(dirs.get(&uid).map(|_| format!("{name}: directory")));
    let logs = sim.files.log_dirs().into_iter();
    let logs = logs.filter(|log| log.ends_with(uid.as_str()));
    left.extend(logs.map(|log| format!("{name}: logs {log}")));
    let links = sim.files.links().into_values();
    let links = links.filter(|log| log.display().to_string().contains(uid.as_str()));
    left.extend(links.map(|log| format!("{name}: link to {}", log.display())));
    left
}

fn left(sim: &NodeSim, names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| left_of(sim, name)).collect()
}

/// A node on which an agent was killed that ran `kept` and one pod of each shape, and whose
/// manifests now ask for `kept` only. The next agent finds the shapes.
async fn leave_every_shape(sim: &mut NodeSim) {
    latencies(sim);
    let all = SHAPES.iter().copied().chain(["kept"]);
    sim.desire(all.clone().map(|name| pod(name).build())).await;
    sim.until("all run", MINUTE, |sim| {
        all.clone().all(|name| runs(sim, name))
    })
    .await;
    sim.kill_agent().await;
    let app = |name: &str| sim.runtime.running(&uid(name), "app").expect("runs");
    sim.runtime.kill_container(&app("dead").id, 1);
    sim.runtime.lose_container(&app("empty").id);
    sim.runtime.kill_sandbox(&app("stopped").sandbox);
    sim.runtime.lose_sandbox(&app("loose").sandbox);
    sim.runtime.set_unknown(&app("unknown").id);
    sim.desire([pod("kept").build()]).await;
}

#[test]
fn orphaned_pods_of_every_state_are_removed() {
    simulate(1, async |sim| {
        leave_every_shape(sim).await;
        let kept = sim.runtime.running(&uid("kept"), "app");
        sim.runtime.clear_calls();
        sim.start_agent().await;
        sim.until("nothing is left", PROMPTLY, |sim| {
            left(sim, &SHAPES).is_empty()
        })
        .await;
        // exited containers are not stopped again, those in an unknown state are
        for (name, stops) in [("whole", true), ("unknown", true), ("dead", false)] {
            let subject = format!("default/{name}/");
            let calls = sim.runtime.calls_of(Operation::StopContainer, &subject);
            assert_eq!(!calls.is_empty(), stops, "{name}: {calls:?}");
        }
        assert_eq!(sim.runtime.running(&uid("kept"), "app"), kept);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn orphans_are_kept_until_all_sources_ready() {
    simulate(2, async |sim| {
        leave_every_shape(sim).await;
        let before = left(sim, &SHAPES);
        sim.silence_manifests(true);
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(left(sim, &SHAPES), before);
        sim.silence_manifests(false);
        sim.desire([pod("kept").build()]).await;
        sim.until("nothing is left", PROMPTLY, |sim| {
            left(sim, &SHAPES).is_empty()
        })
        .await;
        assert!(runs(sim, "kept"));
    });
}

#[test]
fn orphaned_pod_desired_later_runs_eventually() {
    for moment in 0..40 {
        simulate(100 + moment, async |sim| {
            latencies(sim);
            sim.desire([pod("late").build()]).await;
            sim.until("runs", MINUTE, |sim| runs(sim, "late")).await;
            let first = sim.runtime.running(&uid("late"), "app");
            sim.kill_agent().await;
            sim.desire([]).await;
            sim.start_agent().await;
            let waited = Duration::from_millis(100) * u32::try_from(moment).expect("small");
            sim.pass(waited).await;
            sim.desire([pod("late").build()]).await;
            sim.pass(MINUTE).await;
            assert!(runs(sim, "late"), "asked for after {waited:?}");
            assert!(sim.files.pod_dirs().contains(&uid("late")), "{waited:?}");
            if waited < 2 * SECOND {
                // before housekeeping
                assert_eq!(
                    sim.runtime.running(&uid("late"), "app"),
                    first,
                    "{waited:?}"
                );
            }
            sim.runtime.assert_invariants();
        });
    }
}

#[test]
fn interrupted_housekeeping_is_finished_after_restart() {
    for step in 0..60 {
        simulate(200 + step, async |sim| {
            leave_every_shape(sim).await;
            sim.start_agent().await;
            // housekeeping runs first after two seconds
            let step = Duration::from_millis(50) * u32::try_from(step).expect("small");
            sim.pass(2 * SECOND + step).await;
            sim.kill_agent().await;
            sim.pass(SECOND).await;
            sim.start_agent().await;
            sim.until("nothing is left", PROMPTLY, |sim| {
                left(sim, &SHAPES).is_empty()
            })
            .await;
            assert!(runs(sim, "kept"));
            sim.runtime.assert_invariants();
        });
    }
}

#[test]
fn removed_pod_is_cleaned_up_including_logs() {
    simulate(3, async |sim| {
        latencies(sim);
        for generation in 0..30 {
            let name = format!("g{generation}");
            sim.desire([pod("kept").build(), pod(&name).build()]).await;
            sim.until("runs", MINUTE, |sim| runs(sim, &name)).await;
            sim.pass(SECOND).await;
        }
        sim.desire([pod("kept").build()]).await;
        let names: Vec<String> = (0..30).map(|generation| format!("g{generation}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        sim.until("nothing is left", 2 * PROMPTLY, |sim| {
            left(sim, &names).is_empty()
        })
        .await;
        assert_eq!(sim.files.log_dirs().len(), 1);
        assert_eq!(sim.files.links().len(), 1);
        assert_eq!(sim.files.pod_dirs().len(), 1);
    });
}

#[test]
fn failed_removal_is_retried_once_a_minute() {
    simulate(4, async |sim| {
        leave_every_shape(sim).await;
        let stuck = windlass_testing::fake_runtime::Fault::fail(
            Operation::RemovePodSandbox,
            usize::MAX,
            windlass_cri::CriCode::Other,
            "device busy",
        );
        sim.runtime.inject(stuck.on("default/stopped"));
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        let tries = sim
            .runtime
            .calls_of(Operation::RemovePodSandbox, "default/stopped");
        assert!(
            (4..=9).contains(&tries.len()),
            "{} in 5 minutes",
            tries.len()
        );
        sim.runtime.clear_faults();
        sim.until("nothing is left", 2 * MINUTE, |sim| {
            left(sim, &SHAPES).is_empty()
        })
        .await;
    });
}

#[test]
fn orphaned_pod_metrics_count_mounted_directories() {
    simulate(5, async |sim| {
        leave_every_shape(sim).await;
        sim.files.mount(&uid("stopped"), true);
        sim.start_agent().await;
        sim.until("the rest is gone", PROMPTLY, |sim| {
            left(sim, &SHAPES) == ["stopped: directory"]
        })
        .await;
        sim.pass(2 * MINUTE).await;
        // `stopped` had no running container: not an orphaned pod of the runtime
        assert_eq!(sim.metrics.workers.orphaned_runtime_pods.get(), 5.0);
        assert_eq!(sim.metrics.sync_loop.orphan_pods_not_cleaned.get(), 1.0);
        assert_eq!(left(sim, &SHAPES), ["stopped: directory"]);
        sim.files.mount(&uid("stopped"), false);
        sim.until("it is gone too", 2 * MINUTE, |sim| {
            left(sim, &SHAPES).is_empty()
        })
        .await;
        assert_eq!(sim.metrics.sync_loop.orphan_pods_cleaned.get(), 1.0);
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.metrics.sync_loop.orphan_pods_cleaned.get(), 0.0);
        assert_eq!(sim.metrics.sync_loop.orphan_pods_not_cleaned.get(), 0.0);
        assert_eq!(sim.metrics.sync_loop.running_pods.get(), 1.0);
        let running = sim
            .metrics
            .sync_loop
            .running_containers
            .with_label_values(&["running"]);
        assert_eq!(running.get(), 1.0);
    });
}

#[test]
fn hung_removal_delays_no_other_pod() {
    simulate(16, async |sim| {
        latencies(sim);
        let all = ["a-hangs", "b", "kept"];
        sim.desire(all.map(|name| pod(name).build())).await;
        let all_run = |sim: &NodeSim| all.iter().all(|name| runs(sim, name));
        sim.until("all run", MINUTE, all_run).await;
        sim.kill_agent().await;
        for name in ["a-hangs", "b"] {
            let app = sim.runtime.running(&uid(name), "app").expect("runs");
            sim.runtime.lose_container(&app.id);
            sim.runtime.lose_sandbox(&app.sandbox);
        }
        sim.files.hang_pod(&uid("a-hangs"), true);
        sim.desire([pod("kept").build()]).await;
        sim.start_agent().await;
        let gone = |sim: &NodeSim| !sim.files.pod_dirs().contains(&uid("b"));
        sim.until("b is gone", 2 * MINUTE, gone).await;
        sim.files.hang_pod(&uid("a-hangs"), false);
        let gone = |sim: &NodeSim| !sim.files.pod_dirs().contains(&uid("a-hangs"));
        sim.until("a is gone", 2 * MINUTE, gone).await;
    });
}

// ---- cgroups

const BESTEFFORT: &str = "/kubepods/besteffort";

fn settings(tree: &MemoryTree) -> Option<CgroupSettings> {
    Some(CgroupSettings {
        tree: Arc::new(tree.clone()),
        slices: None,
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        node: NodeLimits {
            milli_cpu: 2000,
            memory: 1 << 30,
            pids: 100,
        },
        pids_limit: None,
        reserved: Vec::new(),
        qos_memory: None,
    })
}

/// Runs a scenario with an agent that creates cgroups in the tree.
fn with_cgroups(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim, MemoryTree)) {
    simulate(seed, async |sim| {
        latencies(sim);
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.kill_agent().await;
        sim.cgroups = settings(&tree);
        sim.start_agent().await;
        scenario(sim, tree).await;
    });
}

fn has_cgroup(tree: &MemoryTree, name: &str) -> bool {
    let end = format!("/pod{}", uid(name));
    tree.cgroups().iter().any(|path| path.ends_with(&end))
}

#[test]
fn pod_cgroup_survives_restart_and_is_removed_with_pod() {
    with_cgroups(10, async |sim, tree| {
        let burstable = pod("web").container_with("side", "busybox:1", |c| {
            let resources = serde_json::json!({"requests": {"cpu": "500m"}});
            c.resources = serde_json::from_value(resources).ok();
        });
        let web = || burstable.clone().build();
        sim.desire([web()]).await;
        sim.until("runs", MINUTE, |sim| runs(sim, "web")).await;
        let path = "/kubepods/burstable/podweb-uid";
        let sandbox = sim
            .runtime
            .running(&uid("web"), "app")
            .expect("runs")
            .sandbox;
        let config = sim.runtime.sandbox_config(&sandbox).expect("made");
        assert_eq!(config.cgroup_parent, path);
        let shares = |path: &str| tree.file(&format!("{path}/cpu.shares"));
        assert_eq!(shares(path).as_deref(), Some("512"));
        assert_eq!(shares(BESTEFFORT).as_deref(), Some("2"));
        sim.pass(3 * SECOND).await;
        assert_eq!(shares("/kubepods/burstable").as_deref(), Some("512"));
        let before = sim.runtime.all_containers();
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.runtime.all_containers(), before);
        let writes = tree.writes();
        sim.pass(10 * MINUTE).await;
        assert_eq!(tree.writes(), writes, "nothing changed, nothing is written");
        tree.enter("cpu", &format!("{path}/left"), 7, false);
        sim.desire([]).await;
        sim.until("the cgroup is gone", PROMPTLY, |_| {
            !has_cgroup(&tree, "web")
        })
        .await;
        sim.pass(3 * SECOND).await;
        assert_eq!(shares("/kubepods/burstable").as_deref(), Some("2"));
    });
}

#[test]
fn pod_with_removed_cgroup_is_restarted_in_new_one() {
    with_cgroups(11, async |sim, tree| {
        sim.desire([pod("web").build(), pod("other").build()]).await;
        sim.until("both run", MINUTE, |sim| {
            runs(sim, "web") && runs(sim, "other")
        })
        .await;
        let (web, other) = ["web", "other"]
            .map(|name| sim.runtime.running(&uid(name), "app").expect("runs"))
            .into();
        tree.lose(&format!("{BESTEFFORT}/podweb-uid"));
        sim.until("web is restarted", 3 * MINUTE, |sim| {
            let now = sim.runtime.running(&uid("web"), "app");
            now.is_some_and(|now| now.sandbox != web.sandbox)
        })
        .await;
        assert!(has_cgroup(&tree, "web"));
        sim.pass(5 * MINUTE).await;
        assert_eq!(sim.runtime.running(&uid("other"), "app"), Some(other));
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 2, "once");
        sim.runtime.assert_invariants();
    });
}

#[test]
fn pod_without_cgroup_of_previous_run_is_unchanged() {
    simulate(12, async |sim| {
        latencies(sim);
        sim.desire([pod("old").build()]).await;
        sim.until("runs", MINUTE, |sim| runs(sim, "old")).await;
        let before = sim.runtime.running(&uid("old"), "app").expect("runs");
        sim.kill_agent().await;
        let tree = MemoryTree::v1(&["cpu", "memory", "pids"]);
        sim.cgroups = settings(&tree);
        sim.start_agent().await;
        sim.desire([pod("old").build(), pod("new").build()]).await;
        sim.pass(10 * MINUTE).await;
        assert_eq!(
            sim.runtime.running(&uid("old"), "app"),
            Some(before.clone())
        );
        assert!(has_cgroup(&tree, "new") && !has_cgroup(&tree, "old"));
        // its next container starts in a cgroup of its own
        sim.runtime.kill_container(&before.id, 1);
        sim.until("it is started again", MINUTE, |sim| runs(sim, "old"))
            .await;
        assert!(has_cgroup(&tree, "old"));
        let sandbox = sim
            .runtime
            .running(&uid("old"), "app")
            .expect("runs")
            .sandbox;
        assert_eq!(sandbox, before.sandbox, "the sandbox is not replaced");
    });
}

#[test]
fn orphaned_cgroup_is_removed_with_its_processes() {
    with_cgroups(13, async |sim, tree| {
        sim.desire([pod("kept").build()]).await;
        sim.until("runs", MINUTE, |sim| runs(sim, "kept")).await;
        tree.enter("memory", &format!("{BESTEFFORT}/podgone-uid/c1"), 7, false);
        tree.enter("cpu", "/other/podelse-uid", 8, false);
        sim.until("it is gone", 2 * MINUTE, |_| !has_cgroup(&tree, "gone"))
            .await;
        assert!(has_cgroup(&tree, "kept"));
        assert!(has_cgroup(&tree, "else"), "not below our root");
    });
}

#[test]
fn pod_with_unreadable_status_keeps_files_and_cgroup() {
    with_cgroups(15, async |sim, tree| {
        let both = ["kept", "unread"];
        sim.desire(both.map(|name| pod(name).build())).await;
        let both_run = |sim: &NodeSim| both.iter().all(|name| runs(sim, name));
        sim.until("both run", MINUTE, both_run).await;
        sim.kill_agent().await;
        let unreadable = Operation::PodSandboxStatus;
        let fault = Fault::hang(unreadable).on("default/unread");
        sim.runtime.inject(fault);
        sim.desire([pod("kept").build()]).await;
        sim.start_agent().await;
        sim.pass(5 * MINUTE).await;
        assert!(runs(sim, "unread") && has_cgroup(&tree, "unread"));
        assert!(sim.files.pod_dirs().contains(&uid("unread")));
        sim.runtime.release(unreadable);
        let gone =
            |sim: &NodeSim| left_of(sim, "unread").is_empty() && !has_cgroup(&tree, "unread");
        sim.until("it is stopped and gone", 5 * MINUTE, gone).await;
    });
}

#[test]
fn pod_waiting_for_cgroup_reports_blocker() {
    with_cgroups(14, async |sim, tree| {
        sim.desire([pod("first").build()]).await;
        sim.until("runs", MINUTE, |sim| runs(sim, "first")).await;
        tree.set_read_only("memory");
        sim.desire([pod("first").build(), pod("web").build()]).await;
        sim.until("web is blocked", MINUTE, |sim| {
            sim.blocker("web") == "FailedCreatePodContainer"
        })
        .await;
        assert!(runs(sim, "first") && !runs(sim, "web"));
        assert_eq!(
            sim.view("web")
                .expect("known")
                .events
                .iter()
                .filter(|e| e
                    .message
                    .starts_with("unable to ensure pod container exists: "))
                .count(),
            1
        );
    });
}

#[test]
fn container_exits_during_downtime_are_reported() {
    simulate(15, async |sim| {
        latencies(sim);
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.until("runs", MINUTE, |sim| runs(sim, "job")).await;
        let app = sim.runtime.running(&uid("job"), "app").expect("runs");
        sim.kill_agent().await;
        sim.runtime.kill_container(&app.id, 0);
        sim.start_agent().await;
        sim.until("it succeeded", MINUTE, |sim| {
            sim.phase("job") == "Succeeded"
        })
        .await;
        sim.pass(10 * MINUTE).await;
        let kept = sim.runtime.containers(&uid("job"));
        assert_eq!(kept.len(), 1, "its exit code is still asked for");
        assert_eq!(kept[0].state, ContainerState::Exited);
    });
}
