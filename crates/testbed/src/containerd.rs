//! A private containerd with its own root, state, sockets, runc directory, CNI network and images.
//! `WINDLASS_CRIO` selects CRI-O instead.
//!
//! All files are in `/tmp/windlass-<name>`; other resources (bridge, cgroups, shim sockets, CNI
//! cache) have that name or are found from it. `sweep` removes them after a stop, after a panic
//! (`Drop`) and at the next start after a kill.

mod config;
mod crio;
mod network;
mod process;
mod programs;
mod sweep;

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use flate2::Compression;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use windlass_proto::cri_v1;
use windlass_proto::cri_v1::image_service_client::ImageServiceClient;
use windlass_proto::cri_v1::runtime_service_client::RuntimeServiceClient;
use windlass_runtime_config::cgroup_names::CgroupLayout;

use crate::environment::{self, scaled};
use crate::images;
use crate::oci::Image;
pub use network::{IpFamilies, Network};
pub(crate) use process::wait_for_exit;
use programs::Runtime;
pub use programs::{Programs, VARIABLE};

/// Start timeout; usually 1 s on two busy cores.
const READY_DEADLINE: Duration = Duration::from_secs(60);
/// Poll interval.
const POLL: Duration = Duration::from_millis(20);
/// Timeout of a request.
const CALL_DEADLINE: Duration = Duration::from_secs(5);
/// Bridge names have at most 15 characters, with the prefix `wl-`.
const MAX_NAME: usize = 12;

/// A running private containerd. Stop it with [`PrivateContainerd::stop`]; the drop does the same,
/// but blocks and only prints errors.
#[derive(Debug)]
pub struct PrivateContainerd {
    base: PathBuf,
    programs: Programs,
    network: Network,
    /// Arguments of the daemon.
    args: Vec<OsString>,
    daemon: Option<Child>,
    /// Exclusive lock of the instance.
    lock: Option<File>,
}

impl PrivateContainerd {
    /// Starts the instance `name` (at most 12 characters of `a-z0-9-`) with the images of [`images`].
    /// Removes leftovers of a killed run first. `progress` receives each step.
    pub async fn start(name: &str, progress: fn(&str)) -> anyhow::Result<Self> {
        Self::start_with(name, IpFamilies::default(), progress).await
    }

    /// Like [`Self::start`], with these address families for pods.
    pub async fn start_with(
        name: &str,
        families: IpFamilies,
        progress: fn(&str),
    ) -> anyhow::Result<Self> {
        let well_formed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(well_formed) {
            bail!("bad instance name {name:?}: at most {MAX_NAME} characters of a-z0-9-");
        }
        let programs = Programs::from_env(progress)?;
        let base = PathBuf::from(format!("/tmp/windlass-{name}"));
        let lock = lock(&base)?;
        sweep::sweep(&base).context("cannot remove leftovers of a killed run")?;
        sweep::record_what_exists(&base)?;

        let network = match Network::create(name, &base, families) {
            Ok(network) => network,
            Err(error) => {
                // there is no instance to drop yet
                let _ = sweep::sweep(&base).and_then(|()| Ok(std::fs::remove_dir_all(&base)?));
                return Err(error);
            }
        };
        let mut instance = Self {
            base,
            programs,
            network,
            args: Vec::new(),
            daemon: None,
            lock: Some(lock),
        };
        for dir in ["root", "state", "tmp", "images", "logs"] {
            std::fs::create_dir_all(instance.base.join(dir))?;
        }
        instance.args = instance.configure()?;
        progress("starting a private containerd");
        instance.start_daemon().await?;
        progress("building and importing the images");
        instance.import_images().await?;
        Ok(instance)
    }

    /// Returns the directory of the instance. It may contain files of the caller, which are removed
    /// with it.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Returns the `cgroupRoot` for the agent, exclusive to the instance.
    pub fn cgroup_root(&self) -> String {
        let name = self.base.file_name().unwrap_or_default();
        format!("/{}", name.to_string_lossy())
    }

    /// Returns the cgroup of the agent's pods, for the cgroup driver of the tests.
    pub fn cgroup_layout(&self) -> CgroupLayout {
        sweep::layout(&self.base)
    }

    /// The CRI socket.
    pub fn socket(&self) -> PathBuf {
        self.base.join("containerd.sock")
    }

    /// Returns the value for `--container-runtime-endpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Whether it is a containerd older than version `since` (major, minor).
    pub fn is_older_than(&self, since: [u64; 2]) -> bool {
        self.programs.older_than(since).is_some()
    }

