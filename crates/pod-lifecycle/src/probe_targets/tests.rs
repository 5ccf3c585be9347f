//! Probe targets and initial results.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_types::ContainerProbeResult;
use windlass_types::corev1::{ContainerPort, PodStatus, Probe, TCPSocketAction};

use super::*;
use crate::probe::ProbeHandler;
use windlass_pod_text::{at, observed, pod};

/// A pod as `actions` writes them; `probes` adds `name.kind` words such as `web.liveness`.
fn probed(spec: &str, probes: &str) -> Pod {
    let mut pod = pod(spec);
    let spec = pod.spec.as_mut().expect("spec");
    for word in probes.split_whitespace() {
        let (name, kind) = word.split_once('.').expect("name.kind");
        let init = spec.init_containers.iter_mut().flatten();
        let mut all = spec.containers.iter_mut().chain(init);
        let container = all.find(|c| c.name == name).expect("a container");
        let probe = Some(Probe::default());
        match kind {
            "liveness" => container.liveness_probe = probe,
            "readiness" => container.readiness_probe = probe,
            "startup" => container.startup_probe = probe,
            other => panic!("{other}"),
        }
    }
    pod
}

/// `kind.name=instance:ok|failed` words, for example `startup.web=c1:ok`.
fn probe_results(text: &str) -> PodProbeResults {
    let mut probe_results = PodProbeResults::default();
    for word in text.split_whitespace() {
        let (kind, rest) = word.split_once('.').expect("kind.name");
        let (name, rest) = rest.split_once('=').expect("name=instance");
        let (id, ok) = rest.split_once(':').expect("instance:ok");
        let kind = kind_of(kind);
        let result = ContainerProbeResult {
            id: ContainerId::from(id),
            success: ok == "ok",
        };
        probe_results
            .for_kind_mut(kind)
            .insert(name.to_owned(), result);
    }
    probe_results
}

fn kind_of(text: &str) -> ProbeKind {
    match text {
        "liveness" => ProbeKind::Liveness,
        "readiness" => ProbeKind::Readiness,
        _ => ProbeKind::Startup,
    }
}

#[test]
fn target_state_follows_instance_startup_probe_and_worker() {
    use PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};
    fn check(
        phase: PodWorkerState,
        spec: (&str, &str),
        found: &str,
        known: &str,
        expected: [&str; 3],
    ) {
        let pod = probed(spec.0, spec.1);
        let observed = observed(&pod, found);
        let probe_results = probe_results(known);
        for (kind, expected) in ProbeKind::ALL.into_iter().zip(expected) {
            let targets = probe_targets(ProbeTargetsInput {
                kind,
                pod: &pod,
                observed: &observed,
                probe_results: &probe_results,
                worker_state: phase,
            });
            let words: Vec<_> = targets.iter().map(ToString::to_string).collect();
            assert_eq!(words.join(" "), expected, "{kind} of {spec:?} with {found}");
        }
    }
    let all = ("Always a", "a.liveness a.readiness a.startup");
    // no instance runs
    check(
        SyncPod,
        all,
        "sb0",
        "",
        ["a:not-running", "a:not-running", "a:not-running"],
    );
    let created = [
        "a:not-running(c1)",
        "a:not-running(c1)",
        "a:not-running(c1)",
    ];
    check(SyncPod, all, "sb0 a=created", "", created);
    // the startup probe holds back the others
    let awaiting = [
        "a:awaiting-startup(c1)",
        "a:awaiting-startup(c1)",
        "a:active(c1)",
    ];
    check(SyncPod, all, "sb0 a=run", "", awaiting);
    check(SyncPod, all, "sb0 a=run", "startup.a=c1:failed", awaiting);
    let active = ["a:active(c1)", "a:active(c1)", "a:active(c1)"];
    check(SyncPod, all, "sb0 a=run", "startup.a=c1:ok", active);
    // results of the previous instance do not count
    let restarted = [
        "a:awaiting-startup(c2)",
        "a:awaiting-startup(c2)",
        "a:active(c2)",
    ];
    let found = "sb0 a=exit1 a#1=run";
    check(SyncPod, all, found, "startup.a=c1:ok", restarted);
    let exited = [
        "a:not-running(c1)",
        "a:not-running(c1)",
        "a:not-running(c1)",
    ];
    check(SyncPod, all, "sb0 a=exit1", "startup.a=c1:ok", exited);
    check(SyncPod, all, "sb0 a=unknown", "startup.a=c1:ok", exited);
    // a container without a startup probe does not wait
    let two = ("Always a b", "a.liveness b.readiness a.startup");
    let found = "sb0 a=run b=run";
    check(
        SyncPod,
        two,
        found,
        "",
        ["a:awaiting-startup(c1)", "b:active(c2)", "a:active(c1)"],
    );
    // a terminating pod has readiness probes only, a terminated pod none
    let stopping = ["a:stopped(c1)", "a:active(c1)", "a:stopped(c1)"];
    check(
        TerminatingPod,
        all,
        "sb0 a=run",
        "startup.a=c1:ok",
        stopping,
    );
    let gone = ["a:stopped(c1)", "a:not-running(c1)", "a:stopped(c1)"];
    check(TerminatingPod, all, "sb0 a=exit0", "startup.a=c1:ok", gone);
    check(
        TerminatedPod,
        all,
        "sb0 a=run",
        "startup.a=c1:ok",
        ["", "", ""],
    );
    // sidecars are probed, other init containers are not
    let init = (
        "Always i:init s:sidecar a",
        "i.readiness s.readiness s.startup a.readiness",
    );
    let found = "sb0 i=exit0 s=run";
    let expected = ["", "s:awaiting-startup(c2) a:not-running", "s:active(c2)"];
    check(SyncPod, init, found, "", expected);
    // without a probe there is no target
    check(SyncPod, ("Always a", ""), "sb0 a=run", "", ["", "", ""]);
}

