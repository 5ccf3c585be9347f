//! Pods against what was found of them: whom is asked, and what is believed of them at first.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use windlass_types::ContainerProbeResult;
use windlass_types::corev1::{ContainerPort, PodStatus, TCPSocketAction};

use super::*;
use crate::probe::ProbeHandler;
use windlass_pod_text::{at, observed, pod};

/// A pod as `actions` writes them; `probes` adds `name.kind` words such as `web.liveness`.
fn probed(asked: &str, probes: &str) -> Pod {
    let mut pod = pod(asked);
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
        let verdict = ContainerProbeResult {
            id: ContainerId::from(id),
            success: ok == "ok",
        };
        probe_results
            .for_kind_mut(kind)
            .insert(name.to_owned(), verdict);
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
fn whom_is_asked_follows_what_runs_the_startup_probe_and_the_workers_phase() {
    use PodWorkerState::{SyncPod, TerminatedPod, TerminatingPod};
    fn check(
        phase: PodWorkerState,
        asked: (&str, &str),
        found: &str,
        known: &str,
        expected: [&str; 3],
    ) {
        let pod = probed(asked.0, asked.1);
        let observed = observed(&pod, found);
        let probe_results = probe_results(known);
        for (kind, expected) in ProbeKind::ALL.into_iter().zip(expected) {
            let targets = probe_targets(ProbeTargetsInput {
                kind,
                pod: &pod,
                observed: &observed,
                probe_results: &probe_results,
                phase,
            });
            let words: Vec<_> = targets.iter().map(ToString::to_string).collect();
            assert_eq!(
                words.join(" "),
                expected,
                "{kind} of {asked:?} with {found}"
            );
        }
    }
    let all = ("Always a", "a.liveness a.readiness a.startup");
    // nothing to ask before it runs
    check(
        SyncPod,
        all,
        "sb0",
        "",
        ["a:resting", "a:resting", "a:resting"],
    );
    let created = ["a:resting(c1)", "a:resting(c1)", "a:resting(c1)"];
    check(SyncPod, all, "sb0 a=created", "", created);
    // the startup probe holds the others
    let gated = ["a:gated(c1)", "a:gated(c1)", "a:asked(c1)"];
    check(SyncPod, all, "sb0 a=run", "", gated);
    check(SyncPod, all, "sb0 a=run", "startup.a=c1:failed", gated);
    let open = ["a:asked(c1)", "a:asked(c1)", "a:asked(c1)"];
    check(SyncPod, all, "sb0 a=run", "startup.a=c1:ok", open);
    // what an earlier instance was found to be says nothing
    let restarted = ["a:gated(c2)", "a:gated(c2)", "a:asked(c2)"];
    let found = "sb0 a=exit1 a#1=run";
    check(SyncPod, all, found, "startup.a=c1:ok", restarted);
    let exited = ["a:resting(c1)", "a:resting(c1)", "a:resting(c1)"];
    check(SyncPod, all, "sb0 a=exit1", "startup.a=c1:ok", exited);
    check(SyncPod, all, "sb0 a=unknown", "startup.a=c1:ok", exited);
    // a container without a startup probe waits for nobody
    let two = ("Always a b", "a.liveness b.readiness a.startup");
    let found = "sb0 a=run b=run";
    check(
        SyncPod,
        two,
        found,
        "",
        ["a:gated(c1)", "b:asked(c2)", "a:asked(c1)"],
    );
    // while the pod stops, only readiness goes on; after that nothing does
    let stopping = ["a:stopped(c1)", "a:asked(c1)", "a:stopped(c1)"];
    check(
        TerminatingPod,
        all,
        "sb0 a=run",
        "startup.a=c1:ok",
        stopping,
    );
    let gone = ["a:stopped(c1)", "a:resting(c1)", "a:stopped(c1)"];
    check(TerminatingPod, all, "sb0 a=exit0", "startup.a=c1:ok", gone);
    check(
        TerminatedPod,
        all,
        "sb0 a=run",
        "startup.a=c1:ok",
        ["", "", ""],
    );
    // sidecars are probed, ordinary init containers are not
    let init = (
        "Always i:init s:sidecar a",
        "i.readiness s.readiness s.startup a.readiness",
    );
    let found = "sb0 i=exit0 s=run";
    let expected = ["", "s:gated(c2) a:resting", "s:asked(c2)"];
    check(SyncPod, init, found, "", expected);
    // no probe, nothing to ask
    check(SyncPod, ("Always a", ""), "sb0 a=run", "", ["", "", ""]);
}

/// The instance `a` starts at second 10; the agent `agent` seconds after the epoch of the tests.
fn believed(kind: &str, known: &str, agent: i64, told: Option<PodStatus>) -> String {
    let mut pod = probed("Always a", "a.readiness");
    pod.status = told;
    let observed = observed(&pod, "sb0 a=run");
    let input = ProbeTargetsInput {
        kind: kind_of(kind),
        pod: &pod,
        observed: &observed,
        probe_results: &probe_results(known),
        phase: PodWorkerState::SyncPod,
    };
    let instance = observed.latest("a").expect("it runs");
    initial_result(&input, instance, at(agent)).to_string()
}

#[test]
fn a_new_instance_is_not_ready_and_an_old_one_is_not_called_so_unasked() {
    fn check(kind: &str, known: &str, agent: i64, expected: &str) {
        assert_eq!(
            believed(kind, known, agent, None),
            expected,
            "{kind} {known} {agent}"
        );
    }
    check("readiness", "", 0, "not ready");
    check("readiness", "", 20, "not ready");
    check("readiness", "", 21, "open");
    check("readiness", "readiness.a=c0:ok", 0, "not ready");
    check("readiness", "readiness.a=c1:ok", 0, "kept(ok)");
    check("readiness", "readiness.a=c1:failed", 99, "kept(failed)");
    check("liveness", "", 0, "open");
    check("liveness", "liveness.a=c1:failed", 0, "kept(failed)");
    check("startup", "", 99, "open");
    check("startup", "startup.a=c1:ok", 0, "kept(ok)");
}

#[test]
fn what_the_api_server_calls_started_is_not_asked_again() {
    fn check(id: &str, started: Option<bool>, kind: &str, expected: &str) {
        let status = ContainerStatus {
            name: "a".to_owned(),
            container_id: Some(id.to_owned()),
            started,
            ..ContainerStatus::default()
        };
        let told = PodStatus {
            container_statuses: Some(vec![status]),
            ..PodStatus::default()
        };
        assert_eq!(
            believed(kind, "", 99, Some(told)),
            expected,
            "{id} {started:?}"
        );
    }
    check("containerd://c1", Some(true), "startup", "started");
    check("containerd://c1", Some(false), "startup", "open");
    check("containerd://c1", None, "startup", "open");
    check("containerd://c0", Some(true), "startup", "open");
    check("", Some(true), "startup", "open");
    check("containerd://c1", Some(true), "liveness", "open");
}

#[test]
fn only_what_ran_before_the_agent_is_asked_with_a_spread() {
    let pod = probed("Always a", "a.liveness");
    let observed = observed(&pod, "sb0 a=run");
    let instance = observed.latest("a").expect("it runs");
    assert!(started_before_agent(instance, at(11)));
    assert!(!started_before_agent(instance, at(10)));
}

#[test]
fn a_probe_whose_port_is_not_there_keeps_its_time_and_says_why() {
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
