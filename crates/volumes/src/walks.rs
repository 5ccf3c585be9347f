//! Ownership changes in the background, which outlive the call that started them.
//!
//! *owns* the walks in progress, by directory · *invariant* one walk per directory; another call for
//! the same group waits for it; other work uses the device between two slices · *bound*
//! [`MAX_CONCURRENT_WALKS`], each with at most one I/O permit; hung walks do not count · *restart*
//! nothing to restore: a volume with an incomplete walk is not set up, so the walk is repeated.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use windlass_types::{PodExt, PodUid, Reason, SharedPod};

use crate::error::VolumeError;
use crate::io_queue::{IoQueue, IoQueueError, IoQueues};
use crate::machine::Machine;
use crate::ownership::{OwnershipWalk, VolumeGroup, WalkOutcome, WalkProgress};

/// Delay of the first event for the pod, and interval of further ones.
const FIRST_EVENT_DELAY: Duration = Duration::from_secs(30);
const EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// Max concurrent walks: a quarter of the device permits, so that large volumes do not block other
/// pods.
const MAX_CONCURRENT_WALKS: usize = crate::io_queue::DEVICE_PERMITS / 4;
/// Entries per slice: about ten milliseconds on a healthy disk.
const SLICE_ENTRIES: u64 = 1000;
/// Duration after which a slice counts as hung and its walk no longer towards the limit.
const HUNG_SLICE_THRESHOLD: Duration = Duration::from_secs(30);
/// Back-off of a slice without an I/O permit.
const SATURATED_BACKOFF: Duration = Duration::from_secs(1);
const ACTION: &str = "setting the group of a volume";
/// Time to wait for a cancelled walk. A hung one may end only after its volume is unmounted by force.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

const HINT: &str = "is taking longer than expected, consider using OnRootMismatch - \
    https://kubernetes.io/docs/tasks/configure-pod-container/security-context/\
    #configure-volume-permission-and-ownership-change-policy-for-pods";

#[derive(Debug)]
pub(crate) struct Walks {
    running: Mutex<HashMap<PathBuf, Arc<RunningWalk>>>,
    permits: Arc<Semaphore>,
}

impl Default for Walks {
    fn default() -> Self {
        Self {
            running: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WALKS)),
        }
    }
}

#[derive(Debug)]
struct RunningWalk {
    group: VolumeGroup,
    /// The pod that started it.
    uid: PodUid,
    began: Instant,
    progress: Arc<WalkProgress>,
    /// The result after the end; for an error its text.
    ended: watch::Receiver<Option<Result<WalkOutcome, String>>>,
}

/// Desired ownership of a volume.
#[derive(Clone, Debug)]
pub(crate) struct OwnershipChange<'a> {
    pub(crate) pod: &'a SharedPod,
    /// I/O queue of the device.
    pub(crate) queue: IoQueue,
    /// Root of the volume.
    pub(crate) dir: &'a Path,
    /// Path of the volume in the pod directory, for events.
    pub(crate) pod_path: &'a Path,
    pub(crate) group: VolumeGroup,
}

impl RunningWalk {
    /// Whether it has ended, or was dropped.
    fn is_finished(&self) -> bool {
        self.ended.borrow().is_some() || self.ended.has_changed().is_err()
    }
}

impl Machine {
    /// Changes the ownership of a volume and waits for the end. Dropping the future does not cancel the
    /// walk; the next call waits for the same one.
    pub(crate) async fn change_ownership(
        &self,
        wanted: OwnershipChange<'_>,
    ) -> Result<(), VolumeError> {
        loop {
            let running = self.walks.get(wanted.dir);
            // the result of another pod's finished walk may be outdated
            let running = running.filter(|it| !it.is_finished() || it.uid == wanted.pod.uid());
            let running = running.unwrap_or_else(|| self.begin(&wanted));
            let result = self.wait(&running, &wanted).await;
            self.walks.remove(wanted.dir, &running);
            if running.group == wanted.group {
                return result;
            }
        }
    }

