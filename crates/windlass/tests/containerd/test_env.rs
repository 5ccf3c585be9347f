//! The environment of a theme: one private containerd and one agent.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use windlass_node_proto::windlass_v1::windlass_client::WindlassClient;
use windlass_node_proto::windlass_v1::{ListPodsRequest, PodEntry};
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_proto::cri_v1::{
    Container, ContainerState, ContainerStatus, ContainerStatusRequest, ExecSyncRequest,
    ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxState,
};
use windlass_testing::agent::{Agent, AgentOptions};
use windlass_testing::containerd::{PrivateContainerd, Programs, VARIABLE};
use windlass_testing::cri_proxy::CriProxy;
pub(crate) use windlass_testing::environment::scaled;
use windlass_testing::pod_watch::{PodTable, PodView, PodWatch};

/// Interval for polling state without events.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Timeout of short operations, for a busy host.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The environment of a theme.
pub(crate) struct TestEnv {
    /// First, so that it is printed before everything is stopped.
    log_on_panic: LogOnPanic,
    pub(crate) watch: PodWatch,
    pub(crate) agent: Agent,
    pub(crate) containerd: PrivateContainerd,
    pub(crate) manifests: PathBuf,
}

/// Containers need root. Without it the test is skipped, but fails in CI.
pub(crate) fn skipped() -> bool {
    let root = rustix::process::geteuid().is_root();
    assert!(
        root || std::env::var_os("CI").is_none(),
        "CI must run the tests on containerd as root"
    );
    if !root {
        eprintln!("skipped: containers need root: run the same command with sudo");
    }
    !root
}

/// Returns true, with a notice, if the containerd of the tests is older than `since` (major,
/// minor), which supports `what`.
pub(crate) fn older_than(since: [u64; 2], what: &str) -> bool {
    if skipped() {
        return true;
    }
    let older = Programs::from_env(|_| {}).unwrap().older_than(since);
    if let Some([major, minor]) = older {
        let [first, second] = since;
        eprintln!(
            "skipped: {what} needs containerd {first}.{second} or later and this is \
             {major}.{minor}: name a folder with another one in {VARIABLE}"
        );
    }
    older.is_some()
}

/// The program under test.
pub(crate) fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_windlass"))
}

