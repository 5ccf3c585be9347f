//! What volumes of all pods hold, measured at most once in a period and only while somebody asks.
//!
//! *owns* the newest figures by pod · *invariant* one round at a time; a volume that hangs costs
//! its own pod's figures, not another's · *bound* the pods of the newest look · *restart* the first
//! look may come back without figures, the next one has them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, timeout};
use windlass_types::PodUid;

use crate::pods::{VolumeStatsEntry, VolumeStatsProvider};

/// Pods whose volumes are measured at a time.
const AT_A_TIME: usize = 8;
/// How long a look waits for what is being measured.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long one pod is waited for before its place goes to the next. Its volumes are measured on
/// by whoever counts them, and are there in a later round.
const POD_PATIENCE: Duration = Duration::from_secs(10);

/// The figures. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct VolumeCache(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    source: Arc<dyn VolumeStatsProvider>,
    period: Duration,
    pods: Mutex<HashMap<PodUid, Known>>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Debug)]
struct Known {
    figures: Arc<Vec<VolumeStatsEntry>>,
    /// When they were last asked for, with or without success.
    asked: Instant,
}

impl VolumeCache {
    /// Nothing is known. `period` is the most that a figure is old when it is told
    /// (`volumeStatsAggPeriod`), but for what takes longer to measure.
    pub(crate) fn new(source: Arc<dyn VolumeStatsProvider>, period: Duration) -> Self {
        Self(Arc::new(Inner {
            source,
            period,
            pods: Mutex::default(),
            turn: Arc::default(),
        }))
    }

    /// The volumes of these pods, as far as they are known after a short while. All others are
    /// forgotten.
    pub(crate) async fn of_pods(&self, pods: &[PodUid]) -> HashMap<PodUid, Arc<Vec<VolumeStatsEntry>>> {
        self.lock().retain(|uid, _| pods.contains(uid));
        let old = self.old(pods);
        if !old.is_empty() {
            match Arc::clone(&self.0.turn).try_lock_owned() {
                Ok(turn) => {
                    let this = self.clone();
                    // it goes on when nobody waits any more
                    let round = tokio::spawn(async move {
                        this.round(old).await;
                        drop(turn);
                    });
                    drop(timeout(PATIENCE, round).await);
                }
                Err(_) => drop(timeout(PATIENCE, self.0.turn.lock()).await),
            }
        }
        let known = self.lock();
        let known = known.iter();
        known
            .map(|(uid, known)| (uid.clone(), Arc::clone(&known.figures)))
            .collect()
    }

    /// Pods that are due, those first that have waited longest.
    fn old(&self, pods: &[PodUid]) -> Vec<PodUid> {
        let known = self.lock();
        let mut old: Vec<(Option<Instant>, &PodUid)> = pods
            .iter()
            .map(|uid| (known.get(uid).map(|known| known.asked), uid))
            .filter(|(asked, _)| asked.is_none_or(|asked| asked.elapsed() >= self.0.period))
            .collect();
        old.sort();
        old.into_iter().map(|(_, uid)| uid.clone()).collect()
    }

    async fn round(&self, pods: Vec<PodUid>) {
        let measure = |uid: PodUid| async move {
            let asked = Instant::now();
            let figures = self.0.source.of_pod(&uid, self.0.period);
            let figures = timeout(POD_PATIENCE, figures).await.ok().map(Arc::new);
            let mut pods = self.lock();
            let known = pods.entry(uid).or_insert_with(|| Known {
                figures: Arc::default(),
                asked,
            });
            known.asked = asked;
            if let Some(figures) = figures {
                known.figures = figures;
            }
        };
        futures::stream::iter(pods)
            .for_each_concurrent(AT_A_TIME, measure)
            .await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PodUid, Known>> {
        self.0.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use windlass_types::Timestamp;

    use super::*;
    use crate::usage::FsUsage;

    /// Pods whose names begin with `hung` never answer.
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
    async fn a_volume_is_measured_once_in_a_period_and_forgotten_with_its_pod() {
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
    async fn pods_whose_volumes_hang_delay_a_look_by_two_seconds_and_nobody_for_good() {
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
        assert_eq!(begin.elapsed(), PATIENCE);
        assert!(first.values().all(|figures| figures.is_empty()));
        // two turns of eight that hang, and then its own
        tokio::time::sleep(2 * POD_PATIENCE).await;
        let later = cache.of_pods(&pods).await;
        assert_eq!(later[&PodUid::from("well")].len(), 1);
        assert_eq!(later.len(), 17);
    }
}
