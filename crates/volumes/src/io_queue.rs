//! Blocking file work in queues: one call at a time in each, with a deadline, on a bounded number of
//! threads.
//!
//! *owns* the permits for blocking threads, and who has them · *invariant* a queue holds at most one
//! permit, however long its file system hangs; what a device does costs work on the node's own disk no
//! permit · *bound* [`DISK_PERMITS`] and [`DEVICE_PERMITS`]; a caller over it waits within its deadline, for
//! a device [`PERMIT_TIMEOUT`], and is told who has the permits · *restart* nothing to restore.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use windlass_types::{PodUid, Retry};

/// Calls on the node's own disk at a time. Each takes milliseconds; 32 of them fill the queue of any
/// one disk, and as many again may have to remove a large tree.
const DISK_PERMITS: usize = 64;
/// Calls at a time on what may never answer: as many as the volumes that the largest nodes can have
/// attached (a driver's limit is 127 at the most), one for each. A thread that hangs costs some 20 KiB.
pub(crate) const DEVICE_PERMITS: usize = 128;
/// Blocking threads for file work of pods. The process must allow more threads than this, so
/// that even this many calls that hang leave manifests and state files room.
pub const IO_PERMITS: usize = DISK_PERMITS + DEVICE_PERMITS;

/// How long a call on a device waits for a permit: below the ten seconds after which a pod asks what its
/// volumes wait for.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A call that holds a permit of the disk for longer than this while others wait counts as one of a
/// device: what lies at a hostPath is known only by looking.
const SLOW_CALL_THRESHOLD: Duration = Duration::from_secs(10);
/// How often who waits looks for such calls.
const SLOW_CALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Volumes that are told by name when there is no permit.
const MAX_NAMED_VOLUMES: usize = 3;

/// Forgotten queues are swept when the table reaches this many, well above the pods of a node.
const SWEEP_AT: usize = 1024;

/// Work of a queue did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoQueueError {
    /// The file system did not answer in time; the call may still end later.
    #[error("{action} did not end within {seconds} s")]
    Deadline {
        /// What was tried.
        action: &'static str,
        /// How long.
        seconds: u64,
    },
    /// Others have all permits and do not end; the call did not begin.
    #[error("waits for a permit: {}", describe_holders(*hanging, named))]
    Saturated {
        /// Volumes with a call that hangs.
        hanging: usize,
        /// The oldest of them, with what hangs.
        named: Vec<String>,
    },
    /// The thread that worked was lost.
    #[error("{action} was interrupted")]
    Lost {
        /// What was tried.
        action: &'static str,
    },
}

impl IoQueueError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Deadline { .. } | Self::Saturated { .. } => Retry::Later,
            Self::Lost { .. } => Retry::Soon,
        }
    }
}

/// Where calls queue, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoQueue {
    /// Touches the node's own disk and memory only.
    Disk(String),
    /// Touches what this device or volume shows, which may never answer: a server, a driver's mount.
    Device(String),
}

impl IoQueue {
    fn key(&self) -> &str {
        match self {
            Self::Disk(key) | Self::Device(key) => key,
        }
    }
}

/// The queue of a pod's volumes: its other files do not wait for a volume that hangs.
pub(crate) fn pod_volumes_queue(uid: &PodUid) -> String {
    format!("{uid}/volumes")
}

/// Runs closures on the blocking pool.
#[derive(Debug)]
pub struct IoQueues {
    permits: Arc<Permits>,
    queues: Mutex<HashMap<String, Weak<Semaphore>>>,
    deadline: Duration,
}

impl IoQueues {
    /// IoQueues without anything in them; `deadline` holds for each call.
    pub fn new(deadline: Duration) -> Self {
        Self {
            permits: Arc::new(Permits {
                disk: Arc::new(Semaphore::new(DISK_PERMITS)),
                device: Arc::new(Semaphore::new(DEVICE_PERMITS)),
                calls: Mutex::default(),
                // whoever finds no permit is to hear of it, not of the deadline
                permit_timeout: PERMIT_TIMEOUT.min(deadline / 2),
                slow_call_threshold: SLOW_CALL_THRESHOLD.min(deadline / 2),
            }),
            queues: Mutex::default(),
            deadline,
        }
    }

    /// Runs `work` on the node's own disk in the queue `key`, as [`IoQueues::run_in`] does.
    ///
    /// # Errors
    /// Those of `work`, and [`IoQueueError`] if it does not end.
    pub async fn run<T: Send + 'static, E: From<IoQueueError> + Send + 'static>(
        &self,
        key: &str,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.run_in(&IoQueue::Disk(key.to_owned()), action, work).await
    }

