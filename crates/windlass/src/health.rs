//! The named checks behind `/healthz`: does the loop turn, is the runtime being listed.

use std::sync::Arc;
use std::time::Duration;

use windlass_config::KubeletConfiguration;
use windlass_pod_lifecycle::pleg::{LISTING_THRESHOLD, ListingAge};
use windlass_server::{HealthCheck, HealthSource};
use windlass_types::{Clock, Timestamp};

use crate::wiring::Agent;

/// Upstream's least limit for the age of the last iteration.
const SYNC_LOOP_LIMIT: Duration = Duration::from_secs(300);

/// What the checks look at.
#[derive(Debug)]
pub struct AgentHealth {
    agent: Agent,
    clock: Arc<dyn Clock>,
    /// Twice `syncFrequency` if that is more than five minutes.
    loop_limit: Duration,
    /// Before the first iteration, age counts from here.
    started: Timestamp,
}

impl AgentHealth {
    /// The health of an agent that starts now.
    pub fn new(agent: Agent, clock: Arc<dyn Clock>, config: &KubeletConfiguration) -> Self {
        let started = clock.now();
        let loop_limit = SYNC_LOOP_LIMIT.max(config.sync_frequency.to_std() * 2);
        Self {
            agent,
            clock,
            loop_limit,
            started,
        }
    }
}

impl AgentHealth {
    /// Whether the loop turns.
    pub fn sync_loop(&self) -> HealthCheck {
        let last = match self.agent.sync_loop_health.last_iteration() {
            0 => self.started.as_second(),
            last => last,
        };
        let age = self.clock.now().as_second() - last;
        check("syncloop", "iteration", age, self.loop_limit)
    }
}

impl HealthSource for AgentHealth {
    fn checks(&self) -> Vec<HealthCheck> {
        let (ListingAge::Never(listing) | ListingAge::Last(listing)) = self.agent.pleg_health.age();
        let listing = i64::try_from(listing.as_secs()).unwrap_or(i64::MAX);
        vec![
            self.sync_loop(),
            check("pleg", "listing of the runtime", listing, LISTING_THRESHOLD),
        ]
    }

    fn before_scrape(&self) {
        self.agent.publish_metrics();
    }
}

fn check(name: &'static str, what: &str, age: i64, limit: Duration) -> HealthCheck {
    let limit = limit.as_secs();
    // a clock that was set back says nothing of what was before: that is as bad as too long ago
    let result = if age.unsigned_abs() <= limit {
        Ok(format!("last {what} {age} s ago"))
    } else {
        Err(format!("last {what} {age} s ago, the limit is {limit} s"))
    };
    HealthCheck { name, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_only_beyond_its_limit() {
        assert!(check("x", "y", 180, LISTING_THRESHOLD).result.is_ok());
        assert!(
            check("x", "y", -3, LISTING_THRESHOLD).result.is_ok(),
            "the clock was set back"
        );
        let error = check("pleg", "listing", 181, LISTING_THRESHOLD)
            .result
            .expect_err("too old");
        assert_eq!(error, "last listing 181 s ago, the limit is 180 s");
    }
}
