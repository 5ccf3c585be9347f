//! Tables of merges and patches.

use std::cell::Cell;
use std::fmt::Write as _;

use serde_json::json;
use windlass_types::corev1::{
    ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, HostIP, PodCondition, PodIP, PodStatus, ResourceRequirements,
};
use windlass_types::metav1::Time;
use windlass_types::{Timestamp, names};

use super::*;
use windlass_pod_text::pod;

thread_local! {
    /// Number of statuses rendered as JSON on this thread.
    pub(in crate::status_sync) static RENDERINGS: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("a time")
}

/// `w`, `r`, `t<exit code>`, or `?` for an unknown state.
fn state(text: &str) -> Option<ContainerState> {
    let terminated = |exit_code, reason: &str| ContainerStateTerminated {
        exit_code,
        reason: Some(reason.to_owned()),
        ..ContainerStateTerminated::default()
    };
    let mut state = ContainerState::default();
    match text.split_at(1) {
        ("w", _) => state.waiting = Some(ContainerStateWaiting::default()),
        ("r", _) => state.running = Some(ContainerStateRunning::default()),
        ("?", _) => state.terminated = Some(terminated(137, "ContainerStatusUnknown")),
        (_, code) => state.terminated = Some(terminated(code.parse().expect("code"), "Error")),
    }
    Some(state)
}

/// `name=state`, then `*restarts`, then `/last state`; separated by spaces.
fn containers(text: &str) -> Option<Vec<ContainerStatus>> {
    let one = |word: &str| {
        let (word, last) = word
            .split_once('/')
            .map_or((word, None), |(w, l)| (w, Some(l)));
        let (word, count) = word.split_once('*').unwrap_or((word, "0"));
        let (name, now) = word.split_once('=').expect("name=state");
        ContainerStatus {
            name: name.to_owned(),
            state: state(now),
            last_state: last.and_then(state),
            restart_count: count.parse().expect("a count"),
            ..ContainerStatus::default()
        }
    };
    Some(text.split_whitespace().map(one).collect())
}

/// `Type=True@second,reason`; separated by spaces.
fn conditions(text: &str) -> Option<Vec<PodCondition>> {
    let one = |word: &str| {
        let (word, reason) = word
            .split_once(',')
            .map_or((word, None), |(w, r)| (w, Some(r)));
        let (word, second) = word.split_once('@').expect("a time");
        let (type_, status) = word.split_once('=').expect("a status");
        PodCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.map(str::to_owned),
            last_transition_time: Some(Time(at(second.parse().expect("seconds")))),
            ..PodCondition::default()
        }
    };
    Some(text.split_whitespace().map(one).collect())
}

/// `phase | conditions | containers | init containers`.
pub(super) fn status(text: &str) -> PodStatus {
    let mut parts = text.split('|').map(str::trim);
    let mut part = || parts.next().unwrap_or_default();
    PodStatus {
        phase: Some(part().to_owned()),
        conditions: conditions(part()),
        container_statuses: containers(part()),
        init_container_statuses: containers(part()).filter(|list| !list.is_empty()),
        start_time: Some(Time(at(1))),
        ..PodStatus::default()
    }
}

fn line(status: &PodStatus) -> String {
    let condition = |c: &PodCondition| {
        let second = c
            .last_transition_time
            .as_ref()
            .map_or(0, |t| t.0.as_second());
        let reason = c.reason.as_ref().map_or(String::new(), |r| format!(",{r}"));
        format!("{}={}@{second}{reason}", c.type_, c.status)
    };
    let state = |state: &Option<ContainerState>| match state {
        Some(ContainerState {
            terminated: Some(t),
            ..
        }) if t.exit_code == 137 => "?".to_owned(),
        Some(ContainerState {
            terminated: Some(t),
            ..
        }) => format!("t{}", t.exit_code),
        Some(ContainerState {
            running: Some(_), ..
        }) => "r".to_owned(),
        _ => "w".to_owned(),
    };
    let container = |c: &ContainerStatus| {
        let count = match c.restart_count {
            0 => String::new(),
            n => format!("*{n}"),
        };
        let last = c
            .last_state
            .as_ref()
            .map_or(String::new(), |_| format!("/{}", state(&c.last_state)));
        format!("{}={}{count}{last}", c.name, state(&c.state))
    };
    let mut parts = vec![status.phase.clone().unwrap_or_default()];
    let list = |words: Vec<String>| words.join(" ");
    parts.push(list(
        status.conditions.iter().flatten().map(condition).collect(),
    ));
    parts.push(list(
        status
            .container_statuses
            .iter()
            .flatten()
            .map(container)
            .collect(),
    ));
    if let Some(inits) = &status.init_container_statuses {
        parts.push(list(inits.iter().map(container).collect()));
    }
    parts.join(" | ")
}

