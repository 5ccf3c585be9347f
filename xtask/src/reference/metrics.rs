//! Metrics: all registered families, with or without series.

use std::collections::BTreeMap;

use windlass_metrics::{Metrics, PvcStats, Stability};

use super::{code, head, table};

pub(super) const DIRECTORY: &str = "crates/metrics/src";
/// Sources of the families of each endpoint.
pub(super) const FILES: [(&str, &str); 12] = [
    ("lib.rs", "/metrics"),
    ("build_info.rs", "/metrics"),
    ("access.rs", "/metrics"),
    ("certificates.rs", "/metrics"),
    ("plugins.rs", "/metrics"),
    ("pod_resources.rs", "/metrics"),
    ("requests.rs", "/metrics"),
    ("spans.rs", "/metrics"),
    ("starts.rs", "/metrics"),
    ("volumes.rs", "/metrics"),
    ("probes.rs", "/metrics/probes"),
    ("slis.rs", "/metrics/slis"),
];
/// Calls that register a family, with its type; longer names first.
const CALLS: [(&str, &str); 6] = [
    ("r.counters(", "counter"),
    ("r.counter(", "counter"),
    ("r.gauges(", "gauge"),
    ("r.gauge(", "gauge"),
    ("r.histograms(", "histogram"),
    ("r.histogram(", "histogram"),
];

/// One family.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Family {
    pub(super) endpoint: &'static str,
    pub(super) kind: String,
    pub(super) labels: Vec<String>,
    pub(super) help: String,
}

/// `metrics.md`.
pub(super) fn page(source: &dyn Fn(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let rows = families(source)?.into_iter().map(|(name, family)| {
        let labels: Vec<String> = family.labels.iter().map(|label| code(label)).collect();
        vec![
            code(&name),
            family.kind,
            labels.join(", "),
            code(family.endpoint),
            Stability::for_family(&name)
                .map_or("", Stability::as_str)
                .to_owned(),
            family.help,
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

/// All families by name: those with labels from the sources, others from an initial scrape.
pub(super) fn families(
    source: &dyn Fn(&str) -> anyhow::Result<String>,
) -> anyhow::Result<BTreeMap<String, Family>> {
    let mut families = BTreeMap::new();
    for (file, endpoint) in FILES {
        made_in(
            &source(&format!("{DIRECTORY}/{file}"))?,
            endpoint,
            &mut families,
        );
    }
    let metrics = Metrics::new()?;
    // these six are registered in a loop
    metrics.volumes.set_pvcs(&[PvcStats {
        namespace: "default".into(),
        pvc: "data".into(),
        values: [0; 6],
    }]);
    shown_in(&metrics.render()?, &mut families);
    Ok(families)
}

/// Adds the families with literal names in a source file.
fn made_in(source: &str, endpoint: &'static str, families: &mut BTreeMap<String, Family>) {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    for (call, kind) in CALLS {
        for arguments in source.split(call).skip(1) {
            let Some(arguments) = arguments.trim_start().strip_prefix('"') else {
                continue;
            };
            // name, separator, help, separator, then labels
            let end = arguments.find(")?").unwrap_or(arguments.len());
            let mut parts = arguments[..end].split('"');
            let (Some(name), Some(help)) = (parts.next(), parts.nth(1)) else {
                continue;
            };
            let family = Family {
                endpoint,
                kind: kind.to_owned(),
                help: help.to_owned(),
                labels: parts.skip(1).step_by(2).map(str::to_owned).collect(),
            };
            families.insert(name.to_owned(), family);
        }
    }
}

/// HELP text as written in the sources.
fn without_stability(help: &str) -> &str {
    let rest = help.strip_prefix('[').and_then(|it| it.split_once("] "));
    rest.map_or(help, |(_, rest)| rest)
}

/// Families of a scrape that are not in the sources.
fn shown_in(text: &str, families: &mut BTreeMap<String, Family>) {
    let mut help = BTreeMap::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((name, text)) = line
            .strip_prefix("# HELP ")
            .and_then(|it| it.split_once(' '))
        {
            help.insert(name, without_stability(text));
        }
        let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|it| it.split_once(' '))
        else {
            continue;
        };
        let sample = lines.peek().and_then(|sample| sample.split_once('{'));
        let labels = sample.map_or("", |(_, rest)| rest.split('}').next().unwrap_or_default());
        let labels = labels.split(',').filter_map(|label| label.split_once('='));
        families.entry(name.to_owned()).or_insert_with(|| Family {
            endpoint: "/metrics",
            kind: kind.to_owned(),
            labels: labels.map(|(label, _)| label.to_owned()).collect(),
            help: help.get(name).copied().unwrap_or_default().to_owned(),
        });
    }
}
