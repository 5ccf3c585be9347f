//! Where the volumes of CSI drivers lie on the node, and the names that are made up for them, all
//! spelled as upstream spells them.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use windlass_pod_inputs::paths::{NodePaths, UnsafeName, check_component};
use windlass_volume_plan::volume_source::CSI_PLUGIN;
use windlass_types::{DeviceName, PodUid};

/// The notes beside a volume.
pub(crate) const NOTES: &str = "vol_data.json";
/// Directories of `volumeDevices` that are not those of a volume.
const NOT_A_VOLUME: [&str; 2] = ["staging", "publish"];

/// Paths of CSI volumes below `--root-dir`. Whoever asks for one has checked the names in it
/// (`check_names`).
#[derive(Clone, Debug)]
pub struct CsiPaths {
    nodes: NodePaths,
}

/// A device of a CSI driver, taken apart.
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

    /// `plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>`: notes and staging directory of
    /// a volume with a file system.
    pub(crate) fn device_dir(&self, device: &CsiDevice) -> PathBuf {
        self.plugin_dir()
            .join(&device.driver)
            .join(sha256(&[&device.handle]))
    }

    /// `…/globalmount`: the staging directory.
    pub(crate) fn global_mount(&self, device: &CsiDevice) -> PathBuf {
        self.device_dir(device).join("globalmount")
    }

    /// `pods/<uid>/volumes/kubernetes.io~csi/<volume>`: notes and target of a volume.
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

    /// `…/volumeDevices/<volume>`: what the node keeps of a block volume.
    pub(crate) fn block_volume_dir(&self, volume: &str) -> PathBuf {
        self.block_dir().join(volume)
    }

    /// `…/volumeDevices/<volume>/data`: the notes of a block volume.
    pub(crate) fn block_notes_dir(&self, volume: &str) -> PathBuf {
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

    /// Where the notes about a volume of a pod lie.
    pub(crate) fn notes_dir(&self, uid: &PodUid, volume: &str, block: bool) -> PathBuf {
        match block {
            true => self.block_notes_dir(volume),
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

    /// The parts of such a name; `None` for a device of somebody else.
    pub(crate) fn parse(name: &DeviceName) -> Option<Self> {
        let rest = name.0.strip_prefix(CSI_PLUGIN)?.strip_prefix('/')?;
        let (driver, handle) = rest.split_once('^')?;
        Some(Self {
            driver: driver.to_owned(),
            handle: handle.to_owned(),
        })
    }
}

/// True if a device is one of a CSI driver.
pub fn is_csi_device(name: &DeviceName) -> bool {
    CsiDevice::parse(name).is_some()
}

/// Refuses names that would lead elsewhere.
pub(crate) fn check_names(uid: &PodUid, driver: &str, volume: &str) -> Result<(), UnsafeName> {
    check_component("pod UID", uid.as_str())?;
    check_component("CSI driver name", driver)?;
    check_component("volume name", volume)?;
    // a block volume of this name would share its directory with all others
    let taken = NOT_A_VOLUME.contains(&volume);
    let unsafe_name = || UnsafeName {
        field: "volume name",
        value: volume.to_owned(),
    };
    if taken { Err(unsafe_name()) } else { Ok(()) }
}

/// True for the directory of a volume among those of `volumeDevices`.
pub(crate) fn is_block_volume(name: &str) -> bool {
    !NOT_A_VOLUME.contains(&name)
}

/// Name of the VolumeAttachment of a volume: `csi-<sha256 of handle, driver and node>`.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&[handle, driver, node]))
}

/// Handle of an inline volume, which has none of its own: `csi-<sha256 of pod UID and volume>`.
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

/// The directory above; a path of ours always has one.
pub(crate) fn above(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}