pub(super) fn proposal(spec: &str, local: PodStatus, worker: PodWorkerState) -> LocalStatus {
    LocalStatus {
        pod: Arc::new(pod(spec)),
        status: Arc::new(local),
        worker,
        observed: true,
        released: false,
    }
}

fn merged(spec: &str, api: &str, local: &str, worker: PodWorkerState) -> String {
    match merge_status(&status(api), &proposal(spec, status(local), worker), at(99)) {
        Ok(status) => line(&status),
        Err(refused) => refused.to_string(),
    }
}

use PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};

#[test]
fn foreign_conditions_stay_and_own_keep_transition_time() {
    let api = "Pending | PodScheduled=True@1 example.com/gate=False@2,Why Ready=False@3 | ";
    let local = "Running | PodScheduled=True@9 Ready=True@9 Initialized=True@9 old.example/x=True@9 | web=r";
    assert_eq!(
        merged("Always web", api, local, SyncPod),
        "Running | example.com/gate=False@2,Why PodScheduled=True@1 Ready=True@9 Initialized=True@9 | web=r"
    );
}

#[test]
fn pod_scheduled_condition_is_kept() {
    let api = "Pending | PodScheduled=True@1 | ";
    assert_eq!(
        merged(
            "Always web",
            api,
            "Pending | Ready=False@5 | web=w",
            SyncPod
        ),
        "Pending | Ready=False@5 PodScheduled=True@1 | web=w"
    );
}

#[test]
fn removed_condition_of_agent_is_deleted() {
    let api = "Running | PodResizePending=True@1 Ready=True@1 | web=r";
    assert_eq!(
        merged("Always web", api, "Running | Ready=True@5 | web=r", SyncPod),
        "Running | Ready=True@1 | web=r"
    );
}

#[test]
fn restored_pod_keeps_sizes_and_resize_state_of_api_server() {
    let sized = |text: &str, cpu: &str| {
        let mut status = status(text);
        let resources = json!({"requests": {"cpu": cpu}});
        let resources = serde_json::from_value(resources).expect("resources");
        let allocated = serde_json::from_value(json!({"cpu": cpu})).expect("a quantity");
        let containers = status.container_statuses.as_mut().expect("containers");
        containers[0].resources = Some(resources);
        containers[0].allocated_resources = Some(allocated);
        status.resources.clone_from(&containers[0].resources);
        status
    };
    for (api, local, restored, expected) in [
        ("", "PodResizeInProgress=True@5", false, "2 2 2 InProgress"),
        ("", "PodResizeInProgress=True@5", true, "1 1 1"),
        ("PodResizePending=True@3", "", true, "1 1 1 Pending"),
        ("PodResizePending=True@3", "", false, "2 2 2"),
    ] {
        let api = sized(&format!("Running | Ready=True@1 {api} | web=r"), "1");
        let mine = sized(&format!("Running | Ready=True@1 {local} | web=r"), "2");
        let mut local = proposal("Always web", mine, SyncPod);
        if restored {
            let annotations = &mut Arc::make_mut(&mut local.pod).metadata.annotations;
            let restored = (names::ANN_RESTORED.to_owned(), "true".to_owned());
            annotations.get_or_insert_default().extend([restored]);
        }
        let merged = merge_status(&api, &local, at(99)).expect("merged");
        let container = &merged.container_statuses.as_ref().expect("containers")[0];
        let request = |of: &Option<ResourceRequirements>| {
            let requests = of.as_ref().and_then(|it| it.requests.as_ref());
            requests.expect("requests")["cpu"].0.clone()
        };
        let allocated = container.allocated_resources.as_ref().expect("sizes");
        let mut line = [
            request(&merged.resources),
            request(&container.resources),
            allocated["cpu"].0.clone(),
        ]
        .join(" ");
        let conditions = merged.conditions.iter().flatten();
        for state in conditions.filter_map(|it| it.type_.strip_prefix("PodResize")) {
            write!(line, " {state}").expect("text");
        }
        assert_eq!(line, expected, "restored: {restored}");
    }
}

