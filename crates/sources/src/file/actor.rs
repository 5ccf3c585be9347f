//! The FileSource actor.
//!
//! * owns: the manifests as last read, the inotify instance
//! * hears: its own answers (a pass ended, something changed) and its timer
//! * says: `SourceSnapshot` to PodStorage, only when something changed
//! * invariant: one pass at a time; a change during a pass causes another one; snapshots arrive
//!   in the order of their passes
//! * bound and overflow: one pass and one watch job in flight; inotify's queue overflows into a
//!   full pass; a full PodStorage holds this actor back
//! * restart: the next pass tells everything again, and the same UIDs with it

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler, WrapFuture};
use windlass_actors::{
    CompletionSender, Completions, Delivery, MailboxSender, SourceSnapshot, completions, spawn_io,
};
use windlass_types::{Clock, PodSource};

use super::io::{Scan, scan};
use super::state::{FileSet, Report};
use super::watch::Watcher;

/// From the first event to the read: lets a burst (unpack, editor) end, and is all that a
/// pod's start waits for here.
const SETTLE: Duration = Duration::from_millis(5);

/// What a [`FileSource`] works with.
#[derive(Clone, Debug)]
pub struct FileSourceConfig {
    /// `staticPodPath`.
    pub path: PathBuf,
    /// Name of this node.
    pub node_name: String,
    /// `fileCheckFrequency`; also how long a manifest that turned bad keeps its pods.
    pub period: Duration,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// PodStorage.
    pub storage: MailboxSender<SourceSnapshot>,
}

/// See the module page.
#[derive(Debug)]
pub struct FileSource {
    config: FileSourceConfig,
    files: FileSet,
    watcher: Option<Arc<Watcher>>,
    pass: Pass,
    settling: bool,
    completions: CompletionSender<Answer>,
    stream: Option<Completions<Answer>>,
}

/// Whether the path is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Idle,
    Running,
    /// Something changed since the running pass began.
    RunningAndDue,
}

/// What the actor's own jobs tell it.
#[derive(Debug)]
enum Answer {
    /// A pass ended; and what was removed before it, back or not.
    Scanned(Scan, BTreeSet<PathBuf>),
    /// The watch job ended with an event.
    Changed,
}

impl FileSource {
    /// A source that has not read yet.
    pub fn new(config: FileSourceConfig) -> Self {
        // Events name a path's last component, so a trailing slash must go.
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
            completions.send(Answer::Scanned(scan, removed));
        });
    }

    /// Without inotify the periodic pass remains, and each tries to get it back.
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
                tracing::warn!(%error, ?period, "no inotify: manifests are only polled");
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
            completions.send(Answer::Changed);
        });
    }

    fn hear(&mut self, answer: Answer, ctx: &mut Context<Self>) {
        match answer {
            Answer::Changed if self.settling => {}
            Answer::Changed => {
                self.settling = true;
                ctx.run_later(SETTLE, |this, _| {
                    this.settling = false;
                    if let Some(watcher) = &this.watcher {
                        watcher.drain();
                    }
                    this.await_change();
                    this.begin_pass();
                });
            }
            Answer::Scanned(scan, removed) => {
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
        let (news, reports) = self.files.apply(scan, removed, now);
        reports.iter().for_each(log);
        let storage = self.config.storage.clone();
        let send = async move {
            for news in news {
                news.send(PodSource::File, storage.clone()).await;
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
        Report::Refused { error, kept } => {
            tracing::warn!(%error, kept, "manifest refused");
        }
        Report::Duplicate { error } => tracing::warn!(%error, "pod refused"),
        Report::Expired { path, pods } => {
            tracing::warn!(manifest = %path.display(), pods, "manifest stayed bad, its pods go");
        }
        Report::Gone { path } => tracing::info!(manifest = %path.display(), "manifest gone"),
        Report::Failed { error } => tracing::warn!(%error, "manifest path cannot be read"),
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

impl StreamHandler<Delivery<Answer>> for FileSource {
    fn handle(&mut self, delivery: Delivery<Answer>, ctx: &mut Context<Self>) {
        delivery.open(|answer| self.hear(answer, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
