//! Tables of desired and observed pods with status and blocker.

mod details;
mod laws;
mod phases;
mod probes;
mod resets;

use std::time::Duration;

use proptest::prelude::*;
use windlass_types::corev1::{
    Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, PodCondition,
    PodReadinessGate, Probe,
};
use windlass_types::view::{Blocker, EventType, PodEvent};
use windlass_types::{ContainerProbeResult, ProbeKind};

use super::*;
use windlass_pod_text::{any_found, any_pod};
use windlass_pod_text::{at, observed, pod};
use windlass_types::cri::LinuxResources;

/// A pod, refined by closures; the default is a successful first sync.
struct Case {
    pod: Pod,
    observed: ObservedPod,
    failures: Failures,
    backing_off: Vec<DelayedRestart>,
    probe_results: PodProbeResults,
    previous: Option<PodStatus>,
    stop_signals: bool,
    terminal: bool,
    resize: Option<ResizeInProgress>,
    cgroup: Option<LinuxResources>,
    phase_override: Option<PhaseOverride>,
    events: Vec<PodEvent>,
    before: Option<Blocker>,
}

impl Case {
    /// Sets a probe result of the newest instance of a container.
    fn probed(&mut self, kind: ProbeKind, name: &str, ok: bool) {
        let latest = self.observed.latest(name).expect("a container");
        let id = latest.id.clone();
        let probe_results = self.probe_results.for_kind_mut(kind);
        probe_results.insert(name.to_owned(), ContainerProbeResult { id, success: ok });
    }

    /// Returns a container of the desired pod.
    fn find_spec(&mut self, name: &str) -> Option<&mut Container> {
        let spec = self.pod.spec.get_or_insert_default();
        let inits = spec.init_containers.iter_mut().flatten();
        inits.chain(&mut spec.containers).find(|c| c.name == name)
    }

    fn spec(&mut self, name: &str) -> &mut Container {
        self.find_spec(name).expect("a container")
    }

    /// Adds a restart rule to a container.
    fn rule(&mut self, name: &str, action: &str, operator: &str, codes: &[i32]) {
        let rule = ContainerRestartRule {
            action: action.to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.to_owned(),
                values: Some(codes.to_vec()),
            }),
        };
        self.spec(name).restart_policy_rules = Some(vec![rule]);
    }

    fn new(asked: &str, found: &str) -> Self {
        let pod = pod(asked);
        let observed = observed(&pod, found);
        Self {
            pod,
            observed,
            failures: Failures::new(),
            backing_off: Vec::new(),
            probe_results: PodProbeResults::default(),
            previous: None,
            stop_signals: false,
            terminal: false,
            resize: None,
            cgroup: None,
            phase_override: None,
            events: Vec::new(),
            before: None,
        }
    }

    fn failure(mut self, name: &str, reason: Reason, message: &str) -> Self {
        self.failures
            .insert(name.to_owned(), (reason, message.to_owned()));
        self
    }

    fn waits(mut self, name: &str, seconds: u64) -> Self {
        self.backing_off.push(DelayedRestart {
            name: name.to_owned(),
            until: at(5000 + 7),
            delay: Duration::from_secs(seconds),
            reason: Reason::CrashLoopBackOff,
        });
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets the previous status from an earlier observation of the pod.
    fn after(mut self, found: &str) -> Self {
        let earlier = Self {
            observed: observed(&self.pod, found),
            pod: self.pod.clone(),
            ..Self::new("Always", "")
        };
        self.previous = Some(earlier.status_at(1000));
        self
    }

    fn terminal(mut self) -> Self {
        self.terminal = true;
        self
    }

    fn status_at(&self, seconds: i64) -> PodStatus {
        generate_status(StatusInput {
            pod: &self.pod,
            observed: &self.observed,
            failures: &self.failures,
            backing_off: &self.backing_off,
            probe_results: &self.probe_results,
            previous: self.previous.as_ref(),
            host_ips: &["192.168.0.1".parse().expect("ip")],
            stop_signals: self.stop_signals,
            sizes: PodSizes {
                in_progress: self.resize.as_ref(),
                pod_level: self.cgroup.is_some(),
                cgroup: self.cgroup.as_ref(),
            },
            runtime_name: "containerd",
            terminal: self.terminal,
            phase_override: self.phase_override.as_ref(),
            now: at(seconds),
        })
    }

    fn status(&self) -> PodStatus {
        self.status_at(5000)
    }

    fn blocker(&self) -> Option<Blocker> {
        blocker(BlockerInput {
            pod: &self.pod,
            status: &self.status(),
            failures: &self.failures,
            backing_off: &self.backing_off,
            events: &self.events,
            next_sync: Some(at(5010)),
            previous: self.before.as_ref(),
            now: at(5000),
        })
    }

    fn shows(&self, expected: &str) {
        let line = status_line(&self.status());
        let short = line
            .replace("PodReadyToStartContainers", "Sandbox")
            .replace("PodScheduled", "Scheduled");
        assert_eq!(short, expected);
    }

    /// Formats a condition as `status reason: message`, `-` without one.
    fn why(&self, type_: &str) -> String {
        let status = self.status();
        let mut conditions = status.conditions.iter().flatten();
        conditions
            .find(|c| c.type_ == type_)
            .map_or("-".to_owned(), |c| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                format!("{} {}: {}", c.status, text(&c.reason), text(&c.message))
            })
    }

    fn blocked_by(&self, expected: &str) {
        let line = self.blocker().map_or("none".to_owned(), |b| b.to_string());
        assert_eq!(line, expected);
    }
}