/// Waits until `look` returns a value, for `deadline` scaled by the host's factor; its last
/// error is in the message.
pub(crate) async fn eventually<T>(
    what: &str,
    deadline: Duration,
    mut look: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = scaled(deadline);
    let end = Instant::now() + deadline;
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
    /// A containerd and an agent with an empty manifest directory.
    pub(crate) async fn start(name: &str) -> Self {
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        Self::on(containerd, binary())
    }

    /// A containerd, and an agent with these lines in its configuration.
    pub(crate) async fn configured(name: &str, config: &str) -> Self {
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        let options = AgentOptions {
            config: config.to_owned(),
            ..AgentOptions::default()
        };
        Self::with(containerd, binary(), options)
    }

    /// An agent on `containerd`, in any state.
    pub(crate) fn on(containerd: PrivateContainerd, binary: &Path) -> Self {
        Self::with(containerd, binary, AgentOptions::default())
    }

    /// A containerd, and an agent that uses it through a fault-injecting proxy.
    pub(crate) async fn behind_proxy(name: &str) -> (Self, CriProxy) {
        Self::configured_behind_proxy(name, "").await
    }

    /// The same with these lines in the agent's configuration.
    pub(crate) async fn configured_behind_proxy(name: &str, config: &str) -> (Self, CriProxy) {
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        let socket = containerd.base().join("proxy.sock");
        let proxy = CriProxy::start(&socket, &containerd.socket()).unwrap();
        let endpoint = format!("--container-runtime-endpoint={}", proxy.endpoint());
        let options = AgentOptions {
            config: config.to_owned(),
            args: vec![endpoint],
            ..AgentOptions::default()
        };
        (Self::with(containerd, binary(), options), proxy)
    }

    /// A containerd, and an agent with `<base>/programs` first in PATH.
    pub(crate) async fn with_program(name: &str, program: &str, script: &str) -> Self {
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        let programs = containerd.base().join("programs");
        std::fs::create_dir(&programs).unwrap();
        std::fs::write(programs.join(program), script).unwrap();
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(programs.join(program), executable).unwrap();
        let path = std::env::var("PATH").unwrap();
        let path = format!("{}:{path}", programs.display());
        let options = AgentOptions {
            env: vec![("PATH".to_owned(), path)],
            ..AgentOptions::default()
        };
        Self::with(containerd, binary(), options)
    }

    /// A containerd, and an agent that starts after `prepare` of its `--root-dir`.
    pub(crate) async fn prepared(name: &str, prepare: impl FnOnce(&Path)) -> Self {
        let containerd = PrivateContainerd::start(name, |_| {}).await.unwrap();
        let mut env = Self::not_started(containerd, binary(), AgentOptions::default());
        prepare(&env.agent.root_dir());
        env.agent.spawn().unwrap();
        env
    }

    fn with(containerd: PrivateContainerd, binary: &Path, options: AgentOptions) -> Self {
        let mut env = Self::not_started(containerd, binary, options);
        env.agent.spawn().unwrap();
        env
    }

    fn not_started(containerd: PrivateContainerd, binary: &Path, options: AgentOptions) -> Self {
        let manifests = containerd.base().join("manifests");
        std::fs::create_dir_all(&manifests).unwrap();
        let agent = Agent::prepare(&containerd, binary, &manifests, options).unwrap();
        Self {
            log_on_panic: LogOnPanic(agent.log_file()),
            watch: agent.watch(),
            agent,
            containerd,
            manifests,
        }
    }

    /// Restarts the agent with the manifest directory `manifests`.
    pub(crate) async fn restart_with(&mut self, manifests: &Path) {
        self.agent.terminate().await.unwrap();
        let options = AgentOptions::default();
        self.agent = Agent::start(&self.containerd, binary(), manifests, options).unwrap();
        self.watch = self.agent.watch();
    }

    /// Stops everything; fails if the agent does not exit.
    pub(crate) async fn stop(mut self) {
        self.agent.check_alive().unwrap();
        self.agent.terminate().await.unwrap();
        drop(self.log_on_panic);
        self.containerd.stop().await.unwrap();
    }

    /// Kills and restarts the agent, and waits until the watch has its pods.
    pub(crate) async fn kill_and_respawn(&mut self) {
        let snapshots = self.watch.now().snapshots;
        self.agent.kill().unwrap();
        self.agent.spawn().unwrap();
        self.wait("the agent answers again", |table| {
            table.connected && table.snapshots > snapshots
        })
        .await;
    }

    // ---- manifests

    /// Writes a manifest as tools do: a dot-file, then a rename.
    pub(crate) fn apply(&self, file: &str, text: &str) {
        self.apply_bytes(file, text.as_bytes());
    }

    pub(crate) fn apply_bytes(&self, file: &str, content: &[u8]) {
        let hidden = self.manifests.join(format!(".{file}.new"));
        std::fs::write(&hidden, content).unwrap();
        std::fs::rename(hidden, self.manifests.join(file)).unwrap();
    }

    pub(crate) fn remove(&self, file: &str) {
        std::fs::remove_file(self.manifests.join(file)).unwrap();
    }

    // ---- state of the agent

    pub(crate) async fn wait(
        &mut self,
        what: &str,
        wanted: impl FnMut(&PodTable) -> bool,
    ) -> PodTable {
        self.watch.wait_for(what, SOON, wanted).await.unwrap()
    }

    /// Waits until a pod is ready.
    pub(crate) async fn ready(&mut self, name: &str) -> PodView {
        let wanted = |table: &PodTable| table.pod(name).is_some_and(|pod| pod.ready);
        let table = self.wait(&format!("{name} is ready"), wanted).await;
        table.pod(name).unwrap().clone()
    }

    /// Waits until a pod shows this status.
    pub(crate) async fn status(&mut self, name: &str, status: &str) -> PodView {
        let wanted = |table: &PodTable| table.pod(name).is_some_and(|pod| pod.status() == status);
        let table = self.wait(&format!("{name} is {status}"), wanted).await;
        table.pod(name).unwrap().clone()
    }

    /// Waits until the agent no longer lists a pod.
    pub(crate) async fn gone(&mut self, name: &str) {
        self.wait(&format!("{name} is gone"), |table| {
            table.connected && table.pod(name).is_none()
        })
        .await;
    }

    /// The agent's view of a pod.
    pub(crate) async fn entry(&self, name: &str) -> PodEntry {
        let endpoint = format!("unix://{}", self.agent.socket().display());
        let channel = Endpoint::try_from(endpoint).unwrap().connect().await;
        let request = ListPodsRequest {
            name: Some(format!("{name}-node")),
            ..ListPodsRequest::default()
        };
        let answer = WindlassClient::new(channel.unwrap())
            .list_pods(request)
            .await;
        let mut pods = answer.unwrap().into_inner().pods;
        assert_eq!(pods.len(), 1, "entries of {name}");
        pods.remove(0)
    }

    /// A pod with its status, as JSON.
    pub(crate) async fn pod(&self, name: &str) -> Value {
        serde_json::from_slice(&self.entry(name).await.pod_json).unwrap()
    }

    /// Waits until the agent has logged a line with all of these words.
    pub(crate) async fn logged(&self, words: &[&str]) {
        let file = self.agent.log_file();
        eventually(&format!("a log line with {words:?}"), SOON, async || {
            let log = std::fs::read_to_string(&file).unwrap();
            let found = log
                .lines()
                .any(|line| words.iter().all(|word| line.contains(word)));
            found.then_some(()).ok_or_else(|| "no such line".to_owned())
        })
        .await;
    }

    /// Status code and body of a GET on the health port.
    pub(crate) async fn http(&self, path: &str) -> Result<(u16, String), std::io::Error> {
        self.agent.http(path).await
    }

    /// Runs `windlassctl` against the agent.
    pub(crate) async fn ctl(&self, args: &[&str]) -> Output {
        self.ctl_command(args).output().await.unwrap()
    }

    /// A `windlassctl` command.
    pub(crate) fn ctl_command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(windlassctl());
        command.arg("--socket").arg(self.agent.socket()).args(args);
        command
            .stdin(std::process::Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Standard output of a `windlassctl` that must succeed.
    pub(crate) async fn ctl_output(&self, args: &[&str]) -> String {
        let output = self.ctl(args).await;
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "windlassctl {args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    // ---- state of the runtime

    /// A client of the runtime.
    pub(crate) async fn cri(&self) -> RuntimeServiceClient<Channel> {
        let endpoint = Endpoint::try_from(self.containerd.endpoint()).unwrap();
        RuntimeServiceClient::new(endpoint.connect().await.unwrap())
    }

    /// All containers of a pod (its name without the node's), newest first.
    pub(crate) async fn containers(&self, pod: &str) -> Vec<Container> {
        let request = ListContainersRequest::default();
        let answer = self.cri().await.list_containers(request).await.unwrap();
        let mut list = answer.into_inner().containers;
        list.retain(|c| c.labels["io.kubernetes.pod.name"] == format!("{pod}-node"));
        list.sort_by_key(|c| std::cmp::Reverse(c.created_at));
        list
    }

    /// Containers of a pod that run.
    pub(crate) async fn running(&self, pod: &str) -> Vec<Container> {
        let mut list = self.containers(pod).await;
        list.retain(|c| c.state == ContainerState::ContainerRunning as i32);
        list
    }

    /// All sandboxes of a pod.
    pub(crate) async fn sandboxes(&self, pod: &str) -> Vec<PodSandbox> {
        let request = ListPodSandboxRequest::default();
        let answer = self.cri().await.list_pod_sandbox(request).await.unwrap();
        let mut list = answer.into_inner().items;
        list.retain(|s| s.labels["io.kubernetes.pod.name"] == format!("{pod}-node"));
        list
    }

    /// Sandboxes of a pod that are ready.
    pub(crate) async fn ready_sandboxes(&self, pod: &str) -> Vec<PodSandbox> {
        let mut list = self.sandboxes(pod).await;
        list.retain(|s| s.state == PodSandboxState::SandboxReady as i32);
        list
    }

    /// Status of a container and its process ID (0 if it does not run).
    pub(crate) async fn container_status(&self, id: &str) -> (ContainerStatus, i32) {
        let request = ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: true,
        };
        let answer = self.cri().await.container_status(request).await.unwrap();
        let answer = answer.into_inner();
        let info: Value = serde_json::from_str(&answer.info["info"]).unwrap();
        let pid = info["pid"].as_i64().unwrap_or(0) as i32;
        (answer.status.unwrap(), pid)
    }

    /// Process ID of the running container `container` of a pod.
    pub(crate) async fn process(&self, pod: &str, container: &str) -> i32 {
        let id = eventually("a running container", SOON, async || {
            let running = self.running(pod).await;
            let mut running = running.into_iter();
            let found = running.find(|c| c.labels["io.kubernetes.container.name"] == container);
            found.map(|c| c.id).ok_or_else(|| "none".to_owned())
        })
        .await;
        self.container_status(&id).await.1
    }

    /// Output of a shell command in the running container `container` of a pod.
    pub(crate) async fn exec(&self, pod: &str, container: &str, script: &str) -> String {
        let running = self.running(pod).await;
        let found = running
            .iter()
            .find(|c| c.labels["io.kubernetes.container.name"] == container);
        let request = ExecSyncRequest {
            container_id: found.expect("a running container").id.clone(),
            cmd: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            timeout: scaled(Duration::from_secs(20)).as_secs() as i64,
        };
        let answer = self.cri().await.exec_sync(request).await.unwrap();
        let answer = answer.into_inner();
        let stderr = String::from_utf8_lossy(&answer.stderr);
        assert_eq!(answer.exit_code, 0, "{script}: {stderr}");
        String::from_utf8(answer.stdout.to_vec()).unwrap()
    }
}

/// A container ID without the runtime prefix of the pod status.
pub(crate) fn bare(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}

/// Sends a signal to a process.
pub(crate) fn signal(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process ID");
    rustix::process::kill_process(pid, signal).unwrap();
}

/// `windlassctl` of the same build. Cargo builds it for a test of the workspace; a test of this
/// crate alone builds it once.
fn windlassctl() -> PathBuf {
    let path = binary().with_file_name("windlassctl");
    if !path.exists() {
        let mut build = std::process::Command::new(env!("CARGO"));
        build.args([
            "build",
            "--quiet",
            "-p",
            "windlass-ctl",
            "--bin",
            "windlassctl",
        ]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(
            build.status().unwrap().success(),
            "cannot build windlassctl"
        );
    }
    path
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
