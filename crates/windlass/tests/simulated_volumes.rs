//! Failing, hung and busy volumes on a virtual clock: recovery, no effect on other pods, and
//! convergence after a kill at any step.

#![allow(missing_docs, clippy::expect_used)] // all are tests

use std::time::Duration;

use windlass_testing::fake_runtime::{Behavior, Operation};
use windlass_testing::{NodeSim, PodBuilder, simulate};
use windlass_types::{DeviceName, PodUid, Reason};
use windlass_volumes::VolumeStep;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A pod with two volumes.
fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name)
        .container("app", "busybox:1")
        .grace(5)
        .empty_dir("data")
        .empty_dir("logs")
}

fn uid(name: &str) -> PodUid {
    format!("{name}-uid").into()
}

fn runs(sim: &NodeSim, name: &str) -> bool {
    sim.runtime.running(&uid(name), "app").is_some()
}

/// True if a pod has no leftovers.
fn gone(sim: &NodeSim, name: &str) -> bool {
    let uid = uid(name);
    sim.view(name).is_none() && !sim.files.pod_dirs().contains(&uid)
}

async fn desire(sim: &mut NodeSim, names: &[&str]) {
    sim.desire(names.iter().map(|name| pod(name).build())).await;
}

/// Text of the blocker of a pod.
fn blocked_by(sim: &NodeSim, name: &str) -> String {
    let blocker = sim.view(name).and_then(|view| view.blocker);
    blocker.map_or_else(String::new, |blocker| blocker.to_string())
}

/// Count of an event of a pod.
fn events(sim: &NodeSim, name: &str, text: &str) -> u32 {
    let view = sim.view(name).expect("an entry");
    let of_mounts = view
        .events
        .iter()
        .filter(|event| event.reason == Reason::FailedMount);
    let with_text = of_mounts.filter(|event| event.message.contains(text));
    with_text.map(|event| event.count).sum()
}

fn count(sim: &NodeSim, call: &str) -> usize {
    let calls = sim.volumes.calls();
    calls.iter().filter(|line| *line == call).count()
}

/// Runs a scenario, then checks the invariants of volumes.
fn with_volumes(seed: u64, scenario: impl AsyncFnOnce(&mut NodeSim)) {
    simulate(seed, async |sim| {
        sim.runtime.add_image("busybox:1");
        let latency = Duration::from_millis(40);
        sim.runtime
            .set_latency(Operation::RunPodSandbox, 2 * latency);
        sim.runtime.set_latency(Operation::StartContainer, latency);
        scenario(sim).await;
        assert_eq!(sim.volumes.violations(), [""; 0]);
        sim.runtime.assert_invariants();
    });
}

#[test]
fn hung_mount_blocks_only_its_pod_and_is_reported() {
    with_volumes(1, async |sim| {
        sim.volumes.hang(VolumeStep::Mount, "web-uid/data", true);
        desire(sim, &["web", "next"]).await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.until("web reports what hangs", 12 * SECOND, |sim| {
            blocked_by(sim, "web").contains(
                "MountVolume.SetUp of volume \"data\" in progress since 2026-01-01T00:00:0",
            )
        })
        .await;
        assert_eq!(sim.blocker("web"), "FailedMount");
        sim.pass(10 * MINUTE).await;
        assert_eq!(count(sim, "mount web-uid/data"), 1, "no second operation");
        assert_eq!(count(sim, "mount web-uid/logs"), 1);
        assert_eq!(events(sim, "web", "not finished after 120 s"), 1);
        sim.volumes.hang(VolumeStep::Mount, "web-uid/data", false);
        sim.until("web runs at once", 2 * SECOND, |sim| runs(sim, "web"))
            .await;
    });
}

#[test]
fn failed_set_up_is_retried_with_back_off_until_pod_starts() {
    with_volumes(2, async |sim| {
        sim.volumes
            .fail(VolumeStep::Mount, "web-uid/data", Some("no space left"));
        desire(sim, &["web", "next"]).await;
        sim.until("web reports why", SECOND, |sim| {
            let words = "MountVolume.SetUp failed for volume \"data\" : ";
            let blocker = blocked_by(sim, "web");
            blocker.contains(words) && blocker.contains("no space left")
        })
        .await;
        assert!(
            sim.volumes.mounted(&uid("web")).contains("logs"),
            "the others continue"
        );
        sim.pass(10 * MINUTE).await;
        // 0.5 + 1 + … + 64 = 127.5 s, then every 122 s
        assert_eq!(count(sim, "mount web-uid/data"), 12);
        assert_eq!(events(sim, "web", "no space left"), 12, "one for each try");
        sim.volumes.fail(VolumeStep::Mount, "web-uid/data", None);
        let tried = Duration::from_secs(123);
        sim.until("it works", tried, |sim| {
            sim.volumes.mounted(&uid("web")).contains("data")
        })
        .await;
        sim.until("web runs at once", SECOND, |sim| runs(sim, "web"))
            .await;
        assert_eq!(sim.runtime.starts(&uid("web"), "app"), 1);
    });
}