fn check(asked: &str, found: &str, expected: &str) {
    Case::new(asked, found).shows(expected);
}

const STARTED: &str = "[Sandbox Initialized Scheduled]";
const ALL: &str = "[Sandbox Initialized Ready ContainersReady Scheduled]";

#[test]
fn pod_is_pending_until_all_containers_started() {
    check(
        "Always a",
        "",
        "Pending [Initialized Scheduled] a:ContainerCreating#0",
    );
    check(
        "Always a",
        "sb0",
        &format!("Pending {STARTED} a:ContainerCreating#0"),
    );
    check(
        "Always a",
        "sb0 a=created",
        &format!("Pending {STARTED} a:ContainerCreating#0"),
    );
    check(
        "Always a b",
        "sb0 a=run",
        &format!("Pending {STARTED} a:running#0* b:ContainerCreating#0"),
    );
    check(
        "Always b a",
        "sb0 a=run b=run",
        &format!("Running {ALL} a:running#0* b:running#0*"),
    );
}

#[test]
fn phase_of_exited_pod_follows_restart_policy() {
    check(
        "Always a",
        "sb0 a=exit1",
        &format!("Running {STARTED} a:Error=1#0"),
    );
    check(
        "OnFailure a",
        "sb0 a=exit1",
        &format!("Running {STARTED} a:Error=1#0"),
    );
    check(
        "OnFailure a",
        "sb0 a=exit0",
        &format!("Succeeded {STARTED} a:Completed=0#0"),
    );
    check(
        "Never a b",
        "sb0 a=exit0 b=exit3",
        &format!("Failed {STARTED} a:Completed=0#0 b:Error=3#0"),
    );
    check(
        "Never a b",
        "sb0 a=exit3 b=run",
        &format!("Running {STARTED} a:Error=3#0 b:running#0*"),
    );
    check(
        "Always a:Never",
        "sb0 a=exit3",
        &format!("Failed {STARTED} a:Error=3#0"),
    );
}

#[test]
fn init_containers_keep_pod_pending_and_fail_it_under_never() {
    let none = "[Sandbox Scheduled]";
    let all = "Always i:init a";
    check(
        all,
        "sb0",
        &format!("Pending {none} i:PodInitializing#0 a:PodInitializing#0"),
    );
    check(
        all,
        "sb0 i=run",
        &format!("Pending {none} i:running#0 a:PodInitializing#0"),
    );
    check(
        all,
        "sb0 i=exit0",
        &format!("Pending {STARTED} i:Completed=0#0* a:PodInitializing#0"),
    );
    check(
        all,
        "sb0 i=exit1",
        &format!("Pending {none} i:Error=1#0 a:PodInitializing#0"),
    );
    check(
        all,
        "sb0 i=exit0 a=run",
        &format!("Running {ALL} i:Completed=0#0* a:running#0*"),
    );
    check(
        "Never i:init a",
        "sb0 i=exit1",
        &format!("Failed {none} i:Error=1#0 a:PodInitializing#0"),
    );
    Case::new("OnFailure i:init a", "sb0 i#3=exit1")
        .waits("i", 80)
        .shows("Pending [Sandbox Scheduled] i:CrashLoopBackOff<Error=1>#3 a:PodInitializing#0");
}

