//! Runs of plans: determinism, replay, shrinking, coverage, and some seeds of each mode.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::time::Duration;

use windlass_simulator::{
    ApiFault, Coverage, DeviceAct, Mode, Plan, PodKind, Response, RunOptions, RuntimeFault,
    VolumeTarget, generate, mutations, run, shrink,
};

const HOUR: Duration = Duration::from_secs(3600);

fn whole_log() -> RunOptions {
    RunOptions {
        keep_log: true,
        ..RunOptions::default()
    }
}

/// Runs seeds and returns what they did.
fn run_seeds(mode: Mode, seeds: std::ops::Range<u64>, length: Duration) -> Coverage {
    let mut coverage = Coverage::default();
    for seed in seeds {
        let plan = generate(seed, mode, length);
        let report = run(&plan, &RunOptions::default());
        if let Some(violation) = report.violation {
            panic!("{violation}\n{}\n{plan}", report.log.join("\n"));
        }
        coverage.merge(&report.coverage);
    }
    coverage
}

#[test]
fn equal_seeds_give_equal_logs() {
    for mode in [Mode::Safety, Mode::Liveness] {
        let plan = generate(43, mode, HOUR);
        let (first, second) = (run(&plan, &whole_log()), run(&plan, &whole_log()));
        for (line, (a, b)) in first.log.iter().zip(&second.log).enumerate() {
            let before = first.log[line.saturating_sub(10)..line].join("\n");
            assert_eq!(a, b, "line {line}, after\n{before}");
        }
        assert_eq!(first.digest, second.digest);
        assert!(first.log.len() > 100, "too little happened");
    }
}

#[test]
fn replay_of_a_plan_equals_its_run() {
    let plan = generate(7, Mode::Safety, HOUR / 2);
    let replayed: Plan = plan.to_string().parse().expect("a plan");
    assert_eq!(replayed, plan);
    let digest = |plan: &Plan| run(plan, &RunOptions::default()).digest;
    assert_eq!(digest(&replayed), digest(&plan));
}

#[test]
fn agent_that_never_pauses_ends_the_run() {
    let options = RunOptions {
        mutation: Some("mirror-always-replaced".to_owned()),
        ..RunOptions::default()
    };
    let plan = generate(1, Mode::Safety, HOUR);
    let violation = run(&plan, &options).violation.expect("a violation");
    assert_eq!(violation.invariant, "agent-pauses");
}

#[test]
fn planted_failure_shrinks_to_a_few_steps() {
    let options = RunOptions {
        mutation: Some("terminal-phase-is-left".to_owned()),
        ..RunOptions::default()
    };
    let plan = generate(3, Mode::Safety, HOUR);
    let violation = run(&plan, &options).violation.expect("a violation");
    assert_eq!(violation.invariant, "terminal-phase");
    let shrunk = shrink(&plan, &violation.invariant, &options, 300);
    assert!(shrunk.plan.steps.len() <= 4, "{}", shrunk.plan);
    let again = run(&shrunk.plan, &options).violation.expect("a violation");
    assert_eq!(again.invariant, "terminal-phase");
    assert_eq!(run(&shrunk.plan, &RunOptions::default()).violation, None);
}

/// A plan in which every mutation has an effect.
const FOR_MUTATIONS: &str = "windlass-sim 1 1 safety 400
2.000 static-add etcd
3.000 create crash-0
4.000 create stubborn-1
5.000 create job-2
6.000 create web-3
60.000 delete stubborn-1
61.000 label web-3
150.000 kill 1.000
300.000 kill 1.000
";

#[test]
fn each_mutation_is_found_by_its_invariant() {
    let plan: Plan = FOR_MUTATIONS.parse().expect("a plan");
    assert_eq!(run(&plan, &RunOptions::default()).violation, None);
    for mutation in mutations() {
        let options = RunOptions {
            mutation: Some(mutation.name().to_owned()),
            ..RunOptions::default()
        };
        let found = run(&plan, &options).violation.map(|it| it.invariant);
        assert_eq!(
            found.as_deref(),
            Some(mutation.invariant()),
            "{}",
            mutation.name()
        );
    }
}

/// Kinds of steps that a plan may have, apart from the response `ok`.
fn all_kinds() -> Vec<String> {
    let words = "delete|delete by force|delete with grace|label|edit|resize|static-add|static-edit|\
                 static-remove|static-rename|exit|oom|sandbox-end|write-config|delete-config|\
                 delete-node|runtime-restart|disk full|disk io-error|disk lost|disk torn|\
                 pressure memory|pressure disk|clock|kill|kill-at before|kill-at after|upgrade|\
                 reboot|calm|lose-remains|delete-mirror";
    let mut kinds: Vec<String> = words.split('|').map(str::to_owned).collect();
    kinds.extend(PodKind::ALL.iter().map(|kind| format!("create {kind}")));
    kinds.extend(ApiFault::ALL.iter().map(|fault| format!("api {fault}")));
    kinds.extend(
        RuntimeFault::ALL
            .iter()
            .map(|fault| format!("runtime {fault}")),
    );
    kinds.extend(DeviceAct::ALL.iter().map(|act| format!("device {act}")));
    let responses = Response::ALL.iter().filter(|it| **it != Response::Ok);
    kinds.extend(responses.map(|response| format!("respond {response}")));
    for target in VolumeTarget::ALL {
        kinds.extend(["hung", "failed"].map(|how| format!("volume {target} {how}")));
    }
    kinds
}

#[test]
fn each_kind_of_step_is_planned_within_30_seeds() {
    let mut planned = Coverage::default();
    for seed in 0..30 {
        let plan = generate(seed, Mode::Safety, HOUR);
        plan.steps
            .iter()
            .for_each(|timed| planned.count(&timed.step.kind()));
    }
    let missing: Vec<_> = all_kinds()
        .into_iter()
        .filter(|kind| planned.get(kind) == 0)
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn safety_holds_for_some_seeds() {
    run_seeds(Mode::Safety, 100..102, HOUR);
}

#[test]
fn liveness_holds_for_some_seeds() {
    let coverage = run_seeds(Mode::Liveness, 200..202, HOUR);
    assert!(coverage.get("converged") >= 2);
}
