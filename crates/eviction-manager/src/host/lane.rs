//! One blocking reader with a timeout, whose last result stays.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use windlass_types::Timestamp;

/// Runs reads of `S` on at most one blocking thread. A hung read keeps the thread; until it ends,
/// callers get the last result without waiting.
pub(crate) struct Lane<S, T> {
    shared: Arc<Shared<S, T>>,
    thread: Arc<Semaphore>,
}

struct Shared<S, T> {
    source: Mutex<S>,
    latest: Mutex<Option<(T, Timestamp)>>,
}

impl<S: fmt::Debug, T> fmt::Debug for Lane<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

impl<S: Send + 'static, T: Clone + Send + 'static> Lane<S, T> {
    pub(crate) fn new(source: S) -> Self {
        Self {
            shared: Arc::new(Shared {
                source: Mutex::new(source),
                latest: Mutex::new(None),
            }),
            thread: Arc::new(Semaphore::new(1)),
        }
    }

    /// Reads, and returns the last result with the time at which its read began.
    pub(crate) async fn run(
        &self,
        limit: Duration,
        at: Timestamp,
        read: impl FnOnce(&mut S) -> Option<T> + Send + 'static,
    ) -> Option<(T, Timestamp)> {
        if let Ok(permit) = Arc::clone(&self.thread).try_acquire_owned() {
            let shared = Arc::clone(&self.shared);
            self.spawn(limit, permit, move |source| {
                if let Some(result) = read(source) {
                    *lock(&shared.latest) = Some((result, at));
                }
            })
            .await;
        }
        lock(&self.shared.latest).clone()
    }

    /// Reads something else, which does not stay; `None` if it does not end in time.
    pub(crate) async fn run_once<R: Send + 'static>(
        &self,
        limit: Duration,
        read: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Option<R> {
        let permit = timeout(limit, Arc::clone(&self.thread).acquire_owned()).await;
        self.spawn(limit, permit.ok()?.ok()?, read).await
    }

    async fn spawn<R: Send + 'static>(
        &self,
        limit: Duration,
        permit: OwnedSemaphorePermit,
        read: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Option<R> {
        let shared = Arc::clone(&self.shared);
        let work = spawn_blocking(move || {
            let result = read(&mut lock(&shared.source));
            // held while the read hangs
            drop(permit);
            result
        });
        timeout(limit, work).await.ok()?.ok()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