#[test]
fn sidecars_count_for_readiness_but_not_for_phase() {
    let s = "Always s:sidecar a";
    check(
        s,
        "sb0 s=run",
        &format!("Pending {STARTED} s:running#0* a:PodInitializing#0"),
    );
    check(
        s,
        "sb0 s=run a=run",
        &format!("Running {ALL} s:running#0* a:running#0*"),
    );
    check(
        s,
        "sb0 a=run s=exit1",
        &format!("Running {STARTED} s:Error=1#0 a:running#0*"),
    );
    check(
        "Never s:sidecar a",
        "sb0 a=exit0 s=exit1",
        &format!("Succeeded {STARTED} s:Error=1#0 a:Completed=0#0"),
    );
    check(
        "Never s:sidecar a",
        "sb0 s=run a=exit0",
        &format!("Running {STARTED} s:running#0* a:Completed=0#0"),
    );
}

#[test]
fn waiting_container_has_reason_of_last_failure() {
    Case::new("Always a", "sb0")
        .failure("a", Reason::ErrImagePull, "no such host")
        .shows(&format!("Pending {STARTED} a:ErrImagePull#0"));
    Case::new("Always a", "sb0 a#2=exit1")
        .failure("a", Reason::RunContainerError, "exec format error")
        .shows(&format!("Running {STARTED} a:RunContainerError<Error=1>#2"));
    // a running container shows no earlier error
    Case::new("Always a", "sb0 a=run")
        .failure("a", Reason::ErrImagePull, "no such host")
        .shows(&format!("Running {ALL} a:running#0*"));
    Case::new("Never a", "sb0 a=exit1")
        .failure("a", Reason::ErrImagePull, "no such host")
        .shows(&format!("Failed {STARTED} a:Error=1#0"));
}

#[test]
fn crash_loop_status_matches_kubectl() {
    let case = Case::new("Always a", "sb0 a#3=exit1 a#4=exit2").waits("a", 80);
    case.shows(&format!("Running {STARTED} a:CrashLoopBackOff<Error=2>#4"));
    let status = case.status();
    let a = &status.container_statuses.as_ref().expect("list")[0];
    let waiting = a
        .state
        .as_ref()
        .expect("state")
        .waiting
        .as_ref()
        .expect("waiting");
    assert_eq!(
        waiting.message.as_deref(),
        Some("back-off 1m20s restarting failed container=a pod=p_ns(u)")
    );
    let last = a
        .last_state
        .as_ref()
        .expect("last")
        .terminated
        .as_ref()
        .expect("ended");
    assert_eq!(last.container_id.as_deref(), Some("containerd://c2"));
    assert_eq!(last.finished_at, Some(Time(at(25))));
    check(
        "Always a",
        "sb0 a#3=exit1 a#4=run",
        &format!("Running {ALL} a:running<Error=1>#4*"),
    );
}

#[test]
fn probe_results_determine_ready_and_started() {
    let unready = Case::new("Always a b", "sb0 a=run b=run").with(|c| {
        c.probed(ProbeKind::Readiness, "a", false);
    });
    unready.shows(&format!("Running {STARTED} a:running#0 b:running#0*"));
    let conditions = unready.status().conditions.expect("conditions");
    let ready = conditions
        .iter()
        .find(|c| c.type_ == "Ready")
        .expect("Ready");
    assert_eq!(ready.reason.as_deref(), Some("ContainersNotReady"));
    assert_eq!(
        ready.message.as_deref(),
        Some("containers with unready status: [a]")
    );
    // a sidecar that has not started holds back the initialization
    Case::new("Always s:sidecar a", "sb0 s=run")
        .with(|c| {
            c.probed(ProbeKind::Startup, "s", false);
        })
        .shows("Pending [Sandbox Scheduled] s:running#0 a:PodInitializing#0");
}

