//! The device checkpoint `kubelet_internal_checkpoint`, in upstream's format.
//!
//! JSON with a checksum: FNV-1a-32 over Go's debug dump of the data (`DeepHashObject`), which has the
//! names of upstream's types and distinguishes `nil` from empty.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde::{Deserialize, Serialize};
use windlass_types::PodUid;
use windlass_units::hash::fnv1a_32;

use super::{Assigned, DeviceResponse, Devices, DevicesPerNuma, Resource};

/// Content of the checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct Checkpoint {
    /// Devices of containers; `None` as upstream without any.
    pub pod_device_entries: Option<Vec<CheckpointEntry>>,
    /// Healthy devices by resource.
    pub registered_devices: Option<BTreeMap<String, Option<Vec<String>>>>,
}

/// Devices of one resource that a container has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CheckpointEntry {
    /// UID of the pod.
    #[serde(rename = "PodUID")]
    pub pod_uid: String,
    /// Container.
    pub container_name: String,
    /// Resource.
    pub resource_name: String,
    /// The devices.
    #[serde(rename = "DeviceIDs")]
    pub device_ids: Option<BTreeMap<i64, Option<Vec<String>>>>,
    /// `ContainerAllocateResponse` in base64.
    pub alloc_resp: Option<String>,
}

/// A checkpoint that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// Not JSON of the format.
    #[error("invalid device checkpoint: {0}")]
    Invalid(String),
    /// The content has another checksum.
    #[error("checksum of the device checkpoint is {actual}, not {expected}")]
    Checksum {
        /// Of the content.
        actual: u64,
        /// In the file.
        expected: u64,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct File {
    data: Checkpoint,
    checksum: u64,
}

impl Checkpoint {
    /// Parses the text of the file.
    ///
    /// # Errors
    /// The text is damaged or of another format.
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        let invalid = |error: &dyn fmt::Display| CheckpointError::Invalid(error.to_string());
        let file: File = serde_json::from_str(text).map_err(|error| invalid(&error))?;
        let actual = file.data.checksum().map_err(|error| invalid(&error))?;
        match actual == file.checksum {
            true => Ok(file.data),
            false => Err(CheckpointError::Checksum {
                actual,
                expected: file.checksum,
            }),
        }
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let file = File {
            data: self.clone(),
            // own responses are valid base64
            checksum: self.checksum().unwrap_or_default(),
        };
        // maps with text keys and vectors always serialize
        serde_json::to_string(&file).unwrap_or_default()
    }

    fn checksum(&self) -> Result<u64, base64::DecodeError> {
        let mut dump = String::from("(checkpoint.checkpointData){PodDeviceEntries:");
        dump.push_str("([]checkpoint.PodDevicesEntry)");
        let entries = self.pod_device_entries.as_ref();
        let entries = entries.map(|it| it.iter().map(CheckpointEntry::dump).collect());
        dump.push_str(&list(entries.transpose()?));
        dump.push_str(" RegisteredDevices:(map[string][]string)");
        dump.push_str(&map(self.registered_devices.as_ref()));
        dump.push('}');
        Ok(u64::from(fnv1a_32(dump.as_bytes())))
    }
}

impl CheckpointEntry {
    fn response(&self) -> Result<Option<Vec<u8>>, base64::DecodeError> {
        let text = self.alloc_resp.as_ref();
        text.map(|text| STANDARD.decode(text)).transpose()
    }

    fn dump(&self) -> Result<String, base64::DecodeError> {
        let response = self.response()?;
        let response = response.map(|it| it.iter().map(u8::to_string).collect());
        Ok(format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} \
             DeviceIDs:(checkpoint.DevicesPerNUMA){} AllocResp:([]uint8){}}}",
            self.pod_uid,
            self.container_name,
            self.resource_name,
            map(self.device_ids.as_ref()),
            list(response),
        ))
    }
}

/// Go's dump of a slice without its type.
fn list(items: Option<Vec<String>>) -> String {
    match items {
        Some(items) => format!("[{}]", items.join(" ")),
        None => "<nil>".to_owned(),
    }
}

/// Go's dump of a map of slices, sorted by key, without its type.
fn map<K: fmt::Display>(entries: Option<&BTreeMap<K, Option<Vec<String>>>>) -> String {
    let Some(entries) = entries else {
        return "<nil>".to_owned();
    };
    let mut text = String::from("map[");
    for (n, (key, items)) in entries.iter().enumerate() {
        let separator = if n == 0 { "" } else { " " };
        // writing to a String never fails
        let _ = write!(text, "{separator}{key}:{}", list(items.clone()));
    }
    text + "]"
}

impl Devices {
    /// The assignments and resources as a checkpoint. Reservations are left out.
    pub fn checkpoint(&self) -> Checkpoint {
        let mut entries = Vec::new();
        for (pod, containers) in &self.pods {
            for (container, resources) in containers.iter() {
                for (resource, assigned) in resources {
                    entries.extend(assigned.entry(pod, container, resource));
                }
            }
        }
        let healthy = |it: &Resource| Some(it.healthy().map(|(id, _)| id.clone()).collect());
        let resources = self.resources.iter();
        Checkpoint {
            pod_device_entries: (!entries.is_empty()).then_some(entries),
            registered_devices: Some(
                resources
                    .map(|(name, it)| (name.clone(), healthy(it)))
                    .collect(),
            ),
        }
    }

    /// Restores the state of the previous agent run. The grace period of its resources begins now.
    /// Returns the entries whose response cannot be decoded; they are left out.
    pub fn restore(checkpoint: Checkpoint, now: Duration) -> (Self, Vec<CheckpointEntry>) {
        let mut devices = Self::default();
        let mut damaged = Vec::new();
        for entry in checkpoint.pod_device_entries.unwrap_or_default() {
            let response = entry.response().ok().flatten().unwrap_or_default();
            let Ok(response) = DeviceResponse::decode(response.as_slice()) else {
                damaged.push(entry);
                continue;
            };
            let ids = entry.device_ids.unwrap_or_default().into_iter();
            let ids: DevicesPerNuma = ids.map(|(n, ids)| (n, ids.unwrap_or_default())).collect();
            let pod = devices.pods.entry(PodUid::from(entry.pod_uid)).or_default();
            let pod = Arc::make_mut(pod);
            let container = pod.entry(entry.container_name).or_default();
            let assigned = Assigned {
                devices: ids,
                response: Some(response),
            };
            container.insert(entry.resource_name, assigned);
        }
        let resources = checkpoint.registered_devices.unwrap_or_default();
        let expected = Resource {
            stopped_at: Some(now),
            ..Resource::default()
        };
        let resources = resources.into_keys().map(|name| (name, expected.clone()));
        devices.resources = resources.collect();
        (devices, damaged)
    }
}

impl Assigned {
    fn entry(&self, pod: &PodUid, container: &str, resource: &str) -> Option<CheckpointEntry> {
        let response = self.response.as_ref()?.encode_to_vec();
        let ids = self.devices.iter();
        Some(CheckpointEntry {
            pod_uid: pod.to_string(),
            container_name: container.to_owned(),
            resource_name: resource.to_owned(),
            device_ids: Some(ids.map(|(node, ids)| (*node, Some(ids.clone()))).collect()),
            alloc_resp: Some(STANDARD.encode(response)),
        })
    }
}
