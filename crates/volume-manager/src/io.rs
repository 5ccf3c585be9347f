//! Executes one step of the plan with the plugins.

use windlass_actors::NodeExpander;
use windlass_types::{ExpansionDecision, PodExt, PodUid, Retry, SharedPod, Timestamp};
use windlass_volume_plan::volume_reconciler::{
    ExpansionResult, Reconstruction, Step, StepError, StepResult, VolumeKey, VolumeWork,
};
use windlass_volume_plan::volume_source::{FailureOutcome, PodVolume, expansion_failure};
use windlass_volumes::{VolumeError, VolumePlugins, VolumeRequest};

/// Executes a step; `None` if it has no completion.
pub(crate) async fn execute(
    plugins: &dyn VolumePlugins,
    expander: &dyn NodeExpander,
    step: Step,
    now: Timestamp,
) -> Option<StepResult> {
    Some(match step {
        Step::Reconstruct => StepResult::Reconstructed(reconstruct(plugins).await.map_err(failed)),
        Step::Discover(uid) => {
            let found = plugins.find(&uid).await.map_err(failed);
            StepResult::Discovered(uid, found)
        }
        Step::Stage(device, work) => {
            let staged = plugins.stage(&request(&work, now)).await;
            StepResult::Staged(device, staged.map_err(failed))
        }
        Step::Unstage(device) => {
            let unstaged = plugins.unstage(&device).await;
            if let Err(error) = &unstaged {
                tracing::warn!(%device, %error, "unstaging a device failed");
            }
            StepResult::Unstaged(device, unstaged.map_err(failed))
        }
        Step::Mount(work) => {
            let mounted = plugins.set_up(&request(&work, now)).await;
            let (uid, key) = subject(work);
            StepResult::Mounted(uid, key, mounted.map_err(failed))
        }
        Step::Expand(work, failed_before) => {
            let expanded = expand(plugins, expander, &work, failed_before, now).await;
            let (uid, key) = subject(work);
            StepResult::Expanded(uid, key, expanded)
        }
        Step::CheckAttachLimit(work) => {
            let full = plugins.is_node_full(&work.volume).await;
            let (uid, key) = subject(work);
            StepResult::AttachLimitChecked(uid, key, full)
        }
        Step::CancelOperations(uid) => {
            plugins.cancel_operations(&uid).await;
            return None;
        }
        Step::Unmount(uid, key, found) => {
            let unmounted = plugins.tear_down(&uid, &found).await;
            StepResult::Unmounted(uid, key, unmounted.map_err(failed))
        }
        Step::ReplySetUp(..)
        | Step::ReplyTearDown(..)
        | Step::RequeuePod(_)
        | Step::Record(..)
        | Step::RecordPvc(..)
        | Step::Reject(..)
        | Step::ReportInUse(_) => return None,
    })
}

/// Expands a volume to the size of its PVC and updates the PVC status. The texts are upstream's.
async fn expand(
    plugins: &dyn VolumePlugins,
    expander: &dyn NodeExpander,
    work: &VolumeWork,
    failed_before: bool,
    now: Timestamp,
) -> Result<ExpansionResult, StepError> {
    let Some(size) = work.volume.size() else {
        return Ok(ExpansionResult::Deferred);
    };
    let (pod, pvc) = (&work.pod, size.pvc.as_str());
    let decision = expander
        .expansion_decision(pod, pvc, size.desired, failed_before)
        .await;
    let task = match decision.map_err(pvc_error)? {
        ExpansionDecision::Expand(task) => task,
        ExpansionDecision::AlreadyExpanded(bytes) => {
            return Ok(ExpansionResult::AlreadyExpanded(bytes));
        }
        ExpansionDecision::Deferred => return Ok(ExpansionResult::Deferred),
    };
    let Err(error) = plugins.expand(&request(work, now), task.bytes).await else {
        if !task.reported {
            let updated = expander.report_expanded(pod, pvc, task.bytes).await;
            let failed = "mountVolume.NodeExpandVolume update pvc status failed";
            updated.map_err(|error| pvc_error(format!("{failed}: {error}")))?;
        }
        return Ok(ExpansionResult::Expanded(task.bytes));
    };
    let failure = expansion_failure(&task, error.expansion_error());
    tracing::debug!(pod = %pod.uid(), pvc, %error, %failure, "volume not expanded");
    if let Some(infeasible) = failure.infeasible {
        let cause = error.to_string();
        let updated = expander.report_failure(pod, pvc, infeasible, &cause, now);
        if let Err(error) = updated.await {
            tracing::warn!(pvc, %error, "PVC status not updated after failed expansion");
        }
    }
    match failure.outcome {
        FailureOutcome::NothingToDo => Ok(ExpansionResult::AlreadyExpanded(task.bytes)),
        FailureOutcome::SkippedInUse => Ok(ExpansionResult::SkippedInUse),
        FailureOutcome::Failed { rejected: true } => Ok(ExpansionResult::Rejected(failed(error))),
        FailureOutcome::Failed { rejected: false } => Err(failed(error)),
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
async fn reconstruct(plugins: &dyn VolumePlugins) -> Result<Reconstruction, VolumeError> {
    let reconstruction = discover(plugins).await;
    if let Err(error) = &reconstruction {
        tracing::warn!(%error, "volume reconstruction failed");
    }
    reconstruction
}

async fn discover(plugins: &dyn VolumePlugins) -> Result<Reconstruction, VolumeError> {
    let mut reconstruction = Reconstruction {
        devices: plugins.find_devices().await?,
        ..Reconstruction::default()
    };
    for uid in plugins.find_pods().await? {
        let found = plugins.find(&uid).await?;
        reconstruction.pods.insert(uid, found);
    }
    Ok(reconstruction)
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
