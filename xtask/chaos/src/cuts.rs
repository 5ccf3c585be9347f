//! What containerd does with a call whose client dies: the connection of one call is shut down at
//! growing delays, and what the runtime shows afterwards is counted.
//!
//! Not through a proxy: the kernel ends the socket as after `kill -9` of the client.

use std::collections::BTreeMap;
use std::fmt;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, sleep};
use tonic::transport::{Channel, Endpoint, Uri};
use windlass_proto::cri_v1 as cri;
use windlass_proto::cri_v1::image_service_client::ImageServiceClient;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_testbed::containerd::PrivateContainerd;
use windlass_testbed::images::BUSYBOX;
use windlass_testbed::registry::{PASSWORD, PrivateRegistry, USER};

/// Timeout of one call that is not cut, and of what remains of a cut one.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The state after a cut has settled if it has not changed for this time.
const SETTLED: Duration = Duration::from_millis(3000);
const POLL: Duration = Duration::from_millis(50);
/// Stop timeout of a container that ignores SIGTERM, longer than any cut.
const STOP_TIMEOUT: i64 = 20;

/// A call that is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cut {
    Sandbox,
    Create,
    Start,
    Stop,
    Pull,
}

impl Cut {
    const ALL: [Self; 5] = [
        Self::Sandbox,
        Self::Create,
        Self::Start,
        Self::Stop,
        Self::Pull,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "RunPodSandbox",
            Self::Create => "CreateContainer",
            Self::Start => "StartContainer",
            Self::Stop => "StopContainer",
            Self::Pull => "PullImage",
        }
    }
}

/// What a cut call left behind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Outcome {
    /// Whether the response had arrived before the cut.
    answered: bool,
    /// State of the object, with exit code, reason and message.
    left: String,
    /// Whether the same call succeeds afterwards, or its error.
    again: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.answered { "answered" } else { "cut" };
        write!(f, "{when} | {} | {}", self.left, self.again)
    }
}

/// Cuts each call `times` times and returns the table.
pub(super) async fn measure(times: u32) -> anyhow::Result<String> {
    let containerd = PrivateContainerd::start("chaos-cuts", xtask_run::step).await?;
    let registry = PrivateRegistry::start().await?;
    let lab = Laboratory {
        containerd: &containerd,
        registry: &registry,
        cri: runtime(&containerd.socket()).await?,
    };
    let mut text = String::from(
        "| call | time when not cut | cut at | response | left behind | the same call again | times |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for cut in Cut::ALL {
        // boxed: the requests are large
        let whole = Box::pin(lab.duration(cut)).await?;
        let mut outcomes: BTreeMap<Outcome, Vec<Duration>> = BTreeMap::new();
        for number in 0..times {
            // up to a fifth longer than the call, so that the end is included
            let at = whole.mul_f64(1.2 * f64::from(number) / f64::from(times.max(2) - 1));
            let outcome = Box::pin(lab.cut(cut, 1000 + number, at)).await?;
            outcomes.entry(outcome).or_default().push(at);
        }
        for (outcome, at) in outcomes {
            let first = at.iter().min().copied().unwrap_or_default().as_millis();
            let last = at.iter().max().copied().unwrap_or_default().as_millis();
            let row = format!(
                "| {} | {} ms | {first}–{last} ms | {outcome} | {} of {times} |\n",
                cut.name(),
                whole.as_millis(),
                at.len()
            );
            eprint!("      {row}");
            text.push_str(&row);
        }
    }
    let left = lab.leftovers().await?;
    text.push_str(&format!("\nAfter removal of all pods: {left}.\n"));
    drop(lab);
    containerd.stop().await?;
    Ok(text)
}

struct Laboratory<'a> {
    containerd: &'a PrivateContainerd,
    registry: &'a PrivateRegistry,
    cri: RuntimeServiceClient<Channel>,
}

/// A request that is cut, with all its inputs.
enum Request {
    Sandbox(Box<cri::RunPodSandboxRequest>),
    Create(Box<cri::CreateContainerRequest>),
    Start(cri::StartContainerRequest),
    Stop(cri::StopContainerRequest),
    Pull(Box<cri::PullImageRequest>),
}

