//! Walks through volumes that outlive the call that began them.
//!
//! *owns* the walks that are under way, by directory · *invariant* a directory has one walk at a time;
//! a second call for the same group waits for the first one's; between two slices others have their
//! turn at the device · *bound* [`MAX_CONCURRENT_WALKS`] walks, each with one place of the queues at most; further
//! ones wait, but not for one that hangs · *restart* nothing to restore: a volume whose walk did not
//! come to its end is not set up, so it is gone through again.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use windlass_types::{PodExt, PodUid, Reason, SharedPod};

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueueError, IoQueues};
use crate::machine::Machine;
use crate::ownership::{OwnershipWalk, VolumeGroup, WalkProgress, WalkOutcome};

/// When the pod is told for the first time, and then how often.
const FIRST_EVENT_DELAY: Duration = Duration::from_secs(30);
const EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// Walks at the same time: a quarter of the places for devices, so that the large volumes of some pods
/// leave room for those of all others.
const MAX_CONCURRENT_WALKS: usize = crate::io_queue::DEVICE_PERMITS / 4;
/// Entries of a slice: some ten milliseconds on a disk that answers.
const SLICE_ENTRIES: u64 = 1000;
/// A slice that takes longer than this hangs: its walk is not one of those at the same time any more.
const HUNG_SLICE_THRESHOLD: Duration = Duration::from_secs(30);
/// Pause before a slice that found no place tries again.
const SATURATED_BACKOFF: Duration = Duration::from_secs(1);
const ACTION: &str = "setting the group of a volume";
/// How long a walk that was told to stop is waited for. One in a file system that does not answer
/// stops when that does; its volume may have to be unmounted by force first.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

const HINT: &str = "is taking longer than expected, consider using OnRootMismatch - \
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
    #configure-volume-permission-and-ownership-change-policy-for-pods";

#[derive(Debug)]
pub(crate) struct Walks {
    running: Mutex<HashMap<PathBuf, Arc<RunningWalk>>>,
    places: Arc<Semaphore>,
}

impl Default for Walks {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
            places: Arc::new(Semaphore::new(MAX_CONCURRENT_WALKS)),
        }
    }
}

#[derive(Debug)]
struct RunningWalk {
    group: VolumeGroup,
    /// The pod that began it.
    uid: PodUid,
    began: Instant,
    progress: Arc<WalkProgress>,
    /// The result, once there is one; the text if it is an error.
    ended: watch::Receiver<Option<Result<WalkOutcome, String>>>,
}

/// A volume that is to belong to a group of a pod.
#[derive(Clone, Debug)]
pub(crate) struct OwnershipChange<'a> {
    pub(crate) pod: &'a SharedPod,
    /// The queue of its device.
    pub(crate) queue: IoQueue,
    /// What is gone through.
    pub(crate) dir: &'a Path,
    /// What the pod is told: where it finds the volume.
    pub(crate) pod_path: &'a Path,
    pub(crate) group: VolumeGroup,
}

impl RunningWalk {
    /// It came to its end, or will never begin.
    fn is_over(&self) -> bool {
        self.ended.borrow().is_some() || self.ended.has_changed().is_err()
    }
}

impl Machine {
    /// Gives a volume to its pod's group; waits as long as it takes. Whoever stops waiting stops
    /// nothing: the next call finds the walk where it is.
    pub(crate) async fn change_ownership(&self, wanted: OwnershipChange<'_>) -> Result<(), VolumeError> {
        loop {
            let running = self.walks.of(wanted.dir);
            // what came of another pod's walk some time ago says nothing of the files of now
            let running = running.filter(|it| !it.is_over() || it.uid == wanted.pod.uid());
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
        let of_pod: Vec<Arc<RunningWalk>> = {
            let walks = self.walks.lock();
            let of_pod = walks.values().filter(|running| running.uid == *uid);
            of_pod.cloned().collect()
        };
        for running in &of_pod {
            running.progress.stop();
        }
        let all = async {
            for running in &of_pod {
                // closed: it never began
                let _ = running.ended.clone().wait_for(Option::is_some).await;
            }
        };
        if timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!(pod = %uid, "a walk through a volume does not end");
        }
        // nobody asks what came of them
        self.walks.lock().retain(|_, running| running.uid != *uid);
    }

