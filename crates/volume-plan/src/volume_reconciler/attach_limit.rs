//! Volumes that are not attached because the node is full.
//!
//! After `ResourceExhausted` waiting does not help: the limit known to the scheduler was wrong. It
//! is read again from the driver, and the pod is rejected, so that its owner can create another one
//! elsewhere (upstream `VerifyExhaustedResource`).

use std::sync::Arc;
use std::time::Duration;

use windlass_types::{PodUid, SharedPod};

use super::{ClockReading, Step, VolumeKey, VolumeReconciler, VolumeWork};

/// Time until the first check of an unattached volume, and between two checks (upstream
/// `podAttachAndMountTimeout`).
const ATTACH_TIMEOUT: Duration = Duration::from_secs(123);

/// Checks of a volume that is not attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unattached {
    /// Monotonic time of the next check.
    check_at: Duration,
    /// A check is in progress.
    checking: bool,
}

impl VolumeReconciler {
    /// Starts due checks of unattached volumes.
    pub(super) fn check_attachments(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        let mut waiting = Vec::new();
        for (uid, state) in &self.pods {
            let waits_for_volumes = state.tear_down.is_none() && !state.rejected;
            let pod = state.pod.as_ref().filter(|_| waits_for_volumes);
            for (key, volume) in &state.volumes {
                let desired = volume
                    .desired
                    .as_ref()
                    .filter(|_| volume.waits_for_device());
                let waits = pod.zip(desired).filter(|(_, desired)| {
                    let device = desired.device();
                    device.is_some_and(|device| self.attach_blocker(desired, &device).is_some())
                });
                if waits.is_some() || volume.unattached.is_some() {
                    let work = waits.map(|(pod, desired)| VolumeWork {
                        pod: SharedPod::clone(pod),
                        key: key.clone(),
                        volume: Arc::clone(desired),
                    });
                    waiting.push((uid.clone(), key.clone(), work));
                }
            }
        }
        for (uid, key, work) in waiting {
            let volume = self
                .pods
                .get_mut(&uid)
                .and_then(|s| s.volumes.get_mut(&key));
            let Some(volume) = volume else { continue };
            let Some(work) = work else {
                volume.unattached = None;
                continue;
            };
            let known = volume.unattached.get_or_insert(Unattached {
                check_at: now.monotonic + ATTACH_TIMEOUT,
                checking: false,
            });
            if !known.checking && known.check_at <= now.monotonic {
                known.checking = true;
                steps.push(Step::CheckAttachLimit(work));
            }
        }
    }

    /// Returns the times of the next checks.
    pub(super) fn attachment_wake_ups(&self) -> impl Iterator<Item = Duration> {
        let volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        let unattached = volumes.filter_map(|volume| volume.unattached);
        unattached.filter(|it| !it.checking).map(|it| it.check_at)
    }

    /// Handles the result of a check: whether the node is full.
    pub(super) fn attach_limit_checked(
        &mut self,
        uid: &PodUid,
        key: &VolumeKey,
        full: bool,
        now: ClockReading,
        steps: &mut Vec<Step>,
    ) {
        let Some(state) = self.pods.get_mut(uid) else {
            return;
        };
        let known = state
            .volumes
            .get_mut(key)
            .and_then(|v| v.unattached.as_mut());
        let Some(known) = known.filter(|known| known.checking) else {
            return;
        };
        (known.check_at, known.checking) = (now.monotonic + ATTACH_TIMEOUT, false);
        if let Some(pod) = state.pod.clone().filter(|_| full) {
            let unmounted = state.names_of(|volume| !volume.is_ready());
            let unattached = state.names_of(|volume| volume.unattached.is_some());
            let message = format!(
                "Node has reached its volume attachment limit, rejecting pod. unmounted \
                 volumes=[{}], unattached volumes=[{}], failed to process volumes=[]: context \
                 deadline exceeded",
                unmounted.join(" "),
                unattached.join(" ")
            );
            state.rejected = true;
            steps.push(Step::Reject(pod, message));
        }
    }
}
