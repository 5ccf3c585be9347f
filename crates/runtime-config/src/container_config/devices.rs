//! Devices of `volumeDevices` (upstream `makeBlockVolumes`).

use windlass_types::MountedContent;
use windlass_types::cri::Device;

use super::ContainerInput;
use crate::config_error::ConfigError;

/// Permissions on a read-only and on a writable device.
const READ_ONLY: &str = "r";
const ALL: &str = "mrw";

/// Returns all devices in spec order.
pub(super) fn devices(input: ContainerInput<'_>) -> Result<Vec<Device>, ConfigError> {
    let container = input.container;
    let mut devices = Vec::new();
    for device in container.volume_devices.iter().flatten() {
        if !device.device_path.starts_with('/') {
            return Err(ConfigError::DevicePath(device.device_path.clone()));
        }
        let volume = input.volumes.get(&device.name);
        let path = volume.and_then(|volume| match &volume.content {
            MountedContent::Device(path) => Some((path, volume.read_only)),
            MountedContent::Path(_) | MountedContent::Image { .. } => None,
        });
        let (path, read_only) = path.ok_or_else(|| ConfigError::MissingDevice {
            volume: device.name.clone(),
            container: container.name.clone(),
        })?;
        devices.push(Device {
            container_path: device.device_path.clone(),
            host_path: path.display().to_string(),
            permissions: if read_only { READ_ONLY } else { ALL }.to_owned(),
        });
    }
    Ok(devices)
}
