//! Records samples and prints the metric families with a prefix.
//!
//! `cargo run -p windlass-metrics --example print_metrics -- kubelet_pleg`; the default prefix is
//! `kubelet_runtime_operations`.

use std::error::Error;

use windlass_metrics::Metrics;

fn main() -> Result<(), Box<dyn Error>> {
    let prefix = std::env::args().nth(1);
    let prefix = prefix.as_deref().unwrap_or("kubelet_runtime_operations");

    let metrics = Metrics::new()?;
    metrics.runtime_calls.observe("run_podsandbox", 0.21, false);
    metrics.runtime_calls.observe("pull_image", 3.4, true);
    metrics.pleg.relist_duration.observe(0.012);
    metrics.sync_loop.running_pods.set(1.0);

    let page = metrics.render()?;
    let mut shown = 0;
    for line in page.lines() {
        // `# HELP name …`, `# TYPE name …` or `name{labels} value`
        let name = line
            .split(' ')
            .find(|word| !["#", "HELP", "TYPE"].contains(word));
        if name.is_some_and(|name| name.starts_with(prefix)) {
            println!("{line}");
            shown += 1;
        }
    }
    if shown == 0 {
        return Err(format!("no family with prefix {prefix:?} has a value").into());
    }
    Ok(())
}
