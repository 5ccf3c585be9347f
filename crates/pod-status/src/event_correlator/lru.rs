//! A map that evicts its least recently used entry.

use std::collections::BTreeMap;

/// An LRU map.
#[derive(Debug)]
pub(super) struct Lru<V> {
    limit: usize,
    /// Counter of uses.
    clock: u64,
    values: BTreeMap<u128, (u64, V)>,
    by_use: BTreeMap<u64, u128>,
}

impl<V> Lru<V> {
    /// Creates a map of at most `limit` entries, at least 1.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            clock: 0,
            values: BTreeMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// Returns a value; counts as a use.
    pub(super) fn get(&mut self, key: u128) -> Option<&V> {
        self.mark_used(key);
        self.values.get(&key).map(|(_, value)| value)
    }

    /// Inserts a value.
    pub(super) fn put(&mut self, key: u128, value: V) {
        self.clock += 1;
        if let Some((before, _)) = self.values.insert(key, (self.clock, value)) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.clock, key);
        while self.values.len() > self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                return;
            };
            self.values.remove(&oldest);
        }
    }

    /// Removes and returns a value, or creates one; the caller inserts it again.
    pub(super) fn take_or(&mut self, key: u128, make: impl FnOnce() -> V) -> V {
        match self.values.remove(&key) {
            Some((at, value)) => {
                self.by_use.remove(&at);
                value
            }
            None => make(),
        }
    }

    fn mark_used(&mut self, key: u128) {
        self.clock += 1;
        if let Some((at, _)) = self.values.get_mut(&key) {
            self.by_use.remove(at);
            *at = self.clock;
            self.by_use.insert(self.clock, key);
        }
    }
}
