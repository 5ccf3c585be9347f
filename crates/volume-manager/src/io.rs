//! Executes one step of the plan with the plugins.

use windlass_actors::NodeExpander;
use windlass_types::{ExpansionDecision, PodExt, PodUid, Retry, SharedPod, Timestamp};
use windlass_volume_plan::volume_plan::{
    Done, Expanded, Step, StepError, Survey, VolumeKey, VolumeWork,
};
use windlass_volume_plan::volume_source::{NotGrownEnd, PodVolume, not_grown};
use windlass_volumes::{VolumeError, VolumePlugins, VolumeRequest};

/// Executes a step; `None` if it has no completion.
pub(crate) async fn execute(
    plugins: &dyn VolumePlugins,
    expander: &dyn NodeExpander,
    step: Step,
    now: Timestamp,
) -> Option<Done> {
    Some(match step {
        Step::Survey => Done::Surveyed(reconstruct(plugins).await.map_err(failed)),
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
                tracing::warn!(%device, %error, "unstaging a device failed");
            }
            Done::Unstaged(device, unstaged.map_err(failed))
        }
        Step::Mount(work) => {
            let mounted = plugins.set_up(&request(&work, now)).await;
            let (uid, key) = subject(work);
            Done::Mounted(uid, key, mounted.map_err(failed))
        }
        Step::Expand(work, failed_before) => {
            let expanded = expand(plugins, expander, &work, failed_before, now).await;
            let (uid, key) = subject(work);
            Done::Expanded(uid, key, expanded)
        }
        Step::AskLimit(work) => {
            let full = plugins.is_node_full(&work.volume).await;
            let (uid, key) = subject(work);
            Done::LimitAsked(uid, key, full)
        }
        Step::GiveUp(uid) => {
            plugins.cancel_operations(&uid).await;
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
        | Step::RecordClaim(..)
        | Step::Reject(..)
        | Step::InUse(_) => return None,
    })
}

/// Expands a volume to the size of its PVC and updates the PVC status. The texts are upstream's.
async fn expand(
    plugins: &dyn VolumePlugins,
    expander: &dyn NodeExpander,
    work: &VolumeWork,
    failed_before: bool,
    now: Timestamp,
) -> Result<Expanded, StepError> {
    let Some(size) = work.volume.size() else {
        return Ok(Expanded::NotNow);
    };
    let (pod, claim) = (&work.pod, size.claim.as_str());
    let decision = expander.turn(pod, claim, size.wanted, failed_before).await;
    let task = match decision.map_err(pvc_error)? {
        ExpansionDecision::Expand(task) => task,
        ExpansionDecision::AlreadyExpanded(bytes) => return Ok(Expanded::Has(bytes)),
        ExpansionDecision::Deferred => return Ok(Expanded::NotNow),
    };
    let Err(error) = plugins.expand(&request(work, now), task.bytes).await else {
        if !task.reported {
            let updated = expander.grown(pod, claim, task.bytes).await;
            let failed = "mountVolume.NodeExpandVolume update pvc status failed";
            updated.map_err(|error| pvc_error(format!("{failed}: {error}")))?;
        }
        return Ok(Expanded::Grown(task.bytes));
    };
    let failure = not_grown(&task, error.expansion_error());
    tracing::debug!(pod = %pod.uid(), claim, %error, %failure, "volume not expanded");
    if let Some(infeasible) = failure.told {
        let cause = error.to_string();
        let updated = expander.not_grown(pod, claim, infeasible, &cause, now);
        if let Err(error) = updated.await {
            tracing::warn!(claim, %error, "PVC status not updated after failed expansion");
        }
    }
    match failure.end {
        NotGrownEnd::Done => Ok(Expanded::Has(task.bytes)),
        NotGrownEnd::Left => Ok(Expanded::Left),
        NotGrownEnd::Failed { refused: true } => Ok(Expanded::Refused(failed(error))),
        NotGrownEnd::Failed { refused: false } => Err(failed(error)),
    }
}

fn pvc_error(message: String) -> StepError {
    StepError {
        operation: None,
        message,
        retry: Retry::Later,
    }
}

/// Reconstructs the volumes of all pod directories and the staged devices.
async fn reconstruct(plugins: &dyn VolumePlugins) -> Result<Survey, VolumeError> {
    let reconstruction = discover(plugins).await;
    if let Err(error) = &reconstruction {
        tracing::warn!(%error, "volume reconstruction failed");
    }
    reconstruction
}

async fn discover(plugins: &dyn VolumePlugins) -> Result<Survey, VolumeError> {
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