#[test]
fn readiness_gates_require_their_conditions() {
    let gated = |value: Option<&str>| {
        Case::new("Always a", "sb0 a=run").with(|c| {
            c.pod.spec.get_or_insert_default().readiness_gates = Some(vec![PodReadinessGate {
                condition_type: "lb".into(),
            }]);
            c.pod.status.get_or_insert_default().conditions = value.map(|v| {
                vec![PodCondition {
                    type_: "lb".into(),
                    status: v.into(),
                    ..PodCondition::default()
                }]
            });
        })
    };
    gated(Some("True"))
        .shows("Running [lb Sandbox Initialized Ready ContainersReady Scheduled] a:running#0*");
    gated(Some("False"))
        .shows("Running [Sandbox Initialized ContainersReady Scheduled] a:running#0*");
    let missing = gated(None);
    missing.shows("Running [Sandbox Initialized ContainersReady Scheduled] a:running#0*");
    missing.blocked_by(
        "ContainersNotReady: corresponding condition of pod readiness gate \"lb\" does not exist.",
    );
}

#[test]
fn removed_container_is_not_reported_as_never_run() {
    Case::new("Always a", "sb0")
        .after("sb0 a=run")
        .shows(&format!(
            "Running {STARTED} a:ContainerCreating<ContainerStatusUnknown=137>#1"
        ));
    Case::new("Never a", "sb0")
        .after("sb0 a=run")
        .shows(&format!(
            "Failed {STARTED} a:ContainerCreating<ContainerStatusUnknown=137>#1"
        ));
    // a deletion does not count as a restart
    Case::new("Always a", "sb0")
        .with(|c| c.pod.metadata.deletion_timestamp = Some(Time(at(1))))
        .after("sb0 a=run")
        .shows(&format!(
            "Running {STARTED} a:ContainerCreating<ContainerStatusUnknown=137>#0"
        ));
    // a reported exit is kept
    Case::new("Never a", "sb0!")
        .after("sb0 a=exit3")
        .shows("Failed [Initialized Scheduled] a:Error=3#0");
    // a removed init container of an initialized pod has completed
    check(
        "Always i:init a",
        "sb0 a=run",
        &format!("Running {ALL} i:Completed=0#0* a:running#0*"),
    );
    Case::new("Always a", "sb0 a=unknown")
        .after("sb0 a=run")
        .shows(&format!("Running {STARTED} a:ContainerStatusUnknown=137#1"));
}

#[test]
fn restart_counts_and_last_states_survive_collection() {
    Case::new("Always a", "sb0 a#5=run")
        .after("sb0 a#4=exit1 a#5=run")
        .shows(&format!("Running {ALL} a:running<Error=1>#5*"));
    Case::new("Always a", "sb0 a#1=run")
        .after("sb0 a#7=exit1")
        .shows(&format!("Running {ALL} a:running#7*"));
    Case::new("Always a", "sb0 sb1 a#1=run")
        .with(|c| c.observed.sandboxes.truncate(1))
        .after("sb0 a=exit9")
        .shows(&format!("Running {ALL} a:running<Error=9>#1*"));
}

#[test]
fn stopped_pod_has_terminal_phase_unless_static() {
    Case::new("Always a", "sb0! a=exit0")
        .terminal()
        .shows("Succeeded [Initialized Scheduled] a:Completed=0#0");
    Case::new("Always a b", "sb0! a=exit0")
        .terminal()
        .shows("Failed [Initialized Scheduled] a:Completed=0#0 b:ContainerCreating#0");
    // an observation from before the termination
    Case::new("Always a", "sb0 a=run")
        .terminal()
        .shows("Failed [Initialized Scheduled] a:ContainerStatusUnknown=137#0");
    Case::new("Always a", "sb0! a=exit0")
        .terminal()
        .with(|c| {
            let mark = ("kubernetes.io/config.source".to_owned(), "file".to_owned());
            c.pod.metadata.annotations = Some([mark].into());
        })
        .shows("Running [Initialized Scheduled] a:Completed=0#0");
}

