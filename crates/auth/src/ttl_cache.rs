//! A bounded cache whose entries expire.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::review_cache::Key;

/// Values by key, each with an expiry.
#[derive(Debug)]
pub(crate) struct TtlCache<V> {
    values: HashMap<Key, (V, Instant, u64)>,
    /// Keys by expiry; the number makes equal expiries distinct.
    ends: BTreeMap<(Instant, u64), Key>,
    next: u64,
    max_entries: usize,
}

impl<V> TtlCache<V> {
    pub(crate) fn new(max_entries: usize) -> Self {
        Self {
            values: HashMap::new(),
            ends: BTreeMap::new(),
            next: 0,
            max_entries,
        }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&V> {
        let (value, ends, _) = self.values.get(key)?;
        (*ends > Instant::now()).then_some(value)
    }

    /// Inserts a value. Removes expired entries first, and then the earliest to expire while the
    /// cache is full.
    pub(crate) fn insert(&mut self, key: Key, value: V, ttl: Duration) {
        let now = Instant::now();
        self.remove(&key);
        while let Some((&(ends, _), &first)) = self.ends.first_key_value() {
            if ends > now && self.values.len() < self.max_entries {
                break;
            }
            self.remove(&first);
        }
        let ends = now + ttl;
        self.next += 1;
        self.ends.insert((ends, self.next), key);
        self.values.insert(key, (value, ends, self.next));
    }

    pub(crate) fn remove(&mut self, key: &Key) {
        if let Some((_, ends, number)) = self.values.remove(key) {
            self.ends.remove(&(ends, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::review_cache::key;

    #[tokio::test(start_paused = true)]
    async fn full_cache_evicts_the_earliest_expiry() {
        let mut cache = TtlCache::new(2);
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        for (name, keep) in [("a", 3), ("b", 1), ("c", 2)] {
            cache.insert(key([name]), name, minutes(keep));
        }
        let there = |cache: &TtlCache<&'static str>| {
            let names = ["a", "b", "c"].into_iter();
            names
                .filter(|name| cache.get(&key([*name])).is_some())
                .collect::<String>()
        };
        assert_eq!(there(&cache), "ac");
        advance(minutes(2)).await;
        assert_eq!(there(&cache), "a");
        cache.insert(key(["b"]), "b", minutes(1));
        cache.remove(&key(["a"]));
        assert_eq!(there(&cache), "b");
        assert_eq!((cache.values.len(), cache.ends.len()), (1, 1));
    }
}
