//! Runs of plans: determinism, replay, shrinking, coverage, and some seeds of each mode.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

use std::time::Duration;

use windlass_simulator::{Coverage, Mode, Plan, RunOptions, generate, mutations, run, shrink};

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
        let plan = generate(42, mode, HOUR);
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

#[test]
fn each_mutation_is_found_by_its_invariant() {
    for mutation in mutations() {
        let options = RunOptions {
            mutation: Some(mutation.name().to_owned()),
            ..RunOptions::default()
        };
        let mut found = (1..20).filter_map(|seed| {
            let plan = generate(seed, Mode::Safety, HOUR);
            Some(run(&plan, &options).violation?.invariant)
        });
        let found = found.next();
        assert_eq!(found.as_deref(), Some(mutation.invariant()), "{}", mutation.name());
    }
}

#[test]
fn safety_holds_for_some_seeds() {
    run_seeds(Mode::Safety, 100..106, HOUR);
}

#[test]
fn liveness_holds_for_some_seeds() {
    let coverage = run_seeds(Mode::Liveness, 200..204, HOUR);
    assert!(coverage.get("converged") >= 4);
}
