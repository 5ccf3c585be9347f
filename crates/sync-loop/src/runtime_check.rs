//! Readiness of the runtime and the interval of its check.
//!
//! The interval is 5 s (upstream `updateRuntimeUp`), and after errors 100 ms, doubling up to 5 s
//! (upstream SyncLoop back-off). Pod workers wait until the runtime is ready.

use std::time::Duration;

use windlass_actors::RuntimeState;
use windlass_cri::CriResult;
use windlass_pod_lifecycle::pleg::RelistAge;
use windlass_types::cri::RuntimeStatus;

/// Interval of the check while the runtime is ready.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Number of consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuntimeCheck {
    failures: u32,
}

impl RuntimeCheck {
    /// Evaluates a response; returns the runtime state and the delay of the next check.
    pub(crate) fn evaluate(
        &mut self,
        answer: &CriResult<RuntimeStatus>,
        listing: RelistAge,
    ) -> (RuntimeState, Duration) {
        let pleg_error = listing.error();
        let state = match answer {
            Ok(status) => RuntimeState {
                runtime_error: status.runtime_error.clone(),
                network_error: status.network_error.clone(),
                pleg_error,
                answered: true,
            },
            Err(error) => RuntimeState {
                runtime_error: Some(format!("container runtime unreachable: {error}")),
                network_error: None,
                pleg_error,
                answered: false,
            },
        };
        if state.runtime_error.is_none() && state.network_error.is_none() {
            self.failures = 0;
            return (state, CHECK_INTERVAL);
        }
        let delay = (MIN_BACKOFF * 2u32.pow(self.failures.min(6))).min(MAX_BACKOFF);
        self.failures += 1;
        (state, delay)
    }
}

#[cfg(test)]
mod tests {
    use windlass_cri::{CriCode, CriError};

    use super::*;

    #[test]
    fn check_backs_off_from_100_ms_to_5_s_until_success() {
        let mut check = RuntimeCheck::default();
        let fresh = RelistAge::Last(Duration::ZERO);
        let down = Err(CriError::new("status", CriCode::Unavailable, "refused"));
        let delays: Vec<_> = (0..8)
            .map(|_| check.evaluate(&down, fresh).1.as_millis())
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let (state, delay) = check.evaluate(&Ok(RuntimeStatus::default()), fresh);
        assert!(state.usable());
        assert_eq!(delay, CHECK_INTERVAL);
        let no_network = RuntimeStatus {
            network_error: Some("no CNI".into()),
            ..RuntimeStatus::default()
        };
        let (state, delay) = check.evaluate(&Ok(no_network), fresh);
        assert!(state.usable(), "host network pods are not blocked");
        assert_eq!(delay, MIN_BACKOFF);
    }

    #[test]
    fn old_relist_is_reported_without_blocking_jobs() {
        let mut check = RuntimeCheck::default();
        let old = RelistAge::Last(Duration::from_secs(185));
        let (state, delay) = check.evaluate(&Ok(RuntimeStatus::default()), old);
        let words = "pleg was last seen active 3m0s ago; threshold is 3m0s";
        assert_eq!(state.pleg_error.as_deref(), Some(words));
        assert!(state.usable());
        assert_eq!(delay, CHECK_INTERVAL);
    }
}
