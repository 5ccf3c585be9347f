//! `activeDeadlineSeconds` in every state of a pod.

use windlass_testing::fake_runtime::{Behavior, Fault, Operation, Pull};
use windlass_testing::{NodeSim, PodBuilder, simulate, simulate_cluster};
use windlass_types::{Pod, Reason};

use crate::fixture::{line, nothing_lives, pod, prepare, running_in_a_cluster};
use crate::{IMAGE, MINUTE, SECOND};

fn with_deadline(builder: PodBuilder, seconds: i64) -> PodBuilder {
    builder.with(|pod| pod.spec.get_or_insert_default().active_deadline_seconds = Some(seconds))
}

fn is_past_its_deadline(sim: &NodeSim) -> bool {
    let status = sim.view("web").map(|view| view.status);
    let reason = status.and_then(|status| status.reason.clone());
    sim.phase("web") == "Failed" && reason.as_deref() == Some("DeadlineExceeded")
}

#[test]
fn active_deadline_fails_pod_to_the_second() {
    simulate(13, async |sim| {
        prepare(sim);
        let web = with_deadline(pod("web").container("a", IMAGE), 30).build();
        sim.desire([web]).await;
        let uid = "web-uid".into();
        sim.pass(29 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        sim.until("it is ended", 2 * SECOND, is_past_its_deadline)
            .await;
        sim.until("nothing lives", 10 * SECOND, |sim| nothing_lives(sim, &uid))
            .await;
        let view = sim.view("web").expect("an entry");
        let told = view
            .events
            .iter()
            .filter(|e| e.reason == Reason::DeadlineExceeded);
        let words: Vec<_> = told.map(|e| (e.count, e.message.clone())).collect();
        let text = "Pod was active on the node longer than the specified deadline";
        assert_eq!(words, [(1, text.to_owned())]);
        assert_eq!(view.status.message.as_deref(), Some(text));
        // it stays terminal, also after a restart
        sim.pass(MINUTE).await;
        sim.kill_agent().await;
        sim.start_agent().await;
        sim.pass(MINUTE).await;
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
        assert!(is_past_its_deadline(sim), "{}", line(sim, "web"));
    });
}

#[test]
fn active_deadline_includes_agent_downtime() {
    simulate(14, async |sim| {
        prepare(sim);
        let web = with_deadline(pod("web").container("a", IMAGE), 60).build();
        sim.desire([web]).await;
        sim.pass(20 * SECOND).await;
        sim.kill_agent().await;
        sim.pass(20 * SECOND).await;
        sim.start_agent().await;
        sim.pass(15 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        // a deadline takes effect at the next sync tick, as upstream: within 1 s
        sim.until("it is ended", 7 * SECOND, is_past_its_deadline)
            .await;
        let uid = "web-uid".into();
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
    });
}

#[test]
fn deadline_exceeded_during_downtime_starts_nothing() {
    simulate(15, async |sim| {
        prepare(sim);
        sim.runtime
            .set_behavior("a", Behavior::exits(10 * SECOND, 1));
        let web = with_deadline(pod("web").container("a", IMAGE), 60).build();
        sim.desire([web]).await;
        sim.pass(5 * SECOND).await;
        sim.kill_agent().await;
        sim.pass(MINUTE).await;
        sim.start_agent().await;
        sim.until("it is ended", 5 * SECOND, is_past_its_deadline)
            .await;
        sim.pass(MINUTE).await;
        let uid = "web-uid".into();
        assert_eq!(sim.runtime.starts(&uid, "a"), 1);
    });
}

#[test]
fn active_deadline_fails_pod_that_never_started() {
    for what in ["pull", "sandbox", "create"] {
        simulate(16, async |sim| {
            prepare(sim);
            let image = match what {
                "pull" => "slow:1",
                _ => IMAGE,
            };
            let slow = Pull {
                takes: 60 * MINUTE,
                ..Pull::default()
            };
            sim.runtime.set_pull("slow:1", slow);
            match what {
                "sandbox" => sim.runtime.inject(Fault::hang(Operation::RunPodSandbox)),
                "create" => sim.runtime.inject(Fault::hang(Operation::CreateContainer)),
                _ => {}
            }
            let web = with_deadline(pod("web").container("a", image), 30).build();
            sim.desire([web]).await;
            sim.pass(25 * SECOND).await;
            assert_eq!(sim.phase("web"), "Pending", "{what}");
            sim.until(what, 8 * SECOND, is_past_its_deadline).await;
            assert_eq!(sim.runtime.starts(&"web-uid".into(), "a"), 0);
        });
    }
}

#[test]
fn shortened_deadline_counts_from_start_time() {
    simulate_cluster(17, async |sim| {
        let web = with_deadline(pod("web").container("a", IMAGE), 3600);
        let uid = running_in_a_cluster(sim, web).await;
        sim.pass(MINUTE).await;
        sim.api.modify::<Pod>(Some("default"), "web", |pod| {
            pod.spec.get_or_insert_default().active_deadline_seconds = Some(90);
        });
        sim.pass(20 * SECOND).await;
        assert_eq!(sim.phase("web"), "Running");
        sim.until("it is ended", 12 * SECOND, is_past_its_deadline)
            .await;
        sim.until("the API knows", 20 * SECOND, |sim| {
            let pod = sim.api.get::<Pod>(Some("default"), "web");
            let status = pod.and_then(|pod| pod.status).unwrap_or_default();
            status.phase.as_deref() == Some("Failed")
                && status.reason.as_deref() == Some("DeadlineExceeded")
        })
        .await;
        assert!(nothing_lives(sim, &uid));
    });
}

#[test]
fn pod_succeeded_before_deadline_stays_succeeded() {
    simulate(18, async |sim| {
        prepare(sim);
        sim.runtime
            .set_behavior("a", Behavior::exits(10 * SECOND, 0));
        let once = pod("web").restart_policy("Never").container("a", IMAGE);
        sim.desire([with_deadline(once, 30).build()]).await;
        sim.pass(2 * MINUTE).await;
        assert_eq!(sim.phase("web"), "Succeeded");
    });
}
