//! Relists, their events, and their maximum age.

use super::*;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("in range")
}

/// `sandboxes` and `containers` as `id:state` words; a state is r(unning), e(xited) or u(nknown).
fn listing(words: &str) -> RuntimePods {
    let mut sandboxes = Vec::new();
    let mut containers = Vec::new();
    for word in words.split_whitespace() {
        let (id, state) = word.split_once(':').expect("id:state");
        if id.starts_with('s') {
            sandboxes.push(SandboxSummary {
                id: id.into(),
                uid: "u".into(),
                name: "p".into(),
                namespace: "n".into(),
                attempt: 0,
                ready: state == "r",
                created_at: at(0),
            });
        } else {
            containers.push(ContainerSummary {
                id: id.into(),
                sandbox_id: "s1".into(),
                uid: "u".into(),
                name: id.to_owned(),
                attempt: 0,
                state: match state {
                    "r" => ContainerState::Running,
                    "e" => ContainerState::Exited,
                    _ => ContainerState::Unknown,
                },
                created_at: at(0),
                image_id: String::new(),
            });
        }
    }
    RuntimePods::new(sandboxes, containers)
}

fn check(old: &str, new: &str, expected: &str) {
    let events: Vec<_> = diff(&listing(old), &listing(new))
        .iter()
        .map(|e| format!("{:?}({})", e.kind, e.id))
        .collect();
    assert_eq!(
        events.join(" ").replace("Container", ""),
        expected,
        "{old} -> {new}"
    );
}

#[test]
fn state_changes_produce_upstream_events() {
    check("", "s1:r c1:r", "Started(c1) Started(s1)");
    check("c1:r", "c1:r", "");
    check("c1:r", "c1:e", "Died(c1)");
    check("c1:r", "", "Died(c1) Removed(c1)");
    check("c1:e", "", "Removed(c1)");
    check("c1:u", "", "Died(c1) Removed(c1)");
    check("", "c1:e", "Died(c1)");
    check("", "c1:u", "Changed(c1)");
    check("c1:e", "c1:r", "Started(c1)");
    check(
        "s1:r c1:r c2:e",
        "s1:e c1:e c3:r",
        "Died(c1) Removed(c2) Started(c3) Died(s1)",
    );
}

#[test]
fn replaced_pod_updates_owners() {
    let mut all = listing("s1:r c1:r");
    all.replace(&"u".into(), listing("s1:r c2:r"));
    assert_eq!(all.owner("c1"), None);
    assert_eq!(all.owner("c2"), Some("u".into()));
    assert_eq!(all.alive_ids(&"u".into()).len(), 2);
    all.replace(&"u".into(), listing(""));
    assert_eq!(all, RuntimePods::default());
}

#[test]
fn old_relist_has_upstream_error() {
    let check = |age: RelistAge, expected: Option<&str>| {
        assert_eq!(age.error().as_deref(), expected, "{age:?}");
    };
    let seconds = Duration::from_secs;
    check(RelistAge::Never(seconds(180)), None);
    check(
        RelistAge::Never(seconds(181)),
        Some("pleg has yet to be successful"),
    );
    check(RelistAge::Last(seconds(180)), None);
    check(
        RelistAge::Last(seconds(185)),
        Some("pleg was last seen active 3m0s ago; threshold is 3m0s"),
    );
    check(
        RelistAge::Last(seconds(3725)),
        Some("pleg was last seen active 1h2m0s ago; threshold is 3m0s"),
    );
}

/// State of an instance of a previous agent run with this exit code, reason, message and start as it
/// is observed.
fn check_exit(exit_code: i32, reason: &str, message: &str, started: bool, expected: &str) {
    check_exit_of(at(1), exit_code, reason, message, started, expected);
}

