//! Counts of an agent: calls, requests, messages and wake-ups.

use std::collections::BTreeMap;

use crate::cluster::node::ClusterNode;
use crate::process::Sleeps;

const CRI_CALLS: &str = "kubelet_runtime_operations_total{operation_type=\"";
const MESSAGES: &str = "windlass_mailbox_messages_total{";
/// CRI calls that name no pod: their number depends on time, not on pods.
const PERIODIC: [&str; 7] = [
    "image_fs_info",
    "list_container_stats",
    "list_containers",
    "list_images",
    "list_podsandbox",
    "status",
    "version",
];

/// What an agent has done since its start, or between two readings.
#[derive(Debug)]
pub(super) struct Counts {
    /// CRI calls by operation.
    calls: BTreeMap<String, f64>,
    /// Requests to the API server, without those of the lease.
    pub(super) requests: f64,
    /// Requests of the lease: their number depends on time, not on pods.
    pub(super) leases: f64,
    /// Of these, patches of the status of pods.
    pub(super) patches: f64,
    /// Messages between actors.
    pub(super) messages: f64,
    /// Voluntary context switches of all threads; of a reading, 0.
    pub(super) wakeups: f64,
    sleeps: Sleeps,
}

impl Counts {
    pub(super) async fn read(node: &ClusterNode) -> anyhow::Result<Self> {
        // read first: the metrics wake the agent
        let sleeps = node.process()?.sleeps()?;
        let text = node.metrics().await?;
        Ok(Self {
            calls: calls(&text),
            requests: (node.requests() - node.lease_requests()) as f64,
            leases: node.lease_requests() as f64,
            patches: node.status_patches().values().sum::<usize>() as f64,
            messages: messages(&text),
            wakeups: 0.0,
            sleeps,
        })
    }

    /// Difference to `before`, of the same process.
    pub(super) fn since(self, before: &Self) -> Self {
        let of = |name: &str| before.calls.get(name).copied().unwrap_or(0.0);
        let calls = self.calls.into_iter();
        let calls = calls.map(|(name, count)| (name.clone(), count - of(&name)));
        Self {
            calls: calls.filter(|(_, count)| *count > 0.0).collect(),
            requests: self.requests - before.requests,
            leases: self.leases - before.leases,
            patches: self.patches - before.patches,
            messages: self.messages - before.messages,
            wakeups: self.sleeps.since(&before.sleeps) as f64,
            sleeps: self.sleeps,
        }
    }

    /// CRI calls that name no pod.
    pub(super) fn periodic_calls(&self) -> (f64, String) {
        self.sum(|name| PERIODIC.contains(&name), 1.0)
    }

    /// CRI calls that name a pod, for one of `count` pods.
    pub(super) fn pod_calls(&self, count: f64) -> (f64, String) {
        self.sum(|name| !PERIODIC.contains(&name), count)
    }

    /// Number of CRI calls for pods and of requests; unchanged if the agent has finished.
    pub(super) fn of_pods(&self) -> (f64, f64) {
        (self.pod_calls(1.0).0, self.requests)
    }

    fn sum(&self, counts: impl Fn(&str) -> bool, per: f64) -> (f64, String) {
        let calls = self.calls.iter().filter(|(name, _)| counts(name));
        let calls: Vec<(&String, f64)> = calls.map(|(name, count)| (name, count / per)).collect();
        let detail = calls.iter().map(|(name, count)| format!("{name} {count}"));
        let detail: Vec<String> = detail.collect();
        // the sum of no floats is -0.0
        let sum = calls.iter().fold(0.0, |sum, (_, count)| sum + count);
        (sum, detail.join(", "))
    }
}

/// Completed CRI calls in the metrics.
fn calls(text: &str) -> BTreeMap<String, f64> {
    let calls = text.lines().filter_map(|line| {
        let (name, count) = line.strip_prefix(CRI_CALLS)?.split_once("\"} ")?;
        Some((name.to_owned(), count.parse().ok()?))
    });
    calls.collect()
}

/// Processed messages of all actors in the metrics.
fn messages(text: &str) -> f64 {
    let messages = text.lines().filter_map(|line| {
        let (_, count) = line.strip_prefix(MESSAGES)?.rsplit_once(' ')?;
        count.parse::<f64>().ok()
    });
    // the sum of no floats is -0.0
    messages.fold(0.0, |sum, count| sum + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_messages_are_read_from_the_metrics() {
        let text = "# TYPE kubelet_runtime_operations_total counter\n\
                    kubelet_runtime_operations_total{operation_type=\"status\"} 3\n\
                    kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 10\n\
                    kubelet_runtime_operations_total{operation_type=\"container_status\"} 15\n\
                    windlass_mailbox_messages_total{actor=\"Pleg\"} 4\n\
                    windlass_mailbox_messages_total{actor=\"SyncLoop\"} 5\n";
        let counts = |text: &str| Counts {
            calls: calls(text),
            requests: 0.0,
            leases: 0.0,
            patches: 0.0,
            messages: messages(text),
            wakeups: 0.0,
            sleeps: Sleeps::default(),
        };
        let all = counts(text);
        let (sum, detail) = all.pod_calls(10.0);
        assert_eq!(sum, 2.5);
        assert_eq!(detail, "container_status 1.5, run_podsandbox 1");
        assert_eq!(all.periodic_calls(), (3.0, "status 3".to_owned()));
        assert_eq!(all.messages, 9.0);
        let more = text.replace("} 10", "} 12");
        let since = counts(&more).since(&all);
        assert_eq!(since.pod_calls(1.0), (2.0, "run_podsandbox 2".to_owned()));
        assert_eq!(since.messages, 0.0);
        let (none, _) = counts("").pod_calls(1.0);
        assert_eq!(format!("{none:.2}"), "0.00");
    }
}
