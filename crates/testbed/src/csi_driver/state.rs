//! State and operations of the driver; they survive its process, as mounts do.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};
use tonic::Status;
use windlass_plugin_proto::csi_v1::{self as pb, volume_usage::Unit};

use super::mounts::{attach, bind, detach, resize, unbind};
use super::{Call, Capability, DriverOptions, Fault, Method};

/// Initial size of a volume in bytes.
const SIZE: u64 = 16 << 20;
/// Key of inline volumes in the volume context of NodePublishVolume.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) options: DriverOptions,
    /// Number of registration results.
    pub(super) registration_count: watch::Sender<usize>,
    state: Mutex<State>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) calls: Vec<Call>,
    pub(super) faults: BTreeMap<Method, VecDeque<Fault>>,
    pub(super) always: BTreeMap<Method, Fault>,
    pub(super) registrations: Vec<Result<(), String>>,
    pub(super) violations: Vec<String>,
    pub(super) volumes: BTreeMap<String, Volume>,
    pub(super) max_volumes: i64,
}

#[derive(Debug, Default)]
pub(super) struct Volume {
    pub(super) staged: BTreeSet<PathBuf>,
    pub(super) published: BTreeMap<PathBuf, Published>,
    pub(super) abnormal: Option<String>,
    expanded: Option<u64>,
    device: Option<PathBuf>,
}

/// Parameters of a publication; a repeated call must be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    block: bool,
    read_only: bool,
    ephemeral: bool,
}

