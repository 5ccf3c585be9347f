//! The environment of a theme: one API server, one private containerd and one agent.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_client::{ApiClient, ApiErrorKind, ApiObject, Delete, List, ObjectKey, Selector};
use windlass_mailboxes::SystemClock;
use windlass_testing::agent::{Agent, AgentOptions, NODE_NAME};
use windlass_testing::containerd::PrivateContainerd;
use windlass_testing::environment::scaled;
use windlass_testing::pod_watch::PodWatch;
use windlass_types::corev1::{ConfigMap, Event, Node, Pod, ServiceAccount};
use windlass_types::{Clock, Timestamp};

use crate::control_plane::{Cluster, Kind};
use crate::history::History;
use crate::objects::{is_ready, object, phase, uid};
use crate::runtime::Runtime;

/// Interval for polling state without events.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of short operations, for a busy host.
pub(crate) const SOON: Duration = Duration::from_secs(45);
/// Seconds that the node's lease lasts: renewed every two, so that a test can see it.
pub(crate) const LEASE_SECONDS: u64 = 8;

/// The environment of a theme.
pub(crate) struct TestEnv {
    /// First, so that it is printed before everything is stopped.
    log_on_panic: LogOnPanic,
    /// Pods as reported by the agent.
    pub(crate) watch: PodWatch,
    pub(crate) agent: Agent,
    /// Pods as reported by the API server.
    pub(crate) history: History,
    /// A client of an administrator.
    pub(crate) api: ApiClient,
    pub(crate) runtime: Runtime,
    pub(crate) cluster: Cluster,
    pub(crate) manifests: PathBuf,
    pub(crate) containerd: PrivateContainerd,
}

/// Credentials of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials<'a> {
    /// A client certificate in its kubeconfig.
    Certificate,
    /// A bootstrap token, with which it requests a certificate.
    Bootstrap(&'a str),
}

/// Containers need root. Without it the test is skipped, but fails in CI.
fn has_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var_os("CI").is_none(),
        "CI must run the tests on containerd as root"
    );
    if !root {
        eprintln!("skipped: containers need root: run the same command with sudo");
    }
    root
}

/// The wall clock, which the API server shares.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Waits until `look` returns a value, for `deadline` scaled by the host's factor; its last error
/// is in the message.
pub(crate) async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let end = Instant::now() + scaled(deadline);
    loop {
        match look().await {
            Ok(found) => return found,
            Err(seen) if Instant::now() > end => {
                panic!("not within {deadline:?}: {what}; there is {seen}")
            }
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    }
}

impl TestEnv {
    /// A cluster, a containerd and a joined agent; `None` if the host lacks the required
    /// programs.
    pub(crate) async fn start(kind: Kind, name: &str) -> Option<Self> {
        let mut env = Self::prepare(kind, name, Credentials::Certificate).await?;
        env.agent.spawn().unwrap();
        env.node_ready().await;
        Some(env)
    }

    /// The same without starting the agent.
    pub(crate) async fn prepare(
        kind: Kind,
        name: &str,
        credentials: Credentials<'_>,
    ) -> Option<Self> {
        Self::prepare_with(kind, name, credentials, |_, _| String::new()).await
    }