/// The same with the time of its creation; the agent was started at 2 s.
fn check_exit_of(
    created_at: Timestamp,
    exit_code: i32,
    reason: &str,
    message: &str,
    started: bool,
    expected: &str,
) {
    let mut pod = ObservedPod::default();
    pod.containers.push(ObservedContainer {
        state: ContainerState::Exited,
        created_at,
        finished_at: Some(at(3)),
        started_at: started.then(|| at(1)),
        restart_count: 3,
        exit_code,
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..ObservedContainer::default()
    });
    forget_cut_off_starts(&mut pod, at(2));
    let seen = &pod.containers[0];
    assert_eq!(
        seen.finished_at,
        Some(at(3)),
        "{exit_code} {reason} {message} {started}"
    );
    let line = format!("{:?}#{} {}", seen.state, seen.restart_count, seen.exit_code);
    assert_eq!(line, expected, "{exit_code} {reason} {message} {started}");
}

#[test]
fn cut_off_start_is_observed_as_never_started() {
    let cut = "failed to create containerd task: context canceled: unknown";
    check_exit(128, "StartError", cut, false, "Created#3 0");
    let shim = "failed to create containerd task: failed to start shim: start failed: : \
                signal: killed: unknown";
    check_exit(128, "StartError", shim, false, "Created#3 0");
    let killed = "failed to create containerd task: OCI runtime create failed: signal: killed";
    check_exit(128, "StartError", killed, false, "Exited#3 128");
    let missing = "exec: \"/no/such\": no such file or directory";
    check_exit(128, "StartError", missing, false, "Exited#3 128");
    check_exit(128, "StartError", cut, true, "Exited#3 128");
    check_exit(128, "Error", cut, false, "Exited#3 128");
    check_exit(1, "StartError", cut, false, "Exited#3 1");
    let late = "failed to start containerd task: context deadline exceeded";
    check_exit(128, "StartError", late, false, "Exited#3 128");
    // a start of this agent run
    check_exit_of(at(2), 128, "StartError", cut, false, "Exited#3 128");
}

/// Sandboxes and instances of a container as `number@creation`; expected are the numbers, newest
/// first.
fn check_order(given: &str, expected: &str) {
    let numbers = given.split_whitespace().map(|word| {
        let (number, created) = word.split_once('@').expect("number@creation");
        let number: u32 = number.parse().expect("a number");
        (number, at(created.parse().expect("seconds")))
    });
    let sandboxes = numbers.clone().map(|(attempt, created_at)| SandboxDetail {
        summary: SandboxSummary {
            id: format!("s{attempt}").into(),
            uid: "u".into(),
            name: "p".into(),
            namespace: "n".into(),
            attempt,
            ready: false,
            created_at,
        },
        ips: Vec::new(),
        host_network: false,
    });
    let containers = numbers.map(|(restart_count, created_at)| ContainerDetail {
        observed: windlass_types::ObservedContainer {
            id: format!("c{restart_count}").into(),
            name: "c".to_owned(),
            created_at,
            restart_count,
            ..windlass_types::ObservedContainer::default()
        },
        labels: std::collections::BTreeMap::new(),
        annotations: std::collections::BTreeMap::new(),
        mounts: Vec::new(),
    });
    let pod = observe(
        &"u".into(),
        sandboxes.collect(),
        containers.collect(),
        at(0),
    );
    let attempts: Vec<_> = pod
        .sandboxes
        .iter()
        .map(|s| s.attempt.to_string())
        .collect();
    let counts = pod.containers.iter().map(|c| c.restart_count.to_string());
    assert_eq!(attempts.join(" "), expected, "sandboxes of {given}");
    assert_eq!(
        counts.collect::<Vec<_>>().join(" "),
        expected,
        "containers of {given}"
    );
}

#[test]
fn newest_has_the_highest_attempt_also_after_a_clock_step() {
    check_order("0@100 1@200", "1 0");
    check_order("1@200 0@100", "1 0");
    // the wall clock was set back
    check_order("0@3700 1@110 2@120", "2 1 0");
}
