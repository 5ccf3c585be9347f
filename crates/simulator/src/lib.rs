//! A simulator of the whole agent: hours of a node on a virtual clock, with faults at any point, and
//! invariants that are checked at every observation. For development only.
//!
//! # Entry points
//!
//! * [`generate`](generate()) makes the [`Plan`] of a seed: timed steps of users and faults, as text
//! * [`run`](run()) executes a plan with the real actors and returns a [`Report`]: the first
//!   [`Violation`], the log and the [`Coverage`]
//! * [`shrink`](shrink()) reduces a plan that fails to a few steps
//! * [`Invariant`] is a rule with history, [`Mutation`] a planted defect that it must find
//!
//! # Example
//!
//! ```
//! use std::time::Duration;
//!
//! use windlass_simulator::{Mode, Plan, RunOptions, generate, run};
//!
//! let plan = generate(1, Mode::Safety, Duration::from_secs(300));
//! let report = run(&plan, &RunOptions::default());
//! assert_eq!(report.violation, None);
//!
//! // the text of a plan is all that replays it
//! let same: Plan = plan.to_string().parse()?;
//! assert_eq!(run(&same, &RunOptions::default()).digest, report.digest);
//! # Ok::<(), String>(())
//! ```
//!
//! `cargo run -p windlass-simulator --example replay_a_plan` runs a plan of five lines;
//! `cargo xtask sim --help` shows the tool.
//!
//! # Guarantees
//!
//! * Equal plans give equal logs. A step that has no subject has no effect, so any subset of a plan
//!   is a plan.
//! * Observations are checked in the order in which they happened, before records are cleared.
//! * A fault ends by itself, and a killed agent starts again.
//!
//! # Limits
//!
//! The edges of the agent are fakes: no processes, no network, no kernel. Only what the fakes model
//! can be found.

mod checker;
mod coverage;
mod generate;
mod invariant;
mod mutation;
mod observation;
mod plan;
mod pods;
mod run;
mod shrink;
mod step;
mod view;
mod words;
mod world;

pub use coverage::Coverage;
pub use generate::generate;
pub use invariant::{Invariant, Violation, all as invariants};
pub use mutation::{Mutation, all as mutations};
pub use observation::{Event, Observation, is_ready, is_terminal, phase, reason};
pub use plan::{Mode, Plan, TimedStep};
pub use run::{Report, RunOptions, run};
pub use shrink::{Shrunk, shrink};
pub use step::{
    ApiFault, ApiTarget, DeviceAct, PodKind, Response, RuntimeFault, RuntimeTarget, Step,
    VolumeTarget, parse_pod,
};
pub use view::{ContainerFacts, PodFacts, StaticFacts, View};
pub use world::TICK;
