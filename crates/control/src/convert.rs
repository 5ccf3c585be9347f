//! Converts pod status entries to messages of the control API.

use bytes::Bytes;
use windlass_eviction::{EvictionStatus, Resource, SignalStatus};
use windlass_node_proto::windlass_v1 as proto;
use windlass_pod_status::status::waiting_for;
use windlass_stats::usage::{CgroupUsage, NodeUsage, PodUsage};
use windlass_status::{PodStatusEntry, blocker_message};
use windlass_types::view::{Blocker, HungOperationView, NodeSummary, PodEvent, StartTimings};
use windlass_types::{AllocatedResources, PodExt, Timestamp};
use windlass_units::duration::go_duration;
use windlass_units::quantity::Quantity;

/// Converts one pod. Fails only if the pod cannot be serialized as JSON.
pub(crate) fn entry(
    view: &PodStatusEntry,
    requested: Option<&AllocatedResources>,
) -> Result<proto::PodEntry, serde_json::Error> {
    let mut pod = (*view.pod).clone();
    let source = PodExt::source(&pod);
    pod.status = Some((*view.status).clone());
    Ok(proto::PodEntry {
        pod_json: Bytes::from(serde_json::to_vec(&pod)?),
        source: source.to_string(),
        worker_state: view.worker_state.to_string(),
        blocker: view.blocker.as_ref().map(|b| blocker(b, view)),
        events: view.events.iter().map(event).collect(),
        timings: Some(timings(&view.timings)),
        unsupported_fields: view.unsupported_fields.clone(),
        issues: view.issues.clone(),
        requested_json: match requested {
            Some(requested) => Bytes::from(serde_json::to_vec(requested)?),
            None => Bytes::new(),
        },
        stale_status: view.has_stale_status(),
    })
}

pub(crate) fn node(summary: NodeSummary, eviction: &EvictionStatus) -> proto::GetNodeResponse {
    proto::GetNodeResponse {
        eviction: eviction.at.map(|at| self::eviction(at, eviction)),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hung_operations: summary
            .hung_operations
            .into_iter()
            .map(hung_operation)
            .collect(),
        name: summary.name,
        cluster: summary.cluster.map(|cluster| proto::Cluster {
            server: cluster.server,
            has_identity: cluster.has_identity,
            ready: cluster.ready,
            contact: cluster.contact.map(|contact| proto::HeartbeatStatus {
                error: contact.error,
                since: Some(timestamp(contact.since)),
                last: contact.last.map(timestamp),
            }),
            pod_watch: cluster.pod_watch.map(|pod_watch| proto::PodWatch {
                error: pod_watch.error,
                since: Some(timestamp(pod_watch.since)),
            }),
        }),
    }
}

fn hung_operation(view: HungOperationView) -> proto::HungOperation {
    let (namespace, name) = view.pod_name.unwrap_or_default();
    proto::HungOperation {
        kind: view.kind.to_owned(),
        name: view.name,
        since: Some(timestamp(view.since)),
        pod_uid: view.pod.map(|uid| uid.to_string()).unwrap_or_default(),
        pod_namespace: namespace,
        pod_name: name,
    }
}

fn eviction(at: Timestamp, status: &EvictionStatus) -> proto::Eviction {
    let evicted = status.evictions.iter().map(|record| proto::EvictedPod {
        namespace: record.namespace.clone(),
        name: record.name.clone(),
        at: Some(timestamp(record.at)),
        explanation: record.explanation.clone(),
    });
    let conditions = status.pressure.names().into_iter().map(str::to_owned);
    proto::Eviction {
        observed: Some(timestamp(at)),
        conditions: conditions.collect(),
        signals: status.signals.iter().map(eviction_signal).collect(),
        evicted: evicted.collect(),
    }
}