    /// The same with more lines of configuration, for the cluster and the node's address.
    pub(crate) async fn prepare_with(
        kind: Kind,
        name: &str,
        credentials: Credentials<'_>,
        more: impl FnOnce(&Cluster, IpAddr) -> String,
    ) -> Option<Self> {
        let assets = match kind.assets() {
            Ok(assets) if has_root() => assets,
            Ok(_) => return None,
            Err(reason) => {
                eprintln!("skipped: {reason}");
                return None;
            }
        };
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        // below the containerd's directory, which is cleaned after killed tests
        let dir = containerd.base().join("cluster");
        let cluster = Cluster::start(kind, assets, &dir).await;
        let clients = cluster.admin();
        let manifests = containerd.base().join("manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let (kubeconfig, bootstrap) = match credentials {
            Credentials::Certificate => (cluster.node_kubeconfig(), None),
            Credentials::Bootstrap(token) => {
                let written_by_the_agent = dir.join("kubelet.conf");
                (written_by_the_agent, Some(cluster.token_kubeconfig(token)))
            }
        };
        let options = AgentOptions {
            config: format!(
                // volumes are expanded on each sync of their pod
                "nodeLeaseDurationSeconds: {LEASE_SECONDS}\nsyncFrequency: 10s\n\
                 featureGates: {{ PodCertificateRequest: true }}\n{}",
                more(&cluster, containerd.network().gateway().into()),
            ),
            kubeconfig: Some(kubeconfig),
            bootstrap_kubeconfig: bootstrap,
            ..AgentOptions::default()
        };
        let binary = Path::new(env!("CARGO_BIN_EXE_windlass"));
        let agent = Agent::prepare(&containerd, binary, &manifests, options).unwrap();
        let env = Self {
            log_on_panic: LogOnPanic(agent.log_file()),
            watch: agent.watch(),
            agent,
            history: History::start(clients.watch),
            api: clients.main,
            runtime: Runtime::new(containerd.endpoint()),
            cluster,
            manifests,
            containerd,
        };
        env.set_up_namespace(kind).await;
        Some(env)
    }

    /// Objects that controllers add to every namespace: a pod is rejected without one and cannot
    /// start without the other.
    async fn set_up_namespace(&self, kind: Kind) {
        let account = ObjectKey::namespaced("default", "default");
        let root = ObjectKey::namespaced("default", "kube-root-ca.crt");
        if kind == Kind::WithControllers {
            self.wait_for::<ServiceAccount>(account, "exists", |_| true)
                .await;
            self.wait_for::<ConfigMap>(root, "exists", |_| true).await;
            return;
        }
        let meta = |at: ObjectKey<'_>| json!({ "name": at.name, "namespace": "default" });
        let account: ServiceAccount = object(json!({ "metadata": meta(account) }));
        self.create(&account).await;
        let root = json!({ "metadata": meta(root), "data": { "ca.crt": "-- the root --" } });
        let root: ConfigMap = object(root);
        self.create(&root).await;
    }

    /// Stops everything and checks the history of pods; fails if the agent does not exit.
    pub(crate) async fn stop(mut self) {
        self.agent.check_alive().unwrap();
        self.history.judge();
        self.agent.terminate().await.unwrap();
        drop(self.log_on_panic);
        drop(self.cluster);
        self.containerd.stop().await.unwrap();
    }

    /// Restarts the agent after `kill -9` and waits until it reports its pods.
    pub(crate) async fn respawn(&mut self) {
        let snapshots = self.watch.now().snapshots;
        self.agent.spawn().unwrap();
        let answers = self
            .watch
            .wait_for("the agent answers again", SOON, |table| {
                table.connected && table.snapshots > snapshots
            });
        answers.await.unwrap();
    }

    // ---- state of the API server

    /// Creates an object.
    pub(crate) async fn create<K: ApiObject>(&self, object: &K) -> Value {
        let namespace = namespace_of(object);
        let created = self.api.create(namespace.as_deref(), object).await.unwrap();
        serde_json::to_value(created).unwrap()
    }

