//! Critical pods on a node with 1000 CPUs, almost all of which other pods request.

use std::sync::Arc;

use serde_json::json;
use windlass_testing::fake_runtime::{Behavior, Fault, Operation};
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{Event, PodCondition};
use windlass_types::{Pod, PodUid, SharedPod};

use crate::fixture::*;
use crate::{MINUTE, SECOND};

const REASON: &str = "Preempting";
const TEXT: &str = "Preempted in order to admit critical pod";
const DISRUPTION: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

fn requesting(name: &str, cpus: u32, priority: i32) -> PodBuilder {
    pod(name).grace(20).with(|pod| {
        let spec = pod.spec.get_or_insert_default();
        spec.priority = Some(priority);
        let resources = json!({ "requests": { "cpu": cpus.to_string() } });
        spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
    })
}

fn critical(name: &str, cpus: u32) -> PodBuilder {
    requesting(name, cpus, 2_000_000_000)
}

/// Runs `small` and `batch`; the latter ends with SIGKILL only, after its grace period.
async fn fill(sim: &mut NodeSim) -> PodUid {
    sim.runtime
        .set_behavior("default/batch/app", Behavior::stubborn());
    create(sim, requesting("small", 10, 0));
    let batch = create(sim, requesting("batch", 900, 0));
    sim.until("both run", 10 * SECOND, |sim| {
        ready(sim, "small") && ready(sim, "batch")
    })
    .await;
    batch
}

async fn until_waiting(sim: &NodeSim, name: &str) {
    sim.until("it waits", SECOND, |sim| sim.blocker(name) == REASON)
        .await;
}

fn is_preempted(sim: &NodeSim, name: &str) -> bool {
    let status = get(sim, name).and_then(|pod| pod.status);
    let status = status.unwrap_or_default();
    let found = [&status.phase, &status.reason, &status.message].map(Option::as_deref);
    found == [Some("Failed"), Some(REASON), Some(TEXT)]
}

fn disruption(sim: &NodeSim, name: &str) -> Option<PodCondition> {
    let conditions = get(sim, name)?.status?.conditions?;
    conditions
        .into_iter()
        .find(|c| c.type_ == "DisruptionTarget")
}

/// Number of events with the reason of a preemption.
fn preemptions(sim: &NodeSim) -> i32 {
    let events = sim.api.list::<Event>().into_iter();
    let preempting = events.filter(|event| event.reason.as_deref() == Some(REASON));
    preempting.map(|event| event.count.unwrap_or(1)).sum()
}

fn counted(sim: &NodeSim) -> f64 {
    let families = &sim.metrics.sync_loop.preemptions;
    families.with_label_values(&["cpu"]).get()
}

#[test]
fn critical_pod_runs_after_preempted_pod_ended() {
    on_a_ready_node(81, async |sim| {
        let batch = fill(sim).await;
        let vital = create(sim, critical("vital", 500));
        until_waiting(sim, "vital").await;
        assert!(!runs(sim, &vital) && runs(sim, &batch));
        // others run at once, but not with what is reserved
        create(sim, pod("light"));
        create(sim, requesting("large", 600, 0));
        create(sim, requesting("modest", 400, 0));
        sim.until("another runs", 5 * SECOND, |sim| ready(sim, "light"))
            .await;
        assert_eq!(phase(sim, "large"), "Failed");
        assert_eq!(sim.blocker("modest"), REASON);
        assert!(!runs(sim, &vital) && runs(sim, &batch));

        sim.until("they run", 30 * SECOND, |sim| {
            ready(sim, "vital") && ready(sim, "modest")
        })
        .await;
        sim.until("the victim has failed", 5 * SECOND, |sim| {
            is_preempted(sim, "batch")
        })
        .await;
        let condition = disruption(sim, "batch").expect("a condition");
        assert_eq!(condition.status, "True");
        assert_eq!(condition.reason.as_deref(), Some("TerminationByKubelet"));
        assert_eq!(condition.message.as_deref(), Some(DISRUPTION));
        sim.pass(MINUTE).await;
        assert_eq!((preemptions(sim), counted(sim)), (1, 1.0));
        assert!(ready(sim, "small") && ready(sim, "vital"));
        assert_eq!(sim.runtime.starts(&batch, "app"), 1);
    });
}

#[test]
fn critical_pod_without_victims_is_rejected() {
    on_a_ready_node(82, async |sim| {
        fill(sim).await;
        create(sim, critical("vital", 1001));
        sim.until("it fails", 2 * SECOND, |sim| {
            phase(sim, "vital") == "Failed"
        })
        .await;
        let status = get(sim, "vital").and_then(|pod| pod.status);
        let status = status.expect("a status");
        assert_eq!(status.reason.as_deref(), Some("UnexpectedAdmissionError"));
        assert_eq!(
            status.message.as_deref(),
            Some(
                "Pod was rejected: Unexpected error while attempting to recover from admission \
                 failure: preemption: error finding a set of pods to preempt: no set of running \
                 pods found to reclaim resources: [(res: cpu, q: 1000), ]"
            )
        );
        assert!(ready(sim, "batch") && ready(sim, "small"));
        assert_eq!(preemptions(sim), 0);
    });
}

