//! `ready` and `started`, from upstream's tables (`TestUpdatePodStatus…`).

use super::*;

/// A case with these probes.
fn probed(asked: &str, found: &str, probes: &[(ProbeKind, &str)]) -> Case {
    let mut case = Case::new(asked, found);
    for (kind, name) in probes {
        let spec = case.spec(name);
        let probe = match kind {
            ProbeKind::Liveness => &mut spec.liveness_probe,
            ProbeKind::Readiness => &mut spec.readiness_probe,
            ProbeKind::Startup => &mut spec.startup_probe,
        };
        *probe = Some(Probe::default());
    }
    case
}

/// `name` for ready, with `+` if started, in the order of the status.
fn flags(status: &PodStatus) -> String {
    let lists = [&status.init_container_statuses, &status.container_statuses];
    let all = lists.into_iter().flatten().flatten();
    let words = all.map(|c| {
        let started = if c.started == Some(true) { "+" } else { "-" };
        let ready = if c.ready { "ready" } else { "unready" };
        format!("{}:{started}{ready}", c.name)
    });
    words.collect::<Vec<_>>().join(" ")
}

use ProbeKind::{Liveness, Readiness, Startup};

#[test]
fn probe_without_result_fails_and_no_probe_succeeds() {
    let case = probed(
        "Always unprobed pass pending fail slow started dead",
        "sb0 unprobed=run pass=run pending=run fail=run slow=run started=run dead=exit0",
        &[
            (Liveness, "unprobed"),
            (Readiness, "pass"),
            (Readiness, "pending"),
            (Readiness, "fail"),
            (Startup, "slow"),
            (Startup, "started"),
            (Readiness, "dead"),
        ],
    )
    .with(|c| {
        c.probed(Readiness, "pass", true);
        c.probed(Readiness, "fail", false);
        c.probed(Startup, "started", true);
        c.probed(Readiness, "dead", true);
    });
    assert_eq!(
        flags(&case.status()),
        "dead:-unready fail:+unready pass:+ready pending:+unready slow:-unready started:+ready \
         unprobed:+ready"
    );
    // a container that has not started is not ready
    let case = probed("Always a", "sb0 a=run", &[(Startup, "a"), (Readiness, "a")]);
    let case = case.with(|c| c.probed(Readiness, "a", true));
    assert_eq!(flags(&case.status()), "a:-unready");
}

#[test]
fn completed_init_container_is_ready_and_sidecar_by_probes() {
    let of = |asked: &str| {
        let probes = [(Startup, "slow"), (Startup, "quick")];
        let case = probed(asked, "sb0 slow=run quick=run done=exit0", &probes);
        let case = case.with(|c| c.probed(Startup, "quick", true));
        flags(&case.status())
    };
    assert_eq!(
        of("Always slow:init quick:init done:init a"),
        "slow:-unready quick:+unready done:-ready a:-unready"
    );
    assert_eq!(
        of("Always slow:sidecar quick:sidecar done:sidecar a"),
        "slow:-unready quick:+ready done:-unready a:-unready"
    );
}

#[test]
fn sidecar_readiness_counts_for_pod() {
    let case = |ok| {
        probed("Always s:sidecar a", "sb0 s=run a=run", &[(Readiness, "s")])
            .with(|c| c.probed(Readiness, "s", ok))
    };
    case(true).shows(&format!("Running {ALL} s:running#0* a:running#0*"));
    case(false).shows(&format!("Running {STARTED} s:running#0 a:running#0*"));
}

#[test]
fn agent_restart_keeps_pods_ready() {
    let probes = [(Startup, "a"), (Readiness, "a")];
    let before = probed("Always a", "sb0 a=run", &probes).with(|c| {
        c.probed(Startup, "a", true);
        c.probed(Readiness, "a", true);
    });
    let reported = before.status_at(1000);
    assert_eq!(flags(&reported), "a:+ready");
    let after = |found: &str| {
        let reported = reported.clone();
        probed("Always a", found, &probes).with(|c| c.pod.status = Some(reported))
    };

    // the same instance without a result of this agent run
    let same = after("sb0 a=run").status();
    assert_eq!(flags(&same), "a:+ready");
    let ready = |status: &PodStatus| {
        let mut conditions = status.conditions.iter().flatten();
        let ready = conditions.find(|c| c.type_ == "Ready").expect("Ready");
        ready.last_transition_time.clone()
    };
    assert_eq!(
        ready(&same),
        ready(&reported),
        "it has been ready all along"
    );
    // a result of this agent run counts
    let case = after("sb0 a=run").with(|c| c.probed(Readiness, "a", false));
    assert_eq!(flags(&case.status()), "a:+unready");
    // another instance has no result
    assert_eq!(flags(&after("sb0 x=exit0 a#1=run").status()), "a:-unready");
    // an unready instance stays unready
    let unready = before.with(|c| c.probed(Readiness, "a", false));
    let case = probed("Always a", "sb0 a=run", &probes).with(|c| {
        c.previous = Some(unready.status_at(1000));
    });
    assert_eq!(flags(&case.status()), "a:+unready");
    // an exited instance is neither
    assert_eq!(flags(&after("sb0 a=exit0").status()), "a:-unready");
}

#[test]
fn deleted_pod_is_ready_until_probe_failure_or_exit() {
    let deleted = |found: &str| {
        probed("Always a", found, &[(Readiness, "a")]).with(|c| {
            c.pod.metadata.deletion_timestamp = Some(Time(at(1)));
            c.probed(Readiness, "a", true);
        })
    };
    deleted("sb0 a=run").shows(&format!("Running {ALL} a:running#0*"));
    let case = deleted("sb0 a=run").with(|c| c.probed(Readiness, "a", false));
    case.shows(&format!("Running {STARTED} a:running#0"));
    let over = deleted("sb0 a=exit0").terminal();
    over.shows(&format!("Succeeded {STARTED} a:Completed=0#0"));
    assert_eq!(over.why("Ready"), "False PodCompleted: ");
}
