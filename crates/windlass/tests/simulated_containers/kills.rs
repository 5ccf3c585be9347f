//! A kill of the agent at any instant of a start or restart costs neither a restart nor back-off,
//! nor does a second one while the next agent run replaces what the first one cut off.

use std::path::Path;
use std::time::Duration;

use windlass_testing::fake_runtime::{Behavior, Call, Operation, Outcome};
use windlass_testing::{FakeStateDisk, NodeSim, simulate, simulate_cluster};
use windlass_types::corev1::Pod;
use windlass_types::{PodExt, PodUid};

use crate::fixture::{line, nothing_lives, pod, prepare, sidecar, starts};
use crate::{IMAGE, MINUTE, SECOND};

const MILLISECOND: Duration = Duration::from_millis(1);
/// Between two instants at which the agent is killed; calls take 20 to 80 ms.
const STEP: u32 = 4;
/// Shorter than the first back-off of 10 s.
const SOON: Duration = Duration::from_secs(6);

/// Times of the starts that the runtime completed.
fn completed_starts(sim: &NodeSim, container: &str) -> Vec<Duration> {
    let calls = sim.runtime.calls_of(Operation::StartContainer, container);
    let done = |call: &&Call| call.outcome != Outcome::Open;
    let done: Vec<_> = calls.iter().filter(done).map(|call| call.at).collect();
    let since = |at: &windlass_types::Timestamp| {
        Duration::try_from(at.duration_since(done[0])).unwrap_or_default()
    };
    done.iter().map(since).collect()
}

async fn kill_and_restart(sim: &mut NodeSim) {
    sim.kill_agent().await;
    sim.start_agent().await;
}

#[test]
fn kill_at_any_instant_of_a_start_costs_no_restart() {
    let mut cut_off = 0;
    // the pod runs after about 400 ms
    for instant in (0..480).step_by(STEP as usize) {
        simulate(31, async |sim| {
            prepare(sim);
            sim.runtime
                .set_behavior("i", Behavior::exits(50 * MILLISECOND, 0));
            let web = pod("web")
                .init_container("i", IMAGE)
                .init_container_with("s", IMAGE, sidecar)
                .container("a", IMAGE)
                .container("b", IMAGE)
                .build();
            let once = pod("once").restart_policy("Never").container("a", IMAGE);
            sim.desire([web, once.build()]).await;
            sim.pass(instant * MILLISECOND).await;
            kill_and_restart(sim).await;
            let open = sim.runtime.calls_of(Operation::StartContainer, "");
            let open = open.iter().filter(|call| call.outcome == Outcome::Open);
            cut_off += open.count();
            for name in ["web", "once"] {
                sim.until("it runs", SOON, |sim| {
                    sim.view(name).is_some() && sim.phase(name) == "Running"
                })
                .await;
            }
            sim.until("all of web runs", SOON, |sim| {
                let uid = PodUid::from("web-uid");
                let mut names = ["s", "a", "b"].into_iter();
                names.all(|name| sim.runtime.running(&uid, name).is_some())
            })
            .await;
            let uid = PodUid::from("web-uid");
            assert_eq!(
                starts(sim, &uid, ["i", "s", "a", "b"]),
                [1; 4],
                "killed after {instant} ms"
            );
            assert_eq!(starts(sim, &"once-uid".into(), ["a"]), [1]);
            let all = sim.runtime.all_containers();
            assert!(
                all.iter().all(|it| it.attempt == 0),
                "{instant} ms: {all:?}"
            );
            // one instance of each: what never ran was removed
            assert_eq!(all.len(), 5, "{instant} ms: {all:?}");
            sim.runtime.assert_invariants();
        });
    }
    assert!(cut_off >= 20, "{cut_off} starts were cut off");
}

