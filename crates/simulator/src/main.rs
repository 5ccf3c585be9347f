//! The command line of the simulator; `cargo xtask sim` runs it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use windlass_simulator::{
    Coverage, Mode, Plan, RunOptions, generate, invariants, mutations, run, shrink,
};
use windlass_types::mutation::Mutation as Defect;

/// A fifth of a run is allocation of small objects.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Simulate hours of a node with faults, and check invariants.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask sim")]
struct Options {
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Simulated hours per seed.
    #[arg(long, default_value_t = 1.0)]
    hours: f64,
    /// Check invariants under any fault (safety), or that the node converges (liveness).
    #[arg(long, default_value_t = Mode::Safety)]
    mode: Mode,
    /// Run the plan in this file.
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Shrink the plan of each seed that fails.
    #[arg(long)]
    shrink: bool,
    /// Maximum number of runs to shrink a plan.
    #[arg(long, default_value_t = 2000)]
    shrink_runs: u32,
    /// Plant this defect.
    #[arg(long, value_name = "NAME")]
    mutation: Option<String>,
    /// Print the whole log of each run.
    #[arg(long)]
    log: bool,
    /// Print the plan of each seed and do not run it.
    #[arg(long)]
    plan: bool,
    /// List invariants and mutations.
    #[arg(long)]
    list: bool,
    /// Directory for plans that fail.
    #[arg(long, value_name = "DIR", default_value = "target/sim")]
    found: PathBuf,
}

fn main() -> ExitCode {
    match execute(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Returns false if an invariant was violated.
fn execute(options: &Options) -> anyhow::Result<bool> {
    if options.list {
        for invariant in invariants() {
            println!("invariant {}: {}", invariant.name(), invariant.sentence());
        }
        for mutation in mutations() {
            let (name, sentence) = (mutation.name(), mutation.sentence());
            println!(
                "mutation {name}: {sentence} Found by {}.",
                mutation.invariant()
            );
        }
        for defect in Defect::ALL {
            println!(
                "mutation {defect}: a bug of upstream, {:?}",
                defect.issues()
            );
        }
        return Ok(true);
    }
    let at_edge = |name: &str| mutations().iter().any(|it| it.name() == name);
    let known = |name: &String| at_edge(name) || name.parse::<Defect>().is_ok();
    if let Some(name) = options.mutation.as_ref().filter(|name| !known(name)) {
        bail!("unknown mutation {name:?}; see --list");
    }
    if !(options.hours > 0.0 && options.hours < 1e6) {
        bail!("--hours must be positive");
    }
    let plans: Box<dyn Iterator<Item = Plan>> = match &options.replay {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            let plan: Plan = text.parse().map_err(anyhow::Error::msg)?;
            Box::new(std::iter::once(plan))
        }
        None => {
            let length = Duration::from_secs_f64(options.hours * 3600.0);
            let (mode, first) = (options.mode, options.seed);
            let seeds = first..first.saturating_add(options.seeds);
            Box::new(seeds.map(move |seed| generate(seed, mode, length)))
        }
    };
    if options.plan {
        plans.for_each(|plan| print!("{plan}"));
        return Ok(true);
    }
    run_all(options, plans)
}

fn run_all(options: &Options, plans: impl Iterator<Item = Plan>) -> anyhow::Result<bool> {
    let run_options = RunOptions {
        keep_log: options.log,
        mutation: options.mutation.clone(),
    };
    #[expect(clippy::disallowed_methods, reason = "the speed of the simulator")]
    let began = Instant::now();
    let (mut simulated, mut runs, mut failed) = (Duration::ZERO, 0, 0);
    let mut coverage = Coverage::default();
    for plan in plans {
        let report = run(&plan, &run_options);
        runs += 1;
        simulated += report.simulated;
        coverage.merge(&report.coverage);
        if options.log {
            report.log.iter().for_each(|line| println!("{line}"));
        }
        let Some(violation) = report.violation else {
            continue;
        };
        failed += 1;
        println!("seed {} {}: {violation}", plan.seed, plan.mode);
        let smallest = match options.shrink {
            true => {
                let shrunk = shrink(
                    &plan,
                    &violation.invariant,
                    &run_options,
                    options.shrink_runs,
                );
                println!("  shrunk in {} runs", shrunk.runs);
                shrunk.plan
            }
            false => plan,
        };
        let file = format!(
            "{}-{}-{}.plan",
            violation.invariant, smallest.mode, smallest.seed
        );
        let path = options.found.join(file);
        std::fs::create_dir_all(&options.found)
            .and_then(|()| std::fs::write(&path, smallest.to_string()))
            .with_context(|| path.display().to_string())?;
        if options.shrink || smallest.steps.len() < 50 {
            print!("{smallest}");
        }
        let mutation = options.mutation.as_ref();
        let mutation = mutation.map(|name| format!(" --mutation {name}"));
        let mutation = mutation.unwrap_or_default();
        println!(
            "  replay: cargo xtask sim --replay {}{mutation} --log",
            path.display()
        );
    }
    let elapsed = began.elapsed().as_secs_f64();
    let hours = simulated.as_secs_f64() / 3600.0;
    print!("{coverage}");
    println!(
        "{runs} runs, {failed} failed: {hours:.1} node-hours in {elapsed:.1} s, {:.0} a minute",
        hours / elapsed * 60.0
    );
    Ok(failed == 0)
}
