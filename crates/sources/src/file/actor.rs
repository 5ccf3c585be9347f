//! The FileSource actor.
//!
//! * owns: the manifests as last read, the inotify instance
//! * receives: its own completions (a pass ended, a file changed) and its timer
//! * sends: `SourceSnapshot` to PodStorage, only when something changed
//! * invariant: one pass at a time; a change during a pass causes another one; snapshots arrive
//!   in the order of their passes
//! * bound and overflow: one pass and one watch task in flight; an overflow of the inotify queue
//!   causes a full pass; a full PodStorage delays this actor
//! * restart: the next pass sends everything with the same UIDs

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler, WrapFuture};
use windlass_actors::SourceSnapshot;
use windlass_mailboxes::{
    CompletionSender, Completions, Delivery, MailboxSender, completions, spawn_io,
};
use windlass_types::{Clock, PodSource};

use super::io::{Scan, scan};
use super::state::{FileSet, Report};
use super::watch::Watcher;

/// Delay from the first event to the read, so that a burst of events causes one read.
const SETTLE_DELAY: Duration = Duration::from_millis(5);

/// Configuration of a [`FileSource`].
#[derive(Clone, Debug)]
pub struct FileSourceConfig {
    /// `staticPodPath`.
    pub path: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// `fileCheckFrequency`; also the time that an invalid manifest keeps its pods.
    pub period: Duration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// PodStorage.
    pub storage: MailboxSender<SourceSnapshot>,
}

/// The FileSource actor.
#[derive(Debug)]
pub struct FileSource {
    config: FileSourceConfig,
    files: FileSet,
    watcher: Option<Arc<Watcher>>,
    pass: Pass,
    settling: bool,
    completions: CompletionSender<Completion>,
    stream: Option<Completions<Completion>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Idle,
    Running,
    /// Running, and a change requires another one.
    RunningAndDue,
}

/// Completion of a task of the actor.
#[derive(Debug)]
enum Completion {
    /// A pass ended; with the paths that were removed before it.
    Scanned(Scan, BTreeSet<PathBuf>),
    /// The watch task ended with an event.
    Changed,
}

impl FileSource {
    /// Creates a source.
    pub fn new(config: FileSourceConfig) -> Self {
        // remove a trailing slash: events have the last component of a path
        let path: PathBuf = config.path.components().collect();
        let (sender, stream) = completions();
        Self {
            files: FileSet::new(path, config.period),
            config,
            watcher: None,
            pass: Pass::Idle,
            settling: false,
            completions: sender,
            stream: Some(stream),
        }
    }

    fn begin_pass(&mut self) {
        if self.pass != Pass::Idle {
            self.pass = Pass::RunningAndDue;
            return;
        }
        self.pass = Pass::Running;
        self.begin_watch();
        let watcher = self.watcher.clone();
        let removed = watcher.as_ref().map_or_else(BTreeSet::new, |w| w.removed());
        let path = self.files.path().to_owned();
        let node_name = self.config.node_name.clone();
        let mut known = self.files.fingerprints();
        known.retain(|path, _| !removed.contains(path));
        let completions = self.completions.clone();
        spawn_io("read-manifests", async move {
            let pass = tokio::task::spawn_blocking(move || {
                if let Some(watcher) = watcher {
                    watcher.arm(&path);
                }
                scan(&path, &node_name, &known)
            });
            let scan = pass.await.unwrap_or_else(|e| Scan::Failed(e.to_string()));
            completions.send(Completion::Scanned(scan, removed));
        });
    }

    /// Starts the inotify watch. Without it the path is polled, and every pass retries.
    fn begin_watch(&mut self) {
        if self.watcher.is_some() {
            return;
        }
        match Watcher::new() {
            Ok(watcher) => {
                self.watcher = Some(Arc::new(watcher));
                self.await_change();
            }
            Err(error) => {
                let period = self.config.period;
                tracing::warn!(%error, ?period, "inotify unavailable, polling manifests");
            }
        }
    }

    fn await_change(&self) {
        let Some(watcher) = self.watcher.clone() else {
            return;
        };
        let completions = self.completions.clone();
        spawn_io("watch-manifests", async move {
            watcher.changed().await;
            completions.send(Completion::Changed);
        });
    }

    fn handle_completion(&mut self, completion: Completion, ctx: &mut Context<Self>) {
        match completion {
            Completion::Changed if self.settling => {}
            Completion::Changed => {
                self.settling = true;
                ctx.run_later(SETTLE_DELAY, |this, _| {
                    this.settling = false;
                    if let Some(watcher) = &this.watcher {
                        watcher.drain();
                    }
                    this.await_change();
                    this.begin_pass();
                });
            }
            Completion::Scanned(scan, removed) => {
                let due = self.pass == Pass::RunningAndDue;
                self.pass = Pass::Idle;
                self.take(scan, &removed, ctx);
                if due {
                    self.begin_pass();
                }
            }
        }
    }

    fn take(&mut self, scan: Scan, removed: &BTreeSet<PathBuf>, ctx: &mut Context<Self>) {
        let now = self.config.clock.now();
        let (outputs, reports) = self.files.apply(scan, removed, now);
        reports.iter().for_each(log);
        let storage = self.config.storage.clone();
        let send = async move {
            for output in outputs {
                output.send(PodSource::File, storage.clone()).await;
            }
        };
        ctx.wait(send.into_actor(self));
    }
}

fn log(report: &Report) {
    match report {
        Report::Loaded {
            path,
            pods,
            warnings,
        } => {
            tracing::info!(manifest = %path.display(), pods, "manifest read");
            for warning in warnings {
                tracing::warn!(%warning, "manifest");
            }
        }
        Report::Rejected { error, kept } => {
            tracing::warn!(%error, kept, "manifest rejected");
        }
        Report::Duplicate { error } => tracing::warn!(%error, "pod rejected"),
        Report::Expired { path, pods } => {
            tracing::warn!(manifest = %path.display(), pods, "manifest still invalid, removing its pods");
        }
        Report::Removed { path } => tracing::info!(manifest = %path.display(), "manifest removed"),
        Report::Failed { error } => tracing::warn!(%error, "reading manifest path failed"),
    }
}

impl Actor for FileSource {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(stream) = self.stream.take() else {
            return ctx.stop();
        };
        ctx.add_stream(stream);
        ctx.run_interval(self.config.period, |this, _| this.begin_pass());
        tracing::info!(path = %self.files.path().display(), "reading manifests");
        self.begin_pass();
    }
}

impl StreamHandler<Delivery<Completion>> for FileSource {
    fn handle(&mut self, delivery: Delivery<Completion>, ctx: &mut Context<Self>) {
        delivery.open(|completion| self.handle_completion(completion, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
