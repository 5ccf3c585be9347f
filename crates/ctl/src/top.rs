//! `top`: CPU and memory usage of the node, its pods and containers.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use windlass_node_proto::windlass_v1 as proto;
use windlass_types::top::{ContainerTop, CpuMemoryUsage, NodeTop, PodTop};

use crate::args::TopArgs;
use crate::client::Client;
use crate::error::Error;
use crate::table;

/// Clears the screen and moves the cursor to the top left.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";
/// Refresh interval on a terminal.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// A rate requires two samples, at least 1 s apart.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1100);

/// Runs the command; on a terminal until interrupted.
pub(crate) async fn run(mut client: Client, args: &TopArgs) -> Result<(), Error> {
    let mut usage = client.usage().await?;
    if is_first_sample(&usage) {
        tokio::time::sleep(SAMPLE_INTERVAL).await;
        usage = client.usage().await?;
    }
    let live = io::stdout().is_terminal() && !args.once && args.output.is_none();
    loop {
        let top = filter(usage, args);
        let shown = match args.output {
            None => text(&top, args),
            Some(_json) => crate::pretty(&top)?,
        };
        let mut out = io::stdout().lock();
        if live {
            out.write_all(CLEAR.as_bytes())?;
        }
        out.write_all(shown.as_bytes())?;
        out.flush()?;
        if !live {
            return Ok(());
        }
        drop(out);
        tokio::time::sleep(REFRESH_INTERVAL).await;
        usage = client.usage().await?;
    }
}

/// Whether this is the first sample, without a CPU rate.
fn is_first_sample(usage: &proto::GetUsageResponse) -> bool {
    let node = usage.node.as_ref();
    node.is_some_and(|node| node.cpu_nano_cores.is_none())
}

/// Selects the requested pods, highest CPU usage first.
fn filter(usage: proto::GetUsageResponse, args: &TopArgs) -> NodeTop {
    let is_selected = |pod: &proto::PodUsage| {
        let namespace = args.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == pod.namespace)
    };
    let pods = usage
        .pods
        .into_iter()
        .filter(is_selected)
        .map(|pod| PodTop {
            namespace: pod.namespace,
            pod: pod.name,
            usage: convert(pod.usage),
            containers: pod
                .containers
                .into_iter()
                .map(|container| ContainerTop {
                    name: container.name,
                    usage: convert(container.usage),
                })
                .collect(),
        });
    let top = NodeTop {
        node: usage.node_name,
        usage: convert(usage.node),
        pods: pods.collect(),
    };
    top.busiest_first()
}

fn convert(usage: Option<proto::Usage>) -> CpuMemoryUsage {
    let usage = usage.unwrap_or_default();
    CpuMemoryUsage {
        cpu_nano_cores: usage.cpu_nano_cores,
        memory_bytes: usage.memory_bytes,
    }
}

fn text(top: &NodeTop, args: &TopArgs) -> String {
    let node = cells(top.usage);
    let mut rows = vec![row("", &format!("node {}", top.node), "", node)];
    for pod in &top.pods {
        let (namespace, name) = (&*pod.namespace, &*pod.pod);
        rows.push(row(namespace, name, "", cells(pod.usage)));
        if args.containers {
            let containers = pod.containers.iter();
            rows.extend(
                containers
                    .map(|container| row(namespace, name, &container.name, cells(container.usage))),
            );
        }
    }
    let heading = ["NAMESPACE", "NAME", "CONTAINER", "CPU", "MEMORY"];
    table::render(&heading, &rows)
}

fn row(namespace: &str, name: &str, container: &str, usage: [String; 2]) -> Vec<String> {
    let names = [namespace, name, container].map(str::to_owned);
    names.into_iter().chain(usage).collect()
}

/// Formats CPU and memory as in `kubectl top`; `-` if unknown.
fn cells(usage: CpuMemoryUsage) -> [String; 2] {
    let (cpu, memory) = (usage.cpu_nano_cores, usage.memory_bytes);
    let none = || "-".to_owned();
    [
        cpu.map_or_else(none, |nano| format!("{}m", nano.div_ceil(1_000_000))),
        memory.map_or_else(none, |bytes| format!("{}Mi", bytes.div_ceil(1 << 20))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cpu: Option<u64>, memory: u64) -> Option<proto::Usage> {
        Some(proto::Usage {
            cpu_nano_cores: cpu,
            memory_bytes: Some(memory),
        })
    }

    fn pod(namespace: &str, name: &str, cpu: Option<u64>) -> proto::PodUsage {
        proto::PodUsage {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            usage: usage(cpu, 3 << 20),
            containers: vec![proto::ContainerUsage {
                name: "app".to_owned(),
                usage: None,
            }],
        }
    }

    fn node_usage() -> proto::GetUsageResponse {
        proto::GetUsageResponse {
            node_name: "n1".to_owned(),
            node: usage(Some(1_500_000_000), 1 << 30),
            pods: vec![
                pod("default", "idle", None),
                pod("kube-system", "dns", Some(200_000_001)),
                pod("default", "busy", Some(900_000_000)),
            ],
        }
    }

    fn args(containers: bool, namespace: Option<&str>) -> TopArgs {
        TopArgs {
            namespace: namespace.map(str::to_owned),
            containers,
            once: false,
            output: None,
        }
    }

    fn shown(args: &TopArgs) -> String {
        text(&filter(node_usage(), args), args)
    }

    #[test]
    fn pods_are_sorted_by_cpu_and_unknown_usage_is_dash() {
        let expected = "\
NAMESPACE     NAME      CONTAINER   CPU     MEMORY
              node n1               1500m   1024Mi
default       busy                  900m    3Mi
kube-system   dns                   201m    3Mi
default       idle                  -       3Mi
";
        assert_eq!(shown(&args(false, None)), expected);
        let expected = "\
NAMESPACE     NAME      CONTAINER   CPU     MEMORY
              node n1               1500m   1024Mi
kube-system   dns                   201m    3Mi
kube-system   dns       app         -       -
";
        assert_eq!(shown(&args(true, Some("kube-system"))), expected);
    }

    #[test]
    fn unknown_usage_is_null_in_json() {
        let top = filter(node_usage(), &args(false, None));
        let object = serde_json::to_value(top).expect("JSON");
        assert_eq!(object["usage"]["cpuNanoCores"], 1_500_000_000);
        assert_eq!(object["pods"][0]["pod"], "busy");
        assert!(object["pods"][2]["usage"]["cpuNanoCores"].is_null());
    }

    #[test]
    fn first_sample_has_no_cpu_rate() {
        let mut first = node_usage();
        assert!(!is_first_sample(&first));
        first.node = usage(None, 1);
        assert!(is_first_sample(&first));
    }
}
