//! A fake CSI driver on sockets: volumes are directories, block volumes are files with loop devices,
//! and staging and publishing are bind mounts.
//!
//! It registers in `plugins_registry` of the agent and records every call. A [`Fault`] fails,
//! delays or hangs a call or kills the driver, before or after the effect. Violations of the CSI
//! specification are recorded ([`CsiDriver::violations`]). It has its own thread and tokio runtime,
//! whose end cuts all connections.

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
pub use windlass_plugin_proto::csi_v1::node_service_capability::rpc::Type as Capability;

pub use mounts::mounts_below;
use serve::Server;
use state::Shared;

/// Options of a driver.
#[derive(Clone, Debug)]
pub struct DriverOptions {
    /// Name.
    pub name: String,
    /// Name at registration, if different.
    pub registered_name: Option<String>,
    /// CSI versions at registration.
    pub versions: Vec<String>,
    /// Node ID.
    pub node_id: String,
    /// Maximum number of volumes; 0 means no limit.
    pub max_volumes: i64,
    /// Topology segments of the node.
    pub topology: BTreeMap<String, String>,
    /// Capabilities.
    pub capabilities: BTreeSet<Capability>,
    /// `--root-dir` of the agent, with the sockets.
    pub root_dir: PathBuf,
    /// Directory of volume contents.
    pub storage: PathBuf,
    /// Name of its socket in `plugins_registry`.
    pub registration_socket: String,
    /// Initial permanent faults ([`CsiDriver::always`]).
    pub always: BTreeMap<Method, Fault>,
    /// If false, directories replace mounts, which requires no root.
    pub mounts: bool,
}

impl DriverOptions {
    /// Creates options of a driver with staging, stats and expansion.
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

    /// Returns the CSI socket.
    pub fn socket(&self) -> PathBuf {
        self.root_dir
            .join("plugins")
            .join(&self.name)
            .join("csi.sock")
    }

    /// Returns the registration socket.
    pub fn registration(&self) -> PathBuf {
        let registry = self.root_dir.join("plugins_registry");
        registry.join(&self.registration_socket)
    }
}

/// Methods of a driver.
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

/// A fault of a call.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Before or after the effect.
    pub timing: FaultTiming,
    /// Kind.
    pub kind: FaultKind,
}

/// Time of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTiming {
    /// Before the effect.
    Before,
    /// After the effect.
    After,
}

/// Kind of a fault.
#[derive(Clone, Debug)]
pub enum FaultKind {
    /// Fails with this code and message.
    Reject(Code, String),
    /// Delays the response.
    Slow(Duration),
    /// Never responds.
    Hang,
    /// Kills the driver as `kill -9`; its socket files remain.
    Exit,
}

impl Fault {
    /// Creates a fault before the effect.
    pub fn before(kind: FaultKind) -> Self {
        let timing = FaultTiming::Before;
        Self { timing, kind }
    }

    /// Creates a fault after the effect.
    pub fn after(kind: FaultKind) -> Self {
        let timing = FaultTiming::After;
        Self { timing, kind }
    }
}

/// A recorded call. Fields that the method lacks are empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Method.
    pub method: Method,
    /// `volume_id`.
    pub volume: String,
    /// Target path, staging target path or volume path.
    pub path: PathBuf,
    /// `staging_target_path` in addition to `path`.
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

/// A driver and its process.
#[derive(Debug)]
pub struct CsiDriver {
    shared: Arc<Shared>,
    server: Option<Server>,
}

impl CsiDriver {
    /// Starts the driver.
    pub fn start(options: DriverOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(options));
        let server = Some(Server::start(&shared)?);
        Ok(Self { shared, server })
    }

    /// Returns the options.
    pub fn options(&self) -> &DriverOptions {
        &self.shared.options
    }

    /// Kills the process; socket files and mounts remain.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Restarts the process with new sockets at the same paths.
    pub fn restart(&mut self) -> io::Result<()> {
        self.kill();
        self.server = Some(Server::start(&self.shared)?);
        Ok(())
    }

    /// Stops the process and removes its sockets.
    pub fn uninstall(&mut self) {
        self.kill();
        self.remove_registration();
        // may not exist
        let _ = std::fs::remove_file(self.options().socket());
    }

    /// Removes the registration socket; the driver keeps running.
    pub(crate) fn remove_registration(&self) {
        // may not exist
        let _ = std::fs::remove_file(self.options().registration());
    }

    /// Adds a fault for the next call of a method; several apply in order.
    pub fn fault(&self, method: Method, fault: Fault) {
        let mut state = self.shared.state();
        state.faults.entry(method).or_default().push_back(fault);
    }

    /// Sets a permanent fault of a method; `None` removes it.
    pub fn always(&self, method: Method, fault: Option<Fault>) {
        let mut state = self.shared.state();
        match fault {
            Some(fault) => state.always.insert(method, fault),
            None => state.always.remove(&method),
        };
    }

    /// Returns all calls.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.state().calls.clone()
    }

    /// Returns the calls of a method.
    pub fn calls_of(&self, method: Method) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.method == method);
        calls
    }

    /// Returns the reported registration results, oldest first.
    pub fn registrations(&self) -> Vec<Result<(), String>> {
        self.shared.state().registrations.clone()
    }

    /// Waits for `count` registration results and returns the last one.
    ///
    /// # Errors
    /// The registration failed or the timeout expired.
    pub async fn registered(&self, count: usize, within: Duration) -> Result<(), String> {
        let mut count_changes = self.shared.registration_count.subscribe();
        let enough = count_changes.wait_for(|it| *it >= count);
        match tokio::time::timeout(within, enough).await {
            Ok(_) => self.registrations().pop().unwrap_or(Ok(())),
            Err(_) => Err(format!("no registration result within {within:?}")),
        }
    }

    /// Returns the violations of the CSI specification.
    pub fn violations(&self) -> Vec<String> {
        self.shared.state().violations.clone()
    }

    /// Returns the paths at which a volume is published.
    pub fn published(&self, volume: &str) -> Vec<PathBuf> {
        let state = self.shared.state();
        let volume = state.volumes.get(volume);
        volume.map_or_else(Vec::new, |it| it.published.keys().cloned().collect())
    }

    /// Returns the paths at which a volume is staged.
    pub fn staged(&self, volume: &str) -> Vec<PathBuf> {
        let state = self.shared.state();
        let volume = state.volumes.get(volume);
        volume.map_or_else(Vec::new, |it| it.staged.iter().cloned().collect())
    }

    /// Returns the directory with the content of a volume.
    pub fn content(&self, volume: &str) -> PathBuf {
        self.shared.content(volume)
    }

    /// Sets the maximum number of volumes in NodeGetInfo.
    pub fn set_max_volumes(&self, max: i64) {
        self.shared.state().max_volumes = max;
    }

    /// Sets an abnormal condition of a volume in NodeGetVolumeStats.
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