#[test]
fn deleted_pod_with_hung_mount_waits_and_reports_blocker() {
    with_volumes(3, async |sim| {
        sim.volumes.hang(VolumeStep::Mount, "web-uid/data", true);
        desire(sim, &["web"]).await;
        sim.pass(SECOND).await;
        desire(sim, &["next"]).await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.until("web reports what it waits for", MINUTE, |sim| {
            let view = sim.view("web").expect("not gone");
            let mut events = view.events.iter();
            events.any(|event| event.message.contains("volume \"data\" in progress since"))
        })
        .await;
        sim.pass(5 * MINUTE).await;
        assert!(!gone(sim, "web"));
        sim.volumes.hang(VolumeStep::Mount, "web-uid/data", false);
        sim.until("web is gone", MINUTE, |sim| gone(sim, "web"))
            .await;
    });
}

#[test]
fn removal_of_many_files_is_reported_only_after_a_minute() {
    with_volumes(7, async |sim| {
        desire(sim, &["web"]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        sim.volumes.hang(VolumeStep::Unmount, "web-uid/data", true);
        desire(sim, &[]).await;
        let begins = |sim: &NodeSim| count(sim, "unmount web-uid/data") == 1;
        sim.until("the removal begins", 10 * SECOND, begins).await;
        let reports = |sim: &NodeSim| {
            let events = sim.view("web").expect("not gone").events;
            let warnings = events.iter().filter(|it| it.reason == Reason::FailedSync);
            let hung = &sim.metrics.node.hung_operations_total;
            (
                warnings.count(),
                hung.with_label_values(&["volume"]).get().to_string(),
            )
        };
        sim.pass(58 * SECOND).await;
        assert_eq!(reports(sim), (0, "0".to_owned()));
        sim.pass(4 * SECOND).await;
        assert_eq!(reports(sim), (1, "1".to_owned()));
        sim.volumes.hang(VolumeStep::Unmount, "web-uid/data", false);
        sim.until("web is gone", MINUTE, |sim| gone(sim, "web"))
            .await;
    });
}

#[test]
fn busy_volume_is_retried_and_blocks_pod_with_same_name() {
    with_volumes(4, async |sim| {
        desire(sim, &["web"]).await;
        sim.until("web runs", SECOND, |sim| runs(sim, "web")).await;
        let busy = Some("device or resource busy");
        sim.volumes.fail(VolumeStep::Unmount, "web-uid/data", busy);
        sim.desire([pod("web").uid("second-uid").build(), pod("next").build()])
            .await;
        sim.until("next runs", SECOND, |sim| runs(sim, "next"))
            .await;
        sim.pass(5 * MINUTE).await;
        assert!(count(sim, "unmount web-uid/data") > 10);
        assert!(
            count(sim, "unmount web-uid/logs") == 1,
            "what is gone is gone"
        );
        assert!(!runs(sim, "second"));
        sim.volumes.fail(VolumeStep::Unmount, "web-uid/data", None);
        sim.until("the successor runs", MINUTE, |sim| runs(sim, "second"))
            .await;
        assert_eq!(sim.volumes.mounted(&uid("web")).len(), 0);
    });
}

#[test]
fn pods_with_440_volumes_start_concurrently_then_idle() {
    with_volumes(5, async |sim| {
        sim.volumes.set_latency(Duration::from_millis(50));
        let names: Vec<_> = (0..110).map(|n| format!("p{n}")).collect();
        let all = names
            .iter()
            .map(|name| pod(name).empty_dir("c").empty_dir("d").build());
        sim.desire(all.collect::<Vec<_>>()).await;
        sim.until("all volumes are mounted", SECOND, |sim| {
            names
                .iter()
                .all(|name| sim.volumes.mounted(&uid(name)).len() == 4)
        })
        .await;
        let all_run = |sim: &NodeSim| names.iter().all(|name| runs(sim, name));
        sim.until("all run", MINUTE, all_run).await;
        let messages = |sim: &NodeSim| {
            let of_kind = &sim.metrics.mailboxes.messages;
            of_kind.with_label_values(&["VolumeManager"]).get()
        };
        let (calls, heard) = (sim.volumes.calls().len(), messages(sim));
        assert!(calls == 440 && heard >= 110.0, "{calls} {heard}");
        sim.pass(60 * MINUTE).await;
        assert_eq!(sim.volumes.calls().len(), calls);
        assert_eq!(messages(sim).to_string(), heard.to_string(), "no request");
    });
}

#[test]
fn restart_keeps_mounts_and_sets_up_volumes_of_new_pods() {
    with_volumes(6, async |sim| {
        sim.volumes.set_latency(Duration::from_millis(20));
        desire(sim, &["web", "next"]).await;
        sim.until("both run", SECOND, |sim| {
            runs(sim, "web") && runs(sim, "next")
        })
        .await;
        sim.kill_agent().await;
        let app = sim.runtime.running(&uid("next"), "app").expect("runs");
        sim.runtime.kill_container(&app.id, 1);
        let left = DeviceName("kubernetes.io/csi/d^left".into());
        sim.volumes.add_staged_device(&left);
        sim.silence_manifests(true);
        sim.start_agent().await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.volumes.staged().len(), 1, "no source is ready yet");
        sim.silence_manifests(false);
        desire(sim, &["web", "next"]).await;
        sim.until("next runs again", 30 * SECOND, |sim| runs(sim, "next"))
            .await;
        sim.until("the device is unstaged", SECOND, |sim| {
            sim.volumes.staged().is_empty()
        })
        .await;
        sim.pass(10 * MINUTE).await;
        let calls = sim.volumes.calls();
        assert!(
            !calls.iter().any(|call| call.starts_with("unmount")),
            "{calls:?}"
        );
        assert_eq!(
            count(sim, "mount web-uid/data"),
            2,
            "asked for once more, to be measured; what is there stays"
        );
        assert_eq!(
            count(sim, "mount next-uid/data"),
            2,
            "what starts is made sure of"
        );
    });
}

