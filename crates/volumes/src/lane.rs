//! Blocking file work in lanes: one call at a time in each, with a deadline, on a bounded number of
//! threads.
//!
//! *owns* the places for blocking threads, and who has them · *invariant* a lane holds at most one
//! place, however long its file system hangs; what a device does costs work on the node's own disk no
//! place · *bound* [`DISK_PLACES`] and [`DEVICE_PLACES`]; a caller over it waits within its deadline, for
//! a device [`PATIENCE`], and is told who has the places · *restart* nothing to restore.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use windlass_types::{PodUid, Retry};

/// Calls on the node's own disk at a time. Each takes milliseconds; 32 of them fill the queue of any
/// one disk, and as many again may have to remove a large tree.
const DISK_PLACES: usize = 64;
/// Calls at a time on what may never answer: as many as the volumes that the largest nodes can have
/// attached (a driver's limit is 127 at the most), one for each. A thread that hangs costs some 20 KiB.
pub(crate) const DEVICE_PLACES: usize = 128;
/// Blocking threads for file work of pods. The process must allow more threads than this, so
/// that even this many calls that hang leave manifests and state files room.
pub const SLOTS: usize = DISK_PLACES + DEVICE_PLACES;

/// How long a call on a device waits for a place: below the ten seconds after which a pod asks what its
/// volumes wait for.
const PATIENCE: Duration = Duration::from_secs(5);
/// A call that holds a place of the disk for longer than this while others wait counts as one of a
/// device: what lies at a hostPath is known only by looking.
const TOO_LONG: Duration = Duration::from_secs(10);
/// How often who waits looks for such calls.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Volumes that are told by name when there is no place.
const NAMED: usize = 3;

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
    /// Others have all places and do not end; the call did not begin.
    #[error("waits for a place: {}", taken_by(*hanging, named))]
    NoPlace {
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

impl LaneError {
    /// What trying again would bring.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Deadline { .. } | Self::NoPlace { .. } => Retry::Later,
            Self::Lost { .. } => Retry::Soon,
        }
    }
}

/// Where calls queue, one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Touches the node's own disk and memory only.
    Disk(String),
    /// Touches what this device or volume shows, which may never answer: a server, a driver's mount.
    Device(String),
}

impl Lane {
    fn key(&self) -> &str {
        match self {
            Self::Disk(key) | Self::Device(key) => key,
        }
    }
}

/// The lane of a pod's volumes: its other files do not wait for a volume that hangs.
pub(crate) fn volumes_lane(uid: &PodUid) -> String {
    format!("{uid}/volumes")
}

/// Runs closures on the blocking pool.
#[derive(Debug)]
pub struct Lanes {
    places: Arc<Places>,
    lanes: Mutex<HashMap<String, Weak<Semaphore>>>,
    deadline: Duration,
}

impl Lanes {
    /// Lanes without anything in them; `deadline` holds for each call.
    pub fn new(deadline: Duration) -> Self {
        Self {
            places: Arc::new(Places {
                disk: Arc::new(Semaphore::new(DISK_PLACES)),
                device: Arc::new(Semaphore::new(DEVICE_PLACES)),
                calls: Mutex::default(),
                // whoever finds no place is to hear of it, not of the deadline
                patience: PATIENCE.min(deadline / 2),
                too_long: TOO_LONG.min(deadline / 2),
            }),
            lanes: Mutex::default(),
            deadline,
        }
    }

    /// Runs `work` on the node's own disk in the lane `key`, as [`Lanes::run_in`] does.
    ///
    /// # Errors
    /// Those of `work`, and [`LaneError`] if it does not end.
    pub async fn run<T: Send + 'static, E: From<LaneError> + Send + 'static>(
        &self,
        key: &str,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.run_in(&Lane::Disk(key.to_owned()), action, work).await
    }

