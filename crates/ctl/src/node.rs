//! `status`: the node, its cluster, the state of the API server connection, and eviction signals.

use std::io::{self, Write};

use windlass_proto::windlass_v1 as proto;
use windlass_types::Timestamp;

use crate::age::age;
use crate::client::Client;
use crate::error::Error;
use crate::eviction;
use crate::pod;

pub(crate) async fn run(mut client: Client) -> Result<(), Error> {
    let (node, now) = (client.node().await?, crate::now());
    let eviction = node.eviction.as_ref();
    let eviction = eviction.map_or_else(String::new, |it| eviction::text(it, now));
    let text = format!("{}{eviction}", text(&node, now));
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
}