#[test]
fn phase_override_fails_pod_but_keeps_terminal_phase() {
    let late = PhaseOverride {
        phase: Phase::Failed,
        reason: "DeadlineExceeded".into(),
        message: "Pod was active on the node longer than the specified deadline".into(),
        disruption: None,
    };
    let case = Case::new("Always a", "sb0 a=run").with(|c| c.phase_override = Some(late));
    case.shows(&format!("Failed (DeadlineExceeded) {STARTED} a:running#0*"));
    case.blocked_by(
        "DeadlineExceeded: Pod was active on the node longer than the specified deadline",
    );
    let previous = case.status();
    Case::new("Always a", "sb0 a=run")
        .with(|c| c.previous = Some(previous))
        .shows(&format!("Failed (DeadlineExceeded) {STARTED} a:running#0*"));
    Case::new("Always a", "sb0 a=run")
        .with(|c| c.pod.status.get_or_insert_default().phase = Some("Succeeded".into()))
        .shows(&format!("Succeeded {STARTED} a:running#0*"));
}

#[test]
fn exit_codes_decide_phase_of_terminated_pod() {
    let shutdown = || Some(windlass_pod_lifecycle::shutdown::phase_override());
    let stopping = Case::new("Always a", "sb0 a=run").with(|c| c.phase_override = shutdown());
    let stopped = |exit: &str| {
        Case::new("Always a", &format!("sb0 a={exit}")).with(|c| {
            c.phase_override = shutdown();
            c.previous = Some(stopping.status());
            c.terminal = true;
        })
    };
    let shown = |exit: &str| {
        let status = stopped(exit).status();
        let mut conditions = status.conditions.iter().flatten();
        let disrupted = conditions.any(|c| c.type_ == "DisruptionTarget");
        let reason = status.reason.unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        format!("{phase} ({reason}) {disrupted}")
    };
    assert_eq!(shown("exit0"), "Succeeded () true");
    assert_eq!(shown("exit137"), "Failed (Terminated) true");
}

#[test]
fn terminated_pod_is_disrupted_and_rejected_pod_is_not() {
    let target = |status: &PodStatus| {
        let conditions = status.conditions.as_deref().unwrap_or_default();
        let mut targets = conditions.iter().filter(|c| c.type_ == "DisruptionTarget");
        let target = targets.next().cloned();
        assert_eq!(targets.next(), None, "one at most");
        target.map(|c| {
            let since = c.last_transition_time.expect("time").0.as_second() - at(0).as_second();
            let reason = c.reason.unwrap_or_default();
            let message = c.message.unwrap_or_default();
            format!("{}@{since} {reason}: {message}", c.status)
        })
    };
    let ours = "TerminationByKubelet: Pod was terminated in response to imminent node shutdown.";
    let shutdown = || Some(windlass_pod_lifecycle::shutdown::phase_override());
    let running = || Case::new("Always a", "sb0 a=run");

    let case = running().with(|c| c.phase_override = shutdown());
    let first = case.status();
    let expected = format!("True@5000 {ours}");
    assert_eq!(target(&first).as_deref(), Some(expected.as_str()));
    let later = case.with(|c| c.previous = Some(first)).status_at(9000);
    assert_eq!(target(&later).as_deref(), Some(expected.as_str()));

    // an earlier disruption keeps its transition time
    let evicted = running().with(|c| {
        c.phase_override = shutdown();
        let condition = PodCondition {
            type_: "DisruptionTarget".into(),
            status: "True".into(),
            reason: Some("EvictionByEvictionAPI".into()),
            last_transition_time: Some(Time(at(3000))),
            ..PodCondition::default()
        };
        c.pod.status.get_or_insert_default().conditions = Some(vec![condition]);
    });
    let expected = format!("True@3000 {ours}");
    assert_eq!(
        target(&evicted.status()).as_deref(),
        Some(expected.as_str())
    );

    let done = running().with(|c| {
        c.phase_override = shutdown();
        c.pod.status.get_or_insert_default().phase = Some("Succeeded".into());
    });
    assert_eq!(target(&done.status()), None, "it had exited before");
    let refused = windlass_node_rules::admission::Rejection::new("OutOfcpu", "no room");
    let refused = running().with(|c| c.phase_override = Some(refused.into()));
    assert_eq!(target(&refused.status()), None);
}

