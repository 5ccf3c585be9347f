//! I/O queues: blocking file work, one call at a time per queue, with a deadline and a bounded
//! number of threads.
//!
//! *owns* the permits for blocking threads · *invariant* a queue holds at most one permit, also
//! while its file system hangs; work on devices takes no permits from work on the node's own disk ·
//! *bound* [`DISK_PERMITS`] and [`DEVICE_PERMITS`]; further callers wait until their deadline, for a
//! device [`PERMIT_TIMEOUT`], and the error names the holders · *restart* nothing to restore.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use windlass_pacing::SharedByKey;
use windlass_types::{PodUid, Retry};

/// Max concurrent calls on the node's own disk. Each takes milliseconds: 32 saturate any disk, and 32
/// more may be removing large trees.
const DISK_PERMITS: usize = 64;
/// Max concurrent calls on devices and servers that may hang: one for each volume that the largest
/// nodes can attach (a driver's limit is at most 127). A hung thread takes about 20 KiB.
pub(crate) const DEVICE_PERMITS: usize = 128;
/// Max blocking threads for file work of pods. The process must allow more threads, so that manifests
/// and state files work even if all of these hang.
pub const IO_PERMITS: usize = DISK_PERMITS + DEVICE_PERMITS;

/// Time a call on a device waits for a permit: below the ten seconds after which a pod worker reads
/// the state of its volumes.
const PERMIT_TIMEOUT: Duration = Duration::from_secs(5);
/// A call that holds a disk permit longer than this while others wait counts as a device call: a
/// hostPath may be on any file system.
const SLOW_CALL_THRESHOLD: Duration = Duration::from_secs(10);
/// Interval at which waiters check for slow calls.
const SLOW_CALL_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Max volumes that the error names.
const MAX_NAMED_VOLUMES: usize = 3;

/// Work in a queue did not complete.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoQueueError {
    /// The call exceeded the deadline; it may still complete later.
    #[error("{action} did not end within {seconds} s")]
    Deadline {
        /// The operation.
        action: &'static str,
        /// The deadline.
        seconds: u64,
    },
    /// Hung calls hold all permits; the call did not start.
    #[error("no free I/O thread: {}", describe_holders(*hanging, named))]
    Saturated {
        /// Number of volumes with a hung call.
        hanging: usize,
        /// The oldest of them, with the hung operation.
        named: Vec<String>,
    },
    /// The worker thread panicked or was cancelled.
    #[error("{action} was interrupted")]
    Lost {
        /// The operation.
        action: &'static str,
    },
}

impl IoQueueError {
    /// Retry class of this error.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Deadline { .. } | Self::Saturated { .. } => Retry::Later,
            Self::Lost { .. } => Retry::Soon,
        }
    }
}

/// A queue in which calls run one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoQueue {
    /// For work on the node's own disk and memory.
    Disk(String),
    /// For work on this device or mount, which may hang: a server, a driver's mount.
    Device(String),
}

impl IoQueue {
    fn key(&self) -> &str {
        match self {
            Self::Disk(key) | Self::Device(key) => key,
        }
    }
}

/// Key of the queue of a pod's volumes, so that a hung volume does not block its other files.
pub(crate) fn pod_volumes_queue(uid: &PodUid) -> String {
    format!("{uid}/volumes")
}

/// The I/O queues of the node.
#[derive(Debug)]
pub struct IoQueues {
    permits: Arc<Permits>,
    queues: SharedByKey<String, Semaphore>,
    deadline: Duration,
}

impl IoQueues {
    /// Empty queues; `deadline` applies to each call.
    pub fn new(deadline: Duration) -> Self {
        Self {
            permits: Arc::new(Permits {
                disk: Arc::new(Semaphore::new(DISK_PERMITS)),
                device: Arc::new(Semaphore::new(DEVICE_PERMITS)),
                calls: Mutex::default(),
                // the error names the holders instead of the deadline
                permit_timeout: PERMIT_TIMEOUT.min(deadline / 2),
                slow_call_threshold: SLOW_CALL_THRESHOLD.min(deadline / 2),
            }),
            queues: SharedByKey::default(),
            deadline,
        }
    }

    /// Runs `work` in the disk queue `key`, as [`IoQueues::run_in`].
    ///
    /// # Errors
    /// Those of `work`, and [`IoQueueError`] if it does not complete.
    pub async fn run<T: Send + 'static, E: From<IoQueueError> + Send + 'static>(
        &self,
        key: &str,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.run_in(&IoQueue::Disk(key.to_owned()), action, work)
            .await
    }

