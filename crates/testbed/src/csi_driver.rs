//! A CSI driver of the host-path kind, on real sockets: directories are its volumes, files behind
//! loop devices its block volumes, and staging and publishing are bind mounts.
//!
//! It registers in the agent's `plugins_registry` by itself, can do what its options say, writes
//! down every call, and fails on demand ([`Fault`]): refuse, be slow, hang or die, before or after
//! the call had its effect. It insists on what CSI asks of its callers and notes who does not keep
//! to it ([`CsiDriver::violations`]). It has a thread and a runtime of its own: its death cuts
//! every connection at once, and a paused clock does not stop it.

mod mounts;
mod serve;
mod service;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
pub use windlass_proto::csi_v1::node_service_capability::rpc::Type as Capability;

pub use mounts::mounts_below;
use serve::Server;
use state::Shared;

/// What a driver is.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Its name.
    pub name: String,
    /// The name it registers under, if that is another: a lie.
    pub registered_name: Option<String>,
    /// Versions of CSI that it tells when it registers.
    pub versions: Vec<String>,
    /// Its own name of the node.
    pub node_id: String,
    /// Volumes that fit on the node; 0 tells no limit.
    pub max_volumes: i64,
    /// Topology segments of the node.
    pub topology: BTreeMap<String, String>,
    /// What it can do.
    pub capabilities: BTreeSet<Capability>,
    /// The agent's `--root-dir`: sockets lie below it.
    pub root_dir: PathBuf,
    /// Where the contents of volumes lie.
    pub storage: PathBuf,
    /// Name of its socket in `plugins_registry`.
    pub registration_socket: String,
    /// What goes wrong from its first breath on ([`CsiDriver::always`]).
    pub always: BTreeMap<Method, Fault>,
    /// False makes directories where it would mount, which needs no root.
    pub mounts: bool,
}

impl DriverOptions {
    /// A driver that stages, shows usage and expands.
    pub fn new(root_dir: impl Into<PathBuf>, name: &str) -> Self {
        let root_dir = root_dir.into();
        Self {
            name: name.to_owned(),
            registered_name: None,
            versions: vec!["1.0.0".to_owned()],
            node_id: "node-of-the-driver".to_owned(),
            max_volumes: 0,
            topology: BTreeMap::new(),
            capabilities: BTreeSet::from([
                Capability::StageUnstageVolume,
                Capability::GetVolumeStats,
                Capability::ExpandVolume,
            ]),
            storage: root_dir.with_extension(format!("storage-of-{name}")),
            registration_socket: format!("{name}-reg.sock"),
            root_dir,
            always: BTreeMap::new(),
            mounts: true,
        }
    }

    /// Its own socket.
    pub fn socket(&self) -> PathBuf {
        self.root_dir
            .join("plugins")
            .join(&self.name)
            .join("csi.sock")
    }

    /// The socket that the agent finds.
    pub fn registration(&self) -> PathBuf {
        let registry = self.root_dir.join("plugins_registry");
        registry.join(&self.registration_socket)
    }
}

/// The calls a driver knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    /// Registration.GetInfo.
    GetInfo,
    /// Registration.NotifyRegistrationStatus.
    NotifyRegistrationStatus,
    /// NodeGetInfo.
    NodeGetInfo,
    /// NodeGetCapabilities.
    NodeGetCapabilities,
    /// NodeStageVolume.
    NodeStageVolume,
    /// NodeUnstageVolume.
    NodeUnstageVolume,
    /// NodePublishVolume.
    NodePublishVolume,
    /// NodeUnpublishVolume.
    NodeUnpublishVolume,
    /// NodeGetVolumeStats.
    NodeGetVolumeStats,
    /// NodeExpandVolume.
    NodeExpandVolume,
}

/// What goes wrong with a call.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Whether the call has its effect all the same.
    pub timing: FaultTiming,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// Before or after the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTiming {
    /// Nothing is done.
    Before,
    /// All is done.
    After,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// An answer with this code and text.
    Refuse(Code, String),
    /// The answer takes this long.
    Slow(Duration),
    /// No answer, ever.
    Hang,
    /// The driver's process ends, as after `kill -9`: its socket files stay.
    Die,
}

impl Fault {
    /// Something that goes wrong before anything is done.
    pub fn before(kind: FaultKind) -> Self {
        let timing = FaultTiming::Before;
        Self { timing, kind }
    }

    /// Something that goes wrong when all is done.
    pub fn after(kind: FaultKind) -> Self {
        let timing = FaultTiming::After;
        Self { timing, kind }
    }
}

