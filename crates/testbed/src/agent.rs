//! A `windlass` process on a private containerd, with all its files in the directory of the
//! containerd.

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use windlass_node_proto::windlass_v1::GetMetricsRequest;

use crate::containerd::{PrivateContainerd, wait_for_exit};
use crate::environment::{scaled, uses_systemd_driver};
use crate::pod_watch::PodWatch;

/// Node name, which is the suffix of static pod names.
pub const NODE_NAME: &str = "node";
/// Thresholds that no host reaches: a test must not depend on how full the disk of its host is.
/// `evictionHard` replaces all defaults; an [`AgentOptions::config`] with the same setting wins.
const WITHOUT_PRESSURE: [(&str, &str); 2] = [
    ("evictionHard", "{memory.available: 1Mi}"),
    ("imageGCHighThresholdPercent", "100"),
];
/// Timeout of the exit after SIGTERM.
const STOP_DEADLINE: Duration = Duration::from_secs(10);

/// Adds thresholds that no host reaches to lines of a KubeletConfiguration that set none.
pub fn add_thresholds(config: &mut String) {
    for (setting, value) in WITHOUT_PRESSURE {
        if !config.contains(&format!("{setting}:")) {
            config.push_str(&format!("\n{setting}: {value}"));
        }
    }
}

/// Settings of an agent besides its paths.
#[derive(Clone, Debug, Default)]
pub struct AgentOptions {
    /// Lines appended to the KubeletConfiguration.
    pub config: String,
    /// Additional flags.
    pub args: Vec<String>,
    /// Additional environment variables, such as `PATH`.
    pub env: Vec<(String, String)>,
    /// `--kubeconfig`: the cluster to join.
    pub kubeconfig: Option<PathBuf>,
    /// `--bootstrap-kubeconfig`; the agent then writes the file `kubeconfig`.
    pub bootstrap_kubeconfig: Option<PathBuf>,
}

/// A running agent. The drop kills it, but not its containers.
#[derive(Debug)]
pub struct Agent {
    binary: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    child: Option<Child>,
    healthz: u16,
    api: u16,
}

impl Agent {
    /// Starts `binary` on `containerd` with the manifests of a file or directory.
    pub fn start(
        containerd: &PrivateContainerd,
        binary: &Path,
        manifests: &Path,
        options: AgentOptions,
    ) -> anyhow::Result<Self> {
        let mut agent = Self::prepare(containerd, binary, manifests, options)?;
        agent.spawn()?;
        Ok(agent)
    }

    /// Writes the configuration for `binary`; [`Agent::spawn`] starts it.
    pub fn prepare(
        containerd: &PrivateContainerd,
        binary: &Path,
        manifests: &Path,
        options: AgentOptions,
    ) -> anyhow::Result<Self> {
        let dir = containerd.base().join("agent");
        std::fs::create_dir_all(&dir)?;
        let (healthz, api) = free_ports()?;
        let config = dir.join("config.yaml");
        let mut more = options.config;
        if uses_systemd_driver() && !more.contains("cgroupDriver:") {
            more.push_str("\ncgroupDriver: systemd");
        }
        add_thresholds(&mut more);
        std::fs::write(
            &config,
            format!(
                "apiVersion: kubelet.config.k8s.io/v1beta1\n\
                 kind: KubeletConfiguration\n\
                 staticPodPath: {manifests}\n\
                 containerRuntimeEndpoint: {endpoint}\n\
                 podLogsDir: {logs}\n\
                 healthzPort: {healthz}\n\
                 port: {api}\n\
                 readOnlyPort: 0\n\
                 failCgroupV1: false\n\
                 failSwapOn: false\n\
                 cgroupRoot: {cgroups}\n\
                 {more}\n",
                manifests = manifests.display(),
                endpoint = containerd.endpoint(),
                cgroups = containerd.cgroup_root(),
                logs = containerd.base().join("logs").display(),
            ),
        )?;
        let node_ips = containerd.network().node_ips();
        let node_ips: Vec<String> = node_ips.iter().map(ToString::to_string).collect();
        let mut args = vec![
            format!("--config={}", config.display()),
            format!("--root-dir={}", dir.join("root").display()),
            format!("--hostname-override={NODE_NAME}"),
            format!("--node-ip={}", node_ips.join(",")),
            format!("--cert-dir={}", dir.join("certs").display()),
        ];
        for (flag, path) in [
            ("--kubeconfig", &options.kubeconfig),
            ("--bootstrap-kubeconfig", &options.bootstrap_kubeconfig),
        ] {
            args.extend(path.iter().map(|path| format!("{flag}={}", path.display())));
        }
        args.extend(options.args);
        Ok(Self {
            binary: binary.to_owned(),
            dir,
            args,
            env: options.env,
            child: None,
            healthz,
            api,
        })
    }

