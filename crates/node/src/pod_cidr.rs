//! Tells the runtime the address range of the node's pods.
//!
//! In a cluster it is the Node object's `spec.podCIDRs`, which the control plane may set long
//! after the node has registered; before that, and without a cluster, it is `podCIDR` of the
//! configuration. The runtime is told each value once, and again after it was away: it may have
//! come back without a memory. What it does with it is its own affair (containerd writes its CNI
//! configuration if it has a template for one), and a refusal is no network error: as with
//! upstream, the runtime's own status says whether its network is ready.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use windlass_actors::{NodeSeen, RuntimeState};
use windlass_cri::{CriResult, RuntimeService};
use windlass_types::corev1::Node;

/// Pause after the first refusal; doubled with each, up to the period in which upstream tries.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What [`keep_pod_cidr`] works with.
#[derive(Clone, Debug)]
pub struct PodCidrDeps {
    /// `podCIDR`; may be empty.
    pub configured: String,
    /// The node object.
    pub node: watch::Receiver<NodeSeen>,
    /// Whether the runtime answers.
    pub runtime_state: watch::Receiver<RuntimeState>,
    /// Who is told.
    pub runtime: Arc<dyn RuntimeService>,
}

/// Keeps the runtime informed for as long as somebody checks on it. One call is under way at a
/// time, with the runtime's deadline.
pub async fn keep_pod_cidr(mut deps: PodCidrDeps) {
    let mut book = Book::new(deps.configured);
    loop {
        let answers = deps.runtime_state.borrow_and_update().answered;
        book.runtime(answers);
        book.node(deps.node.borrow_and_update().0.as_deref());
        let mut pause = None;
        if let Some(cidr) = book.due() {
            let answer = deps.runtime.update_runtime_config(&cidr).await;
            pause = book.told(&cidr, &answer);
        }
        tokio::select! {
            biased;
            changed = deps.runtime_state.changed() => if changed.is_err() {
                return;
            },
            () = changed(&mut deps.node) => {}
            () = elapsed(pause) => {}
        }
    }
}

/// What the range is and what the runtime knows.
#[derive(Debug)]
struct Book {
    wanted: String,
    known: String,
    answers: bool,
    refusals: u32,
}

impl Book {
    fn new(configured: String) -> Self {
        Self {
            wanted: configured,
            known: String::new(),
            answers: false,
            refusals: 0,
        }
    }

    fn runtime(&mut self, answers: bool) {
        self.answers = answers;
        if !answers {
            self.known.clear();
        }
    }

    /// A node that has no range, or is gone, takes none away.
    fn node(&mut self, node: Option<&Node>) {
        let spec = node.and_then(|node| node.spec.as_ref());
        let ranges = spec.and_then(|spec| spec.pod_cidrs.as_deref());
        match ranges {
            None | Some([]) => {}
            Some(ranges) => self.wanted = ranges.join(","),
        }
    }

    /// What the runtime is to be told now.
    fn due(&self) -> Option<String> {
        (self.answers && self.wanted != self.known).then(|| self.wanted.clone())
    }

    /// What came of it, and when to try again. A failure is said once.
    fn told(&mut self, cidr: &str, answer: &CriResult<()>) -> Option<Duration> {
        match answer {
            Ok(()) => {
                tracing::info!(cidr, before = self.known, "runtime knows the pod CIDR");
                self.known = cidr.to_owned();
                self.refusals = 0;
                None
            }
            Err(error) => {
                if self.refusals == 0 {
                    tracing::warn!(cidr, %error, further_at_debug = true, "runtime not told the pod CIDR");
                } else {
                    tracing::debug!(cidr, %error, "runtime not told the pod CIDR");
                }
                let pause = FIRST_PAUSE * 2u32.pow(self.refusals.min(4));
                self.refusals += 1;
                Some(pause.min(LONGEST_PAUSE))
            }
        }
    }
}

/// Without a cluster nobody ever sends a node.
async fn changed(node: &mut watch::Receiver<NodeSeen>) {
    if node.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn elapsed(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::fake_runtime::FakeRuntime;

    struct World {
        runtime: FakeRuntime,
        state: watch::Sender<RuntimeState>,
        seen: watch::Sender<NodeSeen>,
    }

    fn state(answered: bool) -> RuntimeState {
        RuntimeState {
            runtime_error: None,
            network_error: Some("cni plugin not initialized".into()),
            pleg_error: None,
            answered,
        }
    }

    impl World {
        fn begin(configured: &str) -> Self {
            let runtime = FakeRuntime::new();
            let (state, runtime_state) = watch::channel(RuntimeState::unknown());
            let (seen, node) = watch::channel(NodeSeen::default());
            tokio::spawn(keep_pod_cidr(PodCidrDeps {
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
            self.seen.send_replace(NodeSeen(Some(Arc::new(node))));
        }

        /// Everything the runtime was told within the next minute, and when.
        async fn told(&self) -> Vec<String> {
            let begin = Instant::now();
            let mut told = Vec::new();
            while begin.elapsed() < Duration::from_secs(60) {
                sleep(Duration::from_millis(100)).await;
                told.extend(self.runtime.take_pod_cidrs());
            }
            told
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_range_is_told_once_and_again_after_the_runtime_was_away() {
        let world = World::begin("");
        world.ranges(&["10.1.0.0/24", "fd00::/64"]);
        assert!(world.told().await.is_empty(), "nobody is there to hear it");
        world.state.send_replace(state(true));
        assert_eq!(world.told().await, ["10.1.0.0/24,fd00::/64"]);
        world.ranges(&["10.1.0.0/24", "fd00::/64"]);
        world.ranges(&[]);
        world.seen.send_replace(NodeSeen(None));
        assert!(world.told().await.is_empty(), "it knows");
        world.ranges(&["10.2.0.0/24"]);
        assert_eq!(world.told().await, ["10.2.0.0/24"]);
        world.state.send_replace(state(false));
        assert!(world.told().await.is_empty());
        world.state.send_replace(state(true));
        assert_eq!(world.told().await, ["10.2.0.0/24"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_configured_range_counts_until_the_node_has_one() {
        let world = World::begin("10.88.0.0/16");
        world.state.send_replace(state(true));
        assert_eq!(world.told().await, ["10.88.0.0/16"]);
        world.ranges(&["10.2.0.0/24"]);
        assert_eq!(world.told().await, ["10.2.0.0/24"]);
        // stand-alone: there is nobody who could send a node
        let World {
            runtime,
            state: checks,
            seen,
        } = World::begin("10.88.0.0/16");
        drop(seen);
        checks.send_replace(state(true));
        sleep(Duration::from_secs(60)).await;
        assert_eq!(runtime.take_pod_cidrs(), ["10.88.0.0/16"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_tried_again_after_a_pause_that_grows_to_10_s() {
        let world = World::begin("10.88.0.0/16");
        world.runtime.refuse_pod_cidrs(true);
        world.state.send_replace(state(true));
        // at 0, 1, 3, 7, 15, 25, 35, 45 and 55 s
        assert_eq!(world.told().await.len(), 9);
        world.runtime.refuse_pod_cidrs(false);
        assert_eq!(world.told().await.len(), 1);
        assert!(world.told().await.is_empty());
    }
}
