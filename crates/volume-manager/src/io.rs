//! Carries out one step with the plugins.

use windlass_actors::NodeExpander;
use windlass_volume_plan::volume_plan::{Done, Expanded, Step, StepError, Survey, VolumeKey, VolumeWork};
use windlass_volume_plan::volume_source::{NotGrownEnd, PodVolume, not_grown};
use windlass_types::{ExpansionDecision, PodExt, PodUid, Retry, SharedPod, Timestamp};
use windlass_volumes::{VolumeError, VolumePlugins, VolumeRequest};

/// Carries out a step that works on volumes; `None` for one whose end nobody waits for.
pub(crate) async fn work(
    plugins: &dyn VolumePlugins,
    claims: &dyn NodeExpander,
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
        Step::Expand(work, failed_before) => {
            let expanded = expand(plugins, claims, &work, failed_before, now).await;
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

/// Grows a volume as its claim says by now, and tells the claim how that ends. Words are upstream's.
async fn expand(
    plugins: &dyn VolumePlugins,
    claims: &dyn NodeExpander,
    work: &VolumeWork,
    failed_before: bool,
    now: Timestamp,
) -> Result<Expanded, StepError> {
    let Some(size) = work.volume.size() else {
        return Ok(Expanded::NotNow);
    };
    let (pod, claim) = (&work.pod, size.claim.as_str());
    let turn = claims.turn(pod, claim, size.wanted, failed_before).await;
    let growing = match turn.map_err(not_told)? {
        ExpansionDecision::Expand(growing) => growing,
        ExpansionDecision::AlreadyExpanded(bytes) => return Ok(Expanded::Has(bytes)),
        ExpansionDecision::Deferred => return Ok(Expanded::NotNow),
    };
    let Err(error) = plugins.expand(&request(work, now), growing.bytes).await else {
        if !growing.reported {
            let told = claims.grown(pod, claim, growing.bytes).await;
            let failed = "mountVolume.NodeExpandVolume update pvc status failed";
            told.map_err(|error| not_told(format!("{failed}: {error}")))?;
        }
        return Ok(Expanded::Grown(growing.bytes));
    };
    let follows = not_grown(&growing, error.expansion_error());
    tracing::debug!(pod = %pod.uid(), claim, %error, %follows, "not grown");
    if let Some(infeasible) = follows.told {
        let why = error.to_string();
        let told = claims.not_grown(pod, claim, infeasible, &why, now);
        if let Err(error) = told.await {
            tracing::warn!(claim, %error, "failure of a growth not told");
        }
    }
    match follows.end {
        NotGrownEnd::Done => Ok(Expanded::Has(growing.bytes)),
        NotGrownEnd::Left => Ok(Expanded::Left),
        NotGrownEnd::Failed { refused: true } => Ok(Expanded::Refused(failed(error))),
        NotGrownEnd::Failed { refused: false } => Err(failed(error)),
    }
}

fn not_told(message: String) -> StepError {
    StepError {
        operation: None,
        message,
        retry: Retry::Later,
    }
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
