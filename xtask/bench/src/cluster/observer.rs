//! A watch of the pods, as in `kubectl get pods -w`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use windlass_client::{ApiClient, ReflectEvent, Selector, reflect};
use windlass_types::Pod;

/// Time at which each existing pod was first ready, by name.
pub(super) type ReadyTimes = BTreeMap<String, Option<Instant>>;

/// Watches all pods until dropped.
#[derive(Debug)]
pub(super) struct Observer {
    seen: watch::Receiver<ReadyTimes>,
    task: JoinHandle<()>,
}

impl Observer {
    pub(super) fn start(client: ApiClient) -> Self {
        let (sender, seen) = watch::channel(ReadyTimes::new());
        let task = tokio::spawn(async move {
            let mut events = std::pin::pin!(reflect::<Pod>(client, Selector::default()));
            while let Some(event) = events.next().await {
                sender.send_modify(|seen| take(seen, event, Instant::now()));
            }
        });
        Self { seen, task }
    }

    /// Waits until the pods are as `wanted`; an error contains `what`.
    pub(super) async fn wait_for(
        &mut self,
        what: &str,
        deadline: Duration,
        wanted: impl FnMut(&ReadyTimes) -> bool,
    ) -> anyhow::Result<ReadyTimes> {
        let waited = tokio::time::timeout(deadline, self.seen.wait_for(wanted)).await;
        match waited.map(|seen| seen.map(|seen| seen.clone())) {
            Ok(seen) => seen.context("the watch ended"),
            Err(_) => {
                let seen = self.seen.borrow();
                let ready = seen.values().flatten().count();
                bail!(
                    "not within {deadline:?}: {what}; there are {} pods, {ready} of them ready",
                    seen.len()
                )
            }
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn take(seen: &mut ReadyTimes, event: ReflectEvent<Pod>, now: Instant) {
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    match event {
        ReflectEvent::Synced(pods) => {
            let old = std::mem::take(seen);
            for pod in pods {
                let before = old.get(&name(&pod)).copied().flatten();
                seen.insert(name(&pod), before.or_else(|| is_ready(&pod).then_some(now)));
            }
        }
        ReflectEvent::Applied(pod) => {
            let ready = seen.entry(name(&pod)).or_default();
            if ready.is_none() && is_ready(&pod) {
                *ready = Some(now);
            }
        }
        ReflectEvent::Deleted(pod) => {
            seen.remove(&name(&pod));
        }
        ReflectEvent::Failed { .. } | ReflectEvent::Resumed => {}
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod
        .status
        .iter()
        .flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
