//! The windlass side: an API server in this process, an agent as its node, and its pods.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use tokio::time::Instant;
use windlass_fake_api::{FakeApiServer, KubeconfigUser, RequestRecord, TlsServer};
use windlass_testbed::agent::{Agent, AgentOptions, NODE_NAME};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images;
use windlass_testbed::pod_watch::PodTable;
use windlass_types::Pod;
use windlass_types::corev1::{ConfigMap, Node, Secret, ServiceAccount};

use super::observer::{Observer, ReadyTimes};
use crate::Started;
use crate::process::{self, Process};

/// Timeout for all pods to reach a state.
const TIMEOUT: Duration = Duration::from_secs(180);
/// Lifetime of the certificate, longer than any measurement.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const NAMESPACE: &str = "default";

/// A cluster with one node.
#[derive(Debug)]
pub(crate) struct ClusterNode {
    api: FakeApiServer,
    agent: Agent,
    observer: Observer,
    /// Serves until dropped.
    _server: TlsServer,
}

impl ClusterNode {
    /// Starts server and agent, and waits until the node is ready.
    pub(crate) async fn start(
        containerd: &PrivateContainerd,
        binary: &Path,
    ) -> anyhow::Result<Self> {
        Self::configured(containerd, binary, "").await
    }

    /// The same with more lines of the agent's configuration.
    pub(crate) async fn configured(
        containerd: &PrivateContainerd,
        binary: &Path,
        config: &str,
    ) -> anyhow::Result<Self> {
        let api = FakeApiServer::new();
        create_objects(&api)?;
        let server = api.serve_tls().await?;
        let user = format!("system:node:{NODE_NAME}");
        let certificate =
            server.issue_client_cert(&user, &["system:nodes"], CERTIFICATE_LIFETIME)?;
        let kubeconfig = containerd.base().join("kubeconfig");
        server.kubeconfig(&kubeconfig, KubeconfigUser::Certificate(&certificate))?;
        let manifests = containerd.base().join("manifests");
        std::fs::create_dir_all(&manifests)?;
        let options = AgentOptions {
            config: format!("clusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n{config}"),
            kubeconfig: Some(kubeconfig),
            ..AgentOptions::default()
        };
        let agent = Agent::start(containerd, binary, &manifests, options)?;
        let ready = api.wait_for(|api| api.get::<Node>(None, NODE_NAME).is_some_and(is_ready));
        if tokio::time::timeout(TIMEOUT, ready).await.is_err() {
            anyhow::bail!("the node is not ready: {}", agent.log_tail(5));
        }
        let observer = Observer::start(api.clients().watch);
        Ok(Self {
            api,
            agent,
            observer,
            _server: server,
        })
    }

    /// Creates the pods, bound to the node, and waits until the API says that all are ready.
    pub(crate) async fn start_pods(&mut self, names: &[String]) -> anyhow::Result<Started> {
        let pods = names.iter().map(|name| pod(name));
        let pods: Vec<Pod> = pods.collect::<Result<_, _>>()?;
        self.create_all(&pods).await
    }

    /// The same with the given pods.
    pub(crate) async fn create_all(&mut self, pods: &[Pod]) -> anyhow::Result<Started> {
        let names = pods.iter().filter_map(|pod| pod.metadata.name.clone());
        let names: Vec<String> = names.collect();
        let begin = Instant::now();
        for pod in pods {
            self.api.create(pod);
        }
        let ready = |seen: &ReadyTimes| {
            let mut pods = names.iter().map(|name| seen.get(name));
            pods.all(|at| at.is_some_and(Option::is_some))
        };
        let seen = self
            .observer
            .wait_for("all pods are ready", TIMEOUT, ready)
            .await?;
        let ready = names.iter().filter_map(|name| *seen.get(name)?);
        let seconds = ready.map(|at| (at - begin).as_secs_f64()).collect();
        Ok(Started {
            seconds,
            bare: Vec::new(),
        })
    }

    /// The API server of the pods' references.
    pub(crate) fn api(&self) -> &FakeApiServer {
        &self.api
    }

    /// Directory of a pod's volumes.
    pub(crate) fn volumes_of(&self, name: &str) -> anyhow::Result<PathBuf> {
        let pod = self.agent.root_dir().join("pods").join(self.uid(name)?);
        Ok(pod.join("volumes"))
    }

