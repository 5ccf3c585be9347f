//! Values by key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

/// One value for each key that is in use, such as a lock, a semaphore or the result of a call, so
/// that a busy key does not block the others.
#[derive(Debug)]
pub struct SharedByKey<K, V>(Mutex<HashMap<K, Weak<V>>>);

impl<K, V> Default for SharedByKey<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V> SharedByKey<K, V> {
    /// Returns the value of a key; callers share it while one of them, or a permit or guard of it,
    /// exists.
    pub fn get_or_insert_with(&self, key: K, create: impl FnOnce() -> V) -> Arc<V> {
        let mut by_key = self.0.lock();
        if let Some(value) = by_key.get(&key).and_then(Weak::upgrade) {
            return value;
        }
        if by_key.len() == by_key.capacity() {
            remove_unused(&mut by_key);
        }
        let value = Arc::new(create());
        by_key.insert(key, Arc::downgrade(&value));
        value
    }

    /// Removes the keys that are not in use, which otherwise stay until the map is full.
    pub fn remove_unused(&self) {
        remove_unused(&mut self.0.lock());
    }
}

fn remove_unused<K: Eq + Hash, V>(by_key: &mut HashMap<K, Weak<V>>) {
    by_key.retain(|_, value| value.strong_count() > 0);
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[test]
    fn value_is_shared_by_key_and_unused_ones_are_removed() {
        let semaphores = SharedByKey::default();
        let get = |key| semaphores.get_or_insert_with(key, || Semaphore::new(2));
        let permit = get(0).try_acquire_owned().expect("free");
        (1..1000).for_each(|key| drop(get(key)));
        assert_eq!(get(0).available_permits(), 1);
        assert!(semaphores.0.lock().len() < 8);
        semaphores.remove_unused();
        assert_eq!(semaphores.0.lock().len(), 1);
        drop(permit);
        assert_eq!(get(0).available_permits(), 2);
    }
}