#[test]
fn terminal_phase_is_withheld_until_pod_is_terminated() {
    let api = "Running | Ready=True@1 | web=r";
    for (spec, local, worker, phase) in [
        (
            "Never web",
            "Succeeded | Ready=False@5 | web=t0",
            SyncPod,
            "Running",
        ),
        // its sandbox may use host ports, its CPUs and devices are not free
        (
            "Never web",
            "Succeeded | Ready=False@5 | web=t0",
            TerminatingPod,
            "Running",
        ),
        (
            "Never web",
            "Succeeded | Ready=False@5 | web=t0",
            TerminatedPod,
            "Succeeded",
        ),
        (
            "Never web",
            "Failed | Ready=False@5 | web=r",
            TerminatingPod,
            "Running",
        ),
        (
            "Never web",
            "Failed | Ready=False@5 | web=w",
            TerminatingPod,
            "Running",
        ),
        (
            "Never web",
            "Failed | Ready=False@5 | web=?",
            SyncPod,
            "Running",
        ),
        (
            "Never web",
            "Failed | Ready=False@5 | web=?",
            TerminatedPod,
            "Failed",
        ),
        (
            "Never web",
            "Failed | Ready=False@5 | web=w",
            TerminatedPod,
            "Failed",
        ),
        // a sidecar still runs
        (
            "Never web s:sidecar",
            "Succeeded | Ready=False@5 | web=t0 | s=r",
            TerminatingPod,
            "Running",
        ),
    ] {
        let line = merged(spec, api, local, worker);
        assert_eq!(line.split(" | ").next(), Some(phase), "{local} {worker}");
    }
}

#[test]
fn terminated_pod_has_terminal_phase_whatever_was_observed() {
    for (local, expected) in [
        ("Running | Ready=True@5 | web=r", "Failed"),
        ("Pending | Ready=False@5 | web=w", "Failed"),
        ("Succeeded | Ready=False@5 | web=t0", "Succeeded"),
    ] {
        let line = merged(
            "Always web",
            "Running | Ready=True@1 | web=r",
            local,
            TerminatedPod,
        );
        assert_eq!(line.split(" | ").next(), Some(expected), "{local}");
        let line = merged(
            "Always web",
            "Running | Ready=True@1 | web=r",
            local,
            TerminatingPod,
        );
        assert_ne!(line.split(" | ").next(), Some("Failed"), "{local}");
    }
}

#[test]
fn terminal_phase_is_kept() {
    let mut api = status("Failed | Ready=False@1 | web=t1");
    api.reason = Some("Evicted".into());
    for local in ["Running", "Succeeded", "Failed", "Pending"] {
        let local = status(&format!("{local} | Ready=True@5 | web=t0"));
        let merged = merge_status(&api, &proposal("Never web", local, TerminatedPod), at(99));
        let merged = merged.expect("merged");
        assert_eq!(merged.phase.as_deref(), Some("Failed"));
        assert_eq!(merged.reason.as_deref(), Some("Evicted"));
    }
}

#[test]
fn terminal_pod_is_never_ready() {
    let api = "Running | Ready=True@1 ContainersReady=True@1 | web=r";
    let local = "Failed | Ready=True@5 ContainersReady=True@5 | web=t1";
    assert_eq!(
        merged("Never web", api, local, TerminatedPod),
        "Failed | Ready=False@99,PodFailed ContainersReady=False@99,PodFailed | web=t1"
    );
}

