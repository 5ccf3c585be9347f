//! Runs without a container runtime.
//!
//! Prints the status and the blocker of observed pods:
//! `cargo run -p windlass-pod-status --example generate_pod_status -- 'Always a' 'sb0 a=exit1'`.
//! `windlass_pod_text` has the grammar; without arguments it prints a series of observed pods.

use windlass_pod_lifecycle::actions::{ActionsInput, compute_pod_actions};
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable};
use windlass_pod_status::status::{
    BlockerInput, Failures, StatusInput, blocker, generate_status, status_line, waiting_for,
};
use windlass_pod_text::{at, observed, pod};
use windlass_types::PodProbeResults;

const DESIRED: &str = "OnFailure i:init a+startup b";
const OBSERVED: [&str; 6] = [
    "",
    "sb0 i=run",
    "sb0 i=exit0 a=run b=run",
    "sb0 i=exit0 a=run b=exit1",
    "sb0 i=exit0 a=exit0 b=exit0",
    "sb0! i=exit0 a=unknown b=exit0",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [desired, observed] => print_status(desired, observed),
        [] => OBSERVED.iter().for_each(|text| print_status(DESIRED, text)),
        _ => println!("usage: generate_pod_status [DESIRED OBSERVED]"),
    }
}

fn print_status(desired: &str, text: &str) {
    let pod = pod(desired);
    let observed = observed(&pod, text);
    let (failures, probe_results) = (Failures::new(), PodProbeResults::default());
    let now = at(100);
    let actions = compute_pod_actions(ActionsInput {
        pod: &pod,
        observed: &observed,
        backoff: &BackoffTable::default(),
        probe_results: &probe_results,
        policy: BackoffPolicy::DEFAULT,
        now,
    });
    let status = generate_status(StatusInput {
        pod: &pod,
        observed: &observed,
        failures: &failures,
        backing_off: &actions.backing_off,
        probe_results: &probe_results,
        previous: None,
        host_ips: &[],
        stop_signals: false,
        sizes: Default::default(),
        runtime_name: "containerd",
        terminal: false,
        phase_override: None,
        now,
    });
    let blocker = blocker(BlockerInput {
        pod: &pod,
        status: &status,
        failures: &failures,
        backing_off: &actions.backing_off,
        events: &[],
        next_sync: None,
        previous: None,
        now,
    });
    println!("{text}\n  status:  {}", status_line(&status));
    match blocker {
        Some(blocker) => println!(
            "  blocker: {blocker}\n  waiting for: {}",
            waiting_for(&blocker)
        ),
        None => println!("  blocker: none"),
    }
}