    /// Deletes the pods and returns the seconds until the API objects are removed.
    pub(crate) async fn delete_pods(&mut self, names: &[String]) -> anyhow::Result<f64> {
        let begin = Instant::now();
        for name in names {
            self.api.delete::<Pod>(Some(NAMESPACE), name, None);
        }
        let gone = |seen: &ReadyTimes| names.iter().all(|name| !seen.contains_key(name));
        self.observer
            .wait_for("all pods are gone", TIMEOUT, gone)
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Waits until the API shows a pod as ready with this number of restarts.
    pub(crate) async fn restarted(&self, name: &str, restarts: i32) -> anyhow::Result<()> {
        let is_back = |api: &FakeApiServer| {
            let pod = api.get::<Pod>(Some(NAMESPACE), name);
            let status = pod.and_then(|pod| pod.status).unwrap_or_default();
            let mut containers = status.container_statuses.into_iter().flatten();
            containers.any(|it| it.ready && it.restart_count == restarts)
        };
        let restarted = tokio::time::timeout(TIMEOUT, self.api.wait_for(is_back)).await;
        restarted.with_context(|| format!("the container of {name} is not replaced"))?;
        Ok(())
    }

    /// Kills the agent with SIGKILL and starts it again; returns the seconds until it reports `count`
    /// pods as ready.
    pub(crate) async fn kill_and_respawn(&mut self, count: usize) -> anyhow::Result<f64> {
        self.agent.kill()?;
        let begin = Instant::now();
        self.agent.spawn()?;
        let mut watch = self.agent.watch();
        let ready = |table: &PodTable| table.pods.values().filter(|pod| pod.ready).count() == count;
        watch
            .wait_for("all pods are ready again", TIMEOUT, ready)
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Metrics of the agent.
    pub(crate) async fn metrics(&self) -> anyhow::Result<String> {
        self.agent.metrics(false).await
    }

    /// UID of a pod.
    pub(crate) fn uid(&self, name: &str) -> anyhow::Result<String> {
        let pod = self.api.get::<Pod>(Some(NAMESPACE), name);
        pod.and_then(|pod| pod.metadata.uid)
            .with_context(|| format!("pod {name} has no UID"))
    }

    /// Resets the count of requests.
    pub(crate) fn forget_requests(&self) {
        self.api.clear_requests();
    }

    /// Number of requests of the agent since the reset.
    pub(crate) fn requests(&self) -> usize {
        let user = format!("system:node:{NODE_NAME}");
        let requests = self.api.requests();
        requests.iter().filter(|r| r.user == user).count()
    }

    /// Of these, those of the node's lease, whose number depends only on time.
    pub(crate) fn lease_requests(&self) -> usize {
        let requests = self.api.requests();
        let of_leases = requests.iter().filter(|r| r.path.contains("/leases/"));
        of_leases.count()
    }

    /// Number of status patches since the reset, by pod name.
    pub(crate) fn status_patches(&self) -> BTreeMap<String, usize> {
        let mut patches = BTreeMap::new();
        for request in self.api.requests() {
            if let Some(pod) = patched_pod(&request) {
                *patches.entry(pod.to_owned()).or_default() += 1;
            }
        }
        patches
    }

    /// Status patches of a pod since the reset, oldest first.
    pub(crate) fn patches_of(&self, name: &str) -> Vec<RequestRecord> {
        let mut requests = self.api.requests();
        requests.retain(|request| patched_pod(request) == Some(name));
        requests
    }

    /// Waits until the agent is idle.
    pub(crate) async fn settle(&mut self) -> anyhow::Result<()> {
        process::settle(&mut self.agent, 0).await
    }

    pub(crate) fn process(&self) -> anyhow::Result<Process> {
        Process::new(&self.agent)
    }

    /// Freezes the agent, which would stop the pods of the bare side as orphaned.
    pub(crate) fn freeze(&self) -> anyhow::Result<()> {
        self.agent.freeze()
    }

    pub(crate) fn thaw(&self) -> anyhow::Result<()> {
        self.agent.thaw()
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.agent.terminate().await
    }
}

/// Name of the pod whose status a request patched.
fn patched_pod(request: &RequestRecord) -> Option<&str> {
    let path = request
        .path
        .strip_prefix("/api/v1/namespaces/default/pods/");
    let name = path.and_then(|path| path.strip_suffix("/status"));
    name.filter(|_| request.method == "PATCH")
}

fn is_ready(node: Node) -> bool {
    let conditions = node.status.and_then(|status| status.conditions);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// References of the pods.
fn create_objects(api: &FakeApiServer) -> anyhow::Result<()> {
    let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
    let account = json!({ "metadata": metadata("default") });
    api.create::<ServiceAccount>(&serde_json::from_value(account)?);
    // of realistic size
    let authority = "x".repeat(1200);
    for (name, data) in [
        ("kube-root-ca.crt", json!({ "ca.crt": authority })),
        ("settings", json!({ "LEVEL": "info", "MODE": "fast" })),
    ] {
        let map = json!({ "metadata": metadata(name), "data": data });
        api.create::<ConfigMap>(&serde_json::from_value(map)?);
    }
    let secret = json!({
        "metadata": metadata("credentials"),
        "data": { "password": "bm90IHZlcnkgc2VjcmV0" },
        "type": "Opaque",
    });
    api.create::<Secret>(&serde_json::from_value(secret)?);
    Ok(())
}

/// A pod with defaults of the API server: a container that exits at once on SIGTERM, the token
/// volume, and environment from a ConfigMap and a Secret.
fn pod(name: &str) -> serde_json::Result<Pod> {
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "nodeName": NODE_NAME,
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main",
                "image": images::PAUSE,
                "imagePullPolicy": "IfNotPresent",
                "envFrom": [{ "configMapRef": { "name": "settings" } }],
                "env": [{ "name": "PASSWORD", "valueFrom": {
                    "secretKeyRef": { "name": "credentials", "key": "password" },
                }}],
                "volumeMounts": [{
                    "name": "kube-api-access",
                    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                    "readOnly": true,
                }],
            }],
            "volumes": [{ "name": "kube-api-access", "projected": { "sources": [
                { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
                { "configMap": {
                    "name": "kube-root-ca.crt",
                    "items": [{ "key": "ca.crt", "path": "ca.crt" }],
                }},
                { "downwardAPI": { "items": [{
                    "path": "namespace",
                    "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" },
                }]}},
            ]}}],
        },
    }))
}