impl Request {
    async fn send(&self, channel: Channel) -> Result<String, tonic::Status> {
        let mut runtime = RuntimeServiceClient::new(channel.clone());
        match self {
            Self::Sandbox(request) => {
                let made = runtime
                    .run_pod_sandbox(cri::RunPodSandboxRequest::clone(request))
                    .await?;
                Ok(made.into_inner().pod_sandbox_id)
            }
            Self::Create(request) => {
                let made = runtime
                    .create_container(cri::CreateContainerRequest::clone(request))
                    .await?;
                Ok(made.into_inner().container_id)
            }
            Self::Start(request) => {
                runtime.start_container(request.clone()).await?;
                Ok(String::new())
            }
            Self::Stop(request) => {
                runtime.stop_container(request.clone()).await?;
                Ok(String::new())
            }
            Self::Pull(request) => {
                let mut images = ImageServiceClient::new(channel);
                let pulled = images
                    .pull_image(cri::PullImageRequest::clone(request))
                    .await?;
                Ok(pulled.into_inner().image_ref)
            }
        }
    }
}

impl Laboratory<'_> {
    /// Time of a call that is not cut.
    async fn duration(&self, cut: Cut) -> anyhow::Result<Duration> {
        let mut longest = Duration::ZERO;
        for number in 0..3 {
            let (request, pod) = self.prepare(cut, number).await?;
            let (channel, _socket) = dial(&self.containerd.socket()).await?;
            let begin = Instant::now();
            let sent = tokio::time::timeout(2 * TIMEOUT, request.send(channel)).await?;
            sent.with_context(|| cut.name())?;
            longest = longest.max(begin.elapsed());
            self.remove(cut, &pod).await?;
        }
        // a stop waits for its whole timeout
        Ok(match cut {
            Cut::Stop => Duration::from_secs(2),
            _ => longest,
        })
    }

    async fn cut(&self, cut: Cut, number: u32, at: Duration) -> anyhow::Result<Outcome> {
        let (request, pod) = self.prepare(cut, number).await?;
        let (channel, socket) = dial(&self.containerd.socket()).await?;
        let call = tokio::time::timeout(at, request.send(channel)).await;
        socket.shutdown(Shutdown::Both)?;
        let answered = call.is_ok();
        let left = self.settled(cut, &pod, &request).await?;
        let (channel, _socket) = dial(&self.containerd.socket()).await?;
        let again = match (cut, answered) {
            (Cut::Stop, _) => "not repeated".to_owned(),
            (_, true) => "not repeated".to_owned(),
            _ => match tokio::time::timeout(TIMEOUT, request.send(channel)).await {
                Ok(Ok(_)) => "succeeds".to_owned(),
                Ok(Err(status)) if status.message().contains("is reserved for") => {
                    "the name is reserved".to_owned()
                }
                Ok(Err(status)) => without_ids(status.message()),
                Err(_) => "hangs".to_owned(),
            },
        };
        self.remove(cut, &pod).await?;
        Ok(Outcome {
            answered,
            left,
            again,
        })
    }

    /// Makes what the call needs, and returns it with the sandbox's configuration.
    async fn prepare(
        &self,
        cut: Cut,
        number: u32,
    ) -> anyhow::Result<(Request, cri::PodSandboxConfig)> {
        let pod = self.pod(&format!("{}-{number}", cut.name().to_ascii_lowercase()));
        let mut cri = self.cri.clone();
        if cut == Cut::Sandbox {
            let request = cri::RunPodSandboxRequest {
                config: Some(pod.clone()),
                ..Default::default()
            };
            return Ok((Request::Sandbox(Box::new(request)), pod));
        }
        if cut == Cut::Pull {
            let request = cri::PullImageRequest {
                image: Some(cri::ImageSpec {
                    image: self.registry.image(),
                    ..Default::default()
                }),
                auth: Some(cri::AuthConfig {
                    username: USER.to_owned(),
                    password: PASSWORD.to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            };
            return Ok((Request::Pull(Box::new(request)), pod));
        }
        let request = cri::RunPodSandboxRequest {
            config: Some(pod.clone()),
            ..Default::default()
        };
        let sandbox = cri.run_pod_sandbox(request).await?.into_inner();
        let create = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.pod_sandbox_id,
            config: Some(container(cut == Cut::Stop)),
            sandbox_config: Some(pod.clone()),
        };
        if cut == Cut::Create {
            return Ok((Request::Create(Box::new(create)), pod));
        }
        let made = cri.create_container(create).await?.into_inner();
        let container_id = made.container_id;
        if cut == Cut::Start {
            return Ok((
                Request::Start(cri::StartContainerRequest { container_id }),
                pod,
            ));
        }
        let start = cri::StartContainerRequest {
            container_id: container_id.clone(),
        };
        cri.start_container(start).await?;
        let stop = cri::StopContainerRequest {
            container_id,
            timeout: STOP_TIMEOUT,
        };
        Ok((Request::Stop(stop), pod))
    }

    /// What the runtime shows of the pod once it no longer changes.
    async fn settled(
        &self,
        cut: Cut,
        pod: &cri::PodSandboxConfig,
        request: &Request,
    ) -> anyhow::Result<String> {
        let deadline = Instant::now() + TIMEOUT;
        let mut shown = self.shown(cut, pod, request).await?;
        let mut since = Instant::now();
        while since.elapsed() < SETTLED && Instant::now() < deadline {
            sleep(POLL).await;
            let now = self.shown(cut, pod, request).await?;
            if now != shown {
                (shown, since) = (now, Instant::now());
            }
        }
        Ok(shown)
    }

    async fn shown(
        &self,
        cut: Cut,
        pod: &cri::PodSandboxConfig,
        request: &Request,
    ) -> anyhow::Result<String> {
        if let Request::Pull(pull) = request {
            let channel = dial(&self.containerd.socket()).await?.0;
            let status = cri::ImageStatusRequest {
                image: pull.image.clone(),
                ..Default::default()
            };
            let mut images = ImageServiceClient::new(channel);
            let found = images.image_status(status).await?.into_inner().image;
            let state = if found.is_some() {
                "image present"
            } else {
                "no image"
            };
            return Ok(state.to_owned());
        }
        if cut == Cut::Sandbox {
            let sandboxes = self.sandboxes(pod).await?;
            let states: Vec<String> = sandboxes
                .iter()
                .map(|sandbox| sandbox.state().as_str_name().to_owned())
                .collect();
            let tasks = self.tasks(sandboxes.iter().map(|s| s.id.as_str())).await?;
            return Ok(match states.is_empty() {
                true => format!("no sandbox, {tasks}"),
                false => format!("{}, {tasks}", states.join(" and ")),
            });
        }
        let mut cri = self.cri.clone();
        let mut containers = Vec::new();
        for sandbox in self.sandboxes(pod).await? {
            let filter = cri::ContainerFilter {
                pod_sandbox_id: sandbox.id,
                ..Default::default()
            };
            let request = cri::ListContainersRequest {
                filter: Some(filter),
            };
            let list = cri.list_containers(request).await?.into_inner();
            containers.extend(list.containers);
        }
        let mut states = Vec::new();
        for container in &containers {
            let request = cri::ContainerStatusRequest {
                container_id: container.id.clone(),
                verbose: false,
            };
            let status = cri.container_status(request).await?.into_inner().status;
            let status = status.context("no status")?;
            let mut text = status.state().as_str_name().replace("CONTAINER_", "");
            if status.state() == cri::ContainerState::ContainerExited {
                let started = if status.started_at == 0 {
                    "never"
                } else {
                    "once"
                };
                text = format!(
                    "{text}, code {}, reason {:?}, message {:?}, started {started}",
                    status.exit_code,
                    status.reason,
                    without_ids(&status.message),
                );
            }
            states.push(text);
        }
        let tasks = self.tasks(containers.iter().map(|c| c.id.as_str())).await?;
        Ok(match states.is_empty() {
            true => "no container".to_owned(),
            false => format!("{}, {tasks}", states.join(" and ")),
        })
    }

    async fn tasks(&self, ids: impl Iterator<Item = &str>) -> anyhow::Result<String> {
        let tasks = self.containerd.ctr(&["tasks", "ls"]).await?;
        let of_ids = |id: &str| {
            let line = tasks.lines().find(|line| line.starts_with(id));
            line.and_then(|line| line.split_ascii_whitespace().last())
                .map(|state| format!("task {state}"))
        };
        let states: Vec<String> = ids.filter_map(of_ids).collect();
        Ok(match states.is_empty() {
            true => "no task".to_owned(),
            false => states.join(" and "),
        })
    }

    async fn sandboxes(&self, pod: &cri::PodSandboxConfig) -> anyhow::Result<Vec<cri::PodSandbox>> {
        let filter = cri::PodSandboxFilter {
            label_selector: pod.labels.clone().into_iter().collect(),
            ..Default::default()
        };
        let request = cri::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let mut cri = self.cri.clone();
        Ok(cri.list_pod_sandbox(request).await?.into_inner().items)
    }

    async fn remove(&self, cut: Cut, pod: &cri::PodSandboxConfig) -> anyhow::Result<()> {
        if cut == Cut::Pull {
            let channel = dial(&self.containerd.socket()).await?.0;
            let request = cri::RemoveImageRequest {
                image: Some(cri::ImageSpec {
                    image: self.registry.image(),
                    ..Default::default()
                }),
            };
            ImageServiceClient::new(channel)
                .remove_image(request)
                .await?;
            return Ok(());
        }
        let mut cri = self.cri.clone();
        for sandbox in self.sandboxes(pod).await? {
            let id = sandbox.id;
            let deadline = Instant::now() + TIMEOUT;
            while let Err(error) = remove_sandbox(&mut cri, &id).await {
                // a start that was cut off is being cleaned up
                anyhow::ensure!(Instant::now() < deadline, "sandbox {id} stays: {error}");
                sleep(POLL).await;
            }
        }
        Ok(())
    }

    /// Tasks, containers, snapshots that are not of an image, shims and leases that remain.
    async fn leftovers(&self) -> anyhow::Result<String> {
        let count = |text: String| text.lines().skip(1).filter(|l| !l.is_empty()).count();
        let tasks = count(self.containerd.ctr(&["tasks", "ls"]).await?);
        let containers = count(self.containerd.ctr(&["containers", "ls"]).await?);
        let snapshots = self.containerd.ctr(&["snapshots", "ls"]).await?;
        let active = snapshots.lines().filter(|line| line.ends_with("Active"));
        let leases = count(self.containerd.ctr(&["leases", "ls"]).await?);
        let ingests = count(self.containerd.ctr(&["content", "active"]).await?);
        Ok(format!(
            "{tasks} tasks, {containers} containers, {} active snapshots, {leases} leases, \
             {ingests} unfinished downloads",
            active.count()
        ))
    }

    fn pod(&self, name: &str) -> cri::PodSandboxConfig {
        let labels = [("chaos.windlass/pod".to_owned(), name.to_owned())];
        cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: format!("{name}-uid"),
                namespace: "default".to_owned(),
                attempt: 0,
            }),
            labels: labels.into_iter().collect(),
            log_directory: self.containerd.base().join("logs").display().to_string(),
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: self.containerd.cgroup_root(),
                security_context: Some(cri::LinuxSandboxSecurityContext {
                    namespace_options: Some(cri::NamespaceOption {
                        pid: cri::NamespaceMode::Container as i32,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }
    }
}

/// A container that runs until it is killed.
fn container(stubborn: bool) -> cri::ContainerConfig {
    let trap = if stubborn { "trap '' TERM;" } else { "" };
    let script = format!("{trap} while true; do sleep 1; done");
    cri::ContainerConfig {
        metadata: Some(cri::ContainerMetadata {
            name: "main".to_owned(),
            attempt: 0,
        }),
        image: Some(cri::ImageSpec {
            image: BUSYBOX.to_owned(),
            ..Default::default()
        }),
        command: ["sh", "-c", &script].map(str::to_owned).to_vec(),
        log_path: "main/0.log".to_owned(),
        linux: Some(cri::LinuxContainerConfig {
            security_context: Some(cri::LinuxContainerSecurityContext {
                namespace_options: Some(cri::NamespaceOption {
                    pid: cri::NamespaceMode::Container as i32,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
        ..Default::default()
    }
}

async fn runtime(socket: &Path) -> anyhow::Result<RuntimeServiceClient<Channel>> {
    Ok(RuntimeServiceClient::new(dial(socket).await?.0))
}

async fn remove_sandbox(
    cri: &mut RuntimeServiceClient<Channel>,
    id: &str,
) -> Result<(), tonic::Status> {
    let stop = cri::StopPodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    };
    cri.stop_pod_sandbox(stop).await?;
    let remove = cri::RemovePodSandboxRequest {
        pod_sandbox_id: id.to_owned(),
    };
    cri.remove_pod_sandbox(remove).await.map(drop)
}

/// Connects, and returns a second handle to the socket, which can end the connection.
async fn dial(socket: &Path) -> anyhow::Result<(Channel, StdStream)> {
    let stream = StdStream::connect(socket)?;
    stream.set_nonblocking(true)?;
    let handle = stream.try_clone()?;
    let mut stream = Some(tokio::net::UnixStream::from_std(stream)?);
    let connector = tower::service_fn(move |_: Uri| {
        // no second connection: it would hide the end of the first
        let stream = stream.take().map(TokioIo::new);
        std::future::ready(
            stream
                .ok_or(std::io::ErrorKind::NotConnected)
                .map_err(std::io::Error::from),
        )
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok((channel, handle))
}

/// Replaces IDs and directories, so that equal errors are equal.
fn without_ids(message: &str) -> String {
    let mut text = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, text: &mut String| {
        let id = word.len() >= 12 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        text.push_str(if id { "ID" } else { word });
        word.clear();
    };
    for c in message.chars() {
        match c.is_ascii_alphanumeric() {
            true => word.push(c),
            false => {
                flush(&mut word, &mut text);
                text.push(c);
            }
        }
    }
    flush(&mut word, &mut text);
    text.replace('|', "/")
}