/// A call as it arrived. What a method does not have is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Which.
    pub method: Method,
    /// `volume_id`.
    pub volume: String,
    /// The path it is about: target, or staging target, or volume path.
    pub path: PathBuf,
    /// `staging_target_path` beside another path.
    pub staging: PathBuf,
    /// Block access.
    pub block: bool,
    /// `readonly`.
    pub read_only: bool,
    /// Access mode, `SINGLE_NODE_WRITER`.
    pub access_mode: String,
    /// File system.
    pub fs_type: String,
    /// Options for `mount`.
    pub mount_flags: Vec<String>,
    /// `volume_mount_group`.
    pub mount_group: String,
    /// `volume_context`.
    pub context: BTreeMap<String, String>,
    /// `publish_context`.
    pub publish_context: BTreeMap<String, String>,
    /// `secrets`.
    pub secrets: BTreeMap<String, String>,
    /// `required_bytes` of an expansion.
    pub wanted_bytes: i64,
}

/// A driver, and the process it would be.
#[derive(Debug)]
pub struct CsiDriver {
    shared: Arc<Shared>,
    server: Option<Server>,
}

impl CsiDriver {
    /// Starts it; it registers as soon as the agent looks.
    pub fn start(options: DriverOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(options));
        let server = Some(Server::start(&shared)?);
        Ok(Self { shared, server })
    }

    /// What it is.
    pub fn options(&self) -> &DriverOptions {
        &self.shared.options
    }

    /// Its process ends at once; the socket files stay, and so do its mounts.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// A new process: other sockets at the old paths.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        self.server = Some(Server::start(&self.shared)?);
        Ok(())
    }

    /// Its process ends and takes its sockets with it.
    pub fn uninstall(&mut self) {
        self.kill();
        self.remove_registration();
        // may never have been there
        let _ = std::fs::remove_file(self.options().socket());
    }

    /// Takes the registration's socket away; the driver runs on.
    pub(crate) fn remove_registration(&self) {
        // may never have been there
        let _ = std::fs::remove_file(self.options().registration());
    }

    /// The next call of this method goes wrong; several wait for their turn.
    pub fn fault(&self, method: Method, fault: Fault) {
        let mut state = self.shared.state();
        state.faults.entry(method).or_default().push_back(fault);
    }

    /// Every call of this method goes wrong from now on; `None` ends that.
    pub fn always(&self, method: Method, fault: Option<Fault>) {
        let mut state = self.shared.state();
        match fault {
            Some(fault) => state.always.insert(method, fault),
            None => state.always.remove(&method),
        };
    }

    /// Every call so far.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }

    /// The calls of one method so far.
    pub fn calls_of(&self, method: Method) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.method == method);
        calls
    }

    /// How the agent said that each registration ended, oldest first.
    pub fn registrations(&self) -> Vec<Result<(), String>> {
        self.shared.state().registrations.clone()
    }

    /// Waits until the agent has said `count` times how a registration ended; the last answer.
    ///
    /// # Errors
    /// It said that the driver is not registered, or nothing within the time.
    pub async fn registered(&self, count: usize, within: Duration) -> Result<(), String> {
        let mut count_changes = self.shared.registration_count.subscribe();
        let enough = count_changes.wait_for(|it| *it >= count);
        match tokio::time::timeout(within, enough).await {
            Ok(_) => self.registrations().pop().unwrap_or(Ok(())),
            Err(_) => Err(format!("not told how the registration ended in {within:?}")),
        }
    }

    /// What callers did that CSI forbids.
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// Where a volume is published at present.
    pub fn published(&self, volume: &str) -> Vec<PathBuf> {
        let state = self.shared.state();
        let volume = state.volumes.get(volume);
        volume.map_or_else(Vec::new, |it| it.published.keys().cloned().collect())
    }

    /// Where a volume is staged at present.
    pub fn staged(&self, volume: &str) -> Vec<PathBuf> {
        let state = self.shared.state();
        let volume = state.volumes.get(volume);
        volume.map_or_else(Vec::new, |it| it.staged.iter().cloned().collect())
    }

    /// The directory with a volume's content.
    pub fn content(&self, volume: &str) -> PathBuf {
        self.shared.content(volume)
    }

    /// What NodeGetInfo says from now on of how many volumes fit.
    pub fn set_max_volumes(&self, max: i64) {
        self.shared.state().max_volumes = max;
    }

    /// NodeGetVolumeStats says from now on that something is wrong with this volume.
    pub fn set_abnormal(&self, volume: &str, message: &str) {
        let mut state = self.shared.state();
        let volume = state.volumes.entry(volume.to_owned()).or_default();
        volume.abnormal = Some(message.to_owned());
    }
}

impl Drop for CsiDriver {
    fn drop(&mut self) {
        self.kill();
        self.shared.clean_up();
    }
}
