//! Cached volume usage of all pods, measured on request and at most once per period.
//!
//! *owns* the newest usage by pod · *invariant* one round at a time; a hung volume affects only its
//! own pod · *bound* the pods of the last request · *restart* the first request may return no
//! usage.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};
use windlass_types::PodUid;

use crate::pods::{VolumeStatsEntry, VolumeStatsProvider};

/// Maximum number of pods measured concurrently.
const MAX_CONCURRENT_PODS: usize = 8;
/// Time that a request waits for a measurement.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout of one pod. Its provider may finish the measurement for a later round.
const POD_TIMEOUT: Duration = Duration::from_secs(10);

/// The cache. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct VolumeCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Arc<dyn VolumeStatsProvider>,
    period: Duration,
    pods: Mutex<HashMap<PodUid, PodEntry>>,
    round_lock: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct PodEntry {
    volumes: Arc<Vec<VolumeStatsEntry>>,
    /// Time of the last attempt.
    attempted_at: Instant,
}

impl VolumeCache {
    /// Creates an empty cache. `period` is the maximum age (`volumeStatsAggPeriod`), unless a
    /// measurement takes longer.
    pub(crate) fn new(source: Arc<dyn VolumeStatsProvider>, period: Duration) -> Self {
        Self(Arc::new(Inner {
            source,
            period,
            pods: Mutex::default(),
            round_lock: Arc::default(),
        }))
    }

    /// Returns the volumes of these pods that are known after a short wait. Removes all other pods.
    pub(crate) async fn of_pods(
        &self,
        pods: &[PodUid],
    ) -> HashMap<PodUid, Arc<Vec<VolumeStatsEntry>>> {
        self.0.pods.lock().retain(|uid, _| pods.contains(uid));
        let old = self.old(pods);
        if !old.is_empty() {
            match Arc::clone(&self.0.round_lock).try_lock_owned() {
                Ok(guard) => {
                    let this = self.clone();
                    // a task, so that the round completes without a caller
                    let round = tokio::spawn(async move {
                        this.round(old).await;
                        drop(guard);
                    });
                    drop(timeout(REQUEST_TIMEOUT, round).await);
                }
                Err(_) => drop(timeout(REQUEST_TIMEOUT, self.0.round_lock.lock()).await),
            }
        }
        let entries = self.0.pods.lock();
        let entries = entries.iter();
        entries
            .map(|(uid, entry)| (uid.clone(), Arc::clone(&entry.volumes)))
            .collect()
    }

    /// Returns the due pods, oldest first.
    fn old(&self, pods: &[PodUid]) -> Vec<PodUid> {
        let entries = self.0.pods.lock();
        let mut old: Vec<(Option<Instant>, &PodUid)> = pods
            .iter()
            .map(|uid| (entries.get(uid).map(|entry| entry.attempted_at), uid))
            .filter(|(at, _)| at.is_none_or(|at| at.elapsed() >= self.0.period))
            .collect();
        old.sort();
        old.into_iter().map(|(_, uid)| uid.clone()).collect()
    }

    async fn round(&self, pods: Vec<PodUid>) {
        let measure = |uid: PodUid| async move {
            let attempted_at = Instant::now();
            let volumes = self.0.source.of_pod(&uid, self.0.period);
            let volumes = timeout(POD_TIMEOUT, volumes).await.ok().map(Arc::new);
            let mut pods = self.0.pods.lock();
            let entry = pods.entry(uid).or_insert_with(|| PodEntry {
                volumes: Arc::default(),
                attempted_at,
            });
            entry.attempted_at = attempted_at;
            if let Some(volumes) = volumes {
                entry.volumes = volumes;
            }
        };
        futures::stream::iter(pods)
            .for_each_concurrent(MAX_CONCURRENT_PODS, measure)
            .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use windlass_types::Timestamp;

    use super::*;
    use crate::usage::FsUsage;

    /// Pods with names that begin with `hung` never return.
    #[derive(Debug, Default)]
    struct Fake {
        asked: AtomicUsize,
    }

    #[async_trait]
    impl VolumeStatsProvider for Fake {
        async fn of_pod(&self, uid: &PodUid, _max_age: Duration) -> Vec<VolumeStatsEntry> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            if uid.as_str().starts_with("hung") {
                std::future::pending::<()>().await;
            }
            vec![VolumeStatsEntry {
                name: "data".to_owned(),
                claim: None,
                fs: FsUsage {
                    at: Timestamp::UNIX_EPOCH,
                    device: None,
                    capacity: None,
                    available: None,
                    used: Some(1),
                    inodes: None,
                    inodes_free: None,
                    inodes_used: None,
                },
                abnormal: None,
            }]
        }
    }

    fn uids(names: &[&str]) -> Vec<PodUid> {
        names.iter().map(|name| PodUid::from(*name)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn volume_is_measured_once_per_period_until_pod_removal() {
        let fake = Arc::new(Fake::default());
        let source: Arc<dyn VolumeStatsProvider> = Arc::<Fake>::clone(&fake);
        let cache = VolumeCache::new(source, Duration::from_secs(60));
        let pods = uids(&["a", "b"]);
        for _ in 0..3 {
            assert_eq!(cache.of_pods(&pods).await.len(), 2);
        }
        assert_eq!(fake.asked.load(Ordering::SeqCst), 2);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(cache.of_pods(&pods[..1]).await.len(), 1);
        assert_eq!(fake.asked.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn hung_volumes_delay_request_by_2_s_only() {
        let fake = Arc::new(Fake::default());
        let cache = VolumeCache::new(fake, Duration::from_secs(60));
        let mut names: Vec<String> = (0..16).map(|n| format!("hung{n}")).collect();
        names.push("well".to_owned());
        let pods: Vec<PodUid> = names
            .iter()
            .map(|name| PodUid::from(name.as_str()))
            .collect();
        let begin = Instant::now();
        let first = cache.of_pods(&pods).await;
        assert_eq!(begin.elapsed(), REQUEST_TIMEOUT);
        assert!(first.values().all(|figures| figures.is_empty()));
        // two rounds of eight hung pods, then its own
        tokio::time::sleep(2 * POD_TIMEOUT).await;
        let later = cache.of_pods(&pods).await;
        assert_eq!(later[&PodUid::from("well")].len(), 1);
        assert_eq!(later.len(), 17);
    }
}
