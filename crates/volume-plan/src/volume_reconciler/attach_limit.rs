//! Volumes that nobody attaches because the node is full.
//!
//! A driver's attacher that is told `ResourceExhausted` will not succeed by waiting: the limit that
//! the scheduler believed was wrong. The driver is asked for it again, and the pod ends, so that
//! its owner can make another one elsewhere (upstream `VerifyExhaustedResource`).

use std::sync::Arc;
use std::time::Duration;

use windlass_types::{PodUid, SharedPod};

use super::{ClockReading, Step, VolumeKey, VolumeReconciler, VolumeWork};

/// How long a pod waits for its volumes before it is asked why they are not attached (upstream
/// `podAttachAndMountTimeout`), and between two such questions.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(123);

/// A volume that waits to be attached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unattached {
    /// The uptime at which it is asked about.
    check_at: Duration,
    /// That is under way.
    asked: bool,
}

impl VolumeReconciler {
    /// Asks about volumes that have waited long enough.
    pub(super) fn check_attachments(&mut self, now: ClockReading, steps: &mut Vec<Step>) {
        let mut waiting = Vec::new();
        for (uid, state) in &self.pods {
            let goes_on = state.tear_down.is_none() && !state.rejected;
            let pod = state.pod.as_ref().filter(|_| goes_on);
            for (key, volume) in &state.volumes {
                let desired = volume.desired.as_ref().filter(|_| volume.waits_for_device());
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
                asked: false,
            });
            if !known.asked && known.check_at <= now.monotonic {
                known.asked = true;
                steps.push(Step::CheckAttachLimit(work));
            }
        }
    }

    /// When somebody is asked about next.
    pub(super) fn attachment_wake_ups(&self) -> impl Iterator<Item = Duration> {
        let volumes = self.pods.values().flat_map(|pod| pod.volumes.values());
        let unattached = volumes.filter_map(|volume| volume.unattached);
        unattached.filter(|it| !it.asked).map(|it| it.check_at)
    }

    /// The driver's attacher said whether the node is full.
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
        let Some(known) = known.filter(|known| known.asked) else {
            return;
        };
        (known.check_at, known.asked) = (now.monotonic + ATTACH_TIMEOUT, false);
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
