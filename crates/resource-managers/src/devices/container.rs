//! What a container gets with its devices: the plugin's responses, merged (upstream
//! `deviceRunContainerOptions`).

use std::collections::BTreeMap;
use std::fmt;

use prost::Message;
use windlass_types::cri::{Device, Mount};

use super::ContainerDevices;
use crate::assignment::ContainerAssignment;

/// Response of a plugin to Allocate for one container: `ContainerAllocateResponse` of
/// `deviceplugin/v1beta1`, as the checkpoint stores it.
#[derive(Clone, PartialEq, Message)]
pub struct DeviceResponse {
    /// Environment variables.
    #[prost(btree_map = "string, string", tag = "1")]
    pub envs: BTreeMap<String, String>,
    /// Mounts.
    #[prost(message, repeated, tag = "2")]
    pub mounts: Vec<DeviceMount>,
    /// Device nodes.
    #[prost(message, repeated, tag = "3")]
    pub devices: Vec<DeviceNode>,
    /// Annotations for the runtime.
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
    /// CDI devices.
    #[prost(message, repeated, tag = "5")]
    pub cdi_devices: Vec<CdiDevice>,
}

/// A mount of the host.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceMount {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Read-only.
    #[prost(bool, tag = "3")]
    pub read_only: bool,
}

/// A device node of the host.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct DeviceNode {
    /// Path in the container.
    #[prost(string, tag = "1")]
    pub container_path: String,
    /// Path on the host.
    #[prost(string, tag = "2")]
    pub host_path: String,
    /// Permissions: some of `rwm`.
    #[prost(string, tag = "3")]
    pub permissions: String,
}

/// A CDI device.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct CdiDevice {
    /// Fully qualified name, for example `vendor.example/gpu=0`.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// Two plugins give a container different values; the first is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConflict {
    /// `env`, `device`, `mount` or `annotation`.
    pub kind: &'static str,
    /// Name or path in the container.
    pub name: String,
    /// The used value.
    pub used: String,
    /// The ignored value.
    pub ignored: String,
}

impl fmt::Display for DeviceConflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            name,
            used,
            ignored,
        } = self;
        write!(f, "{kind} {name}: used {used}, ignored {ignored}")
    }
}

/// Adds the settings of the devices of a container to its assignment, resources in order of their
/// names. Returns the conflicts, to be logged.
pub fn add_devices(
    assignment: &mut ContainerAssignment,
    devices: &ContainerDevices,
) -> Vec<DeviceConflict> {
    let mut merge = Merge {
        assignment,
        conflicts: Vec::new(),
    };
    for response in devices.values().filter_map(|it| it.response.as_ref()) {
        merge.response(response);
    }
    merge.conflicts
}

struct Merge<'a> {
    assignment: &'a mut ContainerAssignment,
    conflicts: Vec<DeviceConflict>,
}

impl Merge<'_> {
    fn response(&mut self, response: &DeviceResponse) {
        for (name, value) in &response.envs {
            let used = self.assignment.envs.entry(name.clone());
            let used = used.or_insert_with(|| value.clone()).clone();
            self.compare("env", name, &used, value);
        }
        response.devices.iter().for_each(|it| self.device(it));
        response.mounts.iter().for_each(|it| self.mount(it));
        for (name, value) in &response.annotations {
            let used = self.assignment.annotations.entry(name.clone());
            let used = used.or_insert_with(|| value.clone()).clone();
            self.compare("annotation", name, &used, value);
        }
        for CdiDevice { name } in &response.cdi_devices {
            if !self.assignment.cdi_devices.contains(name) {
                self.assignment.cdi_devices.push(name.clone());
            }
        }
    }

    fn device(&mut self, device: &DeviceNode) {
        let mut devices = self.assignment.devices.iter();
        match devices.find(|it| it.container_path == device.container_path) {
            Some(used) => {
                let used = used.host_path.clone();
                self.compare("device", &device.container_path, &used, &device.host_path);
            }
            None => self.assignment.devices.push(Device {
                container_path: device.container_path.clone(),
                host_path: device.host_path.clone(),
                permissions: device.permissions.clone(),
            }),
        }
    }

    fn mount(&mut self, mount: &DeviceMount) {
        let mut mounts = self.assignment.mounts.iter();
        match mounts.find(|it| it.container_path == mount.container_path) {
            Some(used) => {
                let used = used.host_path.clone();
                self.compare("mount", &mount.container_path, &used, &mount.host_path);
            }
            None => self.assignment.mounts.push(Mount {
                container_path: mount.container_path.clone(),
                host_path: mount.host_path.clone(),
                readonly: mount.read_only,
                ..Mount::default()
            }),
        }
    }

    fn compare(&mut self, kind: &'static str, name: &str, used: &str, ignored: &str) {
        if used != ignored {
            self.conflicts.push(DeviceConflict {
                kind,
                name: name.to_owned(),
                used: used.to_owned(),
                ignored: ignored.to_owned(),
            });
        }
    }
}