#[test]
fn exited_container_without_restart_cannot_run_again() {
    let not_again = "container web has exited without a restart and cannot be running again";
    for (spec, was, is, expected) in [
        ("Never web", "web=t1", "web=r", not_again),
        ("OnFailure web", "web=t0", "web=r", not_again),
        ("OnFailure web", "web=t1*1", "web=r*2", "web=r*2/t1"),
        ("Always web", "web=t0", "web=w*1", "web=w*1/t0"),
        // a sidecar restarts before the pod has a terminal phase
        (
            "Never web s:sidecar",
            "web=r | s=t0",
            "web=r | s=r*1",
            "s=r*1/t0",
        ),
        // an init container reruns in a new sandbox: its next exit is accepted
        (
            "OnFailure web i:init",
            "web=t1 | i=t0",
            "web=w | i=r*1",
            "i=t0",
        ),
        (
            "OnFailure web i:init",
            "web=t1 | i=t0",
            "web=w | i=t1*1",
            "i=t1*1",
        ),
        (
            "Always web i:init",
            "web=t1 | i=t0",
            "web=w | i=r*1",
            "i=r*1/t0",
        ),
    ] {
        let api = format!("Running | Ready=True@1 | {was}");
        let local = format!("Running | Ready=True@1 | {is}");
        let line = merged(spec, &api, &local, SyncPod);
        assert_eq!(
            line.split(" | ").last(),
            Some(expected),
            "{spec}: {was} -> {is}"
        );
    }
    // other changes are published meanwhile
    assert_eq!(
        merged(
            "OnFailure web i:init",
            "Running | Ready=True@1 | web=r | i=t0",
            "Pending | Ready=False@5 | web=t1 | i=r*1",
            SyncPod
        ),
        "Pending | Ready=False@5 | web=t1 | i=t0"
    );
    // the terminal phase is published with the former container state
    assert_eq!(
        merged(
            "Never web db",
            "Running | Ready=True@1 | db=r web=t3",
            "Failed | Ready=False@5 | db=t0 web=w",
            TerminatedPod
        ),
        "Failed | Ready=False@5 | db=t0 web=t3"
    );
}

#[test]
fn restart_counts_and_last_states_are_kept() {
    for (was, is, expected) in [
        ("web=r*3/t1", "web=r", "web=r*3/t1"),
        ("web=r*3/t1", "web=r*4/t2", "web=r*4/t2"),
        ("web=t1*3", "web=w*3", "web=w*3/t1"),
        ("web=r", "web=r", "web=r"),
    ] {
        let api = format!("Running | Ready=True@1 | {was}");
        let local = format!("Running | Ready=True@1 | {is}");
        let line = merged("Always web", &api, &local, SyncPod);
        assert_eq!(line.split(" | ").last(), Some(expected), "{was} -> {is}");
    }
}

#[test]
fn unobserved_exit_is_failure_in_terminated_pod() {
    for (spec, local, expected) in [
        ("Never web", "web=w", "web=?"),
        ("Never web", "web=t0", "web=t0"),
        // never started: the init container did not complete
        ("Never web i:init", "web=w | i=r", "web=w | i=?"),
        (
            "Never web i:init k:init",
            "web=w | i=w k=w",
            "web=w | i=? k=w",
        ),
        ("Never web i:init", "web=w | i=t0", "web=? | i=t0"),
        ("Never web i:init", "web=w/t1 | i=w", "web=?/t1 | i=?"),
    ] {
        let local = format!("Failed | Ready=False@5 | {local}");
        let line = merged(spec, "Pending | PodScheduled=True@1", &local, TerminatedPod);
        let containers = line.split_once("PodScheduled=True@1 | ").map(|(_, c)| c);
        assert_eq!(containers, Some(expected), "{local}");
    }
}

#[test]
fn disruption_is_published_with_terminal_phase() {
    let ours = "DisruptionTarget=True@5,TerminationByKubelet Ready=False@5";
    let api = "Running | Ready=False@1 | web=r";
    assert_eq!(
        merged(
            "Always web",
            api,
            &format!("Failed | {ours} | web=r"),
            TerminatingPod
        ),
        "Running | Ready=False@1 | web=r"
    );
    assert_eq!(
        merged(
            "Always web",
            api,
            &format!("Failed | {ours} | web=t1"),
            TerminatedPod
        ),
        "Failed | DisruptionTarget=True@99,TerminationByKubelet Ready=False@1 | web=t1"
    );
    // a condition of another writer is kept
    let foreign = "Running | DisruptionTarget=True@2,EvictionByEvictionAPI Ready=False@1 | web=r";
    let copied = "Failed | DisruptionTarget=True@2,EvictionByEvictionAPI Ready=False@1 | web=t1";
    assert_eq!(merged("Always web", foreign, copied, TerminatedPod), copied);
}

