//! The agent process on a fake runtime and a fake API server: what flags, feature gates and the
//! host decide. Pods are static pods on the host network.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use windlass_fake_api::{FakeApiServer, KubeconfigUser, TlsServer};
use windlass_mailboxes::SystemClock;
use windlass_testing::FakeRuntime;
use windlass_testing::agent::add_thresholds;
use windlass_testing::fake_runtime::{Fault, Operation, Pull, ServeGuard};
use windlass_types::certificatesv1beta1::ClusterTrustBundle;
use windlass_types::corev1::{Event, Node, NodeAddress, Secret};
use windlass_types::cri::ContainerConfig;
use windlass_types::{ContainerState, Pod};

const NODE: &str = "n1";
const IMAGE: &str = "busybox:1";
/// Long enough for two busy cores.
const SOON: Duration = Duration::from_secs(60);
/// Several syncs and probe periods.
const A_WHILE: Duration = Duration::from_secs(4);

struct TestEnv {
    runtime: FakeRuntime,
    api: FakeApiServer,
    agent: Child,
    dir: tempfile::TempDir,
    _tls: TlsServer,
    _guard: ServeGuard,
}

/// As root the agent makes its root directory a shared mount and links its logs, which outlive it.
impl Drop for TestEnv {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let root = self.dir.path().join("root");
        let _ = Command::new("umount").arg("-R").arg(root).output();
        let links = fs::read_dir("/var/log/containers").into_iter().flatten();
        for link in links.flatten().map(|entry| entry.path()) {
            let log = fs::read_link(&link).unwrap_or_default();
            if log.starts_with(self.dir.path()) {
                let _ = fs::remove_file(link);
            }
        }
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

impl TestEnv {
    /// Starts an agent with these settings, flags and manifests, and waits until its node is Ready.
    async fn start(settings: &str, flags: &[&str], manifests: &[(&str, String)]) -> Self {
        // other tests know its links to logs by the name
        let dir = tempfile::Builder::new()
            .prefix("windlass-process-")
            .tempdir()
            .unwrap();
        let at = |name: &str| dir.path().join(name);
        let runtime = FakeRuntime::new(Arc::new(SystemClock), 1);
        runtime.add_image(IMAGE);
        let guard = runtime.serve(at("runtime.sock")).unwrap();
        let api = FakeApiServer::new();
        let tls = api.serve_tls().await.unwrap();
        let name = format!("system:node:{NODE}");
        let user = tls.issue_client_cert(&name, &["system:nodes"], Duration::from_secs(3600));
        let user = user.unwrap();
        let kubeconfig = at("kubeconfig");
        tls.kubeconfig(&kubeconfig, KubeconfigUser::Certificate(&user))
            .unwrap();

        fs::create_dir(at("manifests")).unwrap();
        for (file, text) in manifests {
            fs::write(at("manifests").join(file), text).unwrap();
        }
        let mut config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             staticPodPath: @/manifests\npodLogsDir: @/logs\n\
             containerRuntimeEndpoint: unix://@/runtime.sock\n\
             port: {}\nhealthzPort: {}\nreadOnlyPort: 0\n\
             failCgroupV1: false\nfailSwapOn: false\ncgroupsPerQOS: false\n\
             enforceNodeAllocatable: [none]\nnodeStatusUpdateFrequency: 1s\n{settings}\n",
            free_port(),
            free_port(),
        );
        add_thresholds(&mut config);
        let base = dir.path().to_str().unwrap();
        fs::write(at("config.yaml"), config.replace('@', base)).unwrap();
        let own = [
            "--config=@/config.yaml",
            "--kubeconfig=@/kubeconfig",
            "--root-dir=@/root",
            "--cert-dir=@/pki",
            "--node-ip=127.0.0.1",
            "--hostname-override=n1",
        ];
        let log = File::create(at("log")).unwrap();
        let agent = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(own.iter().map(|flag| flag.replace('@', base)))
            .args(flags)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let env = Self {
            runtime,
            api,
            agent,
            dir,
            _tls: tls,
            _guard: guard,
        };
        env.until("the node is ready", |env| {
            let conditions = env.node()["status"]["conditions"].clone();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|c| c["type"] == "Ready" && c["status"] == "True")
        })
        .await;
        env
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    async fn until(&self, what: &str, is_true: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !is_true(self) {
            assert!(Instant::now() < deadline, "not within {SOON:?}: {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A field of `/proc/PID/status` of the agent.
    fn memory_kib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.id())).unwrap();
        let text = status.lines().find_map(|line| line.strip_prefix(field));
        let value = text.and_then(|text| text.split_ascii_whitespace().next());
        value.unwrap().parse().unwrap()
    }