#[test]
fn kill_at_any_instant_of_a_restart_keeps_its_back_off() {
    let mut lines = Vec::new();
    // the second restart is after 10 s of back-off
    for instant in (12_200..12_700).step_by(STEP as usize) {
        simulate_cluster(32, async |sim| {
            sim.state_disk = Some(FakeStateDisk::default());
            sim.start_agent().await;
            prepare(sim);
            sim.runtime.set_behavior("a", Behavior::exits(SECOND, 1));
            sim.desire([pod("web").container("a", IMAGE).build()]).await;
            sim.pass(instant * MILLISECOND).await;
            let before = completed_starts(sim, "default/web/a").len();
            kill_and_restart(sim).await;
            sim.pass(MINUTE).await;
            let mut times = completed_starts(sim, "default/web/a");
            // one that the runtime completes after the new agent has observed the pod is replaced
            times.dedup_by(|later, earlier| *later - *earlier < SECOND / 2);
            let gaps: Vec<u64> = times
                .windows(2)
                .map(|it| (it[1] - it[0]).as_secs())
                .collect();
            assert!((2..=3).contains(&before), "{instant} ms: {before} starts");
            // a second of run time, then 0, 10, 20 and 40 s
            let expected = [1, 11, 21];
            assert!(gaps.len() >= 3, "{instant} ms: {gaps:?}");
            // the runtime needs 2 s to clean up a start that was cut off
            let due = gaps.iter().zip(expected);
            let due = due
                .into_iter()
                .all(|(gap, due)| (due..due + 5).contains(gap));
            let log = sim.log().join("\n");
            assert!(due, "killed after {instant} ms: {gaps:?}\n{log}");
            let all = sim.runtime.all_containers();
            let newest = all.iter().map(|it| it.attempt).max();
            assert_eq!(
                newest,
                Some(times.len() as u32 - 1),
                "{instant} ms: {all:?}"
            );
            lines.push(line(sim, "web"));
        });
    }
    lines.dedup();
    assert!(lines.iter().all(|line| !line.is_empty()), "{lines:?}");
}

/// Restart counts of the only container of web that the agent has published, without those of
/// agent runs that have not observed it.
#[derive(Default)]
struct PublishedCounts(Vec<i32>);

impl PublishedCounts {
    fn watch(&mut self, sim: &NodeSim) {
        let entry = sim.view("web").filter(|entry| !entry.has_stale_status());
        let status = entry.and_then(|entry| entry.status.container_statuses.clone());
        let counts = status.into_iter().flatten().map(|it| it.restart_count);
        self.0.extend(counts);
        self.0.dedup();
    }
}

/// Lets time pass until a call has this outcome.
async fn until_called(
    sim: &NodeSim,
    counts: &mut PublishedCounts,
    (operation, attempt, outcome): (Operation, usize, Outcome),
) {
    let subject = format!("default/web/a#{attempt}");
    for waited in 0.. {
        counts.watch(sim);
        let calls = sim.runtime.calls_of(operation, &subject);
        if calls.iter().any(|call| call.outcome == outcome) {
            return;
        }
        let log = sim.log().join("\n");
        assert!(waited < 60_000, "no {operation} {subject}\n{log}");
        sim.pass(MILLISECOND).await;
    }
}

#[test]
fn kill_before_cut_off_start_is_repeated_costs_no_restart() {
    use Operation::{RemoveContainer, StartContainer};
    for attempt in [0, 2] {
        simulate_cluster(34, async |sim| {
            sim.state_disk = Some(FakeStateDisk::default());
            sim.start_agent().await;
            prepare(sim);
            let mut script = vec![Behavior::exits(SECOND, 1); attempt];
            script.push(Behavior::default());
            sim.runtime.script("a", script);
            // the time between the removal and the creation
            let latency = 50 * MILLISECOND;
            sim.runtime.set_latency(Operation::ImageStatus, latency);
            let mut counts = PublishedCounts::default();
            sim.desire([pod("web").container("a", IMAGE).build()]).await;
            let cut_off = (StartContainer, attempt, Outcome::Open);
            until_called(sim, &mut counts, cut_off).await;
            sim.pass(20 * MILLISECOND).await;
            counts.watch(sim);
            kill_and_restart(sim).await;
            // the runtime has opened it
            let log = format!("/var/log/pods/default_web_web-uid/a/{attempt}.log");
            assert!(sim.files.get(Path::new(&log)).is_some(), "{log}");
            let removal = (RemoveContainer, attempt, Outcome::Done);
            until_called(sim, &mut counts, removal).await;
            kill_and_restart(sim).await;
            let left = sim.runtime.all_containers();

            let log = sim.log().join("\n");
            assert!(left.iter().all(|it| it.attempt != attempt as u32), "{log}");
            for _ in 0..SOON.as_millis() {
                counts.watch(sim);
                sim.pass(MILLISECOND).await;
            }
            let log = sim.log().join("\n");
            let runs = sim.runtime.running(&"web-uid".into(), "a");
            let runs = runs.map(|it| it.attempt as usize);
            assert_eq!(runs, Some(attempt), "{log}");
            let expected: Vec<_> = (0..=attempt as i32).collect();
            assert_eq!(counts.0, expected, "{log}");
        });
    }
}

