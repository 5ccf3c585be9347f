//! The node under test: a private containerd, an API server in this process, an agent and its pods,
//! half of them from manifests and half from the API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use windlass_fake_api::{FakeApiServer, KubeconfigUser, TlsServer};
use windlass_testbed::agent::{Agent, AgentOptions, NODE_NAME};
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images::BUSYBOX;
use windlass_types::Pod;
use windlass_types::corev1::{ConfigMap, ServiceAccount};

use crate::ledger::Promise;

/// Lifetime of the node's certificate, longer than any run.
const CERTIFICATE_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const NAMESPACE: &str = "default";
/// A script that runs until SIGTERM: as PID 1 a shell has no default signal handling.
const HOLD: &str = "trap exit TERM; while true; do sleep 1000 & wait $!; done";
/// Run time of a task: several kills of the agent.
const TASK_SECONDS: u32 = 20;

/// Kinds of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// HTTP server with readiness and liveness probe, emptyDir and hostPath, on the pod network.
    Web,
    /// Init container, sidecar with a startup probe, and a container, on the host network.
    Layered,
    /// Fails at once, so that it is always in back-off.
    CrashLoop,
    /// Ends after some seconds with success.
    Task,
}

impl Kind {
    /// Kind of the pod with this number: 6 of 10 serve, 2 have layers, 1 crashes, 1 ends.
    fn of(number: usize) -> Self {
        match number % 10 {
            0..6 => Self::Web,
            6..8 => Self::Layered,
            8 => Self::CrashLoop,
            _ => Self::Task,
        }
    }

    pub(crate) fn promise(self) -> Promise {
        match self {
            Self::Web | Self::Layered => Promise::Steady,
            Self::CrashLoop => Promise::CrashLoop,
            Self::Task => Promise::Task,
        }
    }
}

/// A pod of the run.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Name in the manifest.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// From the API server, not from a manifest.
    pub(crate) api: bool,
}

impl Member {
    /// The pods that exist during the whole run.
    pub(crate) fn all(count: usize) -> Vec<Self> {
        let member = |number: usize| Self {
            name: format!("p{number}"),
            kind: Kind::of(number),
            api: (number / 10) % 2 == 1,
        };
        (0..count).map(member).collect()
    }

    /// A pod that is created and deleted during the run.
    pub(crate) fn edited(number: usize, generation: usize) -> Self {
        let kinds = [Kind::Layered, Kind::Web, Kind::Layered, Kind::Task];
        Self {
            name: format!("e{number}x{generation}"),
            kind: kinds[number % kinds.len()],
            api: number % 2 == 1,
        }
    }

    pub(crate) fn manifest(&self, host_dir: &Path) -> Value {
        let image = json!({ "image": BUSYBOX, "imagePullPolicy": "IfNotPresent" });
        let container = |name: &str, script: &str, more: Value| {
            let mut all = json!({ "name": name, "command": ["sh", "-c", script] });
            merge(&mut all, &image);
            merge(&mut all, &more);
            all
        };
        let mut spec = json!({
            "terminationGracePeriodSeconds": 1,
            "volumes": [
                { "name": "scratch", "emptyDir": {} },
                { "name": "host", "hostPath": { "path": host_dir } },
            ],
        });
        let mounts = json!({ "volumeMounts": [
            { "name": "scratch", "mountPath": "/scratch" },
            { "name": "host", "mountPath": "/host" },
        ]});
        let of_kind = match self.kind {
            Kind::Web => {
                let probe = |period: u32| {
                    json!({
                        "httpGet": { "path": "/ok", "port": 8080 },
                        "periodSeconds": period,
                        "timeoutSeconds": 10,
                        "failureThreshold": 3,
                    })
                };
                let mut main = container(
                    "main",
                    "echo ok > /scratch/ok; exec httpd -f -p 8080 -h /scratch",
                    json!({ "readinessProbe": probe(2), "livenessProbe": probe(10) }),
                );
                merge(&mut main, &mounts);
                json!({ "containers": [main] })
            }
            Kind::Layered => {
                let mut sidecar = container("sidecar", HOLD, json!({ "restartPolicy": "Always" }));
                merge(&mut sidecar, &mounts);
                json!({
                    "hostNetwork": true,
                    "initContainers": [container("init", "exit 0", json!({})), sidecar],
                    "containers": [container("main", HOLD, json!({}))],
                })
            }
            Kind::CrashLoop => json!({
                "hostNetwork": true,
                "containers": [container("main", "sleep 1; exit 1", json!({}))],
            }),
            Kind::Task => json!({
                "hostNetwork": true,
                "restartPolicy": "Never",
                "containers": [container("main", &format!("sleep {TASK_SECONDS}"), json!({}))],
            }),
        };
        merge(&mut spec, &of_kind);
        if self.api {
            self.of_api(&mut spec);
        }
        let name = match self.api {
            // as a static pod's name in the API
            true => format!("{}-{NODE_NAME}", self.name),
            false => self.name.clone(),
        };
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": NAMESPACE },
            "spec": spec,
        })
    }

    fn of_api(&self, spec: &mut Value) {
        spec["nodeName"] = json!(NODE_NAME);
        spec["serviceAccountName"] = json!("default");
        let map = json!({ "name": "settings", "configMap": { "name": "settings" } });
        if let Some(volumes) = spec["volumes"].as_array_mut() {
            volumes.push(map);
        }
        let mount = json!({ "name": "settings", "mountPath": "/settings" });
        if let Some(main) = spec["containers"].get_mut(0) {
            match main["volumeMounts"].as_array_mut() {
                Some(mounts) => mounts.push(mount),
                None => main["volumeMounts"] = json!([mount]),
            }
        }
    }
}

