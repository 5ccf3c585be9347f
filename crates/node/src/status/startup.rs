//! Duration of a node's start: boot, agent start, registration, ready.
//!
//! Only a created node is measured: an existing object has no relation to this start. Each point in
//! time counts once per agent run, as upstream.

use windlass_metrics::Metrics;
use windlass_types::Timestamp;
use windlass_types::corev1::Node;

/// Points in time of a node's start.
#[derive(Debug)]
pub(super) struct Startup {
    booted: Option<Timestamp>,
    began: Timestamp,
    tried: Option<Timestamp>,
    registered: Option<Timestamp>,
    ready: Option<Timestamp>,
}

impl Startup {
    /// Starts the measurement; `booted` is the boot time of the host, if known.
    pub(super) fn begin(booted: Option<Timestamp>, now: Timestamp) -> Self {
        Self {
            booted,
            began: now,
            tried: None,
            registered: None,
            ready: None,
        }
    }

    /// Records the first registration attempt.
    pub(super) fn registration_attempted(&mut self, now: Timestamp) {
        self.tried.get_or_insert(now);
    }

    /// Records that the API server accepted or created this object.
    pub(super) fn object_written(
        &mut self,
        node: &Node,
        created: bool,
        now: Timestamp,
        to: &Metrics,
    ) {
        if let (Some(tried), None, true) = (self.tried, self.registered, created) {
            self.registered = Some(now);
            if let Some(booted) = self.booted {
                to.node.startup_pre_kubelet.set(seconds(booted, self.began));
            }
            to.node
                .startup_pre_registration
                .set(seconds(self.began, tried));
            to.node.startup_registration.set(seconds(tried, now));
        }
        if let (Some(registered), None, true) = (self.registered, self.ready, is_ready(node)) {
            self.ready = Some(now);
            to.node
                .startup_post_registration
                .set(seconds(registered, now));
            if let Some(booted) = self.booted {
                to.node.startup.set(seconds(booted, now));
            }
        }
    }
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|s| s.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(ready: &str) -> Node {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let node = json!({"metadata": {}, "status": {"conditions": conditions}});
        serde_json::from_value(node).expect("node")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("time")
    }

    fn gauges(metrics: &Metrics) -> [f64; 5] {
        [
            metrics.node.startup_pre_kubelet.get(),
            metrics.node.startup_pre_registration.get(),
            metrics.node.startup_registration.get(),
            metrics.node.startup_post_registration.get(),
            metrics.node.startup.get(),
        ]
    }

    #[test]
    fn created_node_reports_start_durations() {
        let metrics = Metrics::new().expect("families");
        let mut startup = Startup::begin(Some(at(1000)), at(1010));
        startup.registration_attempted(at(1011));
        startup.registration_attempted(at(1014));
        startup.object_written(&node("False"), true, at(1015), &metrics);
        assert_eq!(gauges(&metrics), [10.0, 1.0, 4.0, 0.0, 0.0]);
        startup.object_written(&node("True"), false, at(1018), &metrics);
        assert_eq!(gauges(&metrics), [10.0, 1.0, 4.0, 3.0, 18.0]);
        // a Node recreated an hour later is not a start
        startup.registration_attempted(at(4600));
        startup.object_written(&node("True"), true, at(4600), &metrics);
        assert_eq!(gauges(&metrics), [10.0, 1.0, 4.0, 3.0, 18.0]);
    }

    #[test]
    fn existing_node_reports_no_start_durations() {
        let metrics = Metrics::new().expect("families");
        let mut startup = Startup::begin(None, at(1010));
        startup.registration_attempted(at(1011));
        startup.object_written(&node("True"), false, at(1012), &metrics);
        assert_eq!(gauges(&metrics), [0.0; 5]);
    }
}