#[test]
fn critical_pod_waits_a_bounded_time_for_a_hung_victim() {
    on_a_ready_node(83, async |sim| {
        let batch = fill(sim).await;
        let hang = Fault::hang(Operation::StopContainer).on("default/batch");
        sim.runtime.inject(hang);
        create(sim, critical("vital", 500));
        sim.pass(25 * SECOND).await;
        assert_eq!(sim.blocker("vital"), REASON);
        // 1.5 times the grace period of 20 s
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "vital"))
            .await;
        assert!(runs(sim, &batch) && phase(sim, "batch") == "Running");
        sim.runtime.clear_faults();
        sim.runtime.release(Operation::StopContainer);
        sim.until("the victim has failed", 2 * MINUTE, |sim| {
            is_preempted(sim, "batch")
        })
        .await;
        assert_eq!((preemptions(sim), counted(sim)), (1, 0.0));
    });
}

#[test]
fn deletions_during_a_preemption_free_their_resources() {
    on_a_ready_node(84, async |sim| {
        fill(sim).await;
        create(sim, critical("vital", 500));
        until_waiting(sim, "vital").await;
        delete(sim, "vital", None);
        sim.until("the critical pod is removed", 5 * SECOND, |sim| {
            get(sim, "vital").is_none()
        })
        .await;
        // the victim is deleted too
        create(sim, critical("other", 900));
        until_waiting(sim, "other").await;
        delete(sim, "batch", Some(2));
        sim.until("it runs", 10 * SECOND, |sim| ready(sim, "other"))
            .await;
        sim.until("the victim is removed", 10 * SECOND, |sim| {
            get(sim, "batch").is_none()
        })
        .await;
        assert_eq!(preemptions(sim), 1);
        assert!(ready(sim, "small"));
    });
}

/// The checkpoint of a node that preempts `batch`.
fn checkpoint(sim: &NodeSim) -> Vec<SharedPod> {
    let small = get(sim, "small").expect("there");
    let mut batch = get(sim, "batch").expect("there");
    let status = batch.status.get_or_insert_default();
    status.phase = Some("Failed".to_owned());
    status.reason = Some(REASON.to_owned());
    status.message = Some(TEXT.to_owned());
    status
        .conditions
        .get_or_insert_default()
        .push(PodCondition {
            type_: "DisruptionTarget".to_owned(),
            status: "True".to_owned(),
            message: Some(DISRUPTION.to_owned()),
            ..PodCondition::default()
        });
    vec![Arc::new(small), Arc::new(batch)]
}

/// Kills the agent during a preemption; `exits` also ends the victim's container meanwhile.
fn check_restart(seed: u64, exits: bool) {
    on_a_ready_node(seed, async |sim| {
        sim.runtime.cut_off_stops();
        let batch = fill(sim).await;
        let vital = create(sim, critical("vital", 500));
        until_waiting(sim, "vital").await;
        sim.pass(2 * SECOND).await;
        sim.kill_agent().await;
        sim.checkpoint = checkpoint(sim);
        if exits {
            let container = sim.runtime.running(&batch, "app").expect("it runs");
            sim.runtime.kill_container(&container.id, 1);
        }
        sim.pass(10 * SECOND).await;
        sim.start_agent().await;
        sim.until("its resources are free", 40 * SECOND, |sim| {
            assert!(!runs(sim, &vital), "runs beside its victim");
            !runs(sim, &batch)
        })
        .await;
        sim.until("it runs", 5 * SECOND, |sim| ready(sim, "vital"))
            .await;
        sim.until("the victim has failed", 5 * SECOND, |sim| {
            is_preempted(sim, "batch")
        })
        .await;
        assert!(disruption(sim, "batch").is_some());
        sim.pass(MINUTE).await;
        assert_eq!(preemptions(sim), 1);
        assert!(ready(sim, "small") && ready(sim, "vital"));
        assert_eq!(sim.runtime.starts(&batch, "app"), 1);
        let pods: Vec<Pod> = sim.api.list();
        assert_eq!(pods.len(), 3);
    });
}

#[test]
fn agent_killed_during_a_preemption_preempts_once() {
    check_restart(85, false);
}

#[test]
fn victim_that_ended_without_the_agent_stays_ended() {
    check_restart(86, true);
}

#[test]
fn static_pod_preempts_and_keeps_its_mirror_pod() {
    on_a_ready_node(87, async |sim| {
        let batch = fill(sim).await;
        let agent = static_pod("agent").with(|pod| {
            let spec = pod.spec.get_or_insert_default();
            let resources = json!({ "requests": { "cpu": "500" } });
            spec.containers[0].resources = serde_json::from_value(resources).expect("resources");
        });
        sim.desire([agent.build()]).await;
        sim.until("it waits", 2 * SECOND, |sim| sim.blocker("agent") == REASON)
            .await;
        assert!(runs(sim, &batch));
        sim.until("it runs", 40 * SECOND, |sim| {
            sim.phase("agent") == "Running"
        })
        .await;
        assert!(!runs(sim, &batch));
        assert_eq!(preemptions(sim), 1);
    });
}
