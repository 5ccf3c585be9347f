//! Paths of CSI volumes on the node and generated names, all equal to upstream's.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use windlass_pod_inputs::paths::{NodePaths, UnsafeNameError, check_component};
use windlass_types::{DeviceName, PodUid};
use windlass_volume_plan::volume_source::CSI_PLUGIN;

/// Name of a volume data file.
pub(crate) const VOLUME_DATA_FILE: &str = "vol_data.json";
/// Directories of `volumeDevices` that do not belong to one volume.
const NOT_A_VOLUME: [&str; 2] = ["staging", "publish"];

/// Paths of CSI volumes below `--root-dir`. Callers check names first (`check_names`).
#[derive(Clone, Debug)]
pub struct CsiPaths {
    nodes: NodePaths,
}

/// A parsed CSI device name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CsiDevice {
    /// Name of the driver.
    pub(crate) driver: String,
    /// `volumeHandle`.
    pub(crate) handle: String,
}

impl CsiPaths {
    /// Paths below `nodes.root_dir`.
    pub fn new(nodes: NodePaths) -> Self {
        Self { nodes }
    }

    /// `plugins/kubernetes.io/csi`.
    pub(crate) fn plugin_dir(&self) -> PathBuf {
        self.nodes.root_dir.join("plugins").join(CSI_PLUGIN)
    }

    /// `plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>`: volume data file and staging
    /// directory of a volume with a file system.
    pub(crate) fn device_dir(&self, device: &CsiDevice) -> PathBuf {
        self.plugin_dir()
            .join(&device.driver)
            .join(sha256(&[&device.handle]))
    }

    /// `…/globalmount`: the staging directory.
    pub(crate) fn global_mount(&self, device: &CsiDevice) -> PathBuf {
        self.device_dir(device).join("globalmount")
    }

    /// `pods/<uid>/volumes/kubernetes.io~csi/<volume>`: volume data file and target of a
    /// volume.
    pub(crate) fn volume_dir(&self, uid: &PodUid, volume: &str) -> PathBuf {
        self.nodes.pod_volume_dir(uid, CSI_PLUGIN, volume)
    }

    /// `…/mount`: where a driver publishes a volume with a file system.
    pub fn target(&self, uid: &PodUid, volume: &str) -> PathBuf {
        self.volume_dir(uid, volume).join("mount")
    }

    /// `pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>`: the link to a block device.
    pub(crate) fn device_link(&self, uid: &PodUid, volume: &str) -> PathBuf {
        let dir = self.nodes.pod_dir(uid).join("volumeDevices");
        dir.join("kubernetes.io~csi").join(volume)
    }

    /// `plugins/kubernetes.io/csi/volumeDevices`.
    pub(crate) fn block_dir(&self) -> PathBuf {
        self.plugin_dir().join("volumeDevices")
    }

    /// `…/volumeDevices/<volume>`: directory of a block volume.
    pub(crate) fn block_volume_dir(&self, volume: &str) -> PathBuf {
        self.block_dir().join(volume)
    }

    /// `…/volumeDevices/<volume>/data`: the volume data file of a block volume.
    pub(crate) fn block_data_dir(&self, volume: &str) -> PathBuf {
        self.block_volume_dir(volume).join("data")
    }

    /// `…/volumeDevices/staging/<volume>`.
    pub(crate) fn block_staging(&self, volume: &str) -> PathBuf {
        self.block_dir().join("staging").join(volume)
    }

    /// `…/volumeDevices/publish/<volume>`: a device for each pod.
    pub(crate) fn block_publish_dir(&self, volume: &str) -> PathBuf {
        self.block_dir().join("publish").join(volume)
    }

    /// `…/volumeDevices/publish/<volume>/<uid>`: where a driver publishes a block volume.
    pub(crate) fn block_target(&self, uid: &PodUid, volume: &str) -> PathBuf {
        self.block_publish_dir(volume).join(uid.as_str())
    }

    /// `…/volumeDevices/<volume>/dev/<uid>`: where upstream binds the device a second time.
    pub(crate) fn block_bind(&self, uid: &PodUid, volume: &str) -> PathBuf {
        self.block_volume_dir(volume).join("dev").join(uid.as_str())
    }

    /// Directory of the volume data file of a pod volume.
    pub(crate) fn volume_data_dir(&self, uid: &PodUid, volume: &str, block: bool) -> PathBuf {
        match block {
            true => self.block_data_dir(volume),
            false => self.volume_dir(uid, volume),
        }
    }

    /// `pods`.
    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.nodes.pods_dir()
    }
}

impl CsiDevice {
    /// `kubernetes.io/csi/<driver>^<handle>`.
    pub(crate) fn name(&self) -> DeviceName {
        DeviceName(format!("{CSI_PLUGIN}/{}^{}", self.driver, self.handle))
    }

    /// Parses such a name; `None` for other plugins.
    pub(crate) fn parse(name: &DeviceName) -> Option<Self> {
        let rest = name.0.strip_prefix(CSI_PLUGIN)?.strip_prefix('/')?;
        let (driver, handle) = rest.split_once('^')?;
        Some(Self {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
        })
    }
}

/// Whether a device belongs to a CSI driver.
pub fn is_csi_device(name: &DeviceName) -> bool {
    CsiDevice::parse(name).is_some()
}

/// Rejects names that would escape their directory.
pub(crate) fn check_names(uid: &PodUid, driver: &str, volume: &str) -> Result<(), UnsafeNameError> {
    check_component("pod UID", uid.as_str())?;
    check_component("CSI driver name", driver)?;
    check_component("volume name", volume)?;
    // a block volume of this name would share its directory with all others
    let reserved = NOT_A_VOLUME.contains(&volume);
    let unsafe_name = || UnsafeNameError {
        field: "volume name",
        value: volume.to_owned(),
    };
    if reserved { Err(unsafe_name()) } else { Ok(()) }
}

/// Whether a directory of `volumeDevices` belongs to one volume.
pub(crate) fn is_block_volume(name: &str) -> bool {
    !NOT_A_VOLUME.contains(&name)
}

/// Name of the VolumeAttachment of a volume: `csi-<sha256 of handle, driver and node>`.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&[handle, driver, node]))
}

/// Generated handle of an inline volume: `csi-<sha256 of pod UID and volume>`.
pub(crate) fn inline_handle(uid: &PodUid, volume: &str) -> String {
    format!("csi-{}", sha256(&[uid.as_str(), volume]))
}

/// In lower-case hexadecimal digits.
fn sha256(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        // writing to a String cannot fail
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The parent, which each of these paths has.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
