//! Upstream's checkpoint of prepared claims, `<root-dir>/dra_manager_state`.
//!
//! `Data` is a JSON text, `Checksum` its CRC-32. Upstream stores whether a claim is prepared by its
//! devices only; so does the agent.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::claim_info::{ClaimInfo, ClaimTable};
use crate::port::ClaimDevice;

/// Name of the file below `--root-dir`.
pub(crate) const FILE_NAME: &str = "dra_manager_state";

const KIND: &str = "DRACheckpoint";
const API_VERSION: &str = "checkpoint.dra.kubelet.k8s.io/v1";

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    data: String,
    checksum: u32,
}

#[derive(Serialize, Deserialize)]
struct Content {
    kind: String,
    #[serde(rename = "apiVersion")]
    api_version: String,
    #[serde(rename = "ClaimInfoStateList")]
    claims: Option<Vec<ClaimState>>,
}

#[derive(Serialize, Deserialize)]
struct ClaimState {
    #[serde(rename = "ClaimUID")]
    uid: String,
    #[serde(rename = "ClaimName")]
    name: String,
    #[serde(rename = "Namespace")]
    namespace: String,
    #[serde(rename = "PodUIDs")]
    pods: Option<BTreeMap<String, Empty>>,
    #[serde(rename = "DriverState")]
    drivers: Option<BTreeMap<String, DriverState>>,
}

#[derive(Serialize, Deserialize)]
struct Empty {}

#[derive(Serialize, Deserialize)]
struct DriverState {
    #[serde(rename = "Devices", with = "nullable")]
    devices: Vec<ClaimDevice>,
}

/// Lists of Go: an empty one is `null`.
pub(crate) mod nullable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        list: &Vec<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Some(list)
            .filter(|list| !list.is_empty())
            .serialize(serializer)
    }

    pub(crate) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<T>, D::Error> {
        Ok(Option::<Vec<T>>::deserialize(deserializer)?.unwrap_or_default())
    }
}

/// Encodes all claims.
pub(crate) fn encode(table: &ClaimTable) -> Result<String, serde_json::Error> {
    let state = |claim: &ClaimInfo| ClaimState {
        uid: claim.uid.clone(),
        name: claim.name.clone(),
        namespace: claim.namespace.clone(),
        pods: Some(claim.pods.iter().map(|it| (it.clone(), Empty {})).collect()),
        drivers: Some(
            claim
                .drivers
                .iter()
                .map(|(name, devices)| {
                    let devices = devices.clone();
                    (name.clone(), DriverState { devices })
                })
                .collect(),
        ),
    };
    let claims: Vec<_> = table.claims().map(state).collect();
    let data = serde_json::to_string(&Content {
        kind: KIND.to_owned(),
        api_version: API_VERSION.to_owned(),
        claims: Some(claims).filter(|claims| !claims.is_empty()),
    })?;
    let checksum = crc32(data.as_bytes());
    serde_json::to_string(&Envelope { data, checksum })
}

/// Decodes a checkpoint of this agent or of the Go kubelet.
///
/// # Errors
/// The reason why it is unusable.
pub(crate) fn decode(bytes: &[u8]) -> Result<ClaimTable, String> {
    let envelope: Envelope =
        serde_json::from_slice(bytes).map_err(|error| format!("not a checkpoint: {error}"))?;
    if crc32(envelope.data.as_bytes()) != envelope.checksum {
        return Err("checksum does not match".to_owned());
    }
    let content: Content =
        serde_json::from_str(&envelope.data).map_err(|error| format!("foreign data: {error}"))?;
    if (content.kind.as_str(), content.api_version.as_str()) != (KIND, API_VERSION) {
        let (kind, version) = (content.kind, content.api_version);
        return Err(format!(
            "unsupported {kind} {version}, expected {API_VERSION}"
        ));
    }
    let info = |state: ClaimState| ClaimInfo {
        uid: state.uid,
        name: state.name,
        namespace: state.namespace,
        pods: state
            .pods
            .into_iter()
            .flatten()
            .map(|it| it.0)
            .collect::<BTreeSet<_>>(),
        drivers: state
            .drivers
            .into_iter()
            .flatten()
            .map(|(name, state)| (name, state.devices))
            .collect(),
        prepared: false,
    };
    Ok(content.claims.into_iter().flatten().map(info).collect())
}

/// CRC-32 (IEEE 802.3), as Go's `crc32.ChecksumIEEE`.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1));
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkpoint of upstream with two claims, the second with a nil list.
    const UPSTREAM: &str = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[{\"ClaimUID\":\"067798be-454e-4be4-9047-1aa06aea63f7\",\"ClaimName\":\"example-1\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-1\",\"ShareID\":null,\"RequestNames\":[\"test request\"],\"CDIDeviceIDs\":[\"example.com/example=cdi-example\"]}]}}},{\"ClaimUID\":\"4cf8db2d-06c0-7d70-1a51-e59b25b2c16c\",\"ClaimName\":\"example-2\",\"Namespace\":\"default\",\"PodUIDs\":{\"139cdb46-f989-4f17-9561-ca10cfb509a6\":{}},\"DriverState\":{\"test-driver.cdi.k8s.io\":{\"Devices\":[{\"PoolName\":\"worker-1\",\"DeviceName\":\"dev-2\",\"ShareID\":null,\"RequestNames\":null,\"CDIDeviceIDs\":null}]}}}]}","Checksum":2820117767}"#;

    #[test]
    fn upstream_checkpoint_is_read_and_written_alike() {
        let table = decode(UPSTREAM.as_bytes()).expect("upstream's");
        assert_eq!(table.claims().count(), 2);
        assert_eq!(encode(&table).expect("text"), UPSTREAM);
        let empty = encode(&ClaimTable::default()).expect("text");
        assert!(empty.contains(r#"\"ClaimInfoStateList\":null"#), "{empty}");
        assert_eq!(decode(empty.as_bytes()), Ok(ClaimTable::default()));
    }

    #[test]
    fn damaged_checkpoint_is_rejected_with_reason() {
        fn check(text: &str, expected: &str) {
            let error = decode(text.as_bytes()).expect_err("damaged");
            assert!(error.starts_with(expected), "{error}");
        }
        check("torn", "not a checkpoint");
        check(
            &UPSTREAM.replace("dev-1", "dev-3"),
            "checksum does not match",
        );
        let data = r#"{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v9"}"#;
        let checksum = crc32(data.as_bytes());
        let other = serde_json::to_string(&Envelope {
            data: data.to_owned(),
            checksum,
        });
        check(&other.expect("text"), "unsupported DRACheckpoint");
    }
}
