//! Runs a plan: one simulated node from its start to the end or the first violation.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use windlass_testing::{NodeSim, simulate_cluster};
use windlass_types::mutation::ActiveMutation;

use crate::coverage::Coverage;
use crate::invariant::Violation;
use crate::mutation;
use crate::plan::Plan;
use crate::step::Step;
use crate::world::World;

/// What a run keeps and changes.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Keep the whole log; by default its end.
    pub keep_log: bool,
    /// Name of a planted defect: at the edge of the agent ([`mutation::all`]), or in it
    /// ([`windlass_types::mutation`]).
    pub mutation: Option<String>,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The first violation.
    pub violation: Option<Violation>,
    /// The log, or its end.
    pub log: Vec<String>,
    /// Digest of the whole log.
    pub digest: u64,
    /// What the run did.
    pub coverage: Coverage,
    /// Simulated time.
    pub simulated: Duration,
}

/// Runs a plan. Equal plans give equal reports.
pub fn run(plan: &Plan, options: &RunOptions) -> Report {
    let defect = options.mutation.as_ref();
    let _active = ActiveMutation::new(defect.and_then(|name| name.parse().ok()));
    let simulated = catch_unwind(AssertUnwindSafe(|| {
        simulate_cluster(plan.seed, async |sim| {
            Box::pin(run_on(sim, plan, options)).await
        })
    }));
    simulated.unwrap_or_else(|panic| Report {
        violation: Some(Violation {
            invariant: "no-panic".to_owned(),
            sentence: "The agent never panics.".to_owned(),
            at: Duration::ZERO,
            text: panic_text(panic.as_ref()),
        }),
        log: Vec::new(),
        digest: 0,
        coverage: Coverage::default(),
        simulated: Duration::ZERO,
    })
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

async fn run_on(sim: &mut NodeSim, plan: &Plan, options: &RunOptions) -> Report {
    let planted = options.mutation.as_deref().and_then(mutation::named);
    let mut world = World::new(sim, options.keep_log, planted);
    world.start().await;
    for timed in &plan.steps {
        world.advance(timed.at).await;
        if world.is_over() {
            break;
        }
        world.step(&timed.step).await;
        if let Step::Converge(within, steady) = timed.step {
            world.converge(within, steady).await;
        }
    }
    world.advance(plan.length).await;
    let simulated = world.now();
    let checker = world.checker;
    Report {
        violation: checker.violation,
        log: checker.log.lines.into_iter().collect(),
        digest: checker.log.digest,
        coverage: checker.coverage,
        simulated,
    }
}
