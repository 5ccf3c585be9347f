//! Watch of the pods that an agent reports over its control socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_node_proto::windlass_v1::{Blocker, ListPodsRequest, PodEntry, StartTimings};

use crate::environment::scaled;

/// Reconnect interval.
const RECONNECT: Duration = Duration::from_millis(20);

/// Watches the pods of an agent until dropped, across agent restarts.
#[derive(Debug)]
pub struct PodWatch {
    table: watch::Receiver<PodTable>,
    task: JoinHandle<()>,
}

/// All pods after the last message.
#[derive(Clone, Debug, Default)]
pub struct PodTable {
    /// Whether a stream is open and its snapshot was received.
    pub connected: bool,
    /// Number of snapshots, one per connection.
    pub snapshots: u64,
    /// Pods by UID.
    pub pods: BTreeMap<String, PodView>,
    /// First observation of each pod as ready, by UID; kept across agent restarts.
    pub first_ready: BTreeMap<String, Instant>,
}

/// A pod.
#[derive(Clone, Debug, Default)]
pub struct PodView {
    /// Namespace.
    pub namespace: String,
    /// Name with the node name suffix.
    pub name: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `status.phase`.
    pub phase: String,
    /// `status.podIP`, empty before there is one.
    pub ip: String,
    /// Whether the `Ready` condition is true.
    pub ready: bool,
    /// Whether this agent run has not observed the pod yet.
    pub stale: bool,
    /// App containers.
    pub containers: Vec<ContainerView>,
    /// Init containers.
    pub init_containers: Vec<ContainerView>,
    /// Names of the sidecars.
    pub sidecars: Vec<String>,
    /// Blocker.
    pub blocker: Option<Blocker>,
    /// Times of the start phases.
    pub timings: StartTimings,
}

/// Status of a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerView {
    /// Name.
    pub name: String,
    /// `containerID`, empty before there is one.
    pub id: String,
    /// `restartCount`.
    pub restarts: u64,
    /// `ready`.
    pub ready: bool,
    /// `running`, `waiting` or `terminated`.
    pub state: String,
    /// Reason of waiting or terminated, else empty.
    pub reason: String,
}

impl PodWatch {
    /// Watches the agent with this control socket, which need not run yet.
    pub fn start(socket: PathBuf) -> Self {
        let (sender, table) = watch::channel(PodTable::default());
        let task = tokio::spawn(async move {
            while !sender.is_closed() {
                // reconnect after any error
                let _ = follow(&socket, &sender).await;
                sender.send_modify(|table| table.connected = false);
                tokio::time::sleep(RECONNECT).await;
            }
        });
        Self { table, task }
    }

    /// Returns the current pods.
    pub fn now(&self) -> PodTable {
        self.table.borrow().clone()
    }

    /// Waits for a change since the last call.
    pub async fn changed(&mut self) -> anyhow::Result<()> {
        Ok(self.table.changed().await?)
    }

    /// Waits for a predicate on the pods, up to `deadline` times the timeout factor ([`scaled`]). The
    /// error contains `what` and the current pods.
    pub async fn wait_for(
        &mut self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&PodTable) -> bool,
    ) -> anyhow::Result<PodTable> {
        let deadline = scaled(deadline);
        let waited = tokio::time::timeout(deadline, self.table.wait_for(wanted)).await;
        match waited.map(|table| table.map(|table| table.clone())) {
            Ok(table) => table.context("the watch ended"),
            Err(_) => bail!(
                "not within {deadline:?}: {what}; there is {}",
                self.now().summary()
            ),
        }
    }
}

impl Drop for PodWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connects to the local socket of an agent.
pub(crate) async fn connect(socket: &Path) -> anyhow::Result<WindlassClient<Channel>> {
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    let client = WindlassClient::new(endpoint.connect().await?);
    Ok(client.max_decoding_message_size(MAX_MESSAGE))
}

