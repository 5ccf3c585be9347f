//! Sends the pod CIDR of the node to the runtime.
//!
//! It is `spec.podCIDRs` of the Node, which the control plane may set long after registration;
//! before that, and standalone, it is `podCIDR` of the configuration. Each value is sent once, and
//! again after the runtime was unreachable, as it may have restarted. As upstream, an error of this
//! call is not a network error: the runtime's own status reports that.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{NodeUpdate, RuntimeState};
use windlass_cri::{CriResult, RuntimeService};
use windlass_types::corev1::Node;

/// Back-off after the first error; doubled with each one, up to upstream's interval.
const INITIAL_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// Dependencies of [`run_pod_cidr_sync`].
#[derive(Clone, Debug)]
pub struct PodCidrDeps {
    /// `podCIDR`; may be empty.
    pub configured: String,
    /// The node object.
    pub node: watch::Receiver<NodeUpdate>,
    /// Whether the runtime is reachable.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// Receives the CIDR.
    pub runtime: Arc<dyn RuntimeService>,
}

/// Runs until the sender of the runtime state is dropped, with one call in progress at a time.
pub async fn run_pod_cidr_sync(mut deps: PodCidrDeps) {
    let mut state = PodCidrState::new(deps.configured);
    loop {
        let reachable = deps.runtime_state.borrow_and_update().answered;
        state.runtime(reachable);
        state.node(deps.node.borrow_and_update().0.as_deref());
        let mut backoff = None;
        if let Some(cidr) = state.cidr_to_send() {
            let result = deps.runtime.update_runtime_config(&cidr).await;
            backoff = state.record(&cidr, &result);
        }
        tokio::select! {
            biased;
            changed = deps.runtime_state.changed() => if changed.is_err() {
                return;
            },
            () = changed(&mut deps.node) => {}
            () = elapsed(backoff) => {}
        }
    }
}

/// The desired CIDR and the one that the runtime has.
#[derive(Debug)]
struct PodCidrState {
    desired: String,
    sent: String,
    reachable: bool,
    failures: u32,
}

impl PodCidrState {
    fn new(configured: String) -> Self {
        Self {
            desired: configured,
            sent: String::new(),
            reachable: false,
            failures: 0,
        }
    }

    fn runtime(&mut self, reachable: bool) {
        self.reachable = reachable;
        if !reachable {
            self.sent.clear();
        }
    }

    /// A deleted node, or one without a range, keeps the last range.
    fn node(&mut self, node: Option<&Node>) {
        let spec = node.and_then(|node| node.spec.as_ref());
        let ranges = spec.and_then(|spec| spec.pod_cidrs.as_deref());
        match ranges {
            None | Some([]) => {}
            Some(ranges) => self.desired = ranges.join(","),
        }
    }

    /// Returns the CIDR to send.
    fn cidr_to_send(&self) -> Option<String> {
        (self.reachable && self.desired != self.sent).then(|| self.desired.clone())
    }

    /// Records the result and returns the back-off. Only the first failure is a warning.
    fn record(&mut self, cidr: &str, result: &CriResult<()>) -> Option<Duration> {
        match result {
            Ok(()) => {
                tracing::info!(cidr, before = self.sent, "pod CIDR sent");
                self.sent = cidr.to_owned();
                self.failures = 0;
                None
            }
            Err(error) => {
                if self.failures == 0 {
                    tracing::warn!(cidr, %error, further_at_debug = true, "pod CIDR not sent");
                } else {
                    tracing::debug!(cidr, %error, "pod CIDR not sent");
                }
                let backoff = INITIAL_BACKOFF * 2u32.pow(self.failures.min(4));
                self.failures += 1;
                Some(backoff.min(MAX_BACKOFF))
            }
        }
    }
}

