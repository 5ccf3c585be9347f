//! OOM kills of containers.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use windlass_types::{ContainerId, OomKills, Timestamp};

/// Maximum number of containers: twice those of a full node. The least recently killed is dropped.
const MAX_CONTAINERS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(511);

/// OOM kills by the cgroup of the container. The OOM watcher writes it, the PLEG adds it to what it
/// observed. Clones share the cache.
#[derive(Clone, Debug)]
pub struct OomKillCache(Arc<Mutex<LruCache<String, OomKills>>>);

impl Default for OomKillCache {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LruCache::new(MAX_CONTAINERS))))
    }
}

impl OomKillCache {
    /// Counts `count` more kills in a cgroup. Only for the OOM watcher.
    pub fn record(&self, cgroup: &str, count: u64, now: Timestamp) {
        self.with(|table| {
            let kills = table.get_or_insert_mut_ref(cgroup, || OomKills {
                cgroup: cgroup.to_owned(),
                count: 0,
                last: now,
            });
            kills.count = kills.count.saturating_add(count);
            kills.last = now;
        });
    }

    /// Returns the kills of a container: those of the cgroup that is named after it, as containerd
    /// and CRI-O do with either cgroup driver.
    pub fn get(&self, id: &ContainerId) -> Option<OomKills> {
        let id = id.as_str();
        if id.is_empty() {
            return None;
        }
        self.with(|table| {
            let mut kills = table.iter().map(|(_, kills)| kills);
            kills
                .find(|kills| is_named_after(&kills.cgroup, id))
                .cloned()
        })
    }

    fn with<R>(&self, f: impl FnOnce(&mut LruCache<String, OomKills>) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// True for a last component like `ID`, `crio-ID` and `cri-containerd-ID.scope`.
fn is_named_after(cgroup: &str, id: &str) -> bool {
    let name = cgroup.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".scope").unwrap_or(name);
    let prefix = name.strip_suffix(id);
    prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn kills_are_found_by_container_id() {
        let cache = OomKillCache::default();
        for cgroup in [
            "/kubepods/podu/aaa",
            "/kubepods.slice/x-podu.slice/cri-containerd-bbb.scope",
            "/kubepods/podu/crio-ccc",
        ] {
            cache.record(cgroup, 1, at(1));
            cache.record(cgroup, 2, at(2));
        }
        for id in ["aaa", "bbb", "ccc"] {
            let kills = cache.get(&ContainerId::from(id)).expect("known");
            assert_eq!((kills.count, kills.last), (3, at(2)), "{id}");
        }
        for id in ["", "aa", "a", "bbb.scope", "podu", "ddd"] {
            assert_eq!(cache.get(&ContainerId::from(id)), None, "{id}");
        }
    }

    #[test]
    fn number_of_containers_is_bounded() {
        let cache = OomKillCache::default();
        for number in 0..10_000 {
            cache.record("/kubepods/podu/first", 1, at(number));
            cache.record(&format!("/kubepods/podu/{number}"), 1, at(number));
        }
        assert_eq!(cache.with(|table| table.len()), MAX_CONTAINERS.get());
        let first = cache.get(&ContainerId::from("first")).expect("kept");
        assert_eq!(first.count, 10_000);
        assert_eq!(cache.get(&ContainerId::from("17")), None);
    }
}