    fn node(&self) -> Value {
        serde_json::to_value(self.api.get::<Node>(None, NODE)).unwrap()
    }

    /// The object of a pod, such as the mirror pod of a static pod.
    fn pod(&self, name: &str) -> Value {
        serde_json::to_value(self.api.get::<Pod>(Some("default"), name)).unwrap()
    }

    /// Number of instances of the container that have run.
    fn instances(&self, container: &str) -> usize {
        let all = self.runtime.all_containers().into_iter();
        all.filter(|c| c.name == container).count()
    }

    /// Configuration of the running instance.
    fn running(&self, container: &str) -> Option<ContainerConfig> {
        let mut all = self.runtime.all_containers().into_iter();
        let running = |state| state == ContainerState::Running;
        let found = all.find(|c| c.name == container && running(c.state))?;
        self.runtime.container_config(&found.id)
    }

    fn has_event(&self, reason: &str, text: &str) -> bool {
        let events = self.api.list::<Event>();
        events.iter().any(|event| {
            let message = event.message.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some(reason) && message.contains(text)
        })
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

/// Manifest of a pod with one container, both with this name.
fn manifest(name: &str, container: Value, spec: Value) -> (&str, String) {
    (name, pod(name, container, spec).to_string())
}

fn pod(name: &str, mut container: Value, mut spec: Value) -> Value {
    container["name"] = json!(name);
    container["image"] = json!(IMAGE);
    container["imagePullPolicy"] = json!("IfNotPresent");
    spec["containers"] = json!([container]);
    spec["hostNetwork"] = json!(true);
    spec["terminationGracePeriodSeconds"] = json!(5);
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": spec,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn external_cloud_node_has_taint_and_addresses_of_cloud() {
    let env = TestEnv::start("", &["--cloud-provider=external"], &[]).await;
    let node = env.node();
    let taint = &node["spec"]["taints"][0];
    assert_eq!(
        *taint,
        json!({ "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true",
            "effect": "NoSchedule" })
    );
    let provided = "alpha.kubernetes.io/provided-node-ip";
    assert_eq!(node["metadata"]["annotations"][provided], "127.0.0.1");
    assert!(node["spec"]["providerID"].is_null(), "{}", node["spec"]);

    // as the cloud controller manager
    let addresses = json!([
        { "type": "InternalIP", "address": "127.0.0.1" },
        { "type": "ExternalIP", "address": "192.0.2.7" },
    ]);
    let of_cloud: Vec<NodeAddress> = object(addresses.clone());
    env.api.modify::<Node>(None, NODE, |node| {
        let spec = node.spec.get_or_insert_default();
        spec.provider_id = Some("cloud://n1".to_owned());
        spec.taints = None;
        node.status.get_or_insert_default().addresses = Some(of_cloud);
    });
    tokio::time::sleep(A_WHILE).await;
    let node = env.node();
    assert_eq!(node["status"]["addresses"], addresses);
    assert_eq!(node["spec"]["providerID"], "cloud://n1");
    assert!(node["spec"]["taints"].is_null(), "{}", node["spec"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn healthz_port_in_use_is_retried_while_agent_runs() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let flag = format!("--healthz-port={}", address.port());
    let manifests = [manifest("plain", json!({}), json!({}))];
    // waits until the node is Ready
    let env = TestEnv::start("", &[&flag], &manifests).await;
    env.until("the pod runs", |env| env.running("plain").is_some())
        .await;
    assert!(env.log().contains("starting healthz failed"));
    drop(taken);
    let is_healthy = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(A_WHILE))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: n1\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    env.until("the port is open", |_| is_healthy().unwrap_or(false))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_requiring_disabled_feature_is_rejected() {
    let feature = "RestartAllContainersOnContainerExits";
    let gates = format!("featureGates: {{{feature}: false}}");
    let env = TestEnv::start(&gates, &[], &[]).await;
    let rules = json!([{
        "action": "RestartAllContainers",
        "exitCodes": { "operator": "In", "values": [42] },
    }]);
    let container = json!({ "restartPolicy": "Never", "restartPolicyRules": rules });
    let on_node = || json!({ "nodeName": NODE });
    env.api
        .create::<Pod>(&object(pod("needs", container, on_node())));
    env.api
        .create::<Pod>(&object(pod("plain", json!({}), on_node())));
    env.until("one is rejected", |env| {
        env.pod("needs")["status"]["phase"] == "Failed" && env.running("plain").is_some()
    })
    .await;
    let status = &env.pod("needs")["status"];
    assert_eq!(status["reason"], "PodFeatureUnsupported");
    assert!(status["message"].as_str().unwrap().contains(feature));
    assert_eq!(env.instances("needs"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn static_pod_resources_have_defaults_and_oom_scores() {
    let limits = json!({ "resources": { "limits": { "cpu": "100m", "memory": "64Mi" } } });
    let requests = || json!({ "resources": { "requests": { "memory": "64Mi" } } });
    let pod_level = json!({ "resources": { "requests": { "memory": "576Mi" } } });
    let manifests = [
        manifest("limited", limits, json!({})),
        manifest("plain", requests(), json!({})),
        manifest("spare", requests(), pod_level),
    ];
    let env = TestEnv::start("", &[], &manifests).await;
    env.until("all run", |env| {
        let all = ["limited", "plain", "spare"];
        all.iter().all(|name| env.running(name).is_some()) && !env.pod("limited-n1").is_null()
    })
    .await;
    env.until("the pod is reported as running", |env| {
        env.pod("limited-n1")["status"]["phase"] == "Running"
    })
    .await;
    let status = env.pod("limited-n1")["status"].clone();
    assert_eq!(status["qosClass"], "Guaranteed");
    // requests of the spec; those of the mirror pod may be defaults of the API server
    let requested = &status["containerStatuses"][0]["allocatedResources"];
    assert_eq!(*requested, json!({ "cpu": "100m", "memory": "64Mi" }));
    let score = |name: &str| env.running(name).unwrap().resources.oom_score_adj;
    assert_eq!(score("limited"), -997);
    let memory = env.node()["status"]["capacity"]["memory"].clone();
    let kibibytes = memory.as_str().unwrap().trim_end_matches("Ki");
    let bytes = kibibytes.parse::<i64>().unwrap() << 10;
    let expected = |mebibytes: i64| (1000 - 1000 * (mebibytes << 20) / bytes).min(999);
    assert_eq!(score("plain"), expected(64));
    assert_eq!(score("spare"), expected(576));
    assert!(score("spare") < score("plain"));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_user_ids_do_not_stop_agent() {
    // 4095 blocks of user IDs
    let settings = "maxPods: 5000\nuserNamespaces: {idsPerPod: 1048576}";
    let own_users = json!({ "hostUsers": false });
    let mut needs = pod("needs", json!({}), own_users);
    needs["spec"]["hostNetwork"] = json!(false);
    let manifests = [
        ("needs", needs.to_string()),
        manifest("plain", json!({}), json!({})),
    ];
    let env = TestEnv::start(settings, &[], &manifests).await;
    env.until("the other runs", |env| env.running("plain").is_some())
        .await;
    // the fake runtime has no user namespaces either
    env.until("the pod is reported", |env| {
        env.has_event("FailedCreatePodSandBox", "hostUsers")
    })
    .await;
    assert_eq!(env.instances("needs"), 0);
    let cause = "kubelet user assigned IDs are not enough to support 5000 pods";
    assert!(env.log().contains(cause));
}

#[tokio::test(flavor = "multi_thread")]
async fn trust_bundles_of_signer_are_projected_once() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: mounts need root: run the same command with sudo");
        return;
    }
    let gates = "featureGates: {ClusterTrustBundle: true, ClusterTrustBundleProjection: true}";
    let env = TestEnv::start(gates, &[], &[]).await;
    let block =
        |body: &str| format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    let bundle = |name: &str, signer: &str, bodies: &[&str]| {
        let text: String = bodies.iter().map(|body| block(body)).collect();
        let bundle: ClusterTrustBundle = object(json!({
            "metadata": { "name": name, "labels": { "live": "yes" } },
            "spec": { "signerName": signer, "trustBundle": text },
        }));
        env.api.create(&bundle);
    };
    bundle("one", "example.com/ca", &["CCCC", "AAAA"]);
    bundle("two", "example.com/ca", &["BBBB", "AAAA"]);
    bundle("three", "example.com/other", &["DDDD"]);
    let source = json!({
        "signerName": "example.com/ca", "path": "ca.pem",
        "labelSelector": { "matchLabels": { "live": "yes" } },
    });
    let mounts = json!({ "volumeMounts": [{ "name": "v", "mountPath": "/v" }] });
    let volume =
        json!([{ "name": "v", "projected": { "sources": [{ "clusterTrustBundle": source }] } }]);
    let spec = json!({ "nodeName": NODE, "volumes": volume });
    env.api.create::<Pod>(&object(pod("web", mounts, spec)));
    env.until("it runs", |env| env.running("web").is_some())
        .await;
    let config = env.running("web").unwrap();
    let mount = config.mounts.iter().find(|m| m.container_path == "/v");
    let file = PathBuf::from(&mount.unwrap().host_path).join("ca.pem");
    let expected: String = ["AAAA", "BBBB", "CCCC"].into_iter().map(block).collect();
    assert_eq!(fs::read_to_string(file).unwrap(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn probe_without_file_descriptors_is_no_failure() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let probe = json!({ "livenessProbe": {
        "tcpSocket": { "port": port, "host": "127.0.0.1" },
        "periodSeconds": 1, "failureThreshold": 1,
    } });
    let env = TestEnv::start("", &[], &[manifest("web", probe, json!({}))]).await;
    env.until("it runs", |env| env.running("web").is_some())
        .await;
    let agent = Pid::from_raw(env.agent.id().try_into().unwrap());
    let none = Rlimit {
        current: Some(0),
        maximum: getrlimit(Resource::Nofile).maximum,
    };
    let before = prlimit(agent, Resource::Nofile, none).unwrap();
    // a killed container could not be restarted without descriptors
    tokio::time::sleep(A_WHILE).await;
    assert!(env.running("web").is_some());
    prlimit(agent, Resource::Nofile, before).unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert!(env.running("web").is_some() && env.instances("web") == 1);
    // the probe works: without a server it fails
    drop(server);
    env.until("it is restarted", |env| env.instances("web") > 1)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_hook_on_host_network_reaches_node_address() {
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let hook =
        json!({ "lifecycle": { "preStop": { "httpGet": { "port": port, "path": "/bye" } } } });
    let env = TestEnv::start("", &[], &[manifest("web", hook, json!({}))]).await;
    env.until("it runs", |env| env.running("web").is_some())
        .await;
    fs::remove_file(env.dir.path().join("manifests/web")).unwrap();
    let (mut stream, _) = tokio::time::timeout(SOON, server.accept())
        .await
        .expect("a request")
        .unwrap();
    let mut head = [0; 8];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"GET /bye");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_manifests_are_reported_with_all_errors() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..10 {
        let parent = vec![format!("*a{}", level - 1); 10].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{parent}]\n"));
    }
    let deep = "[".repeat(1_000_000);
    let invalid = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\nspec:\n  \
                   restartPolicy: Sometimes\n  containers:\n  - name: a\n    image: x\n    \
                   livenessProbe:\n      tcpSocket: {port: 80}\n      successThreshold: 2\n";
    let partial = json!({ "readinessGates": [{ "conditionType": "example.com/ready" }] });
    let manifests = [
        ("bomb.yaml", bomb),
        ("deep.yaml", deep),
        ("invalid.yaml", invalid.to_owned()),
        manifest("web", json!({}), partial),
    ];
    let env = TestEnv::start("", &[], &manifests).await;
    env.until("the valid one runs", |env| env.running("web").is_some())
        .await;
    let lines = |word: &str| -> Vec<String> {
        let log = env.log();
        let lines = log.lines().filter(|line| line.contains(word));
        lines.map(str::to_owned).collect()
    };
    for name in ["bomb.yaml", "deep.yaml", "invalid.yaml"] {
        let told = lines(name);
        assert_eq!(told.len(), 1, "{told:?}");
    }
    let told = &lines("invalid.yaml")[0];
    for error in [
        "line 4: metadata.name",
        "line 6: spec.restartPolicy",
        "line 12: spec.containers[0].livenessProbe.successThreshold",
    ] {
        assert!(told.contains(error), "{error} in {told}");
    }
    // a field that is only partially supported is logged once, however often the pod is synced
    env.until("the field is named", |env| {
        env.log().contains("readinessGates")
    })
    .await;
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(lines("readinessGates").len(), 1);
}

#[test]
fn invalid_eviction_settings_are_reported_all_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("config.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                evictionHard: {bogus: 5%, nodefs.available: -1Gi}\n\
                evictionSoft: {memory.available: 5%}\n\
                evictionMinimumReclaim: {pid.available: 0%}\n";
    fs::write(&config, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_windlass"))
        .arg(format!("--config={}", config.display()))
        .arg(format!("--root-dir={}", dir.path().join("root").display()))
        .output()
        .unwrap();
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    for error in [
        "got \"bogus\"",
        "nodefs.available: invalid value \"-1Gi\"",
        "memory.available requires a period in evictionSoftGracePeriod, for example 90s",
        "evictionMinimumReclaim: pid.available: invalid value \"0%\"",
    ] {
        assert!(told.contains(error), "{error}: {told}");
    }
}

/// Files with the names of rotated logs.
fn rotated(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("0.log.")).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn hung_or_interrupted_rotation_stops_no_other() {
    let settings = "containerLogMaxSize: 1Ki\ncontainerLogMonitorInterval: 3s";
    let manifests = ["hung", "web"].map(|name| manifest(name, json!({}), json!({})));
    let env = TestEnv::start(settings, &[], &manifests).await;
    let running = |env: &TestEnv| {
        ["hung", "web"]
            .iter()
            .all(|name| env.running(name).is_some())
    };
    env.until("both run", running).await;
    let log_dir = |name: &str| {
        let pods = fs::read_dir(env.dir.path().join("logs")).unwrap().flatten();
        let mut pods = pods.map(|entry| entry.path());
        let of_pod = |path: &PathBuf| path.to_str().unwrap().contains(&format!("_{name}-"));
        pods.find(of_pod).unwrap().join(name)
    };
    let hangs = Fault::hang(Operation::ReopenContainerLog);
    env.runtime.inject(hangs.on("default/hung-n1/hung"));
    let lines = "a line of the log\n".repeat(100);
    for name in ["hung", "web"] {
        fs::create_dir_all(log_dir(name)).unwrap();
        fs::write(log_dir(name).join("0.log"), &lines).unwrap();
    }
    env.until("one is rotated", |_| rotated(&log_dir("web")) == 1)
        .await;
    assert_eq!(rotated(&log_dir("hung")), 1);
    // as if the agent had been killed after the rename: the runtime opens the log again
    let reopened = |env: &TestEnv| {
        let calls = env.runtime.calls_of(Operation::ReopenContainerLog, "");
        calls
            .iter()
            .filter(|call| call.subject.contains("/web"))
            .count()
    };
    env.until("the missing log is reopened", |env| reopened(env) > 1)
        .await;
}

/// A pod of the API server with an image and the names of its pull secrets.
fn pod_with_image(name: &str, image: &str, secrets: &Value) -> Pod {
    let mut pod = pod(name, json!({}), json!({ "nodeName": NODE }));
    pod["spec"]["containers"][0]["image"] = json!(image);
    pod["spec"]["imagePullSecrets"] = secrets.clone();
    object(pod)
}

fn for_user(username: &str) -> Pull {
    Pull {
        username: Some(username.to_owned()),
        ..Pull::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_come_from_plugin_file_and_secret() {
    let plugins = tempfile::tempdir().unwrap();
    let at = |name: &str| plugins.path().join(name);
    let response = json!({
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry",
        "auth": { "plugin.local": { "username": "robot", "password": "x" } },
    });
    let script = format!("#!/bin/sh\ncat > /dev/null\necho '{response}'\n");
    fs::write(at("plugin"), script).unwrap();
    fs::set_permissions(at("plugin"), Permissions::from_mode(0o755)).unwrap();
    let config = json!({
        "kind": "CredentialProviderConfig",
        "apiVersion": "kubelet.config.k8s.io/v1",
        "providers": [{
            "name": "plugin",
            "matchImages": ["plugin.local"],
            "defaultCacheDuration": "1m",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }],
    });
    fs::write(at("config.json"), config.to_string()).unwrap();
    let flag = |name: &str, value: &Path| {
        format!("--image-credential-provider-{name}={}", value.display())
    };
    let flags = [
        flag("config", &at("config.json")),
        flag("bin-dir", plugins.path()),
    ];
    let env = TestEnv::start("", &flags.each_ref().map(String::as_str), &[]).await;
    // node:x and robot:secret
    let auths = r#"{"auths": {"file.local": {"auth": "bm9kZTp4"}}}"#;
    fs::write(env.dir.path().join("root/config.json"), auths).unwrap();
    let login = "eyJhdXRocyI6eyJyZWdpc3RyeS5sb2NhbCI6eyJhdXRoIjoiY205aWIzUTZjMlZqY21WMCJ9fX0=";
    env.api.create::<Secret>(&object(json!({
        "metadata": { "name": "login", "namespace": "default" },
        "type": "kubernetes.io/dockerconfigjson",
        "data": { ".dockerconfigjson": login },
    })));
    let secrets = json!([{ "name": "login" }]);
    let private = "registry.local/a:1";
    for (name, image, username, secrets) in [
        ("plugin", "plugin.local/a:1", "robot", &Value::Null),
        ("file", "file.local/a:1", "node", &Value::Null),
        ("secret", private, "robot", &secrets),
    ] {
        env.runtime.set_pull(image, for_user(username));
        env.api.create(&pod_with_image(name, image, secrets));
    }
    env.until("all run", |env| {
        let mut all = ["plugin", "file", "secret"].iter();
        all.all(|name| env.running(name).is_some())
    })
    .await;
    // the image is on the node, but not for every pod
    env.api
        .create(&pod_with_image("other", private, &Value::Null));
    env.until("the other pod is refused", |env| {
        let state = &env.pod("other")["status"]["containerStatuses"][0]["state"];
        ["ErrImagePull", "ImagePullBackOff"]
            .contains(&state["waiting"]["reason"].as_str().unwrap_or(""))
    })
    .await;
    assert!(env.running("other").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn code_of_the_start_is_released() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: other users may lock little");
    }
    let env = TestEnv::start("", &[], &[]).await;
    let started = env.memory_kib("RssFile:");
    // a mapping is unlocked for a moment when it is released
    env.until("less code is resident, and locked", |env| {
        let (resident, locked) = (env.memory_kib("RssFile:"), env.memory_kib("VmLck:"));
        resident < started * 3 / 4 && locked > started
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_code_is_resident_when_memory_is_short() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: other users may lock little");
    }
    let settings = "evictionHard: {memory.available: 99%}";
    let env = TestEnv::start(settings, &[], &[]).await;
    env.until("all code is resident", |env| {
        env.memory_kib("RssFile:") > env.memory_kib("VmLck:") * 9 / 10
    })
    .await;
    assert!(env.log().contains("all code of the agent is kept resident"));
}
