//! What is asked and told of claims that grow. Nothing here decides: see
//! `windlass_volume_plan::volume_source::growth`.

use std::future::Future;

use windlass_client::{ApiError, ApiErrorKind, ObjectKey, Patch};
use windlass_types::corev1::PersistentVolumeClaim;
use windlass_types::{ExpansionDecision, Timestamp};
use windlass_volume_plan::volume_source::{
    Lookup, failed_claim, growing_claim, grown_claim, growth,
};

use super::{ANSWER_DEADLINE, ClaimKey, Claims};

impl Claims {
    /// Whose turn it is, with the claim marked if it is the node's.
    pub(crate) async fn turn(
        &self,
        key: &ClaimKey,
        capacity: u64,
        failed_before: bool,
    ) -> Result<ExpansionDecision, String> {
        let claim = self.read_anew(key).await?;
        let turn = growth(&claim, capacity, failed_before);
        if let ExpansionDecision::Expand(growing) = turn
            && growing.tracked
            && !growing.reported
            && let Some(patch) = growing_claim(&claim)
        {
            self.patch(key, Patch::Merge(patch)).await?;
        }
        Ok(turn)
    }

    /// The claim has this many bytes, unless it says so already.
    pub(crate) async fn grown(&self, key: &ClaimKey, bytes: u64) -> Result<(), String> {
        let claim = self.read_anew(key).await?;
        let known = self.0.known(key).map(|(_, state)| state);
        let volume = known.as_ref().and_then(|state| match &state.volume {
            Lookup::Found(volume) => Some(&**volume),
            _ => None,
        });
        match grown_claim(&claim, volume, bytes) {
            Some(patch) => self.patch(key, Patch::Merge(patch)).await,
            None => Ok(()),
        }
    }

    /// The claim did not grow.
    pub(crate) async fn not_grown(
        &self,
        key: &ClaimKey,
        infeasible: bool,
        why: &str,
        now: Timestamp,
    ) -> Result<(), String> {
        let claim = self.read_anew(key).await?;
        match failed_claim(&claim, infeasible, why, now) {
            Some(patch) => self.patch(key, Patch::StrategicMerge(patch)).await,
            None => Ok(()),
        }
    }

    /// The claim as it is at this moment: what was read before does not count.
    async fn read_anew(&self, key: &ClaimKey) -> Result<PersistentVolumeClaim, String> {
        let get = "mountVolume.NodeExpandVolume get PVC failed";
        let Some(client) = &self.0.client else {
            return Err(format!("{get} : there is no API server"));
        };
        let (namespace, name) = key;
        let claim = client.get::<PersistentVolumeClaim>(ObjectKey::namespaced(namespace, name));
        let claim = in_time(claim).await;
        claim.map_err(|error| format!("{get} : {error}"))
    }

    async fn patch(&self, key: &ClaimKey, patch: Patch) -> Result<(), String> {
        let Some(client) = &self.0.client else {
            return Ok(());
        };
        let (namespace, name) = key;
        let at = ObjectKey::namespaced(namespace, name);
        let patched = client.patch::<PersistentVolumeClaim>(at, Some("status"), &patch);
        match in_time(patched).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "patchPVCStatus failed to patch PVC {name:?}: {error}"
            )),
        }
    }
}

async fn in_time<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, String> {
    match tokio::time::timeout(ANSWER_DEADLINE, request).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) if error.kind == ApiErrorKind::NotFound => Err("it is gone".to_owned()),
        Ok(Err(error)) => Err(error.message),
        Err(_) => Err("the API server did not answer".to_owned()),
    }
}
