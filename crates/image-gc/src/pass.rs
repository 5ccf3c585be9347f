//! Executes one pass: reads images and containers, removes what the plan says.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use tokio::time::timeout;
use windlass_cri::{CriError, CriResult};
use windlass_stats::DiskSpace;
use windlass_store::ImageUses;
use windlass_types::cri::{ContainerSummary, ImageInfo, ListFilter};
use windlass_types::view::EventType;
use windlass_types::{ContainerId, Reason, SandboxId};
use windlass_units::duration::go_duration;

use crate::actor::ImageGcDeps;
use crate::plan::{
    PassTime, RemovableImage, RemovalOrder, SpaceDecision, aggregate, detect, insufficient_space,
    removal_order, used_images,
};

/// A list or the state of a file system that takes longer fails the pass. A pass has five
/// such reads, a write and three hung removals at most: 4.5 min of its interval of 5 min.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// A removal that takes longer is left to the next pass. A runtime deletes the layers in the call: 10
/// GB at 300 MB/s.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Removals that hang in one pass before the rest is left to the next one.
const MAX_HUNG_REMOVALS: usize = 3;
/// Concurrent inspections of containers that the PLEG has not observed yet.
const MAX_CONCURRENT_INSPECTIONS: usize = 4;
/// Number of bytes that upstream wants when all unused images are to go.
const EVERYTHING: u64 = i64::MAX as u64;

/// What a pass does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Records uses, removes nothing.
    Detect,
    /// Removes by age and disk usage.
    Collect,
    /// Removes all unused images.
    RemoveAll,
}

/// Result of a pass.
#[derive(Debug)]
pub(crate) struct PassDone {
    pub(crate) purpose: Purpose,
    pub(crate) uses: ImageUses,
    pub(crate) result: Result<(), String>,
}

/// Runs a pass.
pub(crate) async fn run(
    deps: &ImageGcDeps,
    purpose: Purpose,
    running: Duration,
    mut uses: ImageUses,
) -> PassDone {
    let before = uses.clone();
    let mut pass = Pass {
        deps,
        time: PassTime {
            now: deps.clock.now(),
            running,
        },
        hung: 0,
    };
    let result = pass.run(purpose, &mut uses).await;
    if uses != before {
        save(deps, &uses).await;
    }
    PassDone {
        purpose,
        uses,
        result,
    }
}

async fn save(deps: &ImageGcDeps, uses: &ImageUses) {
    let Some(file) = deps.file.clone() else {
        return;
    };
    let uses = uses.clone();
    let saved = tokio::task::spawn_blocking(move || file.save(&uses));
    match timeout(READ_TIMEOUT, saved).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => tracing::warn!(%error, "times of image use not written"),
        Ok(Err(_)) | Err(_) => tracing::warn!("times of image use not written in time"),
    }
}

struct Pass<'a> {
    deps: &'a ImageGcDeps,
    time: PassTime,
    hung: usize,
}

/// Result of removals.
#[derive(Debug, Default)]
struct Removed {
    bytes: u64,
    errors: Vec<String>,
}

