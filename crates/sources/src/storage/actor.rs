//! The PodStorage actor.
//!
//! * owns: the desired pods of every source, the list of rejections
//! * receives: `SourceSnapshot` from the sources (and from the checkpoint, as `Restore`)
//! * sends: `ConfigChanged` to the SyncLoop; the rejections on a watch
//! * invariant: changes reach the SyncLoop in the order of their merges, and within one merge
//!   as removes, adds, updates, deletes, reconciles; at most one change per pod and merge
//! * bound and overflow: a full SyncLoop mailbox stops this actor, whose full mailbox stops the
//!   sources: nothing is dropped
//! * restart: the sources send complete snapshots

use std::collections::BTreeSet;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler, WrapFuture};
use tokio::sync::watch;
use windlass_actors::{ConfigChanged, RejectedManifest, SourceSnapshot};
use windlass_mailboxes::{Delivery, Mailbox, MailboxSender};
use windlass_manifests::merge::{self, Mode, RejectedPod, SourceUpdate};
use windlass_timelines::{RecordKey, RecordKind, RecordOutcome, Timelines};
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, PodExt, PodOp, PodSource, PodUpdate, Reason};

use super::rejections::Rejections;

/// Dependencies of a [`PodStorage`].
#[derive(Debug)]
pub struct PodStorageDeps {
    /// Mode of the merge; the SyncLoop requires [`Mode::Incremental`].
    pub mode: Mode,
    /// The configured sources.
    pub sources: BTreeSet<PodSource>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Recorder of rejected pods.
    pub events: Arc<dyn EventRecorder>,
    /// Records merged changes.
    pub timelines: Timelines,
    /// The SyncLoop.
    pub sync_loop: MailboxSender<ConfigChanged>,
    /// Publishes all current rejections.
    pub rejected: watch::Sender<Vec<RejectedManifest>>,
}

/// The PodStorage actor.
#[derive(Debug)]
pub struct PodStorage {
    deps: PodStorageDeps,
    pods: merge::PodStorage,
    rejections: Rejections,
    mailbox: Option<Mailbox<SourceSnapshot>>,
}

impl PodStorage {
    /// Creates an empty storage.
    pub fn new(deps: PodStorageDeps, mailbox: Mailbox<SourceSnapshot>) -> Self {
        Self {
            pods: merge::PodStorage::new(deps.mode, deps.sources.iter().copied()),
            deps,
            rejections: Rejections::default(),
            mailbox: Some(mailbox),
        }
    }

    fn merge(&mut self, snapshot: SourceSnapshot, ctx: &mut Context<Self>) {
        let SourceSnapshot {
            source,
            op,
            pods,
            rejected,
        } = snapshot;
        let was_ready = self.pods.all_sources_seen();
        let update = SourceUpdate { source, op, pods };
        let merged = self.pods.merge(update, self.deps.clock.now());
        tracing::debug!(%source, %op, decision = %merged, "merged");
        if !was_ready && self.pods.all_sources_seen() {
            tracing::info!(sources = ?self.deps.sources, "all pod sources ready");
        }
        for rejected in &merged.rejected {
            self.reject(rejected);
        }
        // a checkpoint has no rejections
        if op != PodOp::Restore {
            let pods = self.pods.rejected(source);
            self.rejections.replace(source, rejected, pods);
            let all = self.rejections.all();
            self.deps.rejected.send_if_modified(|known| {
                let changed = *known != all;
                *known = all;
                changed
            });
        }
        for update in &merged.updates {
            self.record(update);
        }
        if !merged.updates.is_empty() {
            let sending = send_changes(self.deps.sync_loop.clone(), merged.updates);
            ctx.wait(sending.into_actor(self));
        }
    }

    fn record(&self, update: &PodUpdate) {
        let timelines = &self.deps.timelines;
        for pod in &update.pods {
            timelines.seen(pod);
            let (op, source) = (update.op.as_str(), update.source.as_str());
            let what = RecordKey::with_subject(RecordKind::Source, op, source);
            timelines.record_instant(&pod.uid(), what, RecordOutcome::Done);
        }
    }

    fn reject(&self, rejected: &RejectedPod) {
        tracing::warn!(source = %rejected.source, error = %rejected.message, "pod rejected");
        let reason = Reason::FailedValidation;
        let pod = &rejected.pod;
        let recorder = &self.deps.events;
        recorder.record(pod, None, EventType::Warning, reason, &rejected.message);
    }
}

async fn send_changes(sync_loop: MailboxSender<ConfigChanged>, updates: Vec<PodUpdate>) {
    for update in updates {
        if sync_loop.send(ConfigChanged(update)).await.is_err() {
            tracing::debug!("change not delivered, agent is shutting down");
            return;
        }
    }
}

impl Actor for PodStorage {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some(mailbox) = self.mailbox.take() {
            ctx.add_stream(mailbox);
        }
    }
}

impl StreamHandler<Delivery<SourceSnapshot>> for PodStorage {
    fn handle(&mut self, delivery: Delivery<SourceSnapshot>, ctx: &mut Context<Self>) {
        delivery.open(|snapshot| self.merge(snapshot, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
