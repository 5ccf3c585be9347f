//! `status`: the node, its cluster, the state of the API server connection, operations that hang, and
//! eviction signals.

use std::io::{self, Write};

use serde_json::{Value, json};
use windlass_node_proto::windlass_v1 as proto;
use windlass_types::{Timestamp, api_time};

use crate::age::age;
use crate::args::StatusArgs;
use crate::client::Client;
use crate::error::Error;
use crate::eviction;
use crate::pod;

/// Width of the labels.
const LABEL: usize = 14;

pub(crate) async fn run(mut client: Client, args: &StatusArgs) -> Result<(), Error> {
    let (node, now) = (client.node().await?, crate::now());
    let text = match args.output {
        Some(_json) => crate::pretty(&json(&node))?,
        None => {
            let eviction = node.eviction.as_ref();
            let eviction = eviction.map_or_else(String::new, |it| eviction::text(it, now));
            format!("{}{}{eviction}", text(&node, now), hung(&node, now))
        }
    };
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn text(node: &proto::GetNodeResponse, now: Timestamp) -> String {
    let head = head(node);
    let Some(cluster) = &node.cluster else {
        return format!(
            "{head}Cluster:      none (no --kubeconfig): standalone mode, \
             static pods only\n"
        );
    };
    let ready = match cluster.ready.as_deref() {
        None => "not observed yet",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    format!(
        "{head}Cluster:      {}\nAPI server:   {}\nNode object:  {ready}\nPod watch:    {}\n",
        cluster.server,
        contact(cluster, now),
        pod_watch(cluster, now)
    )
}

/// Formats the operations that hang, oldest first; nothing without one.
fn hung(node: &proto::GetNodeResponse, now: Timestamp) -> String {
    let mut text = String::new();
    for (index, operation) in node.hung_operations.iter().enumerate() {
        let label = if index == 0 { "Hung:" } else { "" };
        let pod = match (&*operation.pod_name, &*operation.pod_uid) {
            ("", "") => "node".to_owned(),
            ("", uid) => format!("pod {uid}"),
            (name, _) => format!("pod {}/{name}", operation.pod_namespace),
        };
        let since = age(operation.since.and_then(pod::time), now);
        text.push_str(&format!(
            "{label:LABEL$}{pod}: {} for {since}\n",
            operation.name
        ));
    }
    text
}

/// The status as one JSON object.
fn json(node: &proto::GetNodeResponse) -> Value {
    let time = |time: Option<prost_types::Timestamp>| time.and_then(pod::time).map(api_time);
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let cluster = node.cluster.as_ref().map(|cluster| {
        json!({
            "server": cluster.server,
            "ready": cluster.ready,
            "apiServer": cluster.contact.as_ref().map(|contact| json!({
                "error": contact.error,
                "since": time(contact.since),
                "lastHeartbeat": time(contact.last),
            })),
            "podWatch": cluster.pod_watch.as_ref().map(|watch| json!({
                "error": watch.error,
                "since": time(watch.since),
            })),
        })
    });
    let hung = node.hung_operations.iter().map(|operation| {
        json!({
            "kind": operation.kind,
            "operation": operation.name,
            "since": time(operation.since),
            "namespace": text(&operation.pod_namespace),
            "pod": text(&operation.pod_name),
            "uid": text(&operation.pod_uid),
        })
    });
    let pressure = node.eviction.as_ref().map(|it| it.conditions.clone());
    json!({
        "node": node.name,
        "version": node.version,
        "cluster": cluster,
        "hungOperations": hung.collect::<Vec<Value>>(),
        "pressure": pressure.unwrap_or_default(),
    })
}

/// Formats the node and the version of the agent, if known.
fn head(node: &proto::GetNodeResponse) -> String {
    let name = &node.name;
    match node.version.as_str() {
        "" => format!("Node:         {name}\n"),
        version => format!("Node:         {name} (windlass {version})\n"),
    }
}

fn contact(cluster: &proto::Cluster, now: Timestamp) -> String {
    let Some(contact) = &cluster.contact else {
        return if cluster.has_identity {
            "not contacted yet".to_owned()
        } else {
            "not contacted yet: waiting for the client certificate (pending CSR? run kubectl get \
             csr)"
                .to_owned()
        };
    };
    let since = age(contact.since.and_then(pod::time), now);
    match &contact.error {
        None => {
            let last = age(contact.last.and_then(pod::time), now);
            format!("reachable for {since} (last heartbeat {last} ago)")
        }
        Some(error) => format!(
            "unreachable for {since}: {error}\n              Pods keep running; their status is \
             reported when the API server is reachable."
        ),
    }
}

fn pod_watch(cluster: &proto::Cluster, now: Timestamp) -> String {
    let Some(pod_watch) = &cluster.pod_watch else {
        return "not started".to_owned();
    };
    let since = age(pod_watch.since.and_then(pod::time), now);
    match &pod_watch.error {
        None => format!("working for {since}"),
        Some(error) => format!(
            "failing for {since}: {error}\n              This node receives no pod changes until \
             the watch succeeds."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cluster: Option<proto::Cluster>, expected: &str) {
        let node = proto::GetNodeResponse {
            name: "n1".into(),
            cluster,
            version: "0.1.0".into(),
            eviction: None,
            hung_operations: Vec::new(),
        };
        let now = Timestamp::from_second(1000).expect("time");
        assert_eq!(text(&node, now), expected);
    }

    fn at(seconds: i64) -> prost_types::Timestamp {
        prost_types::Timestamp { seconds, nanos: 0 }
    }

    fn contact(error: Option<&str>) -> proto::Cluster {
        proto::Cluster {
            server: "https://api:6443/".into(),
            has_identity: true,
            ready: Some("True".into()),
            contact: Some(proto::HeartbeatStatus {
                error: error.map(str::to_owned),
                since: Some(at(700)),
                last: Some(at(990)),
            }),
            pod_watch: Some(proto::PodWatch {
                error: error.map(|error| format!("watch /api/v1/pods: {error}")),
                since: Some(at(880)),
            }),
        }
    }

    #[test]
    fn status_shows_api_server_connection_and_since_when() {
        check(
            None,
            "Node:         n1 (windlass 0.1.0)\n\
             Cluster:      none (no --kubeconfig): standalone mode, static pods only\n",
        );
        check(
            Some(contact(None)),
            "Node:         n1 (windlass 0.1.0)\n\
             Cluster:      https://api:6443/\n\
             API server:   reachable for 5m (last heartbeat 10s ago)\n\
             Node object:  Ready\n\
             Pod watch:    working for 2m\n",
        );
        check(
            Some(contact(Some("connection refused"))),
            "Node:         n1 (windlass 0.1.0)\n\
             Cluster:      https://api:6443/\n\
             API server:   unreachable for 5m: connection refused\n              \
             Pods keep running; their status is reported when the API server is reachable.\n\
             Node object:  Ready\n\
             Pod watch:    failing for 2m: watch /api/v1/pods: connection refused\n              \
             This node receives no pod changes until the watch succeeds.\n",
        );
        let waiting = proto::Cluster {
            server: "https://api:6443/".into(),
            ..proto::Cluster::default()
        };
        check(
            Some(waiting),
            "Node:         n1 (windlass 0.1.0)\n\
             Cluster:      https://api:6443/\n\
             API server:   not contacted yet: waiting for the client certificate (pending CSR? run \
             kubectl get csr)\n\
             Node object:  not observed yet\n\
             Pod watch:    not started\n",
        );
    }

    fn hung_node() -> proto::GetNodeResponse {
        let operation = |namespace: &str, name: &str, uid: &str| proto::HungOperation {
            kind: "volume".into(),
            name: "mount of volume data".into(),
            since: Some(at(990)),
            pod_uid: uid.into(),
            pod_namespace: namespace.into(),
            pod_name: name.into(),
        };
        proto::GetNodeResponse {
            name: "n1".into(),
            version: "0.1.0".into(),
            hung_operations: vec![
                operation("default", "web", "u1"),
                operation("", "", "u2"),
                operation("", "", ""),
            ],
            ..proto::GetNodeResponse::default()
        }
    }

    #[test]
    fn status_names_pods_with_hung_operations() {
        let now = Timestamp::from_second(1000).expect("time");
        assert_eq!(
            hung(&hung_node(), now),
            "Hung:         pod default/web: mount of volume data for 10s\n              \
             pod u2: mount of volume data for 10s\n              \
             node: mount of volume data for 10s\n"
        );
        assert_eq!(hung(&proto::GetNodeResponse::default(), now), "");
    }

    #[test]
    fn json_status_has_hung_operations() {
        let mut node = hung_node();
        node.hung_operations.truncate(1);
        assert_eq!(
            json(&node),
            json!({
                "node": "n1",
                "version": "0.1.0",
                "cluster": null,
                "pressure": [],
                "hungOperations": [{
                    "kind": "volume",
                    "operation": "mount of volume data",
                    "since": "1970-01-01T00:16:30Z",
                    "namespace": "default",
                    "pod": "web",
                    "uid": "u1",
                }],
            })
        );
    }
}
