//! Walks through volumes that outlive the call that began them.
//!
//! *owns* the walks that are under way, by directory · *invariant* a directory has one walk at a time;
//! a second call for the same group waits for the first one's · *bound* a walk holds one of the
//! lanes' slots · *restart* nothing to restore: a volume whose walk did not come to its end is not
//! set up, so it is gone through again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use windlass_types::{PodExt, PodUid, Reason, SharedPod};

use crate::error::VolumeError;
use crate::machine::Machine;
use crate::ownership::{VolumeGroup, WalkProgress, Walked, set_volume_ownership};

/// When the pod is told for the first time, and then how often.
const FIRST_WORD: Duration = Duration::from_secs(30);
const NEXT_WORD: Duration = Duration::from_secs(60);

const HINT: &str = "is taking longer than expected, consider using OnRootMismatch - \
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
    #configure-volume-permission-and-ownership-change-policy-for-pods";

#[derive(Debug, Default)]
pub(crate) struct Walks(Mutex<HashMap<PathBuf, Arc<Running>>>);

#[derive(Debug)]
struct Running {
    group: VolumeGroup,
    /// The pod that began it.
    uid: PodUid,
    began: Instant,
    progress: Arc<WalkProgress>,
    /// The result, once there is one; the text if it is an error.
    ended: watch::Receiver<Option<Result<Walked, String>>>,
}

/// A volume that is to belong to a group of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Ownership<'a> {
    pub(crate) pod: &'a SharedPod,
    /// What is gone through.
    pub(crate) dir: &'a Path,
    /// What the pod is told: where it finds the volume.
    pub(crate) shown_as: &'a Path,
    pub(crate) group: VolumeGroup,
}

impl Machine {
    /// Gives a volume to its pod's group; waits as long as it takes. Whoever stops waiting stops
    /// nothing: the next call finds the walk where it is.
    pub(crate) async fn give_to_group(&self, wanted: Ownership<'_>) -> Result<(), VolumeError> {
        loop {
            let running = self.walks.of(wanted.dir);
            let running = running.unwrap_or_else(|| self.begin(&wanted));
            let result = self.wait(&running, &wanted).await;
            self.walks.forget(wanted.dir, &running);
            if running.group == wanted.group {
                return result;
            }
        }
    }

    /// Ends the walks that a pod began, so that its volumes can be unmounted.
    pub(crate) async fn stop_walks(&self, uid: &PodUid) {
        let of_pod: Vec<Arc<Running>> = {
            let walks = self.walks.lock();
            let of_pod = walks.values().filter(|running| running.uid == *uid);
            of_pod.cloned().collect()
        };
        for running in of_pod {
            running.progress.stop();
            // closed: it never began
            let _ = running.ended.clone().wait_for(Option::is_some).await;
        }
    }

    fn begin(&self, wanted: &Ownership<'_>) -> Arc<Running> {
        let (sender, ended) = watch::channel(None);
        let progress = Arc::new(WalkProgress::default());
        let running = Arc::new(Running {
            group: wanted.group,
            uid: wanted.pod.uid(),
            began: Instant::now(),
            progress: Arc::clone(&progress),
            ended,
        });
        self.walks
            .lock()
            .insert(wanted.dir.to_owned(), Arc::clone(&running));
        let (lanes, dir, group) = (Arc::clone(&self.lanes), wanted.dir.to_owned(), wanted.group);
        tokio::spawn(async move {
            let lane = format!("group of {}", dir.display());
            let work = move || {
                let result = set_volume_ownership(&dir, group, &progress);
                let result = result.map_err(|error| error.to_string());
                // nobody waits any more: what is done is done
                let _ = sender.send(Some(result));
                Ok::<(), VolumeError>(())
            };
            // that it did not begin is seen by the channel
            let _ = lanes.run(&lane, "setting the group of volumes", work).await;
        });
        running
    }

    async fn wait(&self, running: &Running, wanted: &Ownership<'_>) -> Result<(), VolumeError> {
        let mut ended = running.ended.clone();
        let mut word = running.began + FIRST_WORD;
        let mut first = true;
        // a walk that was found under way has had its words
        while word < Instant::now() {
            word += NEXT_WORD;
            first = false;
        }
        loop {
            tokio::select! {
                biased;
                result = ended.wait_for(Option::is_some) => {
                    let result = result.ok().and_then(|result| result.clone());
                    return match result {
                        Some(Ok(_)) => Ok(()),
                        Some(Err(message)) => Err(VolumeError::failed(message)),
                        None => Err(VolumeError::Stopped { path: wanted.dir.to_owned() }),
                    };
                }
                () = sleep_until(word) => {
                    self.tell_progress(running, wanted, first);
                    word += NEXT_WORD;
                    first = false;
                }
            }
        }
    }

    fn tell_progress(&self, running: &Running, wanted: &Ownership<'_>, first: bool) {
        let shown = wanted.shown_as.to_string_lossy();
        let uid = wanted.pod.uid();
        // from the pod's UID on, as upstream shows it
        let from = shown.find(uid.as_str()).unwrap_or_default();
        let shown = shown.get(from..).unwrap_or_default();
        let files = running.progress.files();
        let message = match first {
            true => format!("Setting volume ownership for {shown} {HINT}"),
            false => format!("Setting volume ownership for {shown}, processed {files} files."),
        };
        let reason = Reason::VolumePermissionChangeInProgress;
        self.tell(wanted.pod, reason, &message);
    }
}

impl Walks {
    fn of(&self, dir: &Path) -> Option<Arc<Running>> {
        self.lock().get(dir).cloned()
    }

    fn forget(&self, dir: &Path, running: &Arc<Running>) {
        let mut walks = self.lock();
        if walks
            .get(dir)
            .is_some_and(|found| Arc::ptr_eq(found, running))
        {
            walks.remove(dir);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Running>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
