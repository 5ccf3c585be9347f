//! The list of hung operations.
//!
//! *owns* the operations that hang · *invariant* an operation is listed once, with the start of its
//! first attempt without an answer · *bound* one entry for each operation that hangs; idle ones are
//! removed after [`RETRY_WINDOW`] · *restart* starts empty.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use windlass_types::{Clock, PodUid, Timestamp};

use crate::operation::{HungOperation, Operation};

/// An operation that was not retried for this long is no longer listed. It exceeds the maximum
/// back-off of volumes, two minutes and two seconds.
pub const RETRY_WINDOW: Duration = Duration::from_secs(150);

/// List of hung operations. Clones share it.
#[derive(Clone, Debug)]
pub struct HungOperations(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    entries: Mutex<BTreeMap<Operation, Entry>>,
    /// Number of entries, readable without the lock.
    listed: AtomicUsize,
    version: watch::Sender<u64>,
}

#[derive(Debug)]
struct Entry {
    since: Timestamp,
    in_progress: u32,
    /// End of the last attempt.
    ended: Instant,
}

impl Entry {
    fn expires(&self) -> Option<Instant> {
        (self.in_progress == 0).then(|| self.ended + RETRY_WINDOW)
    }
}

impl HungOperations {
    /// Creates an empty list.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self(Arc::new(Inner {
            clock,
            entries: Mutex::default(),
            listed: AtomicUsize::new(0),
            version: watch::Sender::new(0),
        }))
    }

    /// Runs work; lists its operation from `threshold` on, until it ends.
    ///
    /// `is_answered` is false for the result of a slow attempt that says nothing about the
    /// operation, such as a timeout of the caller: then the operation stays listed until another
    /// attempt is answered. A result within the threshold is an answer.
    pub async fn track<T>(
        &self,
        threshold: Duration,
        operation: impl Fn() -> Operation,
        is_answered: impl FnOnce(&T) -> bool,
        work: impl Future<Output = T>,
    ) -> T {
        let since = self.0.clock.now();
        let mut work = pin!(work);
        let mut attempt = match self.is_empty() {
            true => None,
            false => self.retry(operation()),
        };
        if let Ok(result) = timeout(threshold, &mut work).await {
            return result;
        }
        let attempt = attempt
            .take()
            .unwrap_or_else(|| self.begin(operation(), since));
        let result = work.await;
        if !is_answered(&result) {
            attempt.keep();
        }
        result
    }

    /// Lists an operation that began at `since`, until the attempt is dropped.
    pub fn begin(&self, operation: Operation, since: Timestamp) -> HungAttempt {
        let mut entries = self.0.entries.lock();
        let is_new = !entries.contains_key(&operation);
        let entry = entries.entry(operation.clone()).or_insert_with(|| Entry {
            since,
            in_progress: 0,
            ended: Instant::now(),
        });
        entry.in_progress += 1;
        let since = entry.since;
        if is_new {
            self.changed(&entries);
        }
        drop(entries);
        HungAttempt {
            list: self.clone(),
            operation,
            since,
            stays: false,
        }
    }

    /// Another attempt of a listed operation.
    fn retry(&self, operation: Operation) -> Option<HungAttempt> {
        let since = {
            let mut entries = self.0.entries.lock();
            let entry = entries.get_mut(&operation)?;
            entry.in_progress += 1;
            entry.since
        };
        Some(HungAttempt {
            list: self.clone(),
            operation,
            since,
            stays: false,
        })
    }

    /// What hangs now, oldest first.
    pub fn list(&self) -> Vec<HungOperation> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut entries = self.0.entries.lock();
        self.expire(&mut entries);
        let hung = entries.iter().map(|(operation, entry)| HungOperation {
            operation: operation.clone(),
            since: entry.since,
        });
        let mut hung: Vec<HungOperation> = hung.collect();
        hung.sort_by_key(|it| it.since);
        hung
    }

    /// Time at which the list changes without a notification: an operation was not retried.
    pub fn next_expiry(&self) -> Option<Instant> {
        if self.is_empty() {
            return None;
        }
        self.0
            .entries
            .lock()
            .values()
            .filter_map(Entry::expires)
            .min()
    }

    /// Removes the operations of a pod that is gone and that no attempt is in progress for.
    pub fn forget(&self, uid: &PodUid) {
        if self.is_empty() {
            return;
        }
        let mut entries = self.0.entries.lock();
        let before = entries.len();
        entries.retain(|operation, entry| {
            entry.in_progress > 0 || operation.pod.as_ref() != Some(uid)
        });
        if entries.len() != before {
            self.changed(&entries);
        }
    }

    /// Returns a version that changes with the list.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    fn is_empty(&self) -> bool {
        self.0.listed.load(Ordering::Relaxed) == 0
    }

    fn expire(&self, entries: &mut BTreeMap<Operation, Entry>) {
        let (now, before) = (Instant::now(), entries.len());
        entries.retain(|_, entry| entry.expires().is_none_or(|at| at > now));
        if entries.len() != before {
            self.changed(entries);
        }
    }

    fn changed(&self, entries: &BTreeMap<Operation, Entry>) {
        self.0.listed.store(entries.len(), Ordering::Relaxed);
        self.0.version.send_modify(|version| *version += 1);
    }
}

/// An attempt of a listed operation. Dropping it removes the operation, unless another attempt is
/// in progress.
#[must_use]
pub struct HungAttempt {
    list: HungOperations,
    operation: Operation,
    since: Timestamp,
    stays: bool,
}

impl HungAttempt {
    /// Ends the attempt without an answer: the operation stays listed for [`RETRY_WINDOW`].
    pub fn keep(mut self) {
        self.stays = true;
    }
}

impl Drop for HungAttempt {
    fn drop(&mut self) {
        let mut entries = self.list.0.entries.lock();
        let Some(entry) = entries.get_mut(&self.operation) else {
            return;
        };
        // the entry may belong to a later hang
        if entry.since != self.since {
            return;
        }
        entry.in_progress = entry.in_progress.saturating_sub(1);
        entry.ended = Instant::now();
        if entry.in_progress > 0 {
            return;
        }
        if self.stays {
            // readers learn when it expires
            self.list.changed(&entries);
        } else {
            entries.remove(&self.operation);
            self.list.changed(&entries);
        }
    }
}

impl fmt::Debug for HungAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HungAttempt({})", self.operation.name)
    }
}

#[cfg(test)]
mod tests;
