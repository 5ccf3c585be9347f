//! Is the runtime there, and when to ask again.
//!
//! While all is well it is asked every 5 s (upstream `updateRuntimeUp`); while it reports
//! errors after 100 ms, doubling up to 5 s (upstream's SyncLoop back-off). Work that needs the
//! runtime waits at the workers' gate meanwhile; everything else goes on.

use std::time::Duration;

use windlass_actors::RuntimeState;
use windlass_pod_lifecycle::pleg::ListingAge;
use windlass_cri::CriResult;
use windlass_types::cri::RuntimeStatus;

/// Period of the check while the runtime is well.
const PERIOD: Duration = Duration::from_secs(5);
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(5);

/// Counts consecutive failures.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RuntimeCheck {
    failures: u32,
}

impl RuntimeCheck {
    /// What an answer means, and when to ask again.
    pub(crate) fn judge(
        &mut self,
        answer: &CriResult<RuntimeStatus>,
        listing: ListingAge,
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
                runtime_error: Some(format!("the container runtime does not answer: {error}")),
                network_error: None,
                pleg_error,
                answered: false,
            },
        };
        if state.runtime_error.is_none() && state.network_error.is_none() {
            self.failures = 0;
            return (state, PERIOD);
        }
        let delay = (FIRST_RETRY * 2u32.pow(self.failures.min(6))).min(MAX_RETRY);
        self.failures += 1;
        (state, delay)
    }
}

#[cfg(test)]
mod tests {
    use windlass_cri::{CriCode, CriError};

    use super::*;

    #[test]
    fn errors_are_asked_about_after_100_ms_doubling_to_5_s_and_success_resets() {
        let mut check = RuntimeCheck::default();
        let fresh = ListingAge::Last(Duration::ZERO);
        let down = Err(CriError::new("status", CriCode::Unavailable, "refused"));
        let delays: Vec<_> = (0..8)
            .map(|_| check.judge(&down, fresh).1.as_millis())
            .collect();
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        let (state, delay) = check.judge(&Ok(RuntimeStatus::default()), fresh);
        assert!(state.usable());
        assert_eq!(delay, PERIOD);
        let no_network = RuntimeStatus {
            network_error: Some("no CNI".into()),
            ..RuntimeStatus::default()
        };
        let (state, delay) = check.judge(&Ok(no_network), fresh);
        assert!(state.usable(), "host network pods go on");
        assert_eq!(delay, FIRST_RETRY);
    }

    #[test]
    fn an_old_listing_is_told_but_jobs_and_checks_go_on() {
        let mut check = RuntimeCheck::default();
        let old = ListingAge::Last(Duration::from_secs(185));
        let (state, delay) = check.judge(&Ok(RuntimeStatus::default()), old);
        let words = "pleg was last seen active 3m0s ago; threshold is 3m0s";
        assert_eq!(state.pleg_error.as_deref(), Some(words));
        assert!(state.usable());
        assert_eq!(delay, PERIOD);
    }
}