    /// Runs `work` in a queue. After the deadline it returns an error; the queue stays occupied until
    /// `work` ends.
    ///
    /// # Errors
    /// Those of `work`, and [`IoQueueError`] if it does not complete.
    pub async fn run_in<T: Send + 'static, E: From<IoQueueError> + Send + 'static>(
        &self,
        queue: &IoQueue,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.run_boxed(queue, action, Box::new(work)).await
    }

    /// Runs a boxed closure: the code exists once for each result, not once for each closure.
    async fn run_boxed<T: Send + 'static, E: From<IoQueueError> + Send + 'static>(
        &self,
        queue: &IoQueue,
        action: &'static str,
        work: Box<dyn FnOnce() -> Result<T, E> + Send>,
    ) -> Result<T, E> {
        let key = queue.key().to_owned();
        let semaphore = self.queues.get_or_insert_with(key, || Semaphore::new(1));
        let (permits, queue) = (Arc::clone(&self.permits), queue.clone());
        let job = async move {
            let turn = semaphore.acquire_owned().await;
            let permit = permits.acquire(queue, action).await?;
            tokio::task::spawn_blocking(move || {
                let result = work();
                drop((turn, permit));
                result
            })
            .await
            .map_err(|_| IoQueueError::Lost { action })?
        };
        let deadline_exceeded = || {
            Err(E::from(IoQueueError::Deadline {
                action,
                seconds: self.deadline.as_secs(),
            }))
        };
        let ended = timeout(self.deadline, job).await;
        ended.unwrap_or_else(|_| deadline_exceeded())
    }
}

/// The permits and the calls that hold them.
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
    /// In the order of their start.
    running: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    queue: IoQueue,
    action: &'static str,
    since: Instant,
    /// Released when the call ends.
    permit: OwnedSemaphorePermit,
}

/// Guard of a running call.
#[derive(Debug)]
struct Permit {
    permits: Arc<Permits>,
    id: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let ended = self.permits.calls.lock().running.remove(&self.id);
        drop(ended);
    }
}

impl Permits {
    async fn acquire(
        self: Arc<Self>,
        queue: IoQueue,
        action: &'static str,
    ) -> Result<Permit, IoQueueError> {
        let permit = match &queue {
            IoQueue::Disk(_) => self.disk_permit(action).await?,
            IoQueue::Device(_) => self.device_permit(action).await?,
        };
        let id = {
            let mut calls = self.calls.lock();
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

    async fn disk_permit(
        &self,
        action: &'static str,
    ) -> Result<OwnedSemaphorePermit, IoQueueError> {
        if let Ok(permit) = Arc::clone(&self.disk).try_acquire_owned() {
            return Ok(permit);
        }
        let permit = Arc::clone(&self.disk).acquire_owned();
        tokio::pin!(permit);
        loop {
            self.move_slow_calls();
            if let Ok(permit) = timeout(
                SLOW_CALL_CHECK_INTERVAL.min(self.slow_call_threshold),
                &mut permit,
            )
            .await
            {
                return permit.map_err(|_| IoQueueError::Lost { action });
            }
        }
    }

    async fn device_permit(
        &self,
        action: &'static str,
    ) -> Result<OwnedSemaphorePermit, IoQueueError> {
        let permit = Arc::clone(&self.device).acquire_owned();
        match timeout(self.permit_timeout, permit).await {
            Ok(permit) => permit.map_err(|_| IoQueueError::Lost { action }),
            Err(_) => Err(self.saturated()),
        }
    }

    /// Moves slow disk calls to free device permits.
    fn move_slow_calls(&self) {
        let mut calls = self.calls.lock();
        let running = calls.running.values_mut();
        let hung = running.filter(|call| {
            matches!(call.queue, IoQueue::Disk(_))
                && call.since.elapsed() >= self.slow_call_threshold
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
        let calls = self.calls.lock();
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
}

/// Describes the holders; the text is stable while the same calls hang.
fn describe_holders(hanging: usize, named: &[String]) -> String {
    let names = named.join(", ");
    match hanging.saturating_sub(named.len()) {
        _ if hanging == 0 => format!("{DEVICE_PERMITS} volumes are in use"),
        0 => format!("{hanging} volumes hang: {names}"),
        others => format!("{hanging} volumes hang: {names} and {others} others"),
    }
}

#[cfg(test)]
mod tests;