fn eviction_signal(status: &SignalStatus) -> proto::EvictionSignal {
    let thresholds = status.thresholds.iter().map(|status| {
        let value = status.threshold.value;
        let grace = status.threshold.grace;
        let grace = grace.map_or_else(String::new, |grace| format!(" for {}", go_duration(grace)));
        proto::EvictionThreshold {
            value: format!("{value}{grace}"),
            amount: status.quantity.map(Quantity::value),
            distance: status.distance,
            state: status.state.to_string(),
        }
    });
    let resource = status.signal.resource();
    proto::EvictionSignal {
        name: status.signal.to_string(),
        available: status.observed.map(|observed| observed.available),
        obtainable: status.obtainable,
        stall: status.stall.map(|stall| stall.to_string()),
        thresholds: thresholds.collect(),
        bytes: matches!(resource, Resource::Memory | Resource::EphemeralStorage),
    }
}

fn blocker(blocker: &Blocker, view: &PodStatusEntry) -> proto::Blocker {
    proto::Blocker {
        reason: blocker.reason.to_string(),
        container: blocker.container.clone(),
        message: blocker_message(blocker, view),
        since: Some(timestamp(blocker.since)),
        next_retry: blocker.next_retry.map(timestamp),
        waiting_for: waiting_for(blocker).to_owned(),
    }
}

/// Converts the usage of node, pods and containers.
pub(crate) fn usage(
    node_name: String,
    node: &NodeUsage,
    pods: &[PodUsage],
) -> proto::GetUsageResponse {
    let pods = pods.iter().map(|pod| {
        let containers = pod
            .containers
            .iter()
            .map(|container| proto::ContainerUsage {
                name: container.name.clone(),
                usage: container.cgroup.as_ref().map(cgroup_usage),
            });
        proto::PodUsage {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            usage: pod.cgroup.as_ref().map(cgroup_usage),
            containers: containers.collect(),
        }
    });
    proto::GetUsageResponse {
        node_name,
        node: Some(cgroup_usage(&node.cgroup)),
        pods: pods.collect(),
    }
}

fn cgroup_usage(cgroup: &CgroupUsage) -> proto::Usage {
    proto::Usage {
        cpu_nano_cores: cgroup.cpu.as_ref().and_then(|cpu| cpu.nano_cores),
        memory_bytes: cgroup.memory.as_ref().map(|memory| memory.working_set),
    }
}

fn event(event: &PodEvent) -> proto::Event {
    proto::Event {
        r#type: event.event_type.as_str().to_owned(),
        reason: event.reason.to_string(),
        container: event.container.clone(),
        message: event.message.clone(),
        count: event.count,
        first: Some(timestamp(event.first)),
        last: Some(timestamp(event.last)),
    }
}

fn timings(timings: &StartTimings) -> proto::StartTimings {
    proto::StartTimings {
        seen: timings.seen.map(timestamp),
        dispatched: timings.dispatched.map(timestamp),
        sandbox_ready: timings.sandbox_ready.map(timestamp),
        images_ready: timings.images_ready.map(timestamp),
        init_done: timings.init_done.map(timestamp),
        containers_started: timings.containers_started.map(timestamp),
        running: timings.running.map(timestamp),
    }
}

fn timestamp(time: Timestamp) -> prost_types::Timestamp {
    // protobuf requires non-negative nanoseconds; those of jiff have the sign of the seconds
    let (mut seconds, mut nanos) = (time.as_second(), time.subsec_nanosecond());
    if nanos < 0 {
        seconds -= 1;
        nanos += 1_000_000_000;
    }
    prost_types::Timestamp { seconds, nanos }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use windlass_status::PodStatusEntry;

    use super::{entry, timestamp};

    #[test]
    fn status_is_stale_until_the_worker_has_observed_the_pod() {
        for (has_worker, observed, stale) in [
            (true, false, true),
            (true, true, false),
            // waits for a worker: its status is made by this agent run
            (false, false, false),
        ] {
            let view = PodStatusEntry {
                has_worker,
                observed,
                ..PodStatusEntry::new(Arc::default())
            };
            let entry = entry(&view, None).expect("JSON");
            assert_eq!(entry.stale_status, stale, "{has_worker} {observed}");
        }
    }

    #[test]
    fn times_before_the_epoch_have_positive_nanoseconds() {
        let time = |text: &str| {
            let t = timestamp(text.parse().expect("time"));
            (t.seconds, t.nanos)
        };
        assert_eq!(time("1970-01-01T00:00:01.5Z"), (1, 500_000_000));
        assert_eq!(time("1969-12-31T23:59:59.5Z"), (-1, 500_000_000));
    }
}
