//! Phases, from upstream's tables (`TestPodPhaseWith…`).

use super::*;

/// `terminal found`: the observed pod, with `+` if it is terminated.
fn phases(asked: &str, rows: &[(&str, &str)]) {
    for (found, expected) in rows {
        let (found, terminal) = match found.strip_prefix('+') {
            Some(found) => (found, true),
            None => (*found, false),
        };
        let mut case = Case::new(asked, found);
        case.terminal = terminal;
        let status = case.status();
        assert_eq!(
            status.phase.as_deref(),
            Some(*expected),
            "{asked} | {found} | {}",
            status_line(&status)
        );
    }
}

#[test]
fn app_containers_under_each_policy() {
    phases(
        "Always a b",
        &[
            ("sb0", "Pending"),
            ("sb0 a=run b=run", "Running"),
            ("sb0 a=exit0 b=exit0", "Running"),
            ("+sb0! a=exit0 b=exit0", "Succeeded"),
            ("+sb0! a=exit0 b=exit1", "Failed"),
            ("sb0 a=run b=exit0", "Running"),
            ("sb0 a=run", "Pending"),
            ("sb0 a=run b=created", "Pending"),
        ],
    );
    phases(
        "Never a b",
        &[
            ("sb0", "Pending"),
            ("sb0 a=run b=run", "Running"),
            ("sb0 a=exit0 b=exit0", "Succeeded"),
            ("sb0 a=exit1 b=exit1", "Failed"),
            ("sb0 a=run b=exit0", "Running"),
            ("sb0 a=run", "Pending"),
        ],
    );
    phases(
        "OnFailure a b",
        &[
            ("sb0", "Pending"),
            ("sb0 a=run b=run", "Running"),
            ("sb0 a=exit0 b=exit0", "Succeeded"),
            ("sb0 a=exit1 b=exit1", "Running"),
            ("sb0 a=run b=exit0", "Running"),
            ("sb0 a=run", "Pending"),
        ],
    );
    // a restart in back-off is not a first start
    Case::new("OnFailure a b", "sb0 a=run b=exit1")
        .waits("b", 40)
        .shows(&format!(
            "Running {STARTED} a:running#0* b:CrashLoopBackOff<Error=1>#0"
        ));
}

#[test]
fn init_containers_under_each_policy() {
    for policy in ["Always", "OnFailure"] {
        phases(
            &format!("{policy} x:init a b"),
            &[
                ("sb0", "Pending"),
                ("sb0 x=run", "Pending"),
                ("sb0 x=exit1", "Pending"),
                ("sb0 x=exit0", "Pending"),
                ("sb0 x=created", "Pending"),
                ("sb0 x=exit0 a=run b=run", "Running"),
            ],
        );
    }
    phases(
        "Never x:init a b",
        &[
            ("sb0", "Pending"),
            ("sb0 x=run", "Pending"),
            ("sb0 x=exit0", "Pending"),
            ("sb0 x=exit1", "Failed"),
            ("sb0 x=exit0 a=run b=run", "Running"),
        ],
    );
}

#[test]
fn sidecars_under_each_policy() {
    let both = [
        ("sb0", "Pending"),
        ("sb0 x=run", "Pending"),
        ("sb0 x=exit0", "Pending"),
        ("sb0 x=exit1", "Pending"),
        ("sb0 x=run a=run", "Pending"),
        ("sb0 x=run a=run b=run", "Running"),
        ("sb0 x=exit0 a=run b=run", "Running"),
        ("sb0 x=exit1 a=run b=run", "Running"),
        ("sb0 x=run a=exit0 b=exit0", "Running"),
        ("+sb0! x=exit0 a=exit0 b=exit0", "Succeeded"),
        ("+sb0! x=exit1 a=exit0 b=exit0", "Succeeded"),
        ("+sb0! x=exit0 a=exit0 b=exit1", "Failed"),
    ];
    phases("Always x:sidecar a b", &both);
    phases("Never x:sidecar a b", &both);
    phases(
        "Never x:sidecar a b",
        &[
            ("sb0 x=exit1 a=exit0 b=exit0", "Succeeded"),
            ("sb0 x=exit0 a=exit1 b=exit0", "Failed"),
        ],
    );
    phases(
        "Always x:init y:sidecar a",
        &[
            ("sb0 x=run y=run a=run", "Pending"),
            ("sb0 x=run y=run a=exit0", "Pending"),
            ("sb0 x=exit0 y=run a=exit0", "Running"),
            ("sb0 x=exit0 y=run a=run", "Running"),
        ],
    );
    // a sidecar holds the pod back until the first success of its startup probe
    let slow = |found: &str| {
        Case::new("Always y:sidecar a", found).with(|c| {
            c.spec("y").startup_probe = Some(Probe::default());
        })
    };
    slow("sb0 y=run").shows("Pending [Sandbox Scheduled] y:running#0 a:PodInitializing#0");
    slow("sb0 y=exit1 a=run y#1=run").shows(&format!(
        "Running {STARTED} y:running<Error=1>#1 a:running#0*"
    ));
}

#[test]
fn container_policy_and_rules_precede_pod_policy() {
    phases(
        "Never a:Always",
        &[("sb0 a=exit0", "Running"), ("sb0 a=exit1", "Running")],
    );
    phases(
        "Never a:OnFailure",
        &[("sb0 a=exit0", "Succeeded"), ("sb0 a=exit1", "Running")],
    );
    phases(
        "Always a:Never",
        &[("sb0 a=exit0", "Succeeded"), ("sb0 a=exit1", "Failed")],
    );
    phases("Always a:Never b", &[("sb0 a=exit1 b=exit1", "Running")]);

    let rule = |asked: &str, found: &str, operator: &str| {
        let case = Case::new(asked, found).with(|c| c.rule("a", "Restart", operator, &[42]));
        case.status().phase.unwrap_or_default()
    };
    assert_eq!(rule("Never a:Never", "sb0 a=exit42", "In"), "Running");
    assert_eq!(rule("Never a:Never", "sb0 a=exit1", "In"), "Failed");
    assert_eq!(rule("Never a:Never", "sb0 a=exit1", "NotIn"), "Running");
    assert_eq!(rule("Never a:Never", "sb0 a=exit42", "NotIn"), "Failed");
    assert_eq!(rule("Never a:init b", "sb0 a=exit42", "In"), "Pending");
    assert_eq!(rule("Never a:init b", "sb0 a=exit1", "In"), "Failed");
}

#[test]
fn terminated_pod_gets_terminal_phase_for_any_containers() {
    phases(
        "Always x:init a",
        &[
            ("+sb0!", "Failed"),
            ("+sb0! x=exit0", "Failed"),
            ("+sb0! x=exit137", "Failed"),
            ("+sb0! x=exit0 a=exit0", "Succeeded"),
        ],
    );
    let fixed = |found: &str, source: &str| {
        let case = Case::new("Always a", found).terminal().with(|c| {
            let mark = ("kubernetes.io/config.source".to_owned(), source.to_owned());
            c.pod.metadata.annotations = Some([mark].into());
        });
        case.status().phase.unwrap_or_default()
    };
    assert_eq!(fixed("sb0! a=exit1", "api"), "Failed");
    assert_eq!(fixed("sb0! a=exit1", "file"), "Running");
    assert_eq!(fixed("sb0!", "http"), "Pending");
}
