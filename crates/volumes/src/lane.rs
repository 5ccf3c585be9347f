//! Blocking file work in lanes: one call at a time for each pod, each with a deadline.
//!
//! *owns* the slots for blocking threads · *invariant* a pod holds at most one slot, however long
//! its file system hangs · *bound* [`SLOTS`]; a caller over it waits within its deadline ·
//! *restart* nothing to restore.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Semaphore;

use windlass_types::{PodUid, Retry};

/// Blocking threads for file work of pods. The process must allow more threads than this, so
/// that even this many pods on a dead server leave manifests and state files room.
pub const SLOTS: usize = 128;

/// Forgotten lanes are swept when the table reaches this many, well above the pods of a node.
const SWEEP_AT: usize = 1024;

/// Work of a lane did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// The file system did not answer in time; the call may still end later.
    #[error("{action} did not end within {seconds} s")]
    Deadline {
        /// What was tried.
        action: &'static str,
        /// How long.
        seconds: u64,
    },
    /// The thread that worked was lost.
    #[error("{action} was interrupted")]
    Lost {
        /// What was tried.
        action: &'static str,
    },
}

impl LaneError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Deadline { .. } => Retry::Later,
            Self::Lost { .. } => Retry::Soon,
        }
    }
}

/// The lane of a pod's volumes: its other files do not wait for a volume that hangs.
pub fn volumes_lane(uid: &PodUid) -> String {
    format!("{uid}/volumes")
}

/// Runs closures on the blocking pool.
#[derive(Debug)]
pub struct Lanes {
    slots: Arc<Semaphore>,
    lanes: Mutex<HashMap<String, Weak<Semaphore>>>,
    deadline: Duration,
}

impl Lanes {
    /// Lanes without anything in them; `deadline` holds for each call.
    pub fn new(deadline: Duration) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(SLOTS)),
            lanes: Mutex::default(),
            deadline,
        }
    }

    /// Runs `work` in the lane `key`. After the deadline the caller goes on without it; the
    /// lane stays taken until `work` really ends.
    ///
    /// # Errors
    /// Those of `work`, and [`LaneError`] if it does not end.
    pub async fn run<T: Send + 'static, E: From<LaneError> + Send + 'static>(
        &self,
        key: &str,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let lane = self.lane(key);
        let slots = self.slots.clone();
        let job = async move {
            let lost = || LaneError::Lost { action };
            let turn = lane.acquire_owned().await.map_err(|_| lost())?;
            let slot = slots.acquire_owned().await.map_err(|_| lost())?;
            tokio::task::spawn_blocking(move || {
                let result = work();
                drop((turn, slot));
                result
            })
            .await
            .map_err(|_| LaneError::Lost { action })?
        };
        let late = || {
            Err(E::from(LaneError::Deadline {
                action,
                seconds: self.deadline.as_secs(),
            }))
        };
        let ended = tokio::time::timeout(self.deadline, job).await;
        ended.unwrap_or_else(|_| late())
    }

    fn lane(&self, key: &str) -> Arc<Semaphore> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(key).and_then(Weak::upgrade) {
            return lane;
        }
        if lanes.len() >= SWEEP_AT {
            lanes.retain(|_, lane| lane.strong_count() > 0);
        }
        let lane = Arc::new(Semaphore::new(1));
        lanes.insert(key.to_owned(), Arc::downgrade(&lane));
        lane
    }
}
