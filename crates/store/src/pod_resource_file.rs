//! Upstream's checkpoints of pod resources: `allocated_pods_state` and `actuated_pods_state` in the
//! root directory.
//!
//! The Go kubelet takes the sizes of running pods from them. They have its format, so that a node
//! can change agents in both directions while resizes wait or are in progress.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use windlass_types::corev1::ResourceRequirements;
use windlass_types::{AllocatedResources, PodUid};
use windlass_units::hash::fnv1a_32;

use crate::error::StoreError;
use crate::store::Store;
use crate::table_file::{TableFile, TableFormat};

/// Resources of all pods.
pub type PodResources = BTreeMap<PodUid, AllocatedResources>;

/// The two checkpoints. Clones share them; recording never blocks on the disk.
#[derive(Clone, Debug)]
pub struct PodResourceFiles {
    /// What the node has allocated to each admitted pod.
    pub allocated: PodResourceFile,
    /// What the containers of each pod were last created with or resized to.
    pub actuated: PodResourceFile,
}

impl PodResourceFiles {
    /// Opens both files and returns them with the allocated resources. Blocks on the disk.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn open(root_dir: &Store) -> Result<(Self, PodResources), StoreError> {
        let (allocated, resources) = PodResourceFile::open(root_dir, "allocated_pods_state")?;
        let (actuated, _) = PodResourceFile::open(root_dir, "actuated_pods_state")?;
        let files = Self {
            allocated,
            actuated,
        };
        Ok((files, resources))
    }

    /// Removes all other pods.
    pub fn retain(&self, pods: &BTreeSet<PodUid>) {
        self.allocated.0.retain(pods);
        self.actuated.0.retain(pods);
    }
}

/// Handle to one checkpoint.
#[derive(Clone, Debug)]
pub struct PodResourceFile(TableFile<PodResourceInfo>);

impl PodResourceFile {
    fn open(root_dir: &Store, name: &'static str) -> Result<(Self, PodResources), StoreError> {
        let (file, pods) = TableFile::open_with(root_dir.clone(), name, TableFormat::UPSTREAM)?;
        let pods = pods.into_iter();
        let pods = pods.map(|(uid, info): (_, PodResourceInfo)| (uid, info.into()));
        Ok((Self(file), pods.collect()))
    }

    /// Records the resources of a pod and writes them soon, if they changed.
    pub fn record(&self, uid: &PodUid, resources: &AllocatedResources) {
        self.0.record(uid, &resources.into());
    }

    /// Removes a pod.
    pub fn forget(&self, uid: &PodUid) {
        self.0.forget(uid);
    }

    /// Waits until all recorded resources are on the disk. After a failed write it retries once.
    ///
    /// # Errors
    /// The write failed.
    pub async fn flush(&self) -> Result<(), StoreError> {
        self.0.flush().await
    }
}

/// Upstream's entry of a pod. Go writes `null` for an empty map.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct PodResourceInfo {
    container_resources: Option<BTreeMap<String, ResourceRequirements>>,
    pod_level_resources: Option<ResourceRequirements>,
}

impl From<&AllocatedResources> for PodResourceInfo {
    fn from(resources: &AllocatedResources) -> Self {
        Self {
            container_resources: Some(resources.containers.clone()),
            pod_level_resources: resources.pod.clone(),
        }
    }
}

impl From<PodResourceInfo> for AllocatedResources {
    fn from(info: PodResourceInfo) -> Self {
        Self {
            containers: info.container_resources.unwrap_or_default(),
            pod: info.pod_level_resources,
        }
    }
}

/// The file: JSON in a string, with its checksum.
#[derive(Serialize, Deserialize)]
struct Checkpoint {
    data: String,
    checksum: u64,
}

/// Content of `data`.
#[derive(Serialize, Deserialize)]
#[serde(bound(deserialize = "V: DeserializeOwned"))]
struct Entries<V> {
    #[serde(default = "BTreeMap::new", skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<PodUid, V>,
}

