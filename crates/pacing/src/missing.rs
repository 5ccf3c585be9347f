//! Features that a peer does not have.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A feature that a peer did not have, tried again after an interval: the peer may have been replaced
/// by a newer one. Clones share it.
#[derive(Clone, Debug)]
pub struct MissingFeature {
    retry_interval: Duration,
    retry_at: Arc<Mutex<Option<Instant>>>,
}

impl MissingFeature {
    /// A feature that the peer is assumed to have.
    pub fn new(retry_interval: Duration) -> Self {
        Self {
            retry_interval,
            retry_at: Arc::default(),
        }
    }

    /// Returns when the feature is tried again; `None` for now.
    pub fn retry_at(&self, now: Instant) -> Option<Instant> {
        let at = *self.retry_at.lock();
        at.filter(|at| *at > now)
    }

    /// Records that the peer does not have the feature. Returns true if that is new.
    pub fn record(&self, now: Instant) -> bool {
        let mut at = self.retry_at.lock();
        let is_known = at.is_some_and(|at| at > now);
        *at = Some(now + self.retry_interval);
        !is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_feature_is_tried_again_after_the_interval() {
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        let feature = MissingFeature::new(60 * second);
        assert_eq!(feature.retry_at(begin), None);
        assert!(feature.record(begin), "new");
        let clone = feature.clone();
        let retry_at = begin + 60 * second;
        assert_eq!(clone.retry_at(begin + 59 * second), Some(retry_at));
        assert!(!clone.record(begin), "known");
        assert_eq!(clone.retry_at(retry_at), None);
        assert!(clone.record(retry_at), "new again");
    }
}
