//! Runs without a container runtime.
//!
//! Prints the next actions for observed pods: `cargo run -p windlass-pod-lifecycle --example
//! next_actions -- 'Always s:sidecar a' 'sb0 s=run'`. `windlass_pod_text` has the grammar; without
//! arguments it prints a series of observed pods.

use windlass_pod_lifecycle::actions::{ActionsInput, compute_pod_actions};
use windlass_pod_lifecycle::backoff::{BackoffPolicy, BackoffTable, restart_key};
use windlass_pod_text::{at, observed, pod};
use windlass_types::{PodExt, PodProbeResults};

const DESIRED: &str = "Always i:init s:sidecar a b:OnFailure";
const OBSERVED: [&str; 7] = [
    "",
    "sb0 i=run",
    "sb0 i=exit0 s=run",
    "sb0 i=exit0 s=run a=run b=run",
    "sb0 i=exit0 s=run a=exit1 b=run",
    "sb0 i=exit0 s=run a=unknown b=exit0",
    "sb0! i=exit0 s=exit0 a=exit137 b=exit0",
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [desired, observed] => print_actions(desired, observed),
        [] => OBSERVED
            .iter()
            .for_each(|text| print_actions(DESIRED, text)),
        _ => println!("usage: next_actions [DESIRED OBSERVED]"),
    }
}

fn print_actions(desired: &str, text: &str) {
    let pod = pod(desired);
    let observed = observed(&pod, text);
    let now = at(60);
    // a container with an error is in its third back-off
    let mut backoff = BackoffTable::default();
    for container in pod.containers() {
        let latest = observed.latest(&container.name);
        if latest.is_some_and(|latest| latest.exit_code != 0) {
            let key = restart_key(&pod, container);
            for _ in 0..3 {
                backoff.next(&key, BackoffPolicy::DEFAULT, now);
            }
        }
    }
    let actions = compute_pod_actions(ActionsInput {
        pod: &pod,
        observed: &observed,
        backoff: &backoff,
        probe_results: &PodProbeResults::default(),
        policy: BackoffPolicy::DEFAULT,
        now,
    });
    println!("{text:<40} {actions}");
}
