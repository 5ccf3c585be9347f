//! Port to a DRA driver, and the values that it exchanges.

use std::collections::BTreeMap;
use std::fmt::Debug;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A claim in a request to a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// Namespace.
    pub namespace: String,
    /// UID.
    pub uid: String,
    /// Name.
    pub name: String,
}

/// A device that a driver prepared for a claim. Serialized as in upstream's checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimDevice {
    /// Pool of the device.
    #[serde(rename = "PoolName")]
    pub pool: String,
    /// Name within the pool.
    #[serde(rename = "DeviceName")]
    pub device: String,
    /// Share of a device with consumable capacity.
    #[serde(rename = "ShareID")]
    pub share_id: Option<String>,
    /// Requests of the claim that the device is for; empty for all.
    #[serde(rename = "RequestNames", with = "crate::checkpoint::nullable")]
    pub requests: Vec<String>,
    /// Fully qualified names of its CDI devices.
    #[serde(rename = "CDIDeviceIDs", with = "crate::checkpoint::nullable")]
    pub cdi_devices: Vec<String>,
}

/// Result of one claim, or the driver's error for it.
pub type ClaimResult<T> = Result<T, String>;

/// A driver on this node. Calls end within their timeout and are idempotent.
#[async_trait]
pub trait ClaimDriver: Send + Sync + Debug + 'static {
    /// Prepares claims (`NodePrepareResources`); returns results by claim UID.
    ///
    /// # Errors
    /// The call failed; the text is that of grpc-go.
    async fn prepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<Vec<ClaimDevice>>>, String>;

    /// Reverts the preparation of claims (`NodeUnprepareResources`).
    ///
    /// # Errors
    /// As for [`Self::prepare`].
    async fn unprepare(
        &self,
        claims: &[ClaimRef],
    ) -> Result<BTreeMap<String, ClaimResult<()>>, String>;
}
