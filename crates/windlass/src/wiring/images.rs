//! Image garbage collection, and what frees disk space on demand.

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;
use windlass_actors::{ImageGcHandle, PodWorkerState, PodWorkersHandle, SourcesReady, StatusCache};
use windlass_eviction_manager::NodeReclaimer;
use windlass_image_gc::{IMAGE_GC_MANAGER, ImageGcDeps, ImageGcManager};
use windlass_mailboxes::{mailbox, start_actor};
use windlass_runtime::{KnownPods, PodRuntime};
use windlass_status::PodStatusStore;
use windlass_store::{ImageUseFile, ImageUses};
use windlass_types::{PodExt, PodUid};

use super::links::{Links, Shared};
use super::parts::ImageGcParts;

/// Starts image garbage collection; returns what frees disk space on demand.
pub(super) fn spawn_image_gc(
    parts: ImageGcParts,
    state: Option<(ImageUseFile, ImageUses)>,
    runtime: &PodRuntime,
    shared: &Shared,
    links: &Links,
) -> NodeReclaim {
    let (sender, requests) = mailbox(IMAGE_GC_MANAGER, &shared.metrics.mailboxes);
    let (file, uses) = state.unzip();
    let deps = ImageGcDeps {
        policy: parts.policy,
        images: Arc::clone(&shared.images),
        runtime: Arc::clone(&shared.runtime),
        file_system: parts.file_system,
        observed: links.pleg.cache.clone(),
        holds: runtime.image_holds().clone(),
        file,
        events: Arc::clone(&shared.events),
        clock: Arc::clone(&shared.clock),
        metrics: shared.metrics.clone(),
    };
    let uses = uses.unwrap_or_default();
    start_actor(ImageGcManager::new(deps, uses, requests));
    NodeReclaim {
        images: ImageGcHandle { mailbox: sender },
        runtime: runtime.clone(),
        workers: links.workers.clone(),
        observed: links.pleg.cache.clone(),
        status_store: shared.status_store.clone(),
        sources_ready: links.sources_ready.clone(),
    }
}

/// Frees disk space on the node without evicting pods.
#[derive(Clone, Debug)]
pub struct NodeReclaim {
    images: ImageGcHandle,
    runtime: PodRuntime,
    workers: PodWorkersHandle,
    observed: StatusCache,
    status_store: PodStatusStore,
    sources_ready: watch::Receiver<SourcesReady>,
}

impl NodeReclaim {
    pub(super) fn publish_metrics(&self) {
        self.images.mailbox.publish_metrics();
    }
}

#[async_trait]
impl NodeReclaimer for NodeReclaim {
    async fn delete_unused_images(&self) -> Result<(), String> {
        self.images.delete_unused_images().await
    }

    /// Removes all containers of terminated pods, and those of other pods that the policy does not
    /// keep. Orphans are left to housekeeping, which alone knows the desired pods.
    async fn delete_dead_containers(&self) -> Result<(), String> {
        let workers = self.workers.statuses().await;
        let workers = workers.map_err(|_| "the pod workers have stopped".to_owned())?;
        let terminated = workers
            .iter()
            .filter(|(_, worker)| worker.state == PodWorkerState::TerminatedPod);
        let finished: BTreeSet<PodUid> = terminated.map(|(uid, _)| uid.clone()).collect();
        let mut known: BTreeSet<PodUid> = workers.keys().cloned().collect();
        known.extend(self.observed.all().iter().map(|pod| pod.uid.clone()));
        let desired = self.status_store.snapshot();
        known.extend(desired.iter().map(|entry| entry.pod.uid()));
        let sources_ready = self.sources_ready.borrow().0;
        let pods = KnownPods {
            known,
            finished,
            sources_ready,
        };
        let report = self.runtime.collect_garbage(&pods).await;
        tracing::info!(%report, "dead containers removed");
        match report.failures.as_slice() {
            [] => Ok(()),
            failures => Err(failures.join("; ")),
        }
    }
}
