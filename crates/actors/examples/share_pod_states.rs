//! Publishes the observed state of a pod, and reads it as any number of actors would.
//!
//! `cargo run -p windlass-actors --example share_pod_states`
//!
//! Runs without a container runtime.

use std::sync::Arc;

use windlass_actors::{PlegHealth, StatusCache};
use windlass_types::{ObservedPod, ObservedSandbox, PodUid, SandboxId, Timestamp};

fn main() {
    let cache = StatusCache::new();
    let reader = cache.clone();
    cache.record(Arc::new(ObservedPod {
        uid: PodUid::from("u1"),
        sandboxes: vec![ObservedSandbox {
            id: SandboxId::from("s1"),
            attempt: 0,
            ready: true,
            created_at: Timestamp::UNIX_EPOCH,
            host_network: false,
            ips: Vec::new(),
        }],
        ..ObservedPod::default()
    }));
    for pod in reader.all() {
        println!("{}: {} sandboxes", pod.uid, pod.sandboxes.len());
    }
    println!("last relist: {:?}", PlegHealth::default().age());
}
