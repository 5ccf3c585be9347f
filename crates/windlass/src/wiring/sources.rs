//! PodStorage and the file and HTTP sources that feed it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use tokio::sync::watch;
use windlass_actors::{RejectedManifest, SourceSnapshot};
use windlass_mailboxes::{MailboxSender, mailbox, start_actor};
use windlass_manifests::merge::Mode;
use windlass_sources::{
    FileSource, FileSourceConfig, HttpSource, HttpSourceConfig, PodStorage, PodStorageDeps,
};
use windlass_store::AdmittedPod;
use windlass_types::{PodOp, PodSource, SharedPod, names};

use super::links::{Links, Shared};

/// Settings of the pod sources.
#[derive(Clone, Debug, Default)]
pub struct SourceParts {
    /// Name of the node, a suffix of static pod names.
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
    /// Whether the API server is a source.
    pub api: bool,
    /// Sources that simulations feed through [`super::Agent::sources`].
    pub fed: BTreeSet<PodSource>,
}

impl SourceParts {
    /// Returns all configured sources.
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

/// Starts PodStorage and its sources; returns its mailbox and the rejected manifests.
pub(super) fn spawn_sources(
    sources: SourceParts,
    restored: Vec<AdmittedPod>,
    shared: &Shared,
    links: &Links,
) -> (
    MailboxSender<SourceSnapshot>,
    watch::Receiver<Vec<RejectedManifest>>,
) {
    let (storage, mailbox) = mailbox(windlass_sources::POD_STORAGE, &shared.metrics.mailboxes);
    let (rejected_sender, rejected) = watch::channel(Vec::new());
    let deps = PodStorageDeps {
        mode: Mode::Incremental,
        sources: sources.configured(),
        clock: Arc::clone(&shared.clock),
        events: Arc::clone(&shared.events),
        timelines: shared.timelines.clone(),
        sync_loop: links.config.clone(),
        rejected: rejected_sender,
    };
    start_actor(PodStorage::new(deps, mailbox));
    let restored = restored.into_iter().map(|it| it.pod);
    restore(restored.collect(), &storage);
    if let Some(path) = sources.file {
        let config = FileSourceConfig {
            path,
            node_name: sources.node_name.clone(),
            period: sources.file_period,
            clock: Arc::clone(&shared.clock),
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

/// Sends the checkpointed pods before any source does. Running ones are managed at once, others
/// wait until the API server confirms them.
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
        tracing::error!("restoring admitted pods failed");
    }
}
