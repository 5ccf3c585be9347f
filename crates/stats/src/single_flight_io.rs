//! Blocking I/O with a timeout: at most one operation is in flight.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use windlass_types::Timestamp;

/// Runs blocking operations on `S`, such as a file or a mount point, one at a time. A hung operation
/// keeps its thread; until it ends, a refresh returns the last result without waiting.
pub struct SingleFlightIo<S, T> {
    shared: Arc<Shared<S, T>>,
    thread: Arc<Semaphore>,
}

struct Shared<S, T> {
    source: Mutex<S>,
    latest: Mutex<Option<(T, Timestamp)>>,
}

impl<S: fmt::Debug, T> fmt::Debug for SingleFlightIo<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleFlightIo").finish_non_exhaustive()
    }
}

impl<S: Send + 'static, T: Clone + Send + 'static> SingleFlightIo<S, T> {
    /// Creates the I/O of a source, without a result.
    pub fn new(source: S) -> Self {
        Self {
            shared: Arc::new(Shared {
                source: Mutex::new(source),
                latest: Mutex::new(None),
            }),
            thread: Arc::new(Semaphore::new(1)),
        }
    }

    /// Reads, and returns the last result with the time at which its read began.
    pub async fn refresh(
        &self,
        limit: Duration,
        at: Timestamp,
        read: impl FnOnce(&mut S) -> Option<T> + Send + 'static,
    ) -> Option<(T, Timestamp)> {
        if let Ok(permit) = Arc::clone(&self.thread).try_acquire_owned() {
            let shared = Arc::clone(&self.shared);
            let read = self.spawn(permit, move |source| {
                if let Some(result) = read(source) {
                    *shared.latest.lock() = Some((result, at));
                }
            });
            let _ = timeout(limit, read).await;
        }
        self.shared.latest.lock().clone()
    }

    /// Runs another operation, whose result is not kept; `None` if it, or the one before it, does not
    /// end in time.
    pub async fn run<R: Send + 'static>(
        &self,
        limit: Duration,
        operation: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Option<R> {
        let run = async {
            let permit = Arc::clone(&self.thread).acquire_owned().await.ok()?;
            self.spawn(permit, operation).await
        };
        timeout(limit, run).await.ok().flatten()
    }

    async fn spawn<R: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        operation: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Option<R> {
        let shared = Arc::clone(&self.shared);
        let work = spawn_blocking(move || {
            let result = operation(&mut shared.source.lock());
            // held while the operation hangs
            drop(permit);
            result
        });
        work.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn hung_read_keeps_the_last_result_and_time() {
        let disk: SingleFlightIo<u64, u64> = SingleFlightIo::new(7);
        let at = |second| Timestamp::from_second(second).expect("a time");
        let short = Duration::from_millis(20);
        assert_eq!(
            disk.refresh(short, at(1), |it| Some(*it)).await,
            Some((7, at(1)))
        );
        let (resume, hung) = mpsc::channel::<()>();
        let hang = move |it: &mut u64| {
            let _ = hung.recv();
            Some(*it + 1)
        };
        assert_eq!(disk.refresh(short, at(2), hang).await, Some((7, at(1))));
        // no second thread
        let later = disk
            .refresh(short, at(3), |_| panic!("a second read"))
            .await;
        assert_eq!(later, Some((7, at(1))));
        assert_eq!(disk.run(short, |it| *it).await, None);
        drop(resume);
        let read = disk.run(Duration::from_secs(60), |it| *it).await;
        assert_eq!(read, Some(7));
        // the hung read ended with a result
        assert_eq!(disk.refresh(short, at(4), |_| None).await, Some((8, at(2))));
    }
}
