//! Graceful node shutdown: the order of pods by priority group (KEP-2000, KEP-2712).
//!
//! A group terminates after all groups of lower priority have terminated or timed out, so that
//! network and storage pods terminate last.

use std::fmt;
use std::time::Duration;

use windlass_types::{Pod, PodExt, SharedPod};

use windlass_pod_inputs::resources::SYSTEM_CRITICAL_PRIORITY;
use windlass_types::{Phase, PhaseOverride};

/// Shutdown period of the pods from one priority up to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityPeriod {
    /// Lowest priority of the group; the lowest group includes all lower priorities.
    pub priority: i32,
    /// Time for their termination.
    pub period: Duration,
}

/// The configured periods by rising priority; empty without graceful shutdown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShutdownPeriods(Vec<PriorityPeriod>);

impl ShutdownPeriods {
    /// Returns the periods for `shutdownGracePeriod` and `shutdownGracePeriodCriticalPods`:
    /// critical pods terminate in the last `critical` seconds. Fractions of seconds are dropped.
    pub fn from_totals(total: Duration, critical: Duration) -> Self {
        let seconds = |d: Duration| Duration::from_secs(d.as_secs());
        let Some(others) = total.checked_sub(critical).filter(|_| !total.is_zero()) else {
            return Self::default();
        };
        Self(vec![
            PriorityPeriod {
                priority: 0,
                period: seconds(others),
            },
            PriorityPeriod {
                priority: SYSTEM_CRITICAL_PRIORITY,
                period: seconds(critical),
            },
        ])
    }

    /// Returns the periods for `shutdownGracePeriodByPodPriority`.
    pub fn by_priority(mut periods: Vec<PriorityPeriod>) -> Self {
        periods.sort_by_key(|p| p.priority);
        Self(periods)
    }

    /// True without graceful shutdown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the total delay of the shutdown.
    pub fn total(&self) -> Duration {
        self.0.iter().map(|p| p.period).sum()
    }

    /// Groups pods, lowest priority first. Omits groups without pods.
    pub fn plan(&self, pods: impl IntoIterator<Item = SharedPod>) -> ShutdownPlan {
        let mut groups: Vec<ShutdownGroup> = self
            .0
            .iter()
            .map(|period| ShutdownGroup {
                period: *period,
                pods: Vec::new(),
            })
            .collect();
        for pod in pods {
            let priority = PodExt::spec(&*pod).priority.unwrap_or(0);
            let at_or_below = groups
                .iter()
                .rposition(|g| g.period.priority <= priority)
                .unwrap_or(0);
            if let Some(group) = groups.get_mut(at_or_below) {
                group.pods.push(pod);
            }
        }
        groups.retain(|g| !g.pods.is_empty());
        ShutdownPlan { groups }
    }
}

/// Pods that terminate together.
#[derive(Clone, Debug, PartialEq)]
pub struct ShutdownGroup {
    /// Their priority and period.
    pub period: PriorityPeriod,
    /// The pods.
    pub pods: Vec<SharedPod>,
}

impl ShutdownGroup {
    /// Returns the grace period of a pod: at most the period of the group.
    pub fn grace(&self, pod: &Pod) -> Duration {
        let own = PodExt::spec(pod).termination_grace_period_seconds;
        let own = own.map(|s| Duration::from_secs(u64::try_from(s).unwrap_or(0)));
        own.map_or(self.period.period, |own| own.min(self.period.period))
    }
}

/// The groups in the order of their termination.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShutdownPlan {
    /// Lowest priority first.
    pub groups: Vec<ShutdownGroup>,
}

impl fmt::Display for ShutdownPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.groups.is_empty() {
            return f.write_str("nothing to stop");
        }
        for (i, group) in self.groups.iter().enumerate() {
            let space = if i == 0 { "" } else { " " };
            let PriorityPeriod { priority, period } = group.period;
            write!(f, "{space}{priority}/{}s(", period.as_secs())?;
            for (i, pod) in group.pods.iter().enumerate() {
                let space = if i == 0 { "" } else { " " };
                write!(f, "{space}{}:{}s", pod.name(), group.grace(pod).as_secs())?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

/// Returns the phase of a pod that a shutdown terminated.
pub fn phase_override() -> PhaseOverride {
    let message = "Pod was terminated in response to imminent node shutdown.";
    PhaseOverride {
        phase: Phase::Failed,
        reason: "Terminated".to_owned(),
        message: message.to_owned(),
        disruption: Some(message.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    fn pod(name: &str, priority: Option<i32>, grace: Option<i64>) -> SharedPod {
        let spec =
            json!({"priority": priority, "terminationGracePeriodSeconds": grace, "containers": []});
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        Arc::new(serde_json::from_value(pod).expect("pod"))
    }

    fn check(periods: &ShutdownPeriods, pods: &[SharedPod], expected: &str) {
        assert_eq!(periods.plan(pods.to_vec()).to_string(), expected);
    }

    fn by_priority(rows: &[(i32, u64)]) -> ShutdownPeriods {
        let period = |(priority, seconds): &(i32, u64)| PriorityPeriod {
            priority: *priority,
            period: Duration::from_secs(*seconds),
        };
        ShutdownPeriods::by_priority(rows.iter().map(period).collect())
    }

    #[test]
    fn critical_pods_terminate_last() {
        let periods =
            ShutdownPeriods::from_totals(Duration::from_millis(30_900), Duration::from_secs(10));
        assert_eq!(periods.total(), Duration::from_secs(30));
        let pods = [
            pod("critical", Some(2_000_000_000), Some(30)),
            pod("node", Some(2_000_001_000), Some(5)),
            pod("web", None, Some(30)),
            pod("batch", Some(-5), None),
            pod("high", Some(1_999_999_999), Some(0)),
        ];
        check(
            &periods,
            &pods,
            "0/20s(web:20s batch:20s high:0s) 2000000000/10s(critical:10s node:5s)",
        );
        check(&periods, &pods[..1], "2000000000/10s(critical:10s)");
        check(&periods, &[], "nothing to stop");
    }

    #[test]
    fn shutdown_is_not_delayed_without_a_period() {
        let none = |total, critical| {
            let second = Duration::from_secs;
            ShutdownPeriods::from_totals(second(total), second(critical)).is_empty()
        };
        assert!(none(0, 0));
        assert!(none(5, 10));
        assert!(!none(10, 10));
        assert!(by_priority(&[]).is_empty());
        check(
            &by_priority(&[]),
            &[pod("a", None, None)],
            "nothing to stop",
        );
    }

    #[test]
    fn pod_belongs_to_the_group_at_or_below_its_priority() {
        let periods = by_priority(&[(10_000, 20), (100, 5), (1_000, 10)]);
        assert_eq!(periods.total(), Duration::from_secs(35));
        let pods = [
            pod("above", Some(99_999), None),
            pod("at", Some(1_000), None),
            pod("between", Some(9_999), None),
            pod("lowest", Some(100), None),
            pod("below", Some(-1), None),
            pod("none", None, None),
        ];
        check(
            &periods,
            &pods,
            "100/5s(lowest:5s below:5s none:5s) 1000/10s(at:10s between:10s) 10000/20s(above:20s)",
        );
    }
}
