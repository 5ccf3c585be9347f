//! The named checks behind `/healthz`: age of the last sync loop iteration and of the last relist.

use std::sync::Arc;
use std::time::Duration;

use windlass_config::KubeletConfiguration;
use windlass_health::{HealthCheck, HealthSource};
use windlass_pod_lifecycle::pleg::{RELIST_THRESHOLD, RelistAge};
use windlass_types::{Clock, Timestamp};

use crate::wiring::Agent;

/// Min limit for the age of the last iteration, as upstream.
const MIN_SYNC_LOOP_LIMIT: Duration = Duration::from_secs(300);

/// Health checks of an agent.
#[derive(Debug)]
pub struct AgentHealth {
    agent: Agent,
    clock: Arc<dyn Clock>,
    /// Twice `syncFrequency`, at least five minutes.
    loop_limit: Duration,
    /// Start of the age before the first iteration.
    started: Timestamp,
}

impl AgentHealth {
    /// Creates the checks of an agent that starts now.
    pub fn new(agent: Agent, clock: Arc<dyn Clock>, config: &KubeletConfiguration) -> Self {
        let started = clock.now();
        let loop_limit = MIN_SYNC_LOOP_LIMIT.max(config.sync_frequency.to_std() * 2);
        Self {
            agent,
            clock,
            loop_limit,
            started,
        }
    }
}

impl AgentHealth {
    /// Checks the age of the last sync loop iteration.
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
        let (RelistAge::Never(relist) | RelistAge::Last(relist)) = self.agent.pleg_health.age();
        let relist = i64::try_from(relist.as_secs()).unwrap_or(i64::MAX);
        vec![
            self.sync_loop(),
            check("pleg", "relist", relist, RELIST_THRESHOLD),
        ]
    }

    fn before_scrape(&self) {
        self.agent.publish_metrics();
    }
}

fn check(name: &'static str, what: &str, age: i64, limit: Duration) -> HealthCheck {
    let limit = limit.as_secs();
    // a wall clock that was set back far fails the check, too
    let result = if age.unsigned_abs() <= limit {
        Ok(format!("last {what} {age} s ago"))
    } else {
        Err(format!("last {what} {age} s ago, limit {limit} s"))
    };
    HealthCheck { name, result }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_fails_beyond_age_limit() {
        assert!(check("x", "y", 180, RELIST_THRESHOLD).result.is_ok());
        assert!(
            check("x", "y", -3, RELIST_THRESHOLD).result.is_ok(),
            "the clock was set back"
        );
        let error = check("pleg", "relist", 181, RELIST_THRESHOLD)
            .result
            .expect_err("too old");
        assert_eq!(error, "last relist 181 s ago, limit 180 s");
    }
}
