//! When each log is checked.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use windlass_pod_lifecycle::log_rotation::{LogGrowth, LogStep, RotationPolicy};
use windlass_types::ContainerId;

use super::{CheckedLog, ContainerLog};

/// Interval until a failed step is retried.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Logs and their next checks. Logs that need no early check are checked together.
#[derive(Debug)]
pub(super) struct Schedule {
    policy: RotationPolicy,
    interval: Duration,
    began: Instant,
    logs: HashMap<ContainerId, ScheduledLog>,
    by_watch: HashMap<i32, ContainerId>,
    next_full_check: Instant,
}

#[derive(Debug)]
struct ScheduledLog {
    log: ContainerLog,
    growth: LogGrowth,
    due: Instant,
    watch: Option<i32>,
    /// A step is in progress: the log is not checked.
    busy: bool,
    /// The log was missing at the last check, and the runtime reopened it.
    reopened: bool,
}

impl Schedule {
    pub(super) fn new(policy: RotationPolicy, interval: Duration) -> Self {
        let began = Instant::now();
        Self {
            policy,
            interval,
            began,
            logs: HashMap::new(),
            by_watch: HashMap::new(),
            next_full_check: began + interval,
        }
    }

    /// Takes the current logs. New ones are checked at once.
    pub(super) fn update(&mut self, logs: Vec<ContainerLog>, now: Instant) {
        let mut before = std::mem::take(&mut self.logs);
        for log in logs {
            let known = before.remove(&log.container);
            let scheduled = match known {
                Some(known) => ScheduledLog { log, ..known },
                None => ScheduledLog {
                    log,
                    growth: LogGrowth::default(),
                    due: now,
                    watch: None,
                    busy: false,
                    reopened: false,
                },
            };
            self.logs.insert(scheduled.log.container.clone(), scheduled);
        }
        // the end of a step finds its log
        self.logs
            .extend(before.into_iter().filter(|(_, it)| it.busy));
        let logs = &self.logs;
        self.by_watch
            .retain(|_, container| logs.contains_key(container));
    }

    /// When the next check is due.
    pub(super) fn next_due(&self) -> Instant {
        let idle = self.logs.values().filter(|it| !it.busy);
        let first = idle.map(|it| it.due).min();
        first.map_or(self.next_full_check, |due| due.min(self.next_full_check))
    }

    pub(super) fn is_full_check_due(&self, now: Instant) -> bool {
        now >= self.next_full_check
    }

    /// Returns the logs to check now.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<ContainerLog> {
        let all = self.is_full_check_due(now);
        if all {
            self.next_full_check = now + self.interval;
        }
        let idle = self.logs.values_mut().filter(|it| !it.busy);
        let due = idle.filter(|it| all || it.due <= now);
        due.map(|it| {
            // until the check has ended
            it.due = now + self.interval;
            it.log.clone()
        })
        .collect()
    }

    /// Takes a size; returns the step that is due.
    pub(super) fn checked(&mut self, checked: &CheckedLog, now: Instant) -> Option<LogStep> {
        let time = now.saturating_duration_since(self.began);
        let scheduled = self.logs.get_mut(&checked.log.container)?;
        if let Some(old) = scheduled.watch.filter(|old| checked.watch != Some(*old)) {
            self.by_watch.remove(&old);
        }
        scheduled.watch = checked.watch;
        if let Some(watch) = checked.watch {
            self.by_watch.insert(watch, checked.log.container.clone());
        }
        let size = checked.size?;
        scheduled.reopened &= size.is_none();
        let (growth, delay) = scheduled.growth.next_check(
            (size.unwrap_or(0), time),
            self.policy.max_size,
            self.interval,
        );
        scheduled.growth = growth;
        let step = self.policy.step(scheduled.log.runs, size);
        scheduled.busy = step.is_some();
        // an exited container writes no more
        scheduled.due = match scheduled.log.runs {
            true => now + delay,
            false => now + self.interval,
        };
        step
    }

    /// A step has ended; returns the growth of the log.
    pub(super) fn step_done(
        &mut self,
        container: &ContainerId,
        (step, succeeded): (LogStep, bool),
        now: Instant,
    ) -> LogGrowth {
        let time = now.saturating_duration_since(self.began);
        let Some(scheduled) = self.logs.get_mut(container) else {
            return LogGrowth::default();
        };
        scheduled.busy = false;
        let growth = scheduled.growth;
        let (growth, delay) = match step {
            LogStep::Rotate if succeeded => {
                growth.rotated(time, self.policy.max_size, self.interval)
            }
            // a runtime may write no file
            LogStep::Reopen | LogStep::Restore if scheduled.reopened => (growth, self.interval),
            _ => (growth, RETRY_INTERVAL.min(self.interval)),
        };
        scheduled.reopened = succeeded && step != LogStep::Rotate;
        scheduled.growth = growth;
        scheduled.due = now + delay;
        if succeeded {
            // of the renamed file
            if let Some(old) = scheduled.watch.take() {
                self.by_watch.remove(&old);
            }
        }
        growth
    }

    /// Logs were written to: checks them early.
    pub(super) fn written(&mut self, watches: &[i32], now: Instant) {
        let time = now.saturating_duration_since(self.began);
        for watch in watches {
            let container = self.by_watch.remove(watch);
            let Some(scheduled) = container.and_then(|it| self.logs.get_mut(&it)) else {
                continue;
            };
            scheduled.watch = None;
            let due = now + scheduled.growth.check_after_write(time);
            scheduled.due = scheduled.due.min(due);
        }
    }
}
