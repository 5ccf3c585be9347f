//! A cached value that is refreshed in the background on request.
//!
//! *invariant* at most one refresh in progress; a caller waits for a bounded time and then gets the
//! cached value · *bound* one task and one value.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

/// Age limits of a cached value.
#[derive(Clone, Copy, Debug)]
pub struct AgeLimits {
    /// Maximum age without a refresh.
    pub fresh: Duration,
    /// Maximum age if a refresh does not end in time.
    pub stale: Duration,
    /// Time that a caller waits for a refresh.
    pub timeout: Duration,
}

/// The cached value. Clones share it.
pub struct RefreshingCache<T>(Arc<Inner<T>>);

struct Inner<T> {
    ages: AgeLimits,
    latest: Mutex<Option<(Arc<T>, Instant)>>,
    refreshing: Arc<tokio::sync::Mutex<()>>,
}

impl<T> Clone for RefreshingCache<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for RefreshingCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefreshingCache")
            .field("ages", &self.0.ages)
            .finish()
    }
}

impl<T: Send + Sync + 'static> RefreshingCache<T> {
    /// Creates an empty cache.
    pub fn new(ages: AgeLimits) -> Self {
        Self(Arc::new(Inner {
            ages,
            latest: Mutex::new(None),
            refreshing: Arc::default(),
        }))
    }

    /// Returns the value, after a refresh by `make` if it is not fresh. `None` without a value that
    /// is young enough.
    pub async fn get<F>(&self, make: impl FnOnce() -> F) -> Option<Arc<T>>
    where
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let ages = self.0.ages;
        if let Some(latest) = self.younger_than(ages.fresh) {
            return Some(latest);
        }
        match Arc::clone(&self.0.refreshing).try_lock_owned() {
            Ok(refreshing) => {
                let (made, this) = (make(), self.clone());
                // a task, so that the refresh completes for the next caller
                let task = tokio::spawn(async move {
                    if let Some(made) = made.await {
                        *this.0.latest.lock() = Some((Arc::new(made), Instant::now()));
                    }
                    drop(refreshing);
                });
                drop(timeout(ages.timeout, task).await);
            }
            Err(_) => drop(timeout(ages.timeout, self.0.refreshing.lock()).await),
        }
        self.younger_than(ages.stale)
    }

    /// Returns the last value of any age.
    pub fn latest(&self) -> Option<Arc<T>> {
        let latest = self.0.latest.lock();
        latest.as_ref().map(|(value, _)| Arc::clone(value))
    }

    fn younger_than(&self, age: Duration) -> Option<Arc<T>> {
        let latest = self.0.latest.lock();
        let (value, made) = latest.as_ref()?;
        (made.elapsed() <= age).then(|| Arc::clone(value))
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    const AGES: AgeLimits = AgeLimits {
        fresh: Duration::from_secs(10),
        stale: Duration::from_secs(60),
        timeout: Duration::from_secs(2),
    };

    #[tokio::test(start_paused = true)]
    async fn fresh_value_is_not_refreshed() {
        let cache = RefreshingCache::new(AGES);
        assert_eq!(cache.get(|| ready(Some(1))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(cache.get(|| ready(Some(2))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(cache.get(|| ready(Some(3))).await.as_deref(), Some(&3));
    }

    #[tokio::test(start_paused = true)]
    async fn hung_refresh_times_out_until_value_is_stale() {
        let cache = RefreshingCache::new(AGES);
        assert_eq!(cache.get(|| ready(Some(1))).await.as_deref(), Some(&1));
        tokio::time::advance(Duration::from_secs(11)).await;
        let begin = Instant::now();
        assert_eq!(cache.get(pending::<Option<i32>>).await.as_deref(), Some(&1));
        assert_eq!(begin.elapsed().as_secs(), 2);
        // the hung refresh blocks another one
        let second = cache.get(|| ready(Some(3))).await;
        assert_eq!(second.as_deref(), Some(&1));
        assert_eq!(begin.elapsed().as_secs(), 4);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(cache.get(|| ready(Some(4))).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn late_refresh_is_available_to_next_caller() {
        let cache = RefreshingCache::new(AGES);
        let late = || async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            Some(7)
        };
        assert_eq!(cache.get(late).await, None);
        tokio::time::advance(Duration::from_secs(4)).await;
        tokio::task::yield_now().await;
        assert_eq!(cache.get(|| ready(Some(8))).await.as_deref(), Some(&7));
    }
}
