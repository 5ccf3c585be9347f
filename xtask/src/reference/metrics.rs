//! Metrics: all registered families, with or without series.

use std::collections::BTreeMap;

use windlass_metrics::{Family, Stability};

use super::{code, head, table};

/// `metrics.md`.
pub(super) fn page() -> anyhow::Result<String> {
    let rows = families()?.into_iter().map(|(name, (endpoint, family))| {
        let labels: Vec<String> = family.labels.iter().map(|label| code(label)).collect();
        vec![
            code(&name),
            family.kind.to_owned(),
            labels.join(", "),
            code(endpoint),
            Stability::for_family(&name)
                .map_or("", Stability::as_str)
                .to_owned(),
            without_stability(&family.help).to_owned(),
        ]
    });
    let about = "Metrics that begin with `windlass_` are specific to Windlass; the others have the names \
                 of the Go kubelet. `/metrics`, `/metrics/probes` and `/metrics/slis` are on 10250 and \
                 `readOnlyPort`; `windlassctl metrics` prints the first two on the node. `kubelet_container_log_filesystem_used_bytes{container,namespace,pod,uid}` \
                 is on 10250 only and not listed here. Usage of node, pods and containers is in \
                 `/metrics/resource` and `/metrics/cadvisor` of 10250, with the families of the Go \
                 kubelet. HELP begins with the stability level, such as `[ALPHA]`.";
    let heading = ["name", "type", "labels", "endpoint", "stability", "help"];
    Ok(head("Metrics", about) + &table(&heading, rows))
}

/// All families by name, each with its endpoint.
pub(super) fn families() -> anyhow::Result<BTreeMap<String, (&'static str, Family)>> {
    let endpoints = windlass_metrics::families()?.into_iter();
    let named = |endpoint, family: Family| (family.name.clone(), (endpoint, family));
    Ok(endpoints
        .flat_map(|(endpoint, it)| it.into_iter().map(move |family| named(endpoint, family)))
        .collect())
}

/// HELP text as written in the sources.
fn without_stability(help: &str) -> &str {
    let rest = help.strip_prefix('[').and_then(|it| it.split_once("] "));
    rest.map_or(help, |(_, rest)| rest)
}
