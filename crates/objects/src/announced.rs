//! A value that many wait for.
//!
//! Those who wait are woken in the order in which they began, which `tokio::sync::watch` does
//! not promise: a hundred pods that wait for the same objects start in the same order each time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// A value, and word of its changes. Clones share both.
#[derive(Debug)]
pub(crate) struct Announced<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for Announced<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Announced<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: Mutex::new(value),
            changed: Notify::new(),
        }))
    }

    /// The value; nobody can change it meanwhile.
    pub(crate) fn borrow(&self) -> MutexGuard<'_, T> {
        let lock = self.0.value.lock();
        lock.unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the value and wakes whoever waits.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.borrow());
        self.0.changed.notify_waiters();
        result
    }

    /// Waits until `is_so`; it may never be, so bound it with a timeout.
    pub(crate) async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // in line before the value is read, so that no change falls between
            changed.as_mut().enable();
            if is_so(&self.borrow()) {
                return;
            }
            changed.await;
        }
    }
}
