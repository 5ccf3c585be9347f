//! Bugs of the Go kubelet as scenarios: each is clean, and finds its bug when a mutation puts it
//! into the agent.
//!
//! A scenario that finds nothing with its mutation is a hole in the invariants. The table of
//! `docs/RELIABILITY.md` names each scenario. `WINDLASS_SCENARIO=name` runs one of them and prints
//! the log of the simulated node.

#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)] // all are tests

mod history;
mod invariant;

mod cluster;
mod containers;
mod resources;
mod statics;
mod stops;
mod volumes;

use std::collections::BTreeSet;
use std::time::Duration;

use windlass_types::mutation::{ActiveMutation, Mutation};

use history::{Outcome, Scenario};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// All scenarios, in the order of the table.
fn scenarios() -> Vec<Scenario> {
    let groups = [
        containers::SCENARIOS,
        statics::SCENARIOS,
        cluster::SCENARIOS,
        stops::SCENARIOS,
        volumes::SCENARIOS,
        resources::SCENARIOS,
    ];
    let chosen = std::env::var("WINDLASS_SCENARIO").ok();
    let all = groups.iter().copied().flatten().copied();
    all.filter(|it| {
        chosen
            .as_deref()
            .is_none_or(|name| name == it.mutation.as_str())
    })
    .collect()
}

fn run(scenario: Scenario, mutation: Option<Mutation>) -> Outcome {
    let _active = ActiveMutation::new(mutation);
    (scenario.run)()
}

#[test]
fn scenarios_are_clean_without_mutation() {
    let mut violations = Vec::new();
    for scenario in scenarios() {
        if let Err(violation) = run(scenario, None) {
            violations.push(format!("{}: {violation}", scenario.mutation));
        }
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

#[test]
fn mutations_are_found() {
    let mut missed = Vec::new();
    for scenario in scenarios() {
        let (name, expected) = (scenario.mutation, scenario.invariant);
        match run(scenario, Some(name)) {
            Err(found) if found.invariant == expected => {}
            Err(found) => missed.push(format!("{name}: {expected} expected, but {found}")),
            Ok(()) => missed.push(format!("{name}: not found")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn each_mutation_has_a_scenario_and_a_row() {
    let named: BTreeSet<_> = scenarios().iter().map(|it| it.mutation).collect();
    let missing = |named: &BTreeSet<Mutation>| {
        let all = Mutation::ALL.iter();
        all.filter(|it| !named.contains(it))
            .copied()
            .collect::<Vec<_>>()
    };
    if std::env::var("WINDLASS_SCENARIO").is_err() {
        assert_eq!(missing(&named), []);
    }
    let page = include_str!("../../../../docs/RELIABILITY.md");
    for scenario in scenarios() {
        let (mutation, invariant) = (scenario.mutation, scenario.invariant);
        let row = page.lines().find(|line| {
            line.contains(&format!("`{mutation}`")) && line.contains(&format!("{invariant}"))
        });
        let row = row.unwrap_or_else(|| panic!("no row for {mutation} and {invariant}"));
        for issue in mutation.issues() {
            assert!(
                row.contains(&format!("#{issue}")),
                "#{issue} is not in {row}"
            );
        }
    }
}