#[test]
fn foreign_fields_are_copied_and_some_are_set_once() {
    let mut api = status("Pending | PodScheduled=True@1 | ");
    api.start_time = Some(Time(at(3)));
    api.qos_class = Some("Burstable".into());
    api.nominated_node_name = Some("n2".into());
    api.observed_generation = Some(4);
    api.pod_ip = Some("10.0.0.1".into());
    api.pod_ips = Some(vec![PodIP {
        ip: "10.0.0.1".into(),
    }]);
    let mut local = status("Pending | Ready=False@5 | web=w");
    local.start_time = Some(Time(at(50)));
    local.qos_class = Some("BestEffort".into());
    local.observed_generation = Some(3);
    let fields = |worker| {
        let merged = merge_status(&api, &proposal("Always web", local.clone(), worker), at(99));
        let merged = merged.expect("merged");
        format!(
            "{} {} {} {} {}",
            merged.start_time.map_or(0, |t| t.0.as_second()),
            merged.qos_class.unwrap_or_default(),
            merged.nominated_node_name.unwrap_or_default(),
            merged.observed_generation.unwrap_or_default(),
            merged.pod_ip.unwrap_or_default(),
        )
    };
    assert_eq!(fields(TerminatingPod), "3 Burstable n2 4 10.0.0.1");
    // a new sandbox has no address yet
    assert_eq!(fields(SyncPod), "3 Burstable n2 4 ");
}

#[test]
fn rejected_pod_has_no_containers_and_is_sent_at_once() {
    // its worker terminated it without an observation
    let mut ended = status("Failed | Ready=False@5 | web=w");
    ended.reason = Some("OutOfcpu".into());
    let ended = proposal("Always web", ended, TerminatedPod);
    let new = merge_status(&status("Pending | PodScheduled=True@1"), &ended, at(99));
    assert_eq!(
        line(&new.expect("merged")),
        "Failed | Ready=False@5 PodScheduled=True@1 | "
    );
    let mut local = status("Failed");
    local.container_statuses = None;
    local.reason = Some("OutOfcpu".into());
    let rejected = proposal("Always web", local.clone(), TerminatedPod);
    let new = merge_status(&status("Pending | PodScheduled=True@1"), &rejected, at(99));
    assert_eq!(new.expect("merged").phase.as_deref(), Some("Failed"));
    let rejected_line = line(
        &merge_status(
            &status("Pending | PodScheduled=True@1 example.com/own=True@1"),
            &rejected,
            at(99),
        )
        .expect("merged"),
    );
    assert_eq!(rejected_line, "Failed | example.com/own=True@1 | ");
    // containers that run after an agent restart are stopped first
    let stops = proposal("Always web", local, TerminatingPod);
    let ran = merge_status(&status("Running | Ready=True@1 | web=r"), &stops, at(99));
    assert_eq!(line(&ran.expect("merged")), "Running |  | web=r");
}

fn patch(before: &PodStatus, after: &PodStatus) -> String {
    let mut base = pod("Always web");
    base.metadata.uid = Some("u1".into());
    base.status = Some(before.clone());
    match status_patch(&base, after) {
        None => "none".to_owned(),
        Some(patch) => {
            assert_eq!(patch["metadata"], json!({"uid": "u1"}));
            patch["status"].to_string()
        }
    }
}

#[test]
fn patch_has_only_differences() {
    let before = status("Pending | Ready=False@1,Why x/y=True@1 | ");
    for (after, expected) in [
        ("Pending | Ready=False@1,Why x/y=True@1 | ", "none"),
        // their order has no meaning
        ("Pending | x/y=True@1 Ready=False@1,Why | ", "none"),
        (
            "Running | Ready=False@1,Why x/y=True@1 | ",
            r#"{"phase":"Running"}"#,
        ),
        (
            "Pending | x/y=True@1 Ready=True@5 | ",
            r#"{"$setElementOrder/conditions":[{"type":"x/y"},{"type":"Ready"}],"conditions":[{"lastTransitionTime":"1970-01-01T00:00:05Z","reason":null,"status":"True","type":"Ready"}]}"#,
        ),
        (
            "Pending | x/y=True@1 | ",
            r#"{"$setElementOrder/conditions":[{"type":"x/y"}],"conditions":[{"$patch":"delete","type":"Ready"}]}"#,
        ),
    ] {
        assert_eq!(patch(&before, &status(after)), expected, "{after}");
    }
}