    /// The network of its pods.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// PID of the daemon, `None` while it is killed.
    pub fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// Kills the daemon. Containers and shims keep running.
    pub fn kill_daemon(&mut self) -> anyhow::Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        // a killed daemon leaves its socket
        match std::fs::remove_file(self.socket()) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Starts the daemon on the existing state and waits for CRI.
    pub async fn start_daemon(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file())?;
        let daemon = self.programs.daemon();
        let child = Command::new(self.programs.path(daemon))
            .args(&self.args)
            // unpacking mounts below TMPDIR, where the sweep finds leftovers
            .env("TMPDIR", self.base.join("tmp"))
            .env("PATH", self.programs.search_path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C must not reach the daemon
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {daemon} (fix: apt-get install {daemon})"))?;
        self.daemon = Some(child);
        let deadline = Instant::now() + scaled(READY_DEADLINE);
        while let Err(error) = self.probe_cri().await {
            if let Some(status) = self.daemon.as_mut().and_then(|d| d.try_wait().transpose()) {
                bail!("{daemon} exited with {}: {}", status?, self.last_error());
            }
            if Instant::now() > deadline {
                bail!(
                    "{daemon} does not answer ({error:#}): {}",
                    self.last_error()
                );
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    /// Runs `ctr` in the CRI namespace of this instance and returns its output.
    ///
    /// # Errors
    /// `ctr` fails, or the runtime is CRI-O.
    pub async fn ctr(&self, args: &[&str]) -> anyhow::Result<String> {
        if self.programs.runtime() == Runtime::Crio {
            bail!("ctr {}: not available with CRI-O", args.join(" "));
        }
        let socket = self.socket();
        let socket = socket.to_string_lossy();
        let mut all = vec!["--address", &socket, "--namespace", "k8s.io"];
        all.extend(args);
        self.run("ctr", &all).await
    }

    /// Runs a program of the runtime and returns its output.
    async fn run(&self, name: &str, args: &[&str]) -> anyhow::Result<String> {
        let output = tokio::process::Command::new(self.programs.path(name))
            .args(args)
            .env("TMPDIR", self.base.join("tmp"))
            .kill_on_drop(true)
            .output()
            .await
            .with_context(|| format!("cannot run {name}"))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr);
            bail!("{name} {}: {}", args.join(" "), message.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Builds and imports an image with these files (path, content).
    pub async fn add_image(&self, name: &str, files: &[(&str, &str)]) -> anyhow::Result<()> {
        let archive = images::build_of_files(&self.base.join("images"), name, files)?;
        self.import(&archive).await?;
        self.wait_for_image(name).await
    }

    /// Imports a built image.
    pub async fn add_built(&self, image: &Image) -> anyhow::Result<()> {
        let path = self.base.join("images/built.tar");
        image.write_archive(&path, Compression::none())?;
        self.import(&path).await?;
        std::fs::remove_file(&path)?;
        self.wait_for_image(&image.name).await
    }

    /// Stops the instance and removes its files.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        tokio::task::spawn_blocking(move || self.stop_now()).await?
    }

    /// Leaks the instance, as if this process were killed.
    pub fn abandon(mut self) {
        self.daemon = None;
        self.lock = None;
    }

    fn stop_now(&mut self) -> anyhow::Result<()> {
        if let Some(lock) = self.lock.take() {
            if let Some(mut daemon) = self.daemon.take() {
                daemon.kill()?;
                daemon.wait()?;
            }
            sweep::sweep(&self.base)?;
            std::fs::remove_dir_all(&self.base)
                .with_context(|| format!("cannot remove {}", self.base.display()))?;
            drop(lock);
        }
        Ok(())
    }

    async fn import_images(&self) -> anyhow::Result<()> {
        let dir = self.base.join("images");
        let archives = match environment::built_images() {
            Some(built) => images::archives(&built),
            None => tokio::task::spawn_blocking(move || images::build_all(&dir)).await??,
        };
        for archive in archives {
            self.import(&archive).await?;
        }
        for image in [images::PAUSE, images::BUSYBOX] {
            self.wait_for_image(image).await?;
        }
        Ok(())
    }

    async fn import(&self, archive: &Path) -> anyhow::Result<()> {
        match self.programs.runtime() {
            Runtime::Containerd(_) => {
                let archive = archive.to_string_lossy();
                self.ctr(&["images", "import", &archive]).await?;
            }
            Runtime::Crio => {
                let args = crio::import_args(&self.base, archive)?;
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                self.run("skopeo", &args).await?;
            }
        }
        Ok(())
    }

    /// Waits until CRI lists an imported image.
    async fn wait_for_image(&self, image: &str) -> anyhow::Result<()> {
        let deadline = Instant::now() + scaled(READY_DEADLINE);
        while !self.has_image(image).await? {
            if Instant::now() > deadline {
                let error = self.last_error();
                bail!("{image} is imported but CRI does not list it: {error}");
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn has_image(&self, image: &str) -> anyhow::Result<bool> {
        let image = Some(cri_v1::ImageSpec {
            image: image.to_owned(),
            ..Default::default()
        });
        let request = cri_v1::ImageStatusRequest {
            image,
            ..Default::default()
        };
        let mut images = ImageServiceClient::new(self.channel().await?);
        Ok(images
            .image_status(request)
            .await?
            .into_inner()
            .image
            .is_some())
    }

    /// Succeeds once CRI reports runtime and network as ready.
    async fn probe_cri(&self) -> anyhow::Result<()> {
        let mut runtime = RuntimeServiceClient::new(self.channel().await?);
        let status = runtime
            .status(cri_v1::StatusRequest::default())
            .await?
            .into_inner();
        let conditions = status
            .status
            .map(|status| status.conditions)
            .unwrap_or_default();
        // containerd 2.x has other conditions for deprecations
        let needed = ["RuntimeReady", "NetworkReady"];
        let mut needed = conditions.iter().filter(|c| needed.contains(&&*c.r#type));
        match needed.find(|condition| !condition.status) {
            None => Ok(()),
            Some(condition) => bail!("{}: {}", condition.r#type, condition.message),
        }
    }

    async fn channel(&self) -> anyhow::Result<Channel> {
        let timeout = scaled(CALL_DEADLINE);
        let endpoint = Endpoint::try_from(self.endpoint())?.connect_timeout(timeout);
        Ok(endpoint.timeout(timeout).connect().await?)
    }

    /// Writes the configuration of the daemon and returns its arguments.
    fn configure(&self) -> anyhow::Result<Vec<OsString>> {
        let conf_dir = self.network.conf_dir();
        let oci_runtime = self.programs.oci_runtime();
        match self.programs.runtime() {
            Runtime::Containerd(version) => {
                let file = self.base.join("containerd.toml");
                let text = config::text(version, &self.base, conf_dir, oci_runtime);
                std::fs::write(&file, text)?;
                Ok(vec!["--config".into(), file.into()])
            }
            Runtime::Crio => crio::prepare(&self.base, conf_dir, oci_runtime),
        }
    }

    /// Returns the log file of the daemon.
    pub fn log_file(&self) -> PathBuf {
        self.base.join("containerd.log")
    }

    /// Returns the last logged error.
    fn last_error(&self) -> String {
        let log = std::fs::read_to_string(self.log_file()).unwrap_or_default();
        log.lines()
            .rfind(|line| line.contains("level=error") || line.contains("level=fatal"))
            .or_else(|| log.lines().next_back())
            .unwrap_or("it logged nothing")
            .to_owned()
    }
}

impl Drop for PrivateContainerd {
    fn drop(&mut self) {
        if let Err(error) = self.stop_now() {
            eprintln!("cannot clean up {}: {error:#}", self.base.display());
        }
    }
}

/// Creates and locks the directory of the instance. Rejects a directory of another user, because
/// `/tmp` is world-writable.
fn lock(base: &Path) -> anyhow::Result<File> {
    loop {
        match DirBuilder::new().mode(0o700).create(base) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(error).with_context(|| format!("cannot create {}", base.display()));
            }
            _ => {}
        }
        let found = std::fs::symlink_metadata(base)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            bail!("{} belongs to another user; remove it", base.display());
        }
        let path = base.join("lock");
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let mut file = options.open(&path)?;
        if file.try_lock().is_err() {
            let holder = std::fs::read_to_string(&path).unwrap_or_default();
            bail!("{} is in use by process {}", base.display(), holder.trim());
        }
        // the previous holder may have removed the directory before our lock
        let current = std::fs::metadata(&path).map(|m| m.ino()).ok();
        if current == Some(file.metadata()?.ino()) {
            file.set_len(0)?;
            writeln!(file, "{}", std::process::id())?;
            return Ok(file);
        }
    }
}
