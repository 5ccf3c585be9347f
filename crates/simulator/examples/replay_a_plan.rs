//! Runs a plan of a few lines and prints its log.
//!
//! `cargo run -p windlass-simulator --example replay_a_plan`

use windlass_simulator::{Plan, RunOptions, run};

const PLAN: &str = "windlass-sim 1 7 safety 300
# the agent is killed while it starts a pod
2.000 static-add etcd
5.000 create web-0
5.050 kill-at 3 after 1.500
60.000 delete web-0
120.000 reboot 10.000
";

fn main() -> Result<(), String> {
    let plan: Plan = PLAN.parse()?;
    let options = RunOptions {
        keep_log: true,
        ..RunOptions::default()
    };
    let report = run(&plan, &options);
    for line in &report.log {
        println!("{line}");
    }
    match report.violation {
        None => Ok(()),
        Some(violation) => Err(violation.to_string()),
    }
}