/// Never resolves after the sender is dropped, as in standalone mode.
async fn changed(node: &mut watch::Receiver<NodeUpdate>) {
    if node.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn elapsed(backoff: Option<Duration>) {
    match backoff {
        Some(backoff) => tokio::time::sleep(backoff).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::sleep;
    use windlass_cri::CriCode;
    use windlass_mailboxes::SimClock;
    use windlass_testing::FakeRuntime;
    use windlass_testing::fake_runtime::{Fault, Operation};
    use windlass_types::Timestamp;

    use super::*;

    struct TestEnv {
        runtime: FakeRuntime,
        state: watch::Sender<RuntimeState>,
        seen: watch::Sender<NodeUpdate>,
    }

    fn state(answered: bool) -> RuntimeState {
        RuntimeState {
            runtime_error: None,
            network_error: Some("cni plugin not initialized".into()),
            pleg_error: None,
            answered,
        }
    }

    impl TestEnv {
        fn start(configured: &str) -> Self {
            let clock = SimClock::starting_at(Timestamp::UNIX_EPOCH);
            let runtime = FakeRuntime::new(Arc::new(clock), 1);
            let (state, runtime_state) = watch::channel(RuntimeState::unknown());
            let (seen, node) = watch::channel(NodeUpdate::default());
            tokio::spawn(run_pod_cidr_sync(PodCidrDeps {
                configured: configured.into(),
                node,
                runtime_state,
                runtime: Arc::new(runtime.clone()),
            }));
            Self {
                runtime,
                state,
                seen,
            }
        }

        fn ranges(&self, ranges: &[&str]) {
            let node = json!({"metadata": {"name": "n1"}, "spec": {"podCIDRs": ranges}});
            let node = serde_json::from_value(node).expect("node");
            self.seen.send_replace(NodeUpdate(Some(Arc::new(node))));
        }

        /// Returns the CIDRs that the runtime receives within the next minute.
        async fn received_cidrs(&self) -> Vec<String> {
            self.runtime.clear_calls();
            sleep(Duration::from_secs(60)).await;
            let calls = self.runtime.calls_of(Operation::UpdateRuntimeConfig, "");
            calls.into_iter().map(|call| call.subject).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn pod_cidr_is_sent_once_and_after_a_runtime_outage() {
        let env = TestEnv::start("");
        env.ranges(&["10.1.0.0/24", "fd00::/64"]);
        assert!(
            env.received_cidrs().await.is_empty(),
            "the runtime is unreachable"
        );
        env.state.send_replace(state(true));
        assert_eq!(env.received_cidrs().await, ["10.1.0.0/24,fd00::/64"]);
        env.ranges(&["10.1.0.0/24", "fd00::/64"]);
        env.ranges(&[]);
        env.seen.send_replace(NodeUpdate(None));
        assert!(env.received_cidrs().await.is_empty(), "unchanged");
        env.ranges(&["10.2.0.0/24"]);
        assert_eq!(env.received_cidrs().await, ["10.2.0.0/24"]);
        env.state.send_replace(state(false));
        assert!(env.received_cidrs().await.is_empty());
        env.state.send_replace(state(true));
        assert_eq!(env.received_cidrs().await, ["10.2.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn configured_pod_cidr_applies_until_node_has_one() {
        let env = TestEnv::start("10.88.0.0/16");
        env.state.send_replace(state(true));
        assert_eq!(env.received_cidrs().await, ["10.88.0.0/16"]);
        env.ranges(&["10.2.0.0/24"]);
        assert_eq!(env.received_cidrs().await, ["10.2.0.0/24"]);
        // standalone: no Node object
        let mut env = TestEnv::start("10.88.0.0/16");
        env.seen = watch::channel(NodeUpdate::default()).0;
        env.state.send_replace(state(true));
        assert_eq!(env.received_cidrs().await, ["10.88.0.0/16"]);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_cidr_error_is_retried_with_backoff_up_to_10_s() {
        let env = TestEnv::start("10.88.0.0/16");
        let unimplemented = CriCode::Unimplemented;
        let operation = Operation::UpdateRuntimeConfig;
        env.runtime
            .inject(Fault::fail(operation, 9, unimplemented, "not here"));
        env.state.send_replace(state(true));
        // at 0, 1, 3, 7, 15, 25, 35, 45 and 55 s
        assert_eq!(env.received_cidrs().await.len(), 9);
        assert_eq!(env.received_cidrs().await.len(), 1);
        assert!(env.received_cidrs().await.is_empty());
    }
}
