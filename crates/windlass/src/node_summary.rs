//! The state of the API server connection for `windlassctl status`, and the metrics of the node's
//! certificates.

use std::sync::Arc;

use tokio::sync::watch;
use windlass_actors::NodeUpdate;
use windlass_certs::certificate::Certificate;
use windlass_certs::{Credentials, ServingPair};
use windlass_control::NodeSource;
use windlass_hung_operations::{HungOperation, HungOperations};
use windlass_metrics::Metrics;
use windlass_status::PodStatusStore;
use windlass_types::view::{
    ClusterSummary, HeartbeatStatus, HungOperationView, NodeSummary, PodWatch,
};
use windlass_types::{Clock, PodExt, Timestamp};

/// The node and, unless it is standalone, its cluster.
#[derive(Clone, Debug)]
pub struct AgentNode {
    /// Name of the node.
    pub name: String,
    /// The cluster; `None` in standalone mode.
    pub cluster: Option<ClusterHandles>,
    /// What hangs.
    pub hung: HungOperations,
    /// Names of pods.
    pub status_store: PodStatusStore,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

/// Sources of a [`ClusterSummary`].
#[derive(Clone, Debug)]
pub struct ClusterHandles {
    /// Credentials; `None` in simulations.
    pub credentials: Option<Credentials>,
    /// The serving certificate, if the cluster issues it.
    pub serving: Option<watch::Receiver<Option<ServingPair>>>,
    /// The node object.
    pub node: watch::Receiver<NodeUpdate>,
    /// Whether the API server is reachable.
    pub contact: watch::Receiver<Option<HeartbeatStatus>>,
    /// State of the watch of the node's pods.
    pub pod_watch: watch::Receiver<Option<PodWatch>>,
}

impl NodeSource for AgentNode {
    fn summary(&self) -> NodeSummary {
        NodeSummary {
            name: self.name.clone(),
            cluster: self.cluster.as_ref().map(ClusterHandles::summary),
            hung_operations: self.hung_operations(),
        }
    }
}

impl AgentNode {
    fn hung_operations(&self) -> Vec<HungOperationView> {
        let listed = self.hung.list().into_iter();
        let view = |hung: HungOperation| HungOperationView {
            kind: hung.operation.kind.as_str(),
            name: hung.operation.name,
            since: hung.since,
            pod_name: hung.operation.pod.as_ref().and_then(|uid| {
                let pod = self.status_store.get(uid)?.pod;
                Some((pod.namespace().to_owned(), pod.name().to_owned()))
            }),
            pod: hung.operation.pod,
        };
        listed.map(view).collect()
    }

    /// Updates the gauges of certificates and pod watch.
    pub(crate) fn publish_metrics(&self, metrics: &Metrics) {
        if let Some(cluster) = &self.cluster {
            cluster.publish_metrics(metrics, self.clock.now());
        }
    }
}

impl ClusterHandles {
    fn summary(&self) -> ClusterSummary {
        let config = self.credentials.as_ref().map(|it| &it.config);
        ClusterSummary {
            server: config.map_or_else(String::new, |config| config.server().to_string()),
            has_identity: config
                .is_none_or(|config| config.has_header() || config.identity().is_present()),
            ready: self.node.borrow().0.as_ref().map(|node| {
                let status = node.status.as_ref();
                let conditions = status.and_then(|status| status.conditions.as_ref());
                let mut conditions = conditions.into_iter().flatten();
                let ready = conditions.find(|condition| condition.type_ == "Ready");
                ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.clone())
            }),
            contact: self.contact.borrow().clone(),
            pod_watch: self.pod_watch.borrow().clone(),
        }
    }

    /// A node with a bearer token has no client certificate that could expire.
    fn publish_metrics(&self, metrics: &Metrics, now: Timestamp) {
        let failing = self.pod_watch.borrow().clone();
        let failing = failing.filter(|pod_watch| pod_watch.error.is_some());
        let failing = failing.map(|pod_watch| now.duration_since(pod_watch.since));
        metrics
            .sources
            .pod_watch_failing
            .set(failing.map_or(0.0, |failing| failing.as_secs_f64().max(0.0)));
        let config = self.credentials.as_ref().map(|it| &it.config);
        if let Some(config) = config.filter(|config| !config.has_header()) {
            let ttl = ttl(config.identity().expires_at(), now);
            metrics.certificates.set_client_ttl(ttl);
        }
        if let Some(serving) = &self.serving {
            let pair = serving.borrow().clone();
            let certificate = pair.and_then(|pair| Certificate::from_pem(pair.pem()));
            let end = certificate.map(|certificate| certificate.validity.not_after);
            metrics.certificates.set_server_ttl(ttl(end, now));
        }
    }
}

/// Whole seconds, as upstream: negative once expired, infinite without a certificate.
fn ttl(end: Option<Timestamp>, now: Timestamp) -> f64 {
    end.map_or(f64::INFINITY, |end| {
        end.duration_since(now).as_secs() as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_ttl_is_whole_seconds_or_infinite() {
        let at = |millis| Timestamp::from_millisecond(millis).expect("time");
        assert_eq!(ttl(Some(at(90_500)), at(30_000)), 60.0);
        assert_eq!(ttl(Some(at(1_000)), at(4_000)), -3.0);
        assert_eq!(ttl(None, at(0)), f64::INFINITY);
    }
}
