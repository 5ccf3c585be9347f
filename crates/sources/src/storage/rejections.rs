//! The current rejections of all sources.

use std::collections::BTreeMap;

use windlass_actors::RejectedManifest;
use windlass_manifests::merge::RejectedPod;
use windlass_types::{PodExt, PodSource};

/// Rejections of the sources and of the merge, by source.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    manifests: BTreeMap<PodSource, Vec<RejectedManifest>>,
    pods: BTreeMap<PodSource, Vec<RejectedManifest>>,
}

impl Rejections {
    /// Replaces the rejections of one source.
    pub(super) fn replace(
        &mut self,
        source: PodSource,
        manifests: Vec<RejectedManifest>,
        pods: &[RejectedPod],
    ) {
        self.manifests.insert(source, manifests);
        let pods = pods.iter().map(|rejected| RejectedManifest {
            origin: format!("pod {}", rejected.pod.full_name()),
            error: rejected.message.clone(),
        });
        self.pods.insert(source, pods.collect());
    }

    /// Returns all rejections, ordered by source.
    pub(super) fn all(&self) -> Vec<RejectedManifest> {
        let manifests = self.manifests.values().flatten();
        manifests
            .chain(self.pods.values().flatten())
            .cloned()
            .collect()
    }
}
