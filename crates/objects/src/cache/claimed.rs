//! Volumes of a pod that refer to PVCs.

use std::collections::BTreeMap;

use async_trait::async_trait;
use futures::future::join_all;
use windlass_actors::NodeExpander;
use windlass_pod_inputs::pod_references::References;
use windlass_pod_inputs::pod_references::{is_used, pvc_name};
use windlass_runtime_config::port::InputsError;
use windlass_types::corev1::Volume;
use windlass_types::{ExpansionDecision, Pod, PodExt, PodUid, Reason, SharedPod, Timestamp};
use windlass_volume_plan::volume_source::{
    PodVolume, PodVolumes, PvcError, PvcInput, VolumeSource, pvc_field, pvc_volume,
};

use super::ObjectCache;
use crate::claims::ClaimKey;
use crate::kept::ServingCopy;
use crate::resolve::claims_error;

/// Volumes by name.
type Claimed = BTreeMap<String, PodVolume>;

impl ObjectCache {
    /// Resolves the pod's PVCs, from the copy if it serves. If one is not ready, the pod is requeued when it changes.
    pub(super) async fn claimed_volumes(
        &self,
        pod: &SharedPod,
        references: &References,
        copy: Option<&ServingCopy>,
    ) -> Result<Claimed, InputsError> {
        if references.pvcs.is_empty() {
            return Ok(Claimed::new());
        }
        let uid = pod.uid();
        let volumes = PodExt::spec(&**pod).volumes.iter().flatten();
        let used = volumes.filter(|volume| is_used(pod, &volume.name));
        let named = used.filter_map(|volume| Some((volume, pvc_name(pod, volume)?)));
        let resolved = named.map(|(volume, claim)| async move {
            let resolved = self.pvc_volume(pod, volume, claim, copy).await;
            (volume.name.as_str(), resolved)
        });
        let before = self.claimed_before(&uid);
        let mut ready = Claimed::new();
        let mut errors = Vec::new();
        for (name, resolved) in join_all(resolved).await {
            match (resolved, before.get(name)) {
                (Ok(volume), _) => {
                    ready.insert(name.to_owned(), volume);
                }
                (Err(error), Some(volume)) => {
                    tracing::debug!(%uid, volume = name, %error, "PVC not ready, keeping volume");
                    ready.insert(name.to_owned(), volume.clone());
                }
                (Err(error), None) => errors.push((name, error)),
            }
        }
        self.keep_claimed(&uid, &ready);
        if let Some(error) = claims_error(&errors) {
            return Err(error);
        }
        Ok(ready)
    }

    async fn pvc_volume(
        &self,
        pod: &SharedPod,
        volume: &Volume,
        claim: String,
        copy: Option<&ServingCopy>,
    ) -> Result<PodVolume, PvcError> {
        let (uid, key) = (pod.uid(), (pod.namespace().to_owned(), claim));
        let state = match copy {
            Some(copy) => copy.table.pvc(&key),
            None => self.claims.state(&key, &uid).await,
        };
        let node = self.node_seen.borrow().0.clone();
        let input = PvcInput {
            pod,
            volume,
            pvc: &key.1,
            state: &state,
            node: node.as_deref(),
        };
        let resolved = pvc_volume(input);
        if resolved.is_err() && copy.is_none() {
            self.claims.wait(&key, &uid, &state);
        }
        resolved
    }

    fn claimed_before(&self, uid: &PodUid) -> Claimed {
        let pods = self.pods.lock();
        let registered = pods.get(uid);
        registered.map(|r| r.claimed.clone()).unwrap_or_default()
    }

    fn keep_claimed(&self, uid: &PodUid, ready: &Claimed) {
        if let Some(registered) = self.pods.lock().get_mut(uid) {
            registered.claimed.extend(ready.clone());
        }
    }

    /// Completes CSI volumes with the settings of their driver objects.
    pub(super) async fn complete_csi_volumes(
        &self,
        volumes: &mut PodVolumes,
    ) -> Result<(), InputsError> {
        let Some(objects) = &self.csi else {
            return Ok(());
        };
        for volume in volumes {
            let VolumeSource::Csi(csi) = &mut volume.source else {
                continue;
            };
            if csi.handle.is_none() {
                continue;
            }
            let driver = objects.driver(&csi.driver).await;
            let driver = driver.map_err(|error| InputsError {
                reason: Reason::FailedMount,
                message: error.message,
                retry: error.retry,
            })?;
            csi.attach_required = driver.is_none_or(|driver| driver.attach_required);
        }
        Ok(())
    }
}

/// Returns the pod's volumes with its resolved PVCs. Omits PVCs and disks that no container uses.
pub(super) fn with_claimed(pod: &Pod, volumes: PodVolumes, mut claimed: Claimed) -> PodVolumes {
    let specs = PodExt::spec(pod).volumes.iter().flatten();
    let specs = specs.map(|volume| pvc_field(volume).is_some());
    let pairs = volumes.into_iter().zip(specs);
    let kept = pairs.filter_map(|(volume, stands_for_claim)| match stands_for_claim {
        true => claimed.remove(&volume.name),
        false if volume.is_migrated() && !is_used(pod, &volume.name) => None,
        false => Some(volume),
    });
    kept.collect()
}

#[async_trait]
impl NodeExpander for ObjectCache {
    async fn expansion_decision(
        &self,
        pod: &Pod,
        claim: &str,
        capacity: u64,
        failed_before: bool,
    ) -> Result<ExpansionDecision, String> {
        let key = key(pod, claim);
        self.claims
            .expansion_decision(&key, capacity, failed_before)
            .await
    }

    async fn report_expanded(&self, pod: &Pod, claim: &str, bytes: u64) -> Result<(), String> {
        self.claims.report_expanded(&key(pod, claim), bytes).await
    }

    async fn report_failure(
        &self,
        pod: &Pod,
        claim: &str,
        infeasible: bool,
        why: &str,
        now: Timestamp,
    ) -> Result<(), String> {
        let key = key(pod, claim);
        self.claims
            .report_expansion_failure(&key, infeasible, why, now)
            .await
    }
}

fn key(pod: &Pod, claim: &str) -> ClaimKey {
    (pod.namespace().to_owned(), claim.to_owned())
}
