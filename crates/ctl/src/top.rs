//! `top`: what node, pods and containers use, again and again on a terminal.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use windlass_proto::windlass_v1 as proto;
use windlass_types::top::{ContainerTop, NodeTop, PodTop, CpuMemoryUsage};

use crate::args::TopArgs;
use crate::client::Client;
use crate::error::Error;
use crate::table;

/// Clears the screen and puts the cursor at its beginning.
const CLEAR: &str = "\u{1b}[2J\u{1b}[H";
/// Pause between two looks on a terminal.
const REFRESH: Duration = Duration::from_secs(2);
/// A rate needs two looks, a second apart.
const SECOND_LOOK: Duration = Duration::from_millis(1100);

/// Runs the command. On a terminal it goes on until it is interrupted.
pub(crate) async fn run(mut client: Client, args: &TopArgs) -> Result<(), Error> {
    let mut usage = client.usage().await?;
    if is_first(&usage) {
        tokio::time::sleep(SECOND_LOOK).await;
        usage = client.usage().await?;
    }
    let live = io::stdout().is_terminal() && !args.once && args.output.is_none();
    loop {
        let top = chosen(usage, args);
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
        tokio::time::sleep(REFRESH).await;
        usage = client.usage().await?;
    }
}

/// Nobody looked before: processor time has no rate yet.
fn is_first(usage: &proto::GetUsageResponse) -> bool {
    let node = usage.node.as_ref();
    node.is_some_and(|node| node.cpu_nano_cores.is_none())
}

/// What was asked for, the busiest pods first.
fn chosen(usage: proto::GetUsageResponse, args: &TopArgs) -> NodeTop {
    let asked = |pod: &proto::PodUsage| {
        let namespace = args.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == pod.namespace)
    };
    let pods = usage.pods.into_iter().filter(asked).map(|pod| PodTop {
        namespace: pod.namespace,
        pod: pod.name,
        usage: used(pod.usage),
        containers: pod
            .containers
            .into_iter()
            .map(|container| ContainerTop {
                name: container.name,
                usage: used(container.usage),
            })
            .collect(),
    });
    let top = NodeTop {
        node: usage.node_name,
        usage: used(usage.node),
        pods: pods.collect(),
    };
    top.busiest_first()
}

fn used(usage: Option<proto::Usage>) -> CpuMemoryUsage {
    let usage = usage.unwrap_or_default();
    CpuMemoryUsage {
        cpu_nano_cores: usage.cpu_nano_cores,
        memory_bytes: usage.memory_bytes,
    }
}

fn text(top: &NodeTop, args: &TopArgs) -> String {
    let of_node = figures(top.usage);
    let mut rows = vec![row("", &format!("node {}", top.node), "", of_node)];
    for pod in &top.pods {
        let (namespace, name) = (&*pod.namespace, &*pod.pod);
        rows.push(row(namespace, name, "", figures(pod.usage)));
        if args.containers {
            let containers = pod.containers.iter();
            rows.extend(
                containers.map(|container| {
                    row(namespace, name, &container.name, figures(container.usage))
                }),
            );
        }
    }
    let heading = ["NAMESPACE", "NAME", "CONTAINER", "CPU", "MEMORY"];
    table::render(&heading, &rows)
}

fn row(namespace: &str, name: &str, container: &str, figures: [String; 2]) -> Vec<String> {
    let names = [namespace, name, container].map(str::to_owned);
    names.into_iter().chain(figures).collect()
}

/// Processors and memory as `kubectl top` writes them, `-` for what is not known.
fn figures(usage: CpuMemoryUsage) -> [String; 2] {
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

    fn of_node() -> proto::GetUsageResponse {
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
        text(&chosen(of_node(), args), args)
    }

    #[test]
    fn the_busiest_come_first_and_what_is_not_known_is_a_dash() {
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
    fn a_program_gets_what_is_not_known_as_null() {
        let top = chosen(of_node(), &args(false, None));
        let object = serde_json::to_value(top).expect("JSON");
        assert_eq!(object["usage"]["cpuNanoCores"], 1_500_000_000);
        assert_eq!(object["pods"][0]["pod"], "busy");
        assert!(object["pods"][2]["usage"]["cpuNanoCores"].is_null());
    }

    #[test]
    fn without_a_rate_it_looks_twice() {
        let mut first = of_node();
        assert!(!is_first(&first));
        first.node = usage(None, 1);
        assert!(is_first(&first));
    }
}