    /// An object, if there is one.
    pub(crate) async fn get<K: ApiObject>(&self, at: ObjectKey<'_>) -> Option<Value> {
        match self.api.get::<K>(at).await {
            Ok(found) => Some(serde_json::to_value(found).unwrap()),
            Err(error) if error.kind == ApiErrorKind::NotFound => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Waits until an object is as `wanted`.
    pub(crate) async fn wait_for<K: ApiObject>(
        &self,
        at: ObjectKey<'_>,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Value {
        eventually(&format!("{} {what}", at.name), SOON, async || {
            let found = self.get::<K>(at).await;
            let found = found.ok_or_else(|| "no such object".to_owned())?;
            if wanted(&found) {
                Ok(found)
            } else {
                Err(found.to_string())
            }
        })
        .await
    }

    /// Waits until the node is ready.
    pub(crate) async fn node_ready(&self) -> Value {
        self.wait_for::<Node>(ObjectKey::cluster(NODE_NAME), "is Ready", is_ready)
            .await
    }

    /// Waits until the pod `name` is as `wanted`.
    pub(crate) async fn pod(
        &self,
        name: &str,
        what: &str,
        mut wanted: impl FnMut(&Value) -> bool,
    ) -> Value {
        self.history
            .find(&format!("{name} {what}"), SOON, |seen| {
                seen.present.get(name).filter(|pod| wanted(pod)).cloned()
            })
            .await
    }

    /// Waits until the pod `name` runs and is ready.
    pub(crate) async fn pod_ready(&self, name: &str) -> Value {
        let wanted = |pod: &Value| is_ready(pod) && phase(pod) == "Running";
        self.pod(name, "is ready", wanted).await
    }

    /// Deletes a pod, with a grace period in seconds or its own.
    pub(crate) async fn delete_pod(&self, name: &str, grace_seconds: Option<u32>) {
        let delete = Delete {
            grace_seconds,
            uid: None,
        };
        let at = ObjectKey::namespaced("default", name);
        self.api.delete::<Pod>(at, &delete).await.unwrap();
    }

    /// Waits until the API server has no pod with this UID.
    pub(crate) async fn pod_gone(&self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().expect("a name").to_owned();
        self.history
            .find(&format!("{name} is gone from the API"), SOON, |seen| {
                let present = seen.present.get(&name);
                let there = present.is_some_and(|other| uid(other) == uid(pod));
                (!there).then_some(())
            })
            .await;
    }

    /// Waits until no container of a pod runs.
    pub(crate) async fn runtime_stopped(&self, pod: &Value) {
        let name = &pod["metadata"]["name"];
        let what = format!("nothing of {name} runs");
        eventually(&what, SOON, async || {
            let running = self.runtime.running(uid(pod)).await;
            let ready = self.runtime.ready_sandboxes(uid(pod)).await;
            if running.is_empty() && ready.is_empty() {
                Ok(())
            } else {
                Err(format!("{running:?} {ready:?}"))
            }
        })
        .await;
    }

    /// Waits for events with these reasons about a pod.
    pub(crate) async fn events(&self, pod: &Value, reasons: &[&str]) {
        let selector = Selector {
            namespace: Some("default".to_owned()),
            fields: Some(format!("involvedObject.uid={}", uid(pod))),
            labels: None,
        };
        let what = format!("events {reasons:?} of {}", pod["metadata"]["name"]);
        eventually(&what, SOON, async || {
            let listed = self.api.list::<Event>(&selector, &List::default()).await;
            let (events, _) = listed.map_err(|error| error.to_string())?;
            for event in &events {
                let source = event.source.as_ref().expect("a source");
                assert_eq!(source.component.as_deref(), Some("kubelet"), "{event:?}");
                assert_eq!(source.host.as_deref(), Some(NODE_NAME), "{event:?}");
            }
            let seen: Vec<&str> = events.iter().filter_map(|e| e.reason.as_deref()).collect();
            let all = reasons.iter().all(|reason| seen.contains(reason));
            all.then_some(()).ok_or_else(|| format!("{seen:?}"))
        })
        .await;
    }

    // ---- manifests

    /// Writes a static pod's manifest as tools do: a dot-file, then a rename.
    pub(crate) fn apply(&self, file: &str, pod: &Pod) {
        let mut pod = serde_json::to_value(pod).unwrap();
        // a manifest does not name the node
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        let hidden = self.manifests.join(format!(".{file}.new"));
        std::fs::write(&hidden, pod.to_string()).unwrap();
        std::fs::rename(hidden, self.manifests.join(file)).unwrap();
    }

    /// Removes a manifest.
    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.manifests.join(file)).unwrap();
    }
}

fn namespace_of<K: ApiObject>(object: &K) -> Option<String> {
    let object = serde_json::to_value(object).unwrap();
    object["metadata"]["namespace"].as_str().map(str::to_owned)
}

/// Prints the end of the agent's log when a test fails.
struct LogOnPanic(PathBuf);

impl Drop for LogOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.0).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(400)..];
            eprintln!("--- the agent's log ends with\n{}\n---", tail.join("\n"));
        }
    }
}
