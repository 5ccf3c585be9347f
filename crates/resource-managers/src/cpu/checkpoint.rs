//! Format of upstream's file `cpu_manager_state`.
//!
//! Version 1 has CPUs by container ID, version 2 by pod and container, version 3 also by pod. The
//! checksum is FNV-1a-32 of Go's dump of upstream's struct; that of version 2 is called
//! `CPUManagerCheckpoint` in files of all releases.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use windlass_topology::CpuSet;
use windlass_units::hash::fnv1a_32;

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Checkpoint {
    pub(super) policy_name: String,
    #[serde(alias = "defaultCPUSet")]
    pub(super) default_cpu_set: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) entries: BTreeMap<String, Entry>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) pod_entries: BTreeMap<String, PodEntry>,
    #[serde(default)]
    pub(super) checksum: u64,
}

/// CPUs of a container, or of a pod's containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Entry {
    /// Version 1: by container ID.
    Container(String),
    /// By container name.
    Pod(BTreeMap<String, String>),
}

/// CPUs of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PodEntry {
    #[serde(default)]
    pub(super) cpu_set: String,
}

/// Version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
    V3,
}

impl Checkpoint {
    /// Reads a file of any version.
    ///
    /// # Errors
    /// Why it is unusable.
    pub(super) fn parse(text: &[u8]) -> Result<Self, String> {
        let checkpoint: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let is_known = |version| checkpoint.dump_hash(version) == Some(checkpoint.checksum);
        let is_old = checkpoint.checksum == 0 && checkpoint.pod_entries.is_empty();
        match is_old
            || [Version::V2, Version::V3, Version::V1]
                .into_iter()
                .any(is_known)
        {
            true => Ok(checkpoint),
            false => Err("checksum does not match".to_owned()),
        }
    }

    /// The file, with its checksum; version 3 if pods can have CPUs.
    pub(super) fn to_text(&self, has_pods: bool) -> String {
        let version = match has_pods {
            true => Version::V3,
            false => Version::V2,
        };
        let checkpoint = Self {
            checksum: self.dump_hash(version).unwrap_or(0),
            ..self.clone()
        };
        // strings and numbers always serialize
        serde_json::to_string(&checkpoint).unwrap_or_default()
    }

    /// Hash of Go's dump of the content in a version; `None` if it has no such version.
    fn dump_hash(&self, version: Version) -> Option<u64> {
        let mut entries = Vec::new();
        for (key, entry) in &self.entries {
            entries.push(match (version, entry) {
                (Version::V1, Entry::Container(cpus)) => format!("{key}:{cpus}"),
                (Version::V2 | Version::V3, Entry::Pod(cpus)) => {
                    let cpus = cpus.iter().map(|(name, cpus)| format!("{name}:{cpus}"));
                    format!("{key}:map[{}]", cpus.collect::<Vec<_>>().join(" "))
                }
                _ => return None,
            });
        }
        let (kind, pods) = match version {
            Version::V1 => ("map[string]string", String::new()),
            Version::V2 => ("map[string]map[string]string", String::new()),
            Version::V3 => ("map[string]map[string]string", self.dump_of_pods()?),
        };
        let dump = format!(
            "(*state.CPUManagerCheckpoint){{PolicyName:(string){} DefaultCPUSet:(string){} \
             Entries:({kind})map[{}] {pods}Checksum:(checksum.Checksum)0}}",
            self.policy_name,
            self.default_cpu_set,
            entries.join(" "),
        );
        Some(u64::from(fnv1a_32(dump.as_bytes())))
    }

    fn dump_of_pods(&self) -> Option<String> {
        let mut pods = Vec::new();
        for (uid, entry) in &self.pod_entries {
            let cpus: CpuSet = entry.cpu_set.parse().ok()?;
            let cpus: Vec<String> = cpus.iter().map(|cpu| format!("{cpu}:{{}}")).collect();
            let cpus = cpus.join(" ");
            pods.push(format!(
                "{uid}:{{CPUSet:(cpuset.CPUSet){{elems:(map[int]struct {{}})map[{cpus}]}}}}"
            ));
        }
        Some(format!(
            "PodEntries:(state.PodCPUAssignments)map[{}] ",
            pods.join(" ")
        ))
    }
}
