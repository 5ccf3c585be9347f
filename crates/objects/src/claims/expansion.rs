//! Expansion of PVCs: reads and patches. The decisions are in
//! `windlass_volume_plan::volume_source::expansion_decision`.

use std::future::Future;

use windlass_client::{ApiError, ApiErrorKind, ObjectKey, Patch};
use windlass_types::corev1::PersistentVolumeClaim;
use windlass_types::{ExpansionDecision, Timestamp};
use windlass_volume_plan::volume_source::{
    Lookup, expansion_decision, resize_failed_patch, resize_finished_patch, resize_started_patch,
};

use super::{ClaimKey, Claims, RESOLVE_TIMEOUT};

impl Claims {
    /// Returns the expansion decision, and marks the PVC if the node expands it.
    pub(crate) async fn expansion_decision(
        &self,
        key: &ClaimKey,
        capacity: u64,
        failed_before: bool,
    ) -> Result<ExpansionDecision, String> {
        let claim = self.read_uncached(key).await?;
        let decision = expansion_decision(&claim, capacity, failed_before);
        if let ExpansionDecision::Expand(task) = decision
            && task.tracked
            && !task.reported
            && let Some(patch) = resize_started_patch(&claim)
        {
            self.patch(key, Patch::Merge(patch)).await?;
        }
        Ok(decision)
    }

    /// Reports the new capacity, if the status differs.
    pub(crate) async fn report_expanded(&self, key: &ClaimKey, bytes: u64) -> Result<(), String> {
        let claim = self.read_uncached(key).await?;
        let known = self.0.known(key).map(|(_, state)| state);
        let volume = known.as_ref().and_then(|state| match &state.volume {
            Lookup::Found(volume) => Some(&**volume),
            _ => None,
        });
        match resize_finished_patch(&claim, volume, bytes) {
            Some(patch) => self.patch(key, Patch::Merge(patch)).await,
            None => Ok(()),
        }
    }

    /// Reports a failed expansion.
    pub(crate) async fn report_expansion_failure(
        &self,
        key: &ClaimKey,
        infeasible: bool,
        error: &str,
        now: Timestamp,
    ) -> Result<(), String> {
        let claim = self.read_uncached(key).await?;
        match resize_failed_patch(&claim, infeasible, error, now) {
            Some(patch) => self.patch(key, Patch::StrategicMerge(patch)).await,
            None => Ok(()),
        }
    }

    /// Reads the PVC from the API server, bypassing the cache.
    async fn read_uncached(&self, key: &ClaimKey) -> Result<PersistentVolumeClaim, String> {
        let get = "mountVolume.NodeExpandVolume get PVC failed";
        let Some(client) = &self.0.client else {
            return Err(format!("{get} : no API server (standalone mode)"));
        };
        let (namespace, name) = key;
        let claim = client.get::<PersistentVolumeClaim>(ObjectKey::namespaced(namespace, name));
        let claim = with_timeout(claim).await;
        claim.map_err(|error| format!("{get} : {error}"))
    }

    async fn patch(&self, key: &ClaimKey, patch: Patch) -> Result<(), String> {
        let Some(client) = &self.0.client else {
            return Ok(());
        };
        let (namespace, name) = key;
        let at = ObjectKey::namespaced(namespace, name);
        let patched = client.patch::<PersistentVolumeClaim>(at, Some("status"), &patch);
        match with_timeout(patched).await {
            Ok(_) => Ok(()),
            Err(error) => Err(format!(
                "patchPVCStatus failed to patch PVC {name:?}: {error}"
            )),
        }
    }
}

async fn with_timeout<T>(request: impl Future<Output = Result<T, ApiError>>) -> Result<T, String> {
    match tokio::time::timeout(RESOLVE_TIMEOUT, request).await {
        Ok(Ok(object)) => Ok(object),
        Ok(Err(error)) if error.kind == ApiErrorKind::NotFound => Err("not found".to_owned()),
        Ok(Err(error)) => Err(error.message),
        Err(_) => Err("the API server did not respond".to_owned()),
    }
}
