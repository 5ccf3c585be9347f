//! A shared value with waiters in FIFO order.
//!
//! Unlike `tokio::sync::watch`, waiters are woken in the order in which they started to wait: many
//! pods that wait for the same objects start in a deterministic order.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// A value with change notification. Clones share both.
#[derive(Debug)]
pub(crate) struct OrderedWatch<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<T>,
    changed: Notify,
}

impl<T> Clone for OrderedWatch<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> OrderedWatch<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: Mutex::new(value),
            changed: Notify::new(),
        }))
    }

    /// Locks the value.
    pub(crate) fn borrow(&self) -> MutexGuard<'_, T> {
        self.0.value.lock()
    }

    /// Changes the value and wakes the waiters.
    pub(crate) fn modify<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.borrow());
        self.0.changed.notify_waiters();
        result
    }

    /// Waits until `is_so`, possibly forever; use a timeout.
    pub(crate) async fn wait_for(&self, is_so: impl Fn(&T) -> bool) {
        loop {
            let changed = self.0.changed.notified();
            tokio::pin!(changed);
            // registered before the value is read, so that no change is missed
            changed.as_mut().enable();
            if is_so(&self.borrow()) {
                return;
            }
            changed.await;
        }
    }
}