    /// Runs `work` in a lane. After the deadline the caller goes on without it; the lane stays taken
    /// until `work` really ends.
    ///
    /// # Errors
    /// Those of `work`, and [`LaneError`] if it does not end.
    pub async fn run_in<T: Send + 'static, E: From<LaneError> + Send + 'static>(
        &self,
        lane: &Lane,
        action: &'static str,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let turn = self.turn(lane.key());
        let (places, lane) = (Arc::clone(&self.places), lane.clone());
        let job = async move {
            let lost = || LaneError::Lost { action };
            let turn = turn.acquire_owned().await.map_err(|_| lost())?;
            let place = places.take(lane, action).await?;
            tokio::task::spawn_blocking(move || {
                let result = work();
                drop((turn, place));
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
        let ended = timeout(self.deadline, job).await;
        ended.unwrap_or_else(|_| late())
    }

    fn turn(&self, key: &str) -> Arc<Semaphore> {
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

/// The two budgets, and the calls that take from them.
#[derive(Debug)]
struct Places {
    disk: Arc<Semaphore>,
    device: Arc<Semaphore>,
    calls: Mutex<Calls>,
    patience: Duration,
    too_long: Duration,
}

#[derive(Debug, Default)]
struct Calls {
    next: u64,
    /// In the order in which they began.
    running: BTreeMap<u64, Call>,
}

#[derive(Debug)]
struct Call {
    lane: Lane,
    action: &'static str,
    since: Instant,
    /// Given back with the call.
    place: OwnedSemaphorePermit,
}

/// A place of one call.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    id: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let ended = self.places.calls().running.remove(&self.id);
        drop(ended);
    }
}

impl Places {
    async fn take(self: Arc<Self>, lane: Lane, action: &'static str) -> Result<Place, LaneError> {
        let place = match &lane {
            Lane::Disk(_) => self.of_disk(action).await?,
            Lane::Device(_) => self.of_device(action).await?,
        };
        let id = {
            let mut calls = self.calls();
            calls.next += 1;
            let id = calls.next;
            let since = Instant::now();
            let call = Call {
                lane,
                action,
                since,
                place,
            };
            calls.running.insert(id, call);
            id
        };
        Ok(Place { places: self, id })
    }

    async fn of_disk(&self, action: &'static str) -> Result<OwnedSemaphorePermit, LaneError> {
        if let Ok(place) = Arc::clone(&self.disk).try_acquire_owned() {
            return Ok(place);
        }
        let place = Arc::clone(&self.disk).acquire_owned();
        tokio::pin!(place);
        loop {
            self.give_way();
            if let Ok(place) = timeout(LOOK_AGAIN.min(self.too_long), &mut place).await {
                return place.map_err(|_| LaneError::Lost { action });
            }
        }
    }

    async fn of_device(&self, action: &'static str) -> Result<OwnedSemaphorePermit, LaneError> {
        let place = Arc::clone(&self.device).acquire_owned();
        match timeout(self.patience, place).await {
            Ok(place) => place.map_err(|_| LaneError::Lost { action }),
            Err(_) => Err(self.no_place()),
        }
    }

    /// Calls on the disk that do not end move to the places of devices, while there are any.
    fn give_way(&self) {
        let mut calls = self.calls();
        let running = calls.running.values_mut();
        let hung = running.filter(|call| {
            matches!(call.lane, Lane::Disk(_)) && call.since.elapsed() >= self.too_long
        });
        for call in hung {
            let Ok(place) = Arc::clone(&self.device).try_acquire_owned() else {
                return;
            };
            call.lane = Lane::Device(call.lane.key().to_owned());
            call.place = place;
        }
    }

    fn no_place(&self) -> LaneError {
        let calls = self.calls();
        let hang = |call: &&Call| {
            matches!(call.lane, Lane::Device(_)) && call.since.elapsed() >= self.patience
        };
        let hanging = calls.running.values().filter(hang);
        let named = hanging.clone().take(NAMED);
        LaneError::NoPlace {
            hanging: hanging.count(),
            named: named
                .map(|call| format!("{} ({})", call.lane.key(), call.action))
                .collect(),
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who has the places, in words that stay the same while the same hang.
fn taken_by(hanging: usize, named: &[String]) -> String {
    let names = named.join(", ");
    match hanging.saturating_sub(named.len()) {
        _ if hanging == 0 => format!("{DEVICE_PLACES} volumes are being worked on"),
        0 => format!("{hanging} volumes hang: {names}"),
        others => format!("{hanging} volumes hang: {names} and {others} others"),
    }
}

#[cfg(test)]
mod tests;
