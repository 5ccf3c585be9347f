//! Semaphores by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// One semaphore for each key that is in use, so that a busy key does not block the others.
#[derive(Debug)]
pub struct KeyedSemaphores<K> {
    permits: usize,
    by_key: Mutex<HashMap<K, Weak<Semaphore>>>,
}

impl<K: Eq + Hash> KeyedSemaphores<K> {
    /// Semaphores with `permits` permits each.
    pub fn new(permits: usize) -> Self {
        Self {
            permits,
            by_key: Mutex::default(),
        }
    }

    /// Returns the semaphore of a key; callers share it while one of them or a permit exists.
    pub fn get(&self, key: K) -> Arc<Semaphore> {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(semaphore) = by_key.get(&key).and_then(Weak::upgrade) {
            return semaphore;
        }
        if by_key.len() == by_key.capacity() {
            by_key.retain(|_, semaphore| semaphore.strong_count() > 0);
        }
        let semaphore = Arc::new(Semaphore::new(self.permits));
        by_key.insert(key, Arc::downgrade(&semaphore));
        semaphore
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semaphore_is_shared_by_key_and_unused_ones_are_removed() {
        let semaphores = KeyedSemaphores::new(2);
        let permit = semaphores.get(0).try_acquire_owned().expect("free");
        (1..1000).for_each(|key| drop(semaphores.get(key)));
        assert_eq!(semaphores.get(0).available_permits(), 1);
        assert!(semaphores.by_key.lock().expect("not poisoned").len() < 8);
        drop(permit);
        assert_eq!(semaphores.get(0).available_permits(), 2);
    }
}