async fn follow(socket: &Path, sender: &watch::Sender<PodTable>) -> anyhow::Result<()> {
    let mut client = connect(socket).await?;
    let mut stream = client
        .watch_pods(ListPodsRequest::default())
        .await?
        .into_inner();
    while let Some(message) = stream.message().await? {
        let now = Instant::now();
        let pods: Vec<(String, PodView)> = message
            .pods
            .into_iter()
            .map(PodView::read)
            .collect::<anyhow::Result<_>>()?;
        sender.send_modify(|table| {
            if message.snapshot {
                table.pods.clear();
                table.connected = true;
                table.snapshots += 1;
            }
            for uid in &message.removed {
                table.pods.remove(uid);
            }
            for (uid, pod) in pods {
                if pod.ready {
                    table.first_ready.entry(uid.clone()).or_insert(now);
                }
                table.pods.insert(uid, pod);
            }
        });
    }
    Ok(())
}

/// A snapshot of several hundred pods has some MiB.
const MAX_MESSAGE: usize = 64 << 20;

impl PodTable {
    /// Returns a pod by its name in the manifest.
    pub fn pod(&self, name: &str) -> Option<&PodView> {
        let full_name = format!("{name}-{}", crate::agent::NODE_NAME);
        self.pods.values().find(|pod| pod.name == full_name)
    }

    /// Formats one line for failed tests.
    pub fn summary(&self) -> String {
        if !self.connected {
            return "no connection to the agent".to_owned();
        }
        let pods: Vec<String> = self
            .pods
            .values()
            .map(|pod| {
                let blocker = pod
                    .blocker
                    .as_ref()
                    .map(|b| format!(" ({}: {})", b.reason, b.message));
                format!(
                    "{}={}{}",
                    pod.name,
                    pod.status(),
                    blocker.unwrap_or_default()
                )
            })
            .collect();
        format!("{} pods: {}", pods.len(), pods.join(", "))
    }
}

impl PodView {
    fn read(entry: PodEntry) -> anyhow::Result<(String, Self)> {
        let pod: Value = serde_json::from_slice(&entry.pod_json)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let containers = |list: &Value| {
            list.as_array()
                .into_iter()
                .flatten()
                .map(ContainerView::read)
                .collect::<Vec<_>>()
        };
        let init = pod["spec"]["initContainers"].as_array();
        let sidecars = init.into_iter().flatten();
        let sidecars = sidecars.filter(|container| container["restartPolicy"] == "Always");
        let status = &pod["status"];
        let conditions = status["conditions"].as_array();
        let ready = conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        let view = Self {
            namespace: text(&pod["metadata"]["namespace"]),
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            phase: text(&status["phase"]),
            ip: text(&status["podIP"]),
            ready,
            stale: entry.stale_status,
            containers: containers(&status["containerStatuses"]),
            init_containers: containers(&status["initContainerStatuses"]),
            sidecars: sidecars.map(|container| text(&container["name"])).collect(),
            blocker: entry.blocker,
            timings: entry.timings.unwrap_or_default(),
        };
        Ok((view.uid.clone(), view))
    }

    /// Returns the status as in `kubectl get pods`: the reason of a container that is not running,
    /// else the phase.
    pub fn status(&self) -> &str {
        let stuck = |container: &&ContainerView| {
            container.state == "waiting" && container.reason != "PodInitializing"
        };
        let done = |container: &&ContainerView| container.state == "terminated";
        let init = self.init_containers.iter().find(stuck);
        let app = self
            .containers
            .iter()
            .find(stuck)
            .or_else(|| self.containers.iter().find(done));
        match init.or(app) {
            Some(container) if !container.reason.is_empty() => &container.reason,
            _ if self.phase.is_empty() => "Pending",
            _ => &self.phase,
        }
    }

    /// Returns the total restart count.
    pub fn restarts(&self) -> u64 {
        self.containers
            .iter()
            .chain(&self.init_containers)
            .map(|c| c.restarts)
            .sum()
    }
}

impl ContainerView {
    fn read(status: &Value) -> Self {
        let state = status["state"]
            .as_object()
            .and_then(|state| state.iter().next());
        let (state, detail) = state.map_or(("waiting", &Value::Null), |(s, d)| (s.as_str(), d));
        Self {
            name: status["name"].as_str().unwrap_or_default().to_owned(),
            id: status["containerID"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            restarts: status["restartCount"].as_u64().unwrap_or_default(),
            ready: status["ready"].as_bool().unwrap_or_default(),
            state: state.to_owned(),
            reason: detail["reason"].as_str().unwrap_or_default().to_owned(),
        }
    }
}