    /// Cancels the walks that a pod started, so that its volumes can be unmounted.
    pub(crate) async fn stop_walks(&self, uid: &PodUid) {
        let of_pod: Vec<Arc<RunningWalk>> = {
            let walks = self.walks.running.lock();
            let of_pod = walks.values().filter(|running| running.uid == *uid);
            of_pod.cloned().collect()
        };
        for running in &of_pod {
            running.progress.stop();
        }
        let all = async {
            for running in &of_pod {
                // an error means that the walk was dropped
                let _ = running.ended.clone().wait_for(Option::is_some).await;
            }
        };
        if timeout(STOP_TIMEOUT, all).await.is_err() {
            tracing::warn!(pod = %uid, "ownership change still running after its cancellation");
        }
        self.walks
            .running
            .lock()
            .retain(|_, running| running.uid != *uid);
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
            .running
            .lock()
            .insert(wanted.dir.to_owned(), Arc::clone(&running));
        let slices = Slices {
            dir: wanted.dir.to_owned(),
            queues: Arc::clone(&self.queues),
            queue: wanted.queue.clone(),
            permits: Arc::clone(&self.walks.permits),
            walk: Arc::new(Mutex::new(OwnershipWalk::new(wanted.dir, wanted.group))),
            progress,
        };
        tokio::spawn(async move {
            let result = match slices.walk().await {
                // waiters see that the channel is closed
                Err(VolumeError::Stopped { .. }) => return,
                result => result.map_err(|error| error.to_string()),
            };
            // an error means that all waiters are gone
            let _ = sender.send(Some(result));
        });
        running
    }

    async fn wait(
        &self,
        running: &RunningWalk,
        wanted: &OwnershipChange<'_>,
    ) -> Result<(), VolumeError> {
        let mut ended = running.ended.clone();
        let stop_timeout = async {
            running.progress.stopped().await;
            sleep(STOP_TIMEOUT).await;
        };
        tokio::pin!(stop_timeout);
        let mut next_event = running.began + FIRST_EVENT_DELAY;
        let mut first = true;
        // skip the events of a walk that is already in progress
        while next_event < Instant::now() {
            next_event += EVENT_INTERVAL;
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
                () = &mut stop_timeout => {
                    return Err(VolumeError::Stopped { path: wanted.dir.to_owned() });
                }
                () = sleep_until(next_event) => {
                    self.record_progress(running, wanted, first);
                    next_event += EVENT_INTERVAL;
                    first = false;
                }
            }
        }
    }

    fn record_progress(&self, running: &RunningWalk, wanted: &OwnershipChange<'_>, first: bool) {
        let path = wanted.pod_path.to_string_lossy();
        let uid = wanted.pod.uid();
        // from the pod UID on, as upstream
        let start = path.find(uid.as_str()).unwrap_or_default();
        let path = path.get(start..).unwrap_or_default();
        let files = running.progress.files();
        let message = match first {
            true => format!("Setting volume ownership for {path} {HINT}"),
            false => format!("Setting volume ownership for {path}, processed {files} files."),
        };
        let reason = Reason::VolumePermissionChangeInProgress;
        self.record_event(wanted.pod, reason, &message);
    }
}

/// Runs a walk in slices.
struct Slices {
    dir: PathBuf,
    queues: Arc<IoQueues>,
    queue: IoQueue,
    permits: Arc<Semaphore>,
    walk: Arc<Mutex<OwnershipWalk>>,
    progress: Arc<WalkProgress>,
}

impl Slices {
    /// Runs the walk to its end.
    async fn walk(self) -> Result<WalkOutcome, VolumeError> {
        let mut permit = None;
        loop {
            if permit.is_none() {
                permit = tokio::select! {
                    biased;
                    () = self.progress.stopped() => return Err(self.stopped()),
                    permit = Arc::clone(&self.permits).acquire_owned() => permit.ok(),
                };
            }
            let slice = self.next();
            tokio::pin!(slice);
            let ended = match timeout(HUNG_SLICE_THRESHOLD, &mut slice).await {
                Ok(ended) => ended,
                Err(_) => {
                    permit = None;
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

    /// Runs the next slice; `None` if it did not start.
    async fn next(&self) -> Option<Result<Option<WalkOutcome>, VolumeError>> {
        let (sender, result) = oneshot::channel();
        let (walk, progress) = (Arc::clone(&self.walk), Arc::clone(&self.progress));
        let work = move || {
            let mut walk = walk.lock();
            // an error means that the receiver is gone
            let _ = sender.send(walk.advance(SLICE_ENTRIES, &progress));
            Ok::<(), IoQueueError>(())
        };
        // a started slice continues after the deadline of the queue
        let _ = self.queues.run_in(&self.queue, ACTION, work).await;
        result.await.ok()
    }
}

impl Walks {
    fn get(&self, dir: &Path) -> Option<Arc<RunningWalk>> {
        self.running.lock().get(dir).cloned()
    }

    fn remove(&self, dir: &Path, running: &Arc<RunningWalk>) {
        let mut walks = self.running.lock();
        if walks
            .get(dir)
            .is_some_and(|found| Arc::ptr_eq(found, running))
        {
            walks.remove(dir);
        }
    }
}

#[cfg(test)]
mod tests;