#[test]
fn equal_statuses_are_not_rendered() {
    let before = status("Running | Ready=True@1 | web=r");
    for (after, rendered) in [
        ("Running | Ready=True@1 | web=r", 0),
        ("Failed | Ready=True@1 | web=r", 2),
    ] {
        RENDERINGS.set(0);
        patch(&before, &status(after));
        assert_eq!(RENDERINGS.get(), rendered, "{after}");
    }
}

#[test]
fn patch_replaces_containers_and_merges_addresses() {
    let mut before = status("Running | | web=r db=r");
    before.pod_ips = Some(vec![
        PodIP {
            ip: "10.0.0.1".into(),
        },
        PodIP { ip: "fd::1".into() },
    ]);
    before.host_ips = Some(vec![HostIP {
        ip: "1.1.1.1".into(),
    }]);
    let mut after = status("Running | | web=t1");
    after.pod_ips = Some(vec![
        PodIP { ip: "fd::1".into() },
        PodIP {
            ip: "10.0.0.1".into(),
        },
    ]);
    assert_eq!(
        patch(&before, &after),
        concat!(
            r#"{"$setElementOrder/podIPs":[{"ip":"fd::1"},{"ip":"10.0.0.1"}],"#,
            r#""containerStatuses":[{"name":"web","ready":false,"restartCount":0,"#,
            r#""state":{"terminated":{"exitCode":1,"reason":"Error"}}}],"hostIPs":null}"#,
        )
    );
    let mut other = before.clone();
    other.pod_ips = Some(vec![
        PodIP {
            ip: "10.0.0.1".into(),
        },
        PodIP { ip: "fd::2".into() },
    ]);
    assert_eq!(
        patch(&before, &other),
        concat!(
            r#"{"$setElementOrder/podIPs":[{"ip":"10.0.0.1"},{"ip":"fd::2"}],"#,
            r#""podIPs":[{"ip":"fd::2"},{"$patch":"delete","ip":"fd::1"}]}"#,
        )
    );
}

#[test]
fn equal_status_in_other_spelling_needs_no_patch() {
    let mut before = status("Running | Ready=True@1 | web=r");
    let mut after = before.clone();
    after.message = Some(String::new());
    after.ephemeral_container_statuses = Some(Vec::new());
    let fraction = Timestamp::new(1, 700_000_000).expect("a time");
    for (status, cpu, started) in [(&mut before, "500m", at(1)), (&mut after, "0.5", fraction)] {
        status.start_time = Some(Time(started));
        for container in status.container_statuses.iter_mut().flatten() {
            let amount = serde_json::from_value(json!({"cpu": cpu})).expect("a quantity");
            container.allocated_resources = Some(amount);
            container.last_state = Some(ContainerState::default());
        }
    }
    for container in before.container_statuses.iter_mut().flatten() {
        container.last_state = None;
    }
    assert_eq!(patch(&before, &after), "none");
}

#[test]
fn pod_object_is_deleted_after_terminal_phase_and_cleanup() {
    let object = |deleted: bool, phase: &str| {
        let mut object = pod("Never web");
        object.metadata.deletion_timestamp = deleted.then(|| Time(at(1)));
        object.status = Some(status(phase));
        object
    };
    let local = |worker, released| LocalStatus {
        released,
        ..proposal("Never web", status("Failed"), worker)
    };
    for (deleted, phase, worker, released, expected) in [
        (true, "Failed", TerminatedPod, true, true),
        (true, "Succeeded", TerminatedPod, true, true),
        (true, "Failed", TerminatedPod, false, false),
        (true, "Failed", TerminatingPod, true, false),
        (true, "Running", TerminatedPod, true, false),
        (true, "Pending", TerminatedPod, true, false),
        (false, "Failed", TerminatedPod, true, false),
    ] {
        assert_eq!(
            can_be_deleted(&object(deleted, phase), &local(worker, released)),
            expected,
            "{deleted} {phase} {worker} {released}"
        );
    }
}