#[test]
fn transition_time_changes_only_with_condition() {
    let case = Case::new("Always a", "sb0 a=run").after("sb0");
    let status = case.status();
    let conditions = status.conditions.as_ref().expect("conditions");
    let since = |type_: &str| {
        let condition = conditions.iter().find(|c| c.type_ == type_).expect("there");
        condition.last_transition_time.clone()
    };
    assert_eq!(since("PodScheduled"), Some(Time(at(1000))));
    assert_eq!(since("Ready"), Some(Time(at(5000))));
    assert_eq!(status.start_time, Some(Time(at(1000))));
    // an unchanged input gives an unchanged status
    let again = Case::new("Always a", "sb0 a=run").with(|c| c.previous = Some(status.clone()));
    assert_eq!(again.status_at(9000), status);
}

#[test]
fn foreign_conditions_and_fields_are_copied() {
    let case = Case::new("Always a", "sb0 a=run").with(|c| {
        c.pod.metadata.generation = Some(3);
        let status = c.pod.status.get_or_insert_default();
        status.nominated_node_name = Some("n".into());
        status.conditions = Some(vec![PodCondition {
            type_: "example.com/x".into(),
            status: "True".into(),
            ..PodCondition::default()
        }]);
    });
    let status = case.status();
    assert_eq!(status.nominated_node_name.as_deref(), Some("n"));
    assert_eq!(status.observed_generation, Some(3));
    let conditions = status.conditions.expect("conditions");
    assert_eq!(conditions[0].type_, "example.com/x");
    assert_eq!(conditions[0].observed_generation, None);
    assert_eq!(conditions[1].observed_generation, Some(3));
    assert_eq!(Case::new("Always a", "").status().observed_generation, None);
}

#[test]
fn earliest_cause_is_the_blocker() {
    Case::new("Always a", "sb0 a=run").blocked_by("none");
    Case::new("Never a", "sb0 a=exit0").blocked_by("none");
    Case::new("Always a", "sb0").blocked_by("ContainerCreating container=a: about to be created");
    Case::new("Always a b", "sb0")
        .failure("a", Reason::RunContainerError, "no exec")
        .failure("b", Reason::ErrImagePull, "no such host")
        .blocked_by("ErrImagePull container=b: no such host");
    Case::new("Always a", "")
        .failure("", Reason::CreatePodSandboxError, "no CNI")
        .failure("a", Reason::ErrImagePull, "no such host")
        .blocked_by("CreatePodSandboxError: no CNI");
    Case::new("Always a b", "sb0 b=exit1")
        .failure("a", Reason::CreateContainerConfigError, "secret missing")
        .waits("b", 40)
        .blocked_by("CreateContainerConfigError container=a: secret missing");
    Case::new("Always a b", "sb0 a=run b=exit1")
        .waits("b", 40)
        .failure("b", Reason::CrashLoopBackOff, "back-off")
        .blocked_by(
            "CrashLoopBackOff container=b: restarts are 40s apart: it ended with exit code 1 (Error)",
        );
    Case::new("Always i:init j:init a", "sb0 i=exit0 j=run")
        .blocked_by("PodInitializing container=j: init container 2 of 2 is running");
    Case::new("Never a b", "sb0 a=exit3 b=run")
        .blocked_by("Error container=a: it ended with exit code 3 (Error)");
    Case::new("Always a b", "sb0 a=exit3 b=run").blocked_by(
        "ContainerCreating container=a: about to start again: it ended with exit code 3 (Error)",
    );
    Case::new("OnFailure a b", "sb0 a=exit0 b=run").blocked_by("none");
    Case::new("Never a", "sb0 a=exit3")
        .with(|c| c.observed.containers[0].reason = "OOMKilled".into())
        .blocked_by("OOMKilled container=a: the pod failed: it ended with exit code 3 (OOMKilled)");
    Case::new("Always a", "sb0 a=run")
        .with(|c| {
            c.probed(ProbeKind::Readiness, "a", false);
        })
        .blocked_by("ContainersNotReady container=a: its readiness probe does not pass");
    Case::new("Always a", "sb0 a=run")
        .with(|c| c.pod.metadata.deletion_timestamp = Some(Time(at(1))))
        .blocked_by("Terminating: the pod is being stopped");
    Case::new("Always a", "sb0 a=run")
        .with(|c| c.pod.metadata.deletion_timestamp = Some(Time(at(1))))
        .failure("a", Reason::KillContainerError, "runtime timeout")
        .blocked_by("KillContainerError container=a: runtime timeout");
}