#[test]
fn agent_kill_between_volume_steps_converges() {
    for step in 0..40_u64 {
        with_volumes(100 + step, async |sim| {
            sim.volumes.set_latency(Duration::from_millis(30));
            let moment = Duration::from_millis(step * 10);
            desire(sim, &["web", "next"]).await;
            sim.pass(moment).await;
            sim.kill_agent().await;
            sim.pass(moment / 2).await;
            sim.start_agent().await;
            sim.until("both run", 30 * SECOND, |sim| {
                runs(sim, "web") && runs(sim, "next")
            })
            .await;
            assert_eq!(sim.volumes.mounted(&uid("web")).len(), 2);
            desire(sim, &["next"]).await;
            sim.pass(moment).await;
            sim.kill_agent().await;
            sim.start_agent().await;
            sim.until("web is gone", MINUTE, |sim| gone(sim, "web"))
                .await;
            assert_eq!(sim.volumes.mounted(&uid("web")).len(), 0);
            assert_eq!(sim.volumes.mounted(&uid("next")).len(), 2);
            assert!(runs(sim, "next"));
        });
    }
}

/// Runs a static pod that is not restarted and removes it while a volume cannot be unmounted.
async fn remove_with_hung_unmount(sim: &mut NodeSim) {
    sim.desire([pod("job").restart_policy("Never").build()])
        .await;
    sim.until("it runs", SECOND, |sim| runs(sim, "job")).await;
    sim.volumes.hang(VolumeStep::Unmount, "job-uid/data", true);
    sim.desire([]).await;
    sim.until("it is stopped", MINUTE, |sim| !runs(sim, "job"))
        .await;
}

#[test]
fn removed_pod_with_hung_unmount_keeps_no_dead_container() {
    with_volumes(9, async |sim| {
        remove_with_hung_unmount(sim).await;
        sim.until("its container is removed", 10 * SECOND, |sim| {
            sim.runtime.containers(&uid("job")).is_empty()
        })
        .await;
        sim.until("the worker waits for its next attempt", MINUTE, |sim| {
            let view = sim.view("job").expect("its volume is mounted");
            let mut events = view.events.iter();
            events.any(|event| event.message.contains("UnmountVolume.TearDown of volume"))
        })
        .await;
        sim.volumes.hang(VolumeStep::Unmount, "job-uid/data", false);
        sim.until("its volume is released at once", SECOND, |sim| {
            gone(sim, "job")
        })
        .await;
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.until("it runs again", SECOND, |sim| runs(sim, "job"))
            .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.phase("job"), "Running");
    });
}

#[test]
fn pod_put_back_during_hung_unmount_runs_again() {
    with_volumes(10, async |sim| {
        remove_with_hung_unmount(sim).await;
        // housekeeping removes its container
        sim.pass(3 * SECOND).await;
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.pass(5 * MINUTE).await;
        assert!(!runs(sim, "job"));
        sim.volumes.hang(VolumeStep::Unmount, "job-uid/data", false);
        sim.until("it runs again", 2 * SECOND, |sim| runs(sim, "job"))
            .await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.phase("job"), "Running");
        assert_eq!(sim.runtime.starts(&uid("job"), "app"), 2);
    });
}

#[test]
fn completed_static_pod_put_back_at_once_runs_again() {
    with_volumes(11, async |sim| {
        sim.runtime.set_behavior("app", Behavior::exits(SECOND, 0));
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.until("done", MINUTE, |sim| sim.phase("job") == "Succeeded")
            .await;
        sim.pass(MINUTE).await;
        sim.desire([]).await;
        sim.pass(Duration::from_millis(20)).await;
        sim.desire([pod("job").restart_policy("Never").build()])
            .await;
        sim.until("it runs again", 2 * SECOND, |sim| runs(sim, "job"))
            .await;
        sim.until("done", MINUTE, |sim| sim.phase("job") == "Succeeded")
            .await;
        assert_eq!(sim.runtime.starts(&uid("job"), "app"), 2);
    });
}