/// The instance `a` starts at second 10; the agent `agent` seconds after the epoch of the tests.
fn believed(kind: &str, known: &str, agent: i64, reported: Option<PodStatus>) -> String {
    let mut pod = probed("Always a", "a.readiness");
    pod.status = reported;
    let observed = observed(&pod, "sb0 a=run");
    let input = ProbeTargetsInput {
        kind: kind_of(kind),
        pod: &pod,
        observed: &observed,
        probe_results: &probe_results(known),
        worker_state: PodWorkerState::SyncPod,
    };
    let instance = observed.latest("a").expect("it runs");
    initial_result(&input, instance, at(agent)).to_string()
}

#[test]
fn new_instance_is_not_ready_and_old_one_is_unknown() {
    fn check(kind: &str, known: &str, agent: i64, expected: &str) {
        assert_eq!(
            believed(kind, known, agent, None),
            expected,
            "{kind} {known} {agent}"
        );
    }
    check("readiness", "", 0, "not ready");
    check("readiness", "", 20, "not ready");
    check("readiness", "", 21, "unknown");
    check("readiness", "readiness.a=c0:ok", 0, "not ready");
    check("readiness", "readiness.a=c1:ok", 0, "restored(success)");
    check(
        "readiness",
        "readiness.a=c1:failed",
        99,
        "restored(failure)",
    );
    check("liveness", "", 0, "unknown");
    check("liveness", "liveness.a=c1:failed", 0, "restored(failure)");
    check("startup", "", 99, "unknown");
    check("startup", "startup.a=c1:ok", 0, "restored(success)");
}

#[test]
fn instance_started_in_api_keeps_startup_result() {
    fn check(id: &str, started: Option<bool>, kind: &str, expected: &str) {
        let status = ContainerStatus {
            name: "a".to_owned(),
            container_id: Some(id.to_owned()),
            started,
            ..ContainerStatus::default()
        };
        let reported = PodStatus {
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        };
        assert_eq!(
            believed(kind, "", 99, Some(reported)),
            expected,
            "{id} {started:?}"
        );
    }
    check("containerd://c1", Some(true), "startup", "started");
    check("containerd://c1", Some(false), "startup", "unknown");
    check("containerd://c1", None, "startup", "unknown");
    check("containerd://c0", Some(true), "startup", "unknown");
    check("", Some(true), "startup", "unknown");
    check("containerd://c1", Some(true), "liveness", "unknown");
}

#[test]
fn new_instance_that_is_ready_in_api_stays_ready() {
    fn check(id: &str, ready: bool, known: &str, expected: &str) {
        let status = ContainerStatus {
            name: "a".to_owned(),
            container_id: Some(id.to_owned()),
            ready,
            ..ContainerStatus::default()
        };
        let reported = PodStatus {
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        };
        let result = believed("readiness", known, 11, Some(reported));
        assert_eq!(result, expected, "{id} {ready} {known}");
    }
    // the previous agent run could not write its result
    check("containerd://c1", true, "", "unknown");
    check("containerd://c1", false, "", "not ready");
    check("containerd://c0", true, "", "not ready");
    let failed = "readiness.a=c1:failed";
    check("containerd://c1", true, failed, "restored(failure)");
}

#[test]
fn only_instances_started_before_agent_have_jitter() {
    let pod = probed("Always a", "a.liveness");
    let observed = observed(&pod, "sb0 a=run");
    let instance = observed.latest("a").expect("it runs");
    assert!(started_before_agent(instance, at(11)));
    assert!(!started_before_agent(instance, at(10)));
}

#[test]
fn probe_with_unknown_port_has_schedule_and_error() {
    let mut pod = probed("Always a", "a.readiness");
    let container = &mut pod.spec.as_mut().expect("spec").containers[0];
    let probe = container.readiness_probe.as_mut().expect("probe");
    probe.period_seconds = Some(7);
    probe.tcp_socket = Some(TCPSocketAction {
        port: IntOrString::String("http".to_owned()),
        ..TCPSocketAction::default()
    });
    let plan = |pod: &Pod| {
        let ip = "10.0.0.1".parse().ok();
        let plan = probe_plan(ProbeKind::Readiness, pod, &pod.containers()[0], ip);
        plan.expect("a probe")
    };
    let unresolved = plan(&pod);
    assert_eq!(unresolved.spec.period, Duration::from_secs(7));
    let problem = unresolved.problem.expect("no such port");
    assert!(problem.contains("http"), "{problem}");

    let container = &mut pod.spec.as_mut().expect("spec").containers[0];
    container.ports = Some(vec![ContainerPort {
        name: Some("http".to_owned()),
        container_port: 80,
        ..ContainerPort::default()
    }]);
    let resolved = plan(&pod);
    assert_eq!(resolved.problem, None);
    let tcp = ProbeHandler::Tcp {
        host: "10.0.0.1".to_owned(),
        port: 80,
    };
    assert_eq!(resolved.spec.handler, tcp);
}