#[test]
fn runtime_that_cuts_off_every_start_is_not_flooded() {
    simulate(33, async |sim| {
        prepare(sim);
        let cut_off = Behavior {
            start_error: Some("failed to create task: context canceled".to_owned()),
            ..Behavior::default()
        };
        sim.runtime.set_behavior("a", cut_off);
        sim.desire([pod("web").container("a", IMAGE).build()]).await;
        sim.pass(MINUTE).await;
        let tried = sim.runtime.calls_of(Operation::StartContainer, "");
        assert!((2..=10).contains(&tried.len()), "{} starts", tried.len());
        sim.runtime.set_behavior("a", Behavior::default());
        sim.until("it runs", MINUTE, |sim| sim.phase("web") == "Running")
            .await;
        sim.runtime.assert_invariants();
    });
}

/// The runtime never removes what the kill left.
#[test]
fn lost_task_of_a_killed_start_blocks_no_pod() {
    simulate_cluster(35, async |sim| {
        sim.start_agent().await;
        prepare(sim);
        sim.runtime.lose_tasks();
        sim.runtime.set_latency(Operation::StartContainer, SECOND);
        let web = || {
            pod("web")
                .init_container_with("s", IMAGE, sidecar)
                .container("a", IMAGE)
                .build()
        };
        let once = pod("once").restart_policy("Never").container("a", IMAGE);
        sim.desire([web()]).await;
        let of_the_api = sim.api.create(&once.bound_to("sim").build()).uid();
        let lost = [
            ["default/web/s#0", "default/once/a#0"].as_slice(),
            &["default/web/a#0"],
        ];
        for subjects in lost {
            sim.until("they are being started", 5 * SECOND, |sim| {
                subjects.iter().all(|subject| {
                    let calls = sim.runtime.calls_of(Operation::StartContainer, subject);
                    calls.iter().any(|call| call.outcome == Outcome::Open)
                })
            })
            .await;
            kill_and_restart(sim).await;
        }
        sim.until("all run", SOON, |sim| {
            sim.phase("web") == "Running" && sim.phase("once") == "Running"
        })
        .await;
        let uid = PodUid::from("web-uid");
        for (uid, name) in [(&uid, "s"), (&uid, "a"), (&of_the_api, "a")] {
            let running = sim.runtime.running(uid, name);
            assert_eq!(running.map(|it| it.attempt), Some(1), "{uid} {name}");
        }
        sim.runtime.assert_invariants();
        // an exit costs no more than usual, although the removal is refused again
        let running = sim.runtime.running(&uid, "a").expect("runs");
        sim.runtime.kill_container(&running.id, 1);
        sim.until("a runs again", SOON, |sim| {
            let running = sim.runtime.running(&uid, "a");
            running.is_some_and(|it| it.attempt == 2)
        })
        .await;

        // ---- both pods end
        assert!(sim.api.delete::<Pod>(Some("default"), "once", None));
        sim.until("once is deleted", 10 * SECOND, |sim| {
            sim.api.get::<Pod>(Some("default"), "once").is_none()
        })
        .await;
        sim.desire([]).await;
        sim.until("web is gone", MINUTE, |sim| sim.view("web").is_none())
            .await;
        assert!(nothing_lives(sim, &uid) && nothing_lives(sim, &of_the_api));
        // ---- the same UID again
        sim.desire([web()]).await;
        sim.until("web runs again", SOON, |sim| {
            let uid = PodUid::from("web-uid");
            sim.phase("web") == "Running" && sim.runtime.running(&uid, "a").is_some()
        })
        .await;
        sim.runtime.assert_invariants();
    });
}