/// Returns the file with these entries.
///
/// # Errors
/// An entry is not JSON.
pub(crate) fn encode(
    entries: &BTreeMap<PodUid, Box<RawValue>>,
) -> Result<String, serde_json::Error> {
    let entries = entries.clone();
    let data = serde_json::to_string(&Entries { entries })?;
    let checksum = checksum(&data);
    serde_json::to_string(&Checkpoint { data, checksum })
}

/// Returns the entries of a file.
///
/// # Errors
/// The reason why it is unusable.
pub(crate) fn decode<V: DeserializeOwned>(bytes: &[u8]) -> Result<BTreeMap<PodUid, V>, String> {
    let checkpoint: Checkpoint =
        serde_json::from_slice(bytes).map_err(|error| format!("not a checkpoint: {error}"))?;
    if checkpoint.checksum != checksum(&checkpoint.data) {
        return Err("checksum does not match".to_owned());
    }
    let content: Entries<V> =
        serde_json::from_str(&checkpoint.data).map_err(|error| format!("foreign data: {error}"))?;
    Ok(content.entries)
}

/// FNV-1a-32 of Go's dump of a string.
fn checksum(data: &str) -> u64 {
    u64::from(fnv1a_32(format!("(string){data}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    const UID: &str = "11111111-2222-3333-4444-555555555555";

    /// As the Go kubelet 1.36.2 writes it.
    const GO: &str = concat!(
        r#"{"data":"{\"entries\":{\"11111111-2222-3333-4444-555555555555\":{\"ContainerResources\":"#,
        r#"{\"app\":{\"limits\":{\"cpu\":\"1\"},\"requests\":{\"cpu\":\"250m\",\"memory\":\"64Mi\"}},"#,
        r#"\"plain\":{}},\"PodLevelResources\":{\"limits\":{\"memory\":\"1Gi\"}}},"#,
        r#"\"22\":{\"ContainerResources\":null,\"PodLevelResources\":null}}}","checksum":437738236}"#,
    );
    const GO_EMPTY: &str = r#"{"data":"{}","checksum":694314937}"#;

    fn resources() -> AllocatedResources {
        serde_json::from_value(json!({
            "containers": {
                "app": {"limits": {"cpu": "1"}, "requests": {"cpu": "250m", "memory": "64Mi"}},
                "plain": {},
            },
            "pod": {"limits": {"memory": "1Gi"}},
        }))
        .expect("resources")
    }

    #[tokio::test]
    async fn go_kubelet_reads_and_writes_the_same_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("a store");
        let path = dir.path().join("allocated_pods_state");
        fs::write(&path, GO).expect("written");
        let (files, allocated) = PodResourceFiles::open(&store).expect("opened");
        let none = AllocatedResources::default();
        let expected = [(PodUid::from(UID), resources()), ("22".into(), none)];
        assert_eq!(allocated, expected.into());

        files.retain(&BTreeSet::new());
        files.allocated.flush().await.expect("written");
        assert_eq!(fs::read_to_string(&path).expect("text"), GO_EMPTY);
        let uid = PodUid::from(UID);
        files.allocated.record(&uid, &resources());
        files.allocated.flush().await.expect("written");
        let text = fs::read(&path).expect("text");
        let entries: BTreeMap<PodUid, Box<RawValue>> = decode(&text).expect("decoded");
        let go: BTreeMap<PodUid, Box<RawValue>> = decode(GO.as_bytes()).expect("decoded");
        assert_eq!(entries[&uid].get(), go[&uid].get());
        assert_eq!(encode(&go).expect("text"), GO);
    }

    #[test]
    fn damaged_file_is_moved_aside() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("a store");
        let flipped = GO.replace("250m", "260m");
        for (number, text) in [&GO[..100], &flipped, "", "null"].into_iter().enumerate() {
            fs::write(dir.path().join("allocated_pods_state"), text).expect("written");
            let (_, allocated) = PodResourceFiles::open(&store).expect("opened");
            assert_eq!(allocated, PodResources::new(), "{text}");
            let aside = format!("allocated_pods_state.corrupt-{}", number + 1);
            assert!(dir.path().join(aside).exists(), "{text}");
        }
    }
}
