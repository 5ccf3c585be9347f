//! Everything that is refused at present, for whoever asks why a pod does not run.

use std::collections::BTreeMap;

use windlass_actors::RejectedManifest;
use windlass_manifests::merge::RejectedPod;
use windlass_types::{PodExt, PodSource};

/// Refusals of the sources and of the merger, by source.
#[derive(Debug, Default)]
pub(super) struct Rejections {
    manifests: BTreeMap<PodSource, Vec<RejectedManifest>>,
    pods: BTreeMap<PodSource, Vec<RejectedManifest>>,
}

impl Rejections {
    /// Replaces what is known of one source.
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

    /// All of them, by source.
    pub(super) fn all(&self) -> Vec<RejectedManifest> {
        let manifests = self.manifests.values().flatten();
        manifests
            .chain(self.pods.values().flatten())
            .cloned()
            .collect()
    }
}
