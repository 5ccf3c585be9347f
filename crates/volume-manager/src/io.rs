//! Carries out one step with the plugins.

use windlass_core::volume_plan::{Done, Step, StepError, Survey, VolumeKey, VolumeWork};
use windlass_core::volume_source::{PodVolume, VolumeSource};
use windlass_types::{ClaimSizes, PodExt, PodUid, SharedPod, Timestamp};
use windlass_volumes::{VolumeError, VolumePlugins, VolumeRequest};

/// Carries out a step that works on volumes; `None` for one whose end nobody waits for.
pub(crate) async fn work(
    plugins: &dyn VolumePlugins,
    claims: &dyn ClaimSizes,
    step: Step,
    now: Timestamp,
) -> Option<Done> {
    Some(match step {
        Step::Survey => Done::Surveyed(survey(plugins).await.map_err(failed)),
        Step::Find(uid) => {
            let found = plugins.find(&uid).await.map_err(failed);
            Done::Found(uid, found)
        }
        Step::Stage(device, work) => {
            let staged = plugins.stage(&request(&work, now)).await;
            Done::Staged(device, staged.map_err(failed))
        }
        Step::Unstage(device) => {
            let unstaged = plugins.unstage(&device).await;
            if let Err(error) = &unstaged {
                tracing::warn!(%device, %error, "device not taken back");
            }
            Done::Unstaged(device, unstaged.map_err(failed))
        }
        Step::Mount(work) => {
            let mounted = plugins.set_up(&request(&work, now)).await;
            let (uid, key) = subject(work);
            Done::Mounted(uid, key, mounted.map_err(failed))
        }
        Step::Expand(work) => {
            let expanded = plugins.expand(&request(&work, now)).await;
            if let (Ok(Some(bytes)), Some(claim)) = (&expanded, claim_of(&work)) {
                claims.grown(&work.pod, claim, *bytes);
            }
            let (uid, key) = subject(work);
            Done::Expanded(uid, key, expanded.map_err(failed))
        }
        Step::GiveUp(uid) => {
            plugins.give_up(&uid).await;
            return None;
        }
        Step::Unmount(uid, key, found) => {
            let unmounted = plugins.tear_down(&uid, &found).await;
            Done::Unmounted(uid, key, unmounted.map_err(failed))
        }
        Step::Ready(..)
        | Step::Released(..)
        | Step::Wake(_)
        | Step::Record(..)
        | Step::InUse(_) => return None,
    })
}

/// What an earlier life left: volumes of every pod that has a directory, and staged devices.
async fn survey(plugins: &dyn VolumePlugins) -> Result<Survey, VolumeError> {
    let surveyed = look(plugins).await;
    if let Err(error) = &surveyed {
        tracing::warn!(%error, "volumes of an earlier life not read");
    }
    surveyed
}

async fn look(plugins: &dyn VolumePlugins) -> Result<Survey, VolumeError> {
    let mut survey = Survey {
        devices: plugins.find_devices().await?,
        ..Survey::default()
    };
    for uid in plugins.find_pods().await? {
        let found = plugins.find(&uid).await?;
        survey.pods.insert(uid, found);
    }
    Ok(survey)
}

fn request(work: &VolumeWork, now: Timestamp) -> VolumeRequest {
    VolumeRequest {
        pod: SharedPod::clone(&work.pod),
        volume: PodVolume::clone(&work.volume),
        now,
    }
}

/// The claim whose size a volume follows.
fn claim_of(work: &VolumeWork) -> Option<&str> {
    match &work.volume.source {
        VolumeSource::Csi(csi) => csi.size.as_ref().map(|size| size.claim.as_str()),
        _ => None,
    }
}

fn subject(work: VolumeWork) -> (PodUid, VolumeKey) {
    (work.pod.uid(), work.key)
}

fn failed(error: VolumeError) -> StepError {
    StepError {
        operation: error.step(),
        message: error.to_string(),
        retry: error.retry(),
    }
}
