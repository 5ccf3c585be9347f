//! The sources of pods that are the same on every node, and PodStorage behind them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use tokio::sync::watch;
use windlass_actors::{
    ActorKind, ConfigChanged, MailboxSender, RejectedManifest, SourceSnapshot, mailbox, start_actor,
};
use windlass_manifests::merge::Mode;
use windlass_metrics::Metrics;
use windlass_sources::{
    FileSource, FileSourceConfig, HttpSource, HttpSourceConfig, PodStorage, PodStorageDeps,
};
use windlass_timelines::Timelines;
use windlass_types::{Clock, EventRecorder, PodOp, PodSource, SharedPod, names};

/// Which pod sources there are.
#[derive(Clone, Debug, Default)]
pub struct SourceParts {
    /// Name of the node, part of a static pod's name.
    pub node_name: String,
    /// `staticPodPath`.
    pub file: Option<PathBuf>,
    /// `fileCheckFrequency`.
    pub file_period: Duration,
    /// `staticPodURL`.
    pub url: Option<Uri>,
    /// `staticPodURLHeader`.
    pub url_headers: HeaderMap,
    /// `httpCheckFrequency`.
    pub url_period: Duration,
    /// The API server.
    pub api: bool,
    /// Sources that are fed through [`super::Agent::sources`] from outside, as simulations do.
    pub fed: BTreeSet<PodSource>,
}

impl SourceParts {
    /// All of them.
    pub(super) fn configured(&self) -> BTreeSet<PodSource> {
        let file = self.file.as_ref().map(|_| PodSource::File);
        let http = self.url.as_ref().map(|_| PodSource::Http);
        let api = self.api.then_some(PodSource::Api);
        file.into_iter()
            .chain(http)
            .chain(api)
            .chain(self.fed.iter().copied())
            .collect()
    }
}

/// What PodStorage and its sources are made of.
pub(super) struct SourceWiring {
    pub(super) sources: SourceParts,
    pub(super) restored: Vec<SharedPod>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) events: Arc<dyn EventRecorder>,
    pub(super) timelines: Timelines,
    pub(super) metrics: Metrics,
    pub(super) sync_loop: MailboxSender<ConfigChanged>,
}

/// Starts PodStorage and what feeds it. The way into it, and what it refuses.
pub(super) fn spawn_sources(
    wiring: SourceWiring,
) -> (
    MailboxSender<SourceSnapshot>,
    watch::Receiver<Vec<RejectedManifest>>,
) {
    let SourceWiring { sources, clock, .. } = wiring;
    let (storage, mailbox) = mailbox(ActorKind::PodStorage, &wiring.metrics);
    let (rejected_sender, rejected) = watch::channel(Vec::new());
    let deps = PodStorageDeps {
        mode: Mode::Incremental,
        sources: sources.configured(),
        clock: Arc::clone(&clock),
        events: wiring.events,
        timelines: wiring.timelines,
        sync_loop: wiring.sync_loop,
        rejected: rejected_sender,
    };
    start_actor(PodStorage::new(deps, mailbox));
    restore(wiring.restored, &storage);
    if let Some(path) = sources.file {
        let config = FileSourceConfig {
            path,
            node_name: sources.node_name.clone(),
            period: sources.file_period,
            clock,
            storage: storage.clone(),
        };
        start_actor(FileSource::new(config));
    }
    if let Some(url) = sources.url {
        let config = HttpSourceConfig {
            url,
            headers: sources.url_headers,
            node_name: sources.node_name,
            period: sources.url_period,
            storage: storage.clone(),
        };
        start_actor(HttpSource::new(config));
    }
    (storage, rejected)
}

/// What an earlier life of the agent admitted is the first that PodStorage hears of. What runs is
/// looked after from the start; what does not waits until the API server confirms it.
fn restore(pods: Vec<SharedPod>, storage: &MailboxSender<SourceSnapshot>) {
    if pods.is_empty() {
        return;
    }
    let unconfirmed = |mut pod: SharedPod| {
        let annotations = &mut Arc::make_mut(&mut pod).metadata.annotations;
        let mark = (names::ANN_RESTORED.to_owned(), "true".to_owned());
        annotations.get_or_insert_default().extend([mark]);
        pod
    };
    let pods = pods.into_iter().map(unconfirmed).collect();
    let snapshot = SourceSnapshot {
        source: PodSource::Api,
        op: PodOp::Restore,
        pods,
        rejected: Vec::new(),
    };
    if storage.try_send(snapshot).is_err() {
        tracing::error!("admitted pods not restored");
    }
}