impl Shared {
    pub(super) fn new(options: DriverOptions) -> Self {
        let state = State {
            max_volumes: options.max_volumes,
            always: options.always.clone(),
            ..State::default()
        };
        Self {
            options,
            registration_count: watch::channel(0).0,
            state: Mutex::new(state),
            stop: Mutex::default(),
        }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop(&self) -> MutexGuard<'_, Option<oneshot::Sender<()>>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills the process of the driver.
    pub(super) fn die(&self) {
        if let Some(stop) = self.stop().take() {
            // may have ended
            let _ = stop.send(());
        }
    }

    /// Records a call and returns its fault.
    pub(super) fn record_call(&self, call: &Call) -> Option<Fault> {
        let mut state = self.state();
        state.calls.push(call.clone());
        let waiting = state.faults.get_mut(&call.method);
        waiting
            .and_then(VecDeque::pop_front)
            .or_else(|| state.always.get(&call.method).cloned())
    }

    /// Records a registration result.
    pub(super) fn record_registration(&self, outcome: Result<(), String>) {
        self.state().registrations.push(outcome);
        self.registration_count.send_modify(|count| *count += 1);
    }

    pub(super) fn content(&self, volume: &str) -> PathBuf {
        self.options.storage.join(volume.replace('/', "_"))
    }

    fn can(&self, capability: Capability) -> bool {
        self.options.capabilities.contains(&capability)
    }

    pub(super) fn stage(&self, call: &Call) -> Result<(), Status> {
        self.check(call)?;
        self.stage_it(call).map_err(failed)
    }

    fn stage_it(&self, call: &Call) -> io::Result<()> {
        let mut state = self.state();
        let volume = state.volumes.entry(call.volume.clone()).or_default();
        match call.block {
            true => self.attach(call, volume)?,
            false => {
                let content = self.make_content(call)?;
                if self.options.mounts {
                    bind(&content, &call.path, false)?;
                }
            }
        }
        volume.staged.insert(call.path.clone());
        Ok(())
    }

    pub(super) fn unstage(&self, call: &Call) -> Result<(), Status> {
        self.check(call)?;
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&call.volume) else {
            return Ok(());
        };
        if !volume.published.is_empty() {
            let text = format!("{} is unstaged while it is published", call.volume);
            state.violations.push(text.clone());
            return Err(Status::failed_precondition(text));
        }
        unbind(&call.path).map_err(failed)?;
        volume.staged.remove(&call.path);
        if let Some(device) = volume.device.take_if(|_| volume.staged.is_empty()) {
            detach(&device).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn publish(&self, call: &Call) -> Result<(), Status> {
        self.check(call)?;
        let asked = Published {
            block: call.block,
            read_only: call.read_only,
            ephemeral: call.context.get(EPHEMERAL).is_some_and(|it| it == "true"),
        };
        let mut state = self.state();
        let volume = state.volumes.entry(call.volume.clone()).or_default();
        let staging = self.can(Capability::StageUnstageVolume) && !asked.ephemeral;
        if staging && !volume.staged.contains(&call.staging) {
            let text = format!("{} is published and not staged", call.volume);
            state.violations.push(text.clone());
            return Err(Status::failed_precondition(text));
        }
        if volume
            .published
            .get(&call.path)
            .is_some_and(|it| *it != asked)
        {
            let text = format!("{} is published there in another way", call.volume);
            state.violations.push(text.clone());
            return Err(Status::already_exists(text));
        }
        self.publish_it(call, volume, staging).map_err(failed)?;
        volume.published.insert(call.path.clone(), asked);
        Ok(())
    }

    fn publish_it(&self, call: &Call, volume: &mut Volume, staging: bool) -> io::Result<()> {
        if call.block {
            self.attach(call, volume)?;
            File::create(&call.path)?;
            return match &volume.device {
                Some(device) if self.options.mounts => bind(device, &call.path, call.read_only),
                _ => Ok(()),
            };
        }
        let content = match staging {
            true => call.staging.clone(),
            false => self.make_content(call)?,
        };
        match fs::create_dir(&call.path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        match self.options.mounts {
            true => bind(&content, &call.path, call.read_only),
            false => Ok(()),
        }
    }

    pub(super) fn unpublish(&self, call: &Call) -> Result<(), Status> {
        self.check(call)?;
        unbind(&call.path).map_err(failed)?;
        let removed = match fs::symlink_metadata(&call.path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir(&call.path),
            Ok(_) => fs::remove_file(&call.path),
            Err(_) => Ok(()),
        };
        removed.map_err(failed)?;
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&call.volume) else {
            return Ok(());
        };
        let published = volume.published.remove(&call.path);
        let unused = volume.staged.is_empty() && volume.published.is_empty();
        if let Some(device) = volume.device.take_if(|_| unused) {
            detach(&device).map_err(failed)?;
        }
        if published.is_some_and(|it| it.ephemeral) {
            state.volumes.remove(&call.volume);
            fs::remove_dir_all(self.content(&call.volume)).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn stats(&self, call: &Call) -> Result<pb::NodeGetVolumeStatsResponse, Status> {
        let state = self.state();
        let volume = state.known(call)?;
        let size = volume.expanded.unwrap_or(SIZE) as i64;
        let used = used(&self.content(&call.volume)).map_err(failed)? as i64;
        let usage = |unit, total, used| pb::VolumeUsage {
            unit: i32::from(unit),
            total,
            used,
            available: total - used,
        };
        Ok(pb::NodeGetVolumeStatsResponse {
            usage: vec![usage(Unit::Bytes, size, used), usage(Unit::Inodes, 1000, 1)],
            volume_condition: Some(pb::VolumeCondition {
                abnormal: volume.abnormal.is_some(),
                message: volume.abnormal.clone().unwrap_or_default(),
            }),
        })
    }

    pub(super) fn expand(&self, call: &Call) -> Result<pb::NodeExpandVolumeResponse, Status> {
        let mut state = self.state();
        state.known(call)?;
        let volume = state.volumes.entry(call.volume.clone()).or_default();
        let size = u64::try_from(call.wanted_bytes).unwrap_or(0);
        if let Some(device) = &volume.device {
            let image = self.image(&call.volume);
            let file = File::options().write(true).open(image);
            file.and_then(|file| file.set_len(size)).map_err(failed)?;
            resize(device).map_err(failed)?;
        }
        volume.expanded = Some(size);
        Ok(pb::NodeExpandVolumeResponse {
            capacity_bytes: call.wanted_bytes,
        })
    }

    /// Removes leftovers of a test.
    pub(super) fn clean_up(&self) {
        let volumes = std::mem::take(&mut self.state().volumes);
        for volume in volumes.into_values() {
            let paths = volume.published.keys().chain(&volume.staged);
            let paths: Vec<_> = paths.cloned().collect();
            for path in paths {
                // the directory may be removed
                let _ = unbind(&path);
            }
            if let Some(device) = volume.device {
                let _ = detach(&device);
            }
        }
        let _ = fs::remove_dir_all(&self.options.storage);
    }

    /// Checks the common requirements of CSI.
    fn check(&self, call: &Call) -> Result<(), Status> {
        let wrong = if call.volume.is_empty() {
            "without a volume_id"
        } else if !call.path.starts_with(&self.options.root_dir) {
            "about a path outside of the agent's directory"
        } else {
            return Ok(());
        };
        let text = format!("{:?} {wrong}", call.method);
        self.state().violations.push(text.clone());
        Err(Status::invalid_argument(text))
    }

    /// Returns the directory with the content of a volume, writable by the mount group.
    fn make_content(&self, call: &Call) -> io::Result<PathBuf> {
        let content = self.content(&call.volume);
        fs::create_dir_all(&content)?;
        if let Ok(group) = call.mount_group.parse() {
            chown(&content, None, Some(group))?;
            fs::set_permissions(&content, fs::Permissions::from_mode(0o2770))?;
        }
        Ok(content)
    }

    fn image(&self, volume: &str) -> PathBuf {
        self.content(volume).with_extension("img")
    }

    /// Creates the device of a block volume.
    fn attach(&self, call: &Call, volume: &mut Volume) -> io::Result<()> {
        if volume.device.is_some() || !self.options.mounts {
            return Ok(());
        }
        fs::create_dir_all(&self.options.storage)?;
        let image = self.image(&call.volume);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&image)?;
        file.set_len(volume.expanded.unwrap_or(SIZE))?;
        volume.device = Some(attach(&image)?);
        Ok(())
    }
}

impl State {
    fn known(&self, call: &Call) -> Result<&Volume, Status> {
        let volume = self.volumes.get(&call.volume);
        volume
            .filter(|it| it.staged.contains(&call.path) || it.published.contains_key(&call.path))
            .ok_or_else(|| {
                let path = call.path.display();
                Status::not_found(format!("{} is not at {path}", call.volume))
            })
    }
}

/// Returns the bytes in the files of a directory.
fn used(directory: &Path) -> io::Result<u64> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let mut bytes = 0;
    for entry in entries {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn failed(error: io::Error) -> Status {
    Status::internal(error.to_string())
}