/// Sets the fields of `more` in `object`.
fn merge(object: &mut Value, more: &Value) {
    if let (Some(object), Some(more)) = (object.as_object_mut(), more.as_object()) {
        object.extend(more.clone());
    }
}

/// The node under test.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) containerd: PrivateContainerd,
    pub(crate) agent: Agent,
    pub(crate) api: FakeApiServer,
    manifests: PathBuf,
    /// Directory of the hostPath volumes.
    host_dir: PathBuf,
    /// Serves until dropped.
    _server: TlsServer,
}

impl Fleet {
    /// Starts containerd and prepares the agent; `prepare` may change its root directory before it
    /// starts.
    pub(crate) async fn start(
        binary: &Path,
        prepare: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let containerd = PrivateContainerd::start("chaos", xtask_run::step).await?;
        let api = FakeApiServer::new();
        let metadata = |name: &str| json!({ "name": name, "namespace": NAMESPACE });
        let account = json!({ "metadata": metadata("default") });
        api.create::<ServiceAccount>(&serde_json::from_value(account)?);
        let map = json!({ "metadata": metadata("settings"), "data": { "mode": "calm" } });
        api.create::<ConfigMap>(&serde_json::from_value(map)?);
        let server = api.serve_tls().await?;
        let user = format!("system:node:{NODE_NAME}");
        let certificate =
            server.issue_client_cert(&user, &["system:nodes"], CERTIFICATE_LIFETIME)?;
        let kubeconfig = containerd.base().join("kubeconfig");
        server.kubeconfig(&kubeconfig, KubeconfigUser::Certificate(&certificate))?;
        let manifests = containerd.base().join("manifests");
        let host_dir = containerd.base().join("shared");
        for dir in [&manifests, &host_dir] {
            std::fs::create_dir_all(dir)?;
        }
        let options = AgentOptions {
            config: "maxPods: 500".to_owned(),
            kubeconfig: Some(kubeconfig),
            ..AgentOptions::default()
        };
        let mut agent = Agent::prepare(&containerd, binary, &manifests, options)?;
        std::fs::create_dir_all(agent.root_dir())?;
        prepare(&agent.root_dir())?;
        agent.spawn()?;
        Ok(Self {
            containerd,
            agent,
            api,
            manifests,
            host_dir,
            _server: server,
        })
    }

    pub(crate) fn create(&self, member: &Member) -> anyhow::Result<()> {
        let manifest = member.manifest(&self.host_dir);
        self.create_pod(&member.name, member.api, &manifest)
    }

    /// Creates a pod with a hostPath volume `dir` that must be a directory.
    pub(crate) fn create_on(&self, name: &str, dir: &Path) -> anyhow::Result<()> {
        let member = Member {
            name: name.to_owned(),
            kind: Kind::Layered,
            api: false,
        };
        let mut manifest = member.manifest(dir);
        manifest["spec"]["volumes"][1]["hostPath"]["type"] = json!("Directory");
        self.create_pod(name, false, &manifest)
    }

    fn create_pod(&self, name: &str, api: bool, manifest: &Value) -> anyhow::Result<()> {
        if api {
            let pod: Pod = serde_json::from_value(manifest.clone()).context("a pod")?;
            self.api.create(&pod);
            return Ok(());
        }
        let text = serde_json::to_string_pretty(manifest)?;
        let hidden = self.manifests.join(format!(".{name}"));
        std::fs::write(&hidden, text)?;
        std::fs::rename(&hidden, self.manifests.join(format!("{name}.yaml")))?;
        Ok(())
    }

    pub(crate) fn delete(&self, name: &str, api: bool) -> anyhow::Result<()> {
        if api {
            let name = format!("{name}-{NODE_NAME}");
            self.api.delete::<Pod>(Some(NAMESPACE), &name, None);
            return Ok(());
        }
        Ok(std::fs::remove_file(
            self.manifests.join(format!("{name}.yaml")),
        )?)
    }
}

/// Status and last change of the Ready condition that the API server has of a pod.
pub(crate) fn api_ready(api: &FakeApiServer, name: &str) -> Option<(bool, String)> {
    let pod = api.get::<Pod>(Some(NAMESPACE), &format!("{name}-{NODE_NAME}"))?;
    let conditions = pod.status?.conditions?;
    let ready = conditions.into_iter().find(|c| c.type_ == "Ready")?;
    let since = serde_json::to_string(&ready.last_transition_time).ok()?;
    Some((ready.status == "True", since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_pods_are_of_the_api_server() {
        let all = Member::all(100);
        assert_eq!(all.iter().filter(|member| member.api).count(), 50);
        for kind in [Kind::Web, Kind::Layered, Kind::CrashLoop, Kind::Task] {
            let of_kind: Vec<_> = all.iter().filter(|member| member.kind == kind).collect();
            let of_api = of_kind.iter().filter(|member| member.api).count();
            assert_eq!(of_api * 2, of_kind.len(), "{kind:?}");
        }
    }

    #[test]
    fn every_manifest_is_a_pod() {
        for member in Member::all(20).iter().chain([&Member::edited(1, 2)]) {
            let manifest = member.manifest(Path::new("/shared"));
            let pod: Pod = serde_json::from_value(manifest).unwrap();
            let spec = pod.spec.unwrap();
            let volumes = spec.volumes.unwrap_or_default();
            assert_eq!(spec.containers.len(), 1);
            assert_eq!(volumes.len(), if member.api { 3 } else { 2 });
        }
    }
}