impl Pass<'_> {
    async fn run(&mut self, purpose: Purpose, uses: &mut ImageUses) -> Result<(), String> {
        let (images, used) = self.read().await?;
        detect(uses, &images, &used, self.time.now);
        if purpose == Purpose::Detect {
            return Ok(());
        }
        let policy = &self.deps.policy;
        let mut order = removal_order(uses, &images, &used, policy, self.time);
        self.keep_sandbox_image(&images, &mut order).await;
        tracing::debug!(%order, ?purpose, "images to remove");
        match purpose {
            Purpose::RemoveAll => {
                let mut all = order.expired;
                all.append(&mut order.for_space);
                tracing::info!(images = all.len(), "removing all unused images");
                self.free(&all, EVERYTHING, uses).await.map(drop)
            }
            Purpose::Collect | Purpose::Detect => self.collect(order, uses).await,
        }
    }

    async fn collect(&mut self, order: RemovalOrder, uses: &mut ImageUses) -> Result<(), String> {
        let old = self.remove(&order.expired, None, "age", uses).await;
        let too_old = (!old.errors.is_empty()).then(|| {
            format!(
                "wanted to free images older than {}, encountered errors in image deletion: {}",
                go_duration(self.deps.policy.max_age),
                aggregate(&old.errors)
            )
        });
        // unlike upstream, an old image that stays does not keep the disk full
        let space = self.free_space(&order.for_space, uses).await;
        match (too_old, space) {
            (None, space) => space,
            (Some(error), Ok(())) => Err(error),
            (Some(error), Err(space)) => Err(aggregate(&[error, space])),
        }
    }

    async fn free_space(
        &mut self,
        images: &[RemovableImage],
        uses: &mut ImageUses,
    ) -> Result<(), String> {
        let disk = self.disk().await?;
        let decision = SpaceDecision::new(disk, &self.deps.policy);
        tracing::debug!(%decision, "disk usage of images");
        match decision {
            SpaceDecision::Enough { .. } => Ok(()),
            SpaceDecision::NoCapacity => {
                let message = "invalid capacity 0 on image filesystem";
                self.event(Reason::InvalidDiskCapacity, message);
                Err(message.to_owned())
            }
            SpaceDecision::Free {
                used_percent,
                bytes,
            } => {
                tracing::info!(used_percent, bytes, "disk usage over the high threshold");
                let freed = self.free(images, bytes, uses).await?;
                if freed >= bytes {
                    return Ok(());
                }
                let message = insufficient_space(used_percent, disk.capacity, freed);
                self.event(Reason::FreeDiskSpaceFailed, &message);
                Err(message)
            }
        }
    }

    async fn free(
        &mut self,
        images: &[RemovableImage],
        wanted: u64,
        uses: &mut ImageUses,
    ) -> Result<u64, String> {
        let removed = self.remove(images, Some(wanted), "space", uses).await;
        if removed.errors.is_empty() {
            return Ok(removed.bytes);
        }
        Err(format!(
            "wanted to free {wanted} bytes, but freed {} bytes space with errors in image \
             deletion: {}",
            removed.bytes,
            aggregate(&removed.errors)
        ))
    }

    /// Removes images in order, until `wanted` bytes are free.
    async fn remove(
        &mut self,
        images: &[RemovableImage],
        wanted: Option<u64>,
        reason: &str,
        uses: &mut ImageUses,
    ) -> Removed {
        let mut removed = Removed::default();
        for image in images {
            if self.hung >= MAX_HUNG_REMOVALS || wanted.is_some_and(|it| removed.bytes >= it) {
                break;
            }
            // a pod start may have found it since the pass began
            if self.deps.holds.is_held(&image.id) {
                continue;
            }
            match self.remove_one(image).await {
                Ok(()) => {
                    tracing::info!(
                        image = image.id,
                        bytes = image.size,
                        reason,
                        "image removed"
                    );
                    removed.bytes = removed.bytes.saturating_add(image.size);
                    uses.remove(&image.id);
                    self.deps.metrics.starts.count_collected_image(reason);
                }
                Err(error) => {
                    tracing::warn!(image = image.id, error, "image not removed");
                    removed.errors.push(error);
                }
            }
        }
        removed
    }

    async fn remove_one(&mut self, image: &RemovableImage) -> Result<(), String> {
        let call = self.deps.images.remove_image(&image.id);
        match timeout(REMOVAL_TIMEOUT, call).await {
            Ok(removed) => removed.map_err(|error| error.go_text()),
            Err(_) => {
                self.hung += 1;
                Err(format!("removal of {} timed out", image.id))
            }
        }
    }

    /// Returns the images on the node and the IDs of those in use.
    async fn read(&self) -> Result<(Vec<ImageInfo>, BTreeSet<String>), String> {
        // first, so that an image that is released by a created container is found in use
        let held = self.deps.holds.held();
        let everything = ListFilter::default();
        let lists = async {
            tokio::try_join!(
                self.deps.images.list_images(),
                self.deps.runtime.list_containers(&everything),
            )
        };
        let (images, containers) = within(lists).await?;
        let mounts = within(self.mounted(&containers)).await?;
        let references = containers
            .iter()
            .map(|container| container.image_id.as_str())
            .chain(mounts.iter().map(String::as_str))
            .chain(held.iter().map(String::as_str));
        let used = used_images(&images, references);
        Ok((images, used))
    }

    /// Returns the images that containers mount. They are known from the PLEG; containers that it
    /// has not observed are inspected.
    async fn mounted(&self, containers: &[ContainerSummary]) -> CriResult<Vec<String>> {
        let pods = self.deps.observed.all();
        let observed: BTreeMap<&ContainerId, &[String]> = pods
            .iter()
            .flat_map(|pod| &pod.containers)
            .map(|container| (&container.id, container.image_mounts.as_slice()))
            .collect();
        let mut images: Vec<String> = Vec::new();
        let mut unknown: Vec<ContainerId> = Vec::new();
        for container in containers {
            match observed.get(&container.id) {
                Some(mounts) => images.extend_from_slice(mounts),
                None => unknown.push(container.id.clone()),
            }
        }
        let inspections = unknown.into_iter().map(|id| async move {
            match self.deps.runtime.container_status(&id).await {
                Ok(detail) => Ok(detail.observed.image_mounts),
                Err(error) if error.is_not_found() => Ok(Vec::new()),
                Err(error) => Err(error),
            }
        });
        // collected first: the iterator borrows what a spawned task must not hold
        let inspections: Vec<_> = inspections.collect();
        let inspected: Vec<Vec<String>> = futures::stream::iter(inspections)
            .buffer_unordered(MAX_CONCURRENT_INSPECTIONS)
            .try_collect()
            .await?;
        images.extend(inspected.into_iter().flatten());
        Ok(images)
    }

    /// Older runtimes neither pin the image of sandboxes nor list it as used.
    async fn keep_sandbox_image(&self, images: &[ImageInfo], order: &mut RemovalOrder) {
        if order.expired.is_empty() && order.for_space.is_empty() {
            return;
        }
        let Some(sandbox) = self.sandbox().await else {
            return;
        };
        let found = self.deps.file_system.sandbox_image(&sandbox);
        let reference = timeout(READ_TIMEOUT, found).await.ok().flatten();
        let kept = used_images(images, reference.as_deref());
        order.expired.retain(|image| !kept.contains(&image.id));
        order.for_space.retain(|image| !kept.contains(&image.id));
    }

    /// Returns any sandbox; the PLEG may not have observed one yet.
    async fn sandbox(&self) -> Option<SandboxId> {
        let pods = self.deps.observed.all();
        let observed = pods.iter().find_map(|pod| pod.newest_sandbox());
        if let Some(sandbox) = observed {
            return Some(sandbox.id.clone());
        }
        let everything = ListFilter::default();
        let listed = within(self.deps.runtime.list_pod_sandboxes(&everything)).await;
        let listed = listed.inspect_err(|error| tracing::debug!(error, "sandboxes not listed"));
        Some(listed.ok()?.into_iter().next()?.id)
    }

    async fn disk(&self) -> Result<DiskSpace, String> {
        let space = timeout(READ_TIMEOUT, self.deps.file_system.space()).await;
        space.unwrap_or_else(|_| Err("image file system info timed out".to_owned()))
    }

    fn event(&self, reason: Reason, message: &str) {
        let events = &self.deps.events;
        events.record_node(EventType::Warning, reason, message);
    }
}

async fn within<T>(read: impl Future<Output = Result<T, CriError>>) -> Result<T, String> {
    match timeout(READ_TIMEOUT, read).await {
        Ok(result) => result.map_err(|error| error.go_text()),
        Err(_) => Err("reading images and containers timed out".to_owned()),
    }
}