#[test]
fn blocker_has_last_failure_of_its_probe() {
    let event = |reason, probe, seconds, message: &str| PodEvent {
        event_type: EventType::Warning,
        reason,
        container: Some("a".into()),
        probe: Some(probe),
        message: message.into(),
        count: 1,
        first: at(0),
        last: at(seconds),
    };
    let unhealthy = |probe: ProbeKind, seconds, text: &str| {
        let message = format!("{probe} probe {text}");
        event(Reason::Unhealthy, probe, seconds, &message)
    };
    let failures = |started: bool| {
        Case::new("Always a", "sb0 a=run").with(|c| {
            c.spec("a").startup_probe = Some(Probe::default());
            c.spec("a").readiness_probe = Some(Probe::default());
            c.probed(ProbeKind::Startup, "a", started);
            c.events = vec![
                unhealthy(ProbeKind::Readiness, 20, "failed: first"),
                unhealthy(ProbeKind::Startup, 30, "failed: connection refused"),
                unhealthy(ProbeKind::Readiness, 40, "errored and resulted in x"),
                unhealthy(ProbeKind::Liveness, 50, "failed: y"),
            ];
        })
    };
    let last = |case: &Case| {
        let blocker = case.blocker().expect("blocked");
        let failure = last_probe_failure(&blocker, &case.status(), &case.events);
        format!("{blocker} | {}", failure.unwrap_or("nothing"))
    };
    assert_eq!(
        last(&failures(true)),
        "ContainersNotReady container=a: its readiness probe does not pass | errored and resulted \
         in x"
    );
    let starting = "ContainersNotReady container=a: its startup probe has not passed yet";
    assert_eq!(
        last(&failures(false)),
        format!("{starting} | connection refused")
    );
    // failures of the previous instance do not count
    let later = failures(false)
        .with(|c| c.observed = observed(&c.pod, "sb0 x=exit0 x=exit0 x=exit0 a=run"));
    assert_eq!(last(&later), format!("{starting} | nothing"));
    // another blocker has no probe
    let pulls = failures(true).failure("", Reason::NetworkNotReady, "no CNI");
    assert_eq!(last(&pulls), "NetworkNotReady: no CNI | nothing");
    // the other containers wait for a sidecar
    Case::new("Always s:sidecar a", "sb0 s=run")
        .with(|c| c.spec("s").startup_probe = Some(Probe::default()))
        .blocked_by("PodInitializing container=s: its startup probe has not passed yet");

    let killed = |seconds| {
        Case::new("Always a", "sb0 a=exit137")
            .waits("a", 40)
            .with(|c| {
                let text = "Container a failed liveness probe, will be restarted";
                c.events = vec![event(Reason::Killing, ProbeKind::Liveness, seconds, text)];
            })
    };
    killed(12).blocked_by(
        "CrashLoopBackOff container=a: restarts are 40s apart: its liveness probe failed and it \
         ended with exit code 137 (Error)",
    );
    killed(5).blocked_by(
        "CrashLoopBackOff container=a: restarts are 40s apart: it ended with exit code 137 (Error)",
    );
}

#[test]
fn blocker_has_its_start_and_next_retry() {
    let case = Case::new("Always a", "sb0 a=exit1").waits("a", 40);
    let first = case.blocker().expect("blocked");
    assert_eq!((first.since, first.next_retry), (at(5000), Some(at(5007))));
    let earlier = Blocker {
        since: at(4000),
        message: "another delay".into(),
        ..first
    };
    let same = Case::new("Always a", "sb0 a=exit1")
        .waits("a", 80)
        .with(|c| c.before = Some(earlier.clone()));
    assert_eq!(same.blocker().map(|b| b.since), Some(at(4000)));
    let other = Case::new("Always a", "sb0")
        .failure("a", Reason::ErrImagePull, "no such host")
        .with(|c| c.before = Some(earlier));
    let other = other.blocker().expect("blocked");
    assert_eq!((other.since, other.next_retry), (at(5000), Some(at(5010))));
}

#[test]
fn unknown_container_keeps_reported_exit() {
    let case = Case::new("Always a", "sb0 a=unknown").after("sb0 a=run");
    let first = case.status();
    Case::new("Always a", "sb0 a=unknown")
        .with(|c| c.previous = Some(first))
        .shows(&format!("Running {STARTED} a:ContainerStatusUnknown=137#1"));
}