    fn begin(&self, wanted: &OwnershipChange<'_>) -> Arc<RunningWalk> {
        let (sender, ended) = watch::channel(None);
        let progress = Arc::new(WalkProgress::default());
        let running = Arc::new(RunningWalk {
            group: wanted.group,
            uid: wanted.pod.uid(),
            began: Instant::now(),
            progress: Arc::clone(&progress),
            ended,
        });
        self.walks
            .lock()
            .insert(wanted.dir.to_owned(), Arc::clone(&running));
        let slices = Slices {
            dir: wanted.dir.to_owned(),
            queues: Arc::clone(&self.queues),
            queue: wanted.queue.clone(),
            places: Arc::clone(&self.walks.places),
            walk: Arc::new(Mutex::new(OwnershipWalk::new(wanted.dir, wanted.group))),
            progress,
        };
        tokio::spawn(async move {
            let result = match slices.walk().await {
                // who waits sees that nothing comes any more
                Err(VolumeError::Stopped { .. }) => return,
                result => result.map_err(|error| error.to_string()),
            };
            // nobody waits any more: what is done is done
            let _ = sender.send(Some(result));
        });
        running
    }

    async fn wait(&self, running: &RunningWalk, wanted: &OwnershipChange<'_>) -> Result<(), VolumeError> {
        let mut ended = running.ended.clone();
        let given_up = async {
            running.progress.stopped().await;
            sleep(STOP_TIMEOUT).await;
        };
        tokio::pin!(given_up);
        let mut word = running.began + FIRST_EVENT_DELAY;
        let mut first = true;
        // a walk that was found under way has had its words
        while word < Instant::now() {
            word += EVENT_INTERVAL;
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
                () = &mut given_up => {
                    return Err(VolumeError::Stopped { path: wanted.dir.to_owned() });
                }
                () = sleep_until(word) => {
                    self.record_progress(running, wanted, first);
                    word += EVENT_INTERVAL;
                    first = false;
                }
            }
        }
    }

    fn record_progress(&self, running: &RunningWalk, wanted: &OwnershipChange<'_>, first: bool) {
        let shown = wanted.pod_path.to_string_lossy();
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
        self.record_event(wanted.pod, reason, &message);
    }
}

/// A walk and what it runs in.
struct Slices {
    dir: PathBuf,
    queues: Arc<IoQueues>,
    queue: IoQueue,
    places: Arc<Semaphore>,
    walk: Arc<Mutex<OwnershipWalk>>,
    progress: Arc<WalkProgress>,
}

impl Slices {
    /// Goes through all of it, however long a slice takes or waits for a place.
    async fn walk(self) -> Result<WalkOutcome, VolumeError> {
        let mut place = None;
        loop {
            if place.is_none() {
                place = tokio::select! {
                    biased;
                    () = self.progress.stopped() => return Err(self.stopped()),
                    place = Arc::clone(&self.places).acquire_owned() => place.ok(),
                };
            }
            let slice = self.next();
            tokio::pin!(slice);
            let ended = match timeout(HUNG_SLICE_THRESHOLD, &mut slice).await {
                Ok(ended) => ended,
                Err(_) => {
                    place = None;
                    slice.await
                }
            };
            match ended {
                Some(result) => {
                    if let Some(walked) = result? {
                        return Ok(walked);
                    }
                }
                None => sleep(SATURATED_BACKOFF).await,
            }
        }
    }

    fn stopped(&self) -> VolumeError {
        VolumeError::Stopped {
            path: self.dir.clone(),
        }
    }

    /// The next slice; `None` if it did not begin.
    async fn next(&self) -> Option<Result<Option<WalkOutcome>, VolumeError>> {
        let (told, answer) = oneshot::channel();
        let (walk, progress) = (Arc::clone(&self.walk), Arc::clone(&self.progress));
        let work = move || {
            let mut walk = walk.lock().unwrap_or_else(PoisonError::into_inner);
            // who waits for it stays
            let _ = told.send(walk.advance(SLICE_ENTRIES, &progress));
            Ok::<(), IoQueueError>(())
        };
        // past the queue's deadline a slice that began goes on
        let _ = self.queues.run_in(&self.queue, ACTION, work).await;
        answer.await.ok()
    }
}

impl Walks {
    fn of(&self, dir: &Path) -> Option<Arc<RunningWalk>> {
        self.lock().get(dir).cloned()
    }

    fn forget(&self, dir: &Path, running: &Arc<RunningWalk>) {
        let mut walks = self.lock();
        if walks
            .get(dir)
            .is_some_and(|found| Arc::ptr_eq(found, running))
        {
            walks.remove(dir);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<RunningWalk>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