    /// Starts the process, for the first time or again after [`Agent::kill`].
    pub fn spawn(&mut self) -> anyhow::Result<()> {
        self.spawn_with(&[])
    }

    /// The same with more flags for this process only.
    pub fn spawn_with(&mut self, flags: &[&str]) -> anyhow::Result<()> {
        std::fs::create_dir_all(self.root_dir())?;
        let mut options = std::fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.log_file())?;
        let child = Command::new(&self.binary)
            .args(&self.args)
            .args(flags)
            .envs(self.env.clone())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C is handled by the parent process
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", self.binary.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Kills the process as `kill -9`.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Freezes the process with SIGSTOP.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues a frozen process.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        match self.pid().and_then(|pid| Pid::from_raw(pid as i32)) {
            Some(pid) => Ok(kill_process(pid, signal)?),
            None => Ok(()),
        }
    }

    /// Terminates the process and waits for its exit.
    pub async fn terminate(&mut self) -> anyhow::Result<()> {
        let Some(pid) = self.pid() else {
            return Ok(());
        };
        self.signal(Signal::TERM)?;
        let ended =
            tokio::task::spawn_blocking(move || wait_for_exit(pid, scaled(STOP_DEADLINE))).await?;
        self.kill()?;
        if !ended {
            bail!("windlass did not exit within {STOP_DEADLINE:?} after SIGTERM");
        }
        Ok(())
    }

    /// Detaches the process without killing it.
    pub fn abandon(mut self) {
        self.child = None;
    }

    /// Fails with the last output if the agent has exited.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        let ended = self
            .child
            .as_mut()
            .and_then(|child| child.try_wait().transpose());
        match ended {
            None => Ok(()),
            Some(status) => bail!("windlass exited with {}:\n{}", status?, self.log_tail(5)),
        }
    }

    /// PID, `None` between a kill and the next spawn.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// `--root-dir`.
    pub fn root_dir(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The local control socket.
    pub fn socket(&self) -> PathBuf {
        self.root_dir().join("windlass.sock")
    }

    /// Returns its output.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("windlass.log")
    }

    /// Returns the last lines of its output.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Reads metrics or probe metrics over the local socket.
    ///
    /// # Errors
    /// The agent does not respond.
    pub async fn metrics(&self, probes: bool) -> anyhow::Result<String> {
        let mut client = crate::pod_watch::connect(&self.socket()).await?;
        let answer = client.get_metrics(GetMetricsRequest { probes }).await?;
        Ok(answer.into_inner().text)
    }

    /// Status code and body of a GET on the health port of 127.0.0.1.
    pub async fn http(&self, path: &str) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.healthz)).await?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((code.unwrap_or(0), body.to_owned()))
    }

    /// Sends a request to the node API with a bearer token `token`, trusting the self-signed
    /// certificate. Returns status code and body.
    pub async fn https(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
    ) -> anyhow::Result<(u16, String)> {
        let mut stream = self.connect_api().await?;
        let token = token.map_or_else(String::new, |it| format!("Authorization: Bearer {it}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {NODE_NAME}\r\nConnection: close\r\n\
             Content-Length: 0\r\n{token}\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let code = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        Ok((code.unwrap_or(0), body.to_owned()))
    }

    /// Opens a connection to the node API, trusting the self-signed certificate.
    pub async fn connect_api(&self) -> anyhow::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_file(self.dir.join("certs/kubelet.crt"))?;
        roots.add(certificate)?;
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.api)).await?;
        // avoid a delayed acknowledgement of 40 ms
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(Arc::new(config));
        Ok(connector.connect(NODE_NAME.try_into()?, stream).await?)
    }

    /// Watches the reported pods, across agent restarts.
    pub fn watch(&self) -> PodWatch {
        PodWatch::start(self.socket())
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns two free ports below the ephemeral range, starting at a different port in each process.
fn free_ports() -> anyhow::Result<(u16, u16)> {
    let first = std::process::id().wrapping_mul(16) % 12_000;
    let ports = (0..12_000).map(|step| (20_000 + (first + step) % 12_000) as u16);
    let mut free = ports.filter(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok());
    free.next()
        .zip(free.next())
        .context("no port between 20000 and 32000 is free")
}
