//! Setup of scenarios, and queries of containers.

use std::time::Duration;

use windlass_pod_status::status::status_line;
use windlass_testing::fake_runtime::Operation;
use windlass_testing::{NodeSim, PodBuilder};
use windlass_types::corev1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, ExecAction, Node, Probe,
};
use windlass_types::{ContainerState, PodExt, PodUid};

use crate::{IMAGE, SECOND};

pub(crate) fn pod(name: &str) -> PodBuilder {
    PodBuilder::new(name).grace(5)
}

pub(crate) fn sidecar(container: &mut Container) {
    container.restart_policy = Some("Always".to_owned());
}

/// A probe that runs a command, each second.
pub(crate) fn every_second(failures: i32) -> Probe {
    Probe {
        exec: Some(ExecAction {
            command: Some(vec!["check".to_owned()]),
        }),
        period_seconds: Some(1),
        failure_threshold: Some(failures),
        ..Probe::default()
    }
}

pub(crate) fn rule(container: &mut Container, action: &str, code: i32) {
    container.restart_policy = Some("Never".to_owned());
    container.restart_policy_rules = Some(vec![ContainerRestartRule {
        action: action.to_owned(),
        exit_codes: Some(ContainerRestartRuleOnExitCodes {
            operator: "In".to_owned(),
            values: Some(vec![code]),
        }),
    }]);
}

pub(crate) fn prepare(sim: &NodeSim) {
    sim.runtime.add_image(IMAGE);
    let latency = |operation, time| {
        sim.runtime
            .set_latency(operation, Duration::from_millis(time));
    };
    latency(Operation::RunPodSandbox, 80);
    latency(Operation::CreateContainer, 20);
    latency(Operation::StartContainer, 40);
}

/// `name#attempt` of the calls of one operation, in order.
pub(crate) fn order(sim: &NodeSim, operation: Operation, pod: &str) -> Vec<String> {
    let prefix = format!("default/{pod}/");
    let calls = sim.runtime.calls_of(operation, &prefix);
    let short = |call: &windlass_testing::fake_runtime::Call| {
        let rest = call.subject.strip_prefix(&prefix).unwrap_or_default();
        rest.split_whitespace()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    calls.iter().map(short).collect()
}

pub(crate) fn line(sim: &NodeSim, name: &str) -> String {
    sim.view(name)
        .map_or(String::new(), |view| status_line(&view.status))
}

pub(crate) fn starts<const N: usize>(sim: &NodeSim, uid: &PodUid, names: [&str; N]) -> [u32; N] {
    names.map(|name| sim.runtime.starts(uid, name))
}

/// Whole seconds between the starts of a container.
pub(crate) fn gaps(sim: &NodeSim, pod: &str, container: &str) -> Vec<i64> {
    let prefix = format!("default/{pod}/{container}#");
    let calls = sim.runtime.calls_of(Operation::StartContainer, &prefix);
    let times: Vec<_> = calls.iter().map(|call| call.at).collect();
    let gap = |pair: &[windlass_types::Timestamp]| pair[1].duration_since(pair[0]).as_secs();
    times.windows(2).map(gap).collect()
}

pub(crate) fn nothing_lives(sim: &NodeSim, uid: &PodUid) -> bool {
    let live = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
    let containers = sim.runtime.containers(uid);
    let sandboxes = sim.runtime.sandboxes();
    !containers.iter().any(|c| live(c.state))
        && !sandboxes
            .iter()
            .any(|(_, of, _, ready)| of == uid && *ready)
}

fn node_ready(sim: &NodeSim) -> bool {
    let node = sim.api.get::<Node>(None, "sim");
    let conditions = node.and_then(|node| node.status?.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

/// An API pod that runs `a` on a joined node.
pub(crate) async fn running_in_a_cluster(sim: &mut NodeSim, builder: PodBuilder) -> PodUid {
    prepare(sim);
    Box::pin(sim.start_agent()).await;
    sim.until("the node is ready", 2 * SECOND, node_ready).await;
    let uid = sim.api.create(&builder.bound_to("sim").build()).uid();
    sim.until("a runs", 5 * SECOND, |sim| {
        sim.runtime.running(&uid, "a").is_some() && sim.phase("web") == "Running"
    })
    .await;
    uid
}