    /// Runs `work` in a queue. After the deadline the caller goes on without it; the queue stays taken
    /// until `work` really ends.
    ///
    /// # Errors
    /// Those of `work`, and [`IoQueueError`] if it does not end.
    pub async fn run_in<T: Send + 'static, E: From<IoQueueError> + Send + 'static>(
        &self,
        queue: &IoQueue,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let turn = self.turn(queue.key());
        let (permits, queue) = (Arc::clone(&self.permits), queue.clone());
        let job = async move {
            let lost = || IoQueueError::Lost { action };
            let turn = turn.acquire_owned().await.map_err(|_| lost())?;
            let permit = permits.take(queue, action).await?;
            tokio::task::spawn_blocking(move || {
                let result = work();
                drop((turn, permit));
                result
            })
            .await
            .map_err(|_| IoQueueError::Lost { action })?
        };
        let late = || {
            Err(E::from(IoQueueError::Deadline {
                action,
                seconds: self.deadline.as_secs(),
            }))
        };
        let ended = timeout(self.deadline, job).await;
        ended.unwrap_or_else(|_| late())
    }

    fn turn(&self, key: &str) -> Arc<Semaphore> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.get(key).and_then(Weak::upgrade) {
            return queue;
        }
        if queues.len() >= SWEEP_AT {
            queues.retain(|_, queue| queue.strong_count() > 0);
        }
        let queue = Arc::new(Semaphore::new(1));
        queues.insert(key.to_owned(), Arc::downgrade(&queue));
        queue
    }
}

/// The two budgets, and the calls that take from them.
#[derive(Debug)]
struct Permits {
    disk: Arc<Semaphore>,
    device: Arc<Semaphore>,
    calls: Mutex<Calls>,
    permit_timeout: Duration,
    slow_call_threshold: Duration,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    /// In the order in which they began.
    running: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    queue: IoQueue,
    action: &'static str,
    since: Instant,
    /// Given back with the call.
    permit: OwnedSemaphorePermit,
}

/// A permit of one call.
#[derive(Debug)]
struct Permit {
    permits: Arc<Permits>,
    id: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ended = self.permits.calls().running.remove(&self.id);
        drop(ended);
    }
}

impl Permits {
    async fn take(self: Arc<Self>, queue: IoQueue, action: &'static str) -> Result<Permit, IoQueueError> {
        let permit = match &queue {
            IoQueue::Disk(_) => self.disk_permit(action).await?,
            IoQueue::Device(_) => self.device_permit(action).await?,
        };
        let id = {
            let mut calls = self.calls();
            calls.next += 1;
            let id = calls.next;
            let since = Instant::now();
            let call = Call {
                queue,
                action,
                since,
                permit,
            };
            calls.running.insert(id, call);
            id
        };
        Ok(Permit { permits: self, id })
    }

    async fn disk_permit(&self, action: &'static str) -> Result<OwnedSemaphorePermit, IoQueueError> {
        if let Ok(permit) = Arc::clone(&self.disk).try_acquire_owned() {
            return Ok(permit);
        }
        let permit = Arc::clone(&self.disk).acquire_owned();
        tokio::pin!(permit);
        loop {
            self.move_slow_calls();
            if let Ok(permit) = timeout(SLOW_CALL_CHECK_INTERVAL.min(self.slow_call_threshold), &mut permit).await {
                return permit.map_err(|_| IoQueueError::Lost { action });
            }
        }
    }

    async fn device_permit(&self, action: &'static str) -> Result<OwnedSemaphorePermit, IoQueueError> {
        let permit = Arc::clone(&self.device).acquire_owned();
        match timeout(self.permit_timeout, permit).await {
            Ok(permit) => permit.map_err(|_| IoQueueError::Lost { action }),
            Err(_) => Err(self.saturated()),
        }
    }

    /// Calls on the disk that do not end move to the permits of devices, while there are any.
    fn move_slow_calls(&self) {
        let mut calls = self.calls();
        let running = calls.running.values_mut();
        let hung = running.filter(|call| {
            matches!(call.queue, IoQueue::Disk(_)) && call.since.elapsed() >= self.slow_call_threshold
        });
        for call in hung {
            let Ok(permit) = Arc::clone(&self.device).try_acquire_owned() else {
                return;
            };
            call.queue = IoQueue::Device(call.queue.key().to_owned());
            call.permit = permit;
        }
    }

    fn saturated(&self) -> IoQueueError {
        let calls = self.calls();
        let hang = |call: &&Call| {
            matches!(call.queue, IoQueue::Device(_)) && call.since.elapsed() >= self.permit_timeout
        };
        let hanging = calls.running.values().filter(hang);
        let named = hanging.clone().take(MAX_NAMED_VOLUMES);
        IoQueueError::Saturated {
            hanging: hanging.count(),
            named: named
                .map(|call| format!("{} ({})", call.queue.key(), call.action))
                .collect(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has the permits, in words that stay the same while the same hang.
fn describe_holders(hanging: usize, named: &[String]) -> String {
    let names = named.join(", ");
    match hanging.saturating_sub(named.len()) {
        _ if hanging == 0 => format!("{DEVICE_PERMITS} volumes are being worked on"),
        0 => format!("{hanging} volumes hang: {names}"),
        others => format!("{hanging} volumes hang: {names} and {others} others"),
    }
}

#[cfg(test)]
mod tests;
