//! The ImageGcManager actor.
//!
//! * owns: when images were detected and used, and the state file of these times
//! * receives: `DeleteUnusedImages` from the EvictionManager, its timer and completions
//! * sends: nothing but replies and events of the node
//! * invariant: one pass is in progress; a pass reads what is used before it removes anything
//! * bound and overflow: requests during a pass wait for the next one, which answers all of them
//! * restart: the times come from the state file; a pass that was interrupted is repeated with what
//!   is left

use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, StreamHandler};
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_actors::{DeleteUnusedImages, StatusCache};
use windlass_cri::{ImageService, RuntimeService};
use windlass_mailboxes::{CompletionSender, Completions, Delivery, Mailbox, completions, spawn_io};
use windlass_metrics::Metrics;
use windlass_store::{ImageUseFile, ImageUses};
use windlass_types::view::EventType;
use windlass_types::{Clock, EventRecorder, ImageHolds, Reason};

use crate::file_system::ImageFileSystem;
use crate::pass::{PassDone, Purpose, run};
use crate::plan::{IMAGE_GC_PERIOD, ImageGcPolicy};

/// Dependencies of [`ImageGcManager`].
#[derive(Debug)]
pub struct ImageGcDeps {
    /// Settings.
    pub policy: ImageGcPolicy,
    /// Lists and removes images.
    pub images: Arc<dyn ImageService>,
    /// Lists containers.
    pub runtime: Arc<dyn RuntimeService>,
    /// The file system of the images.
    pub file_system: Arc<dyn ImageFileSystem>,
    /// Observed pods.
    pub observed: StatusCache,
    /// Images that pod starts in progress need.
    pub holds: ImageHolds,
    /// State file of the times of use; `None` without a disk.
    pub file: Option<ImageUseFile>,
    /// Records events.
    pub events: Arc<dyn EventRecorder>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Metrics.
    pub metrics: Metrics,
}

/// See the module documentation.
#[derive(Debug)]
pub struct ImageGcManager {
    deps: Arc<ImageGcDeps>,
    requests: Option<Mailbox<DeleteUnusedImages>>,
    /// `None` while a pass is in progress.
    uses: Option<ImageUses>,
    waiting: Vec<oneshot::Sender<Result<(), String>>>,
    /// Requests that the pass in progress answers.
    served: Vec<oneshot::Sender<Result<(), String>>>,
    is_due: bool,
    failures: u32,
    started_at: Instant,
    completions: CompletionSender<PassDone>,
    stream: Option<Completions<PassDone>>,
}

impl ImageGcManager {
    /// Creates an actor that has not started; `uses` are the times of the previous agent run.
    pub fn new(deps: ImageGcDeps, uses: ImageUses, requests: Mailbox<DeleteUnusedImages>) -> Self {
        let (sender, stream) = completions();
        Self {
            deps: Arc::new(deps),
            requests: Some(requests),
            uses: Some(uses),
            waiting: Vec::new(),
            served: Vec::new(),
            is_due: true,
            failures: 0,
            started_at: Instant::now(),
            completions: sender,
            stream: Some(stream),
        }
    }

    /// Starts the next pass, if one is due and none is in progress.
    fn start(&mut self) {
        let purpose = match (self.waiting.is_empty(), self.is_due) {
            (false, _) => Purpose::RemoveAll,
            (true, true) if self.deps.policy.is_off() => Purpose::Detect,
            (true, true) => Purpose::Collect,
            (true, false) => return,
        };
        let Some(uses) = self.uses.take() else {
            return;
        };
        match purpose {
            Purpose::RemoveAll => self.served = std::mem::take(&mut self.waiting),
            Purpose::Detect | Purpose::Collect => self.is_due = false,
        }
        let deps = Arc::clone(&self.deps);
        let running = self.started_at.elapsed();
        let completions = self.completions.clone();
        spawn_io("collect-images", async move {
            completions.send(run(&deps, purpose, running, uses).await);
        });
    }

    fn done(&mut self, done: PassDone, ctx: &mut Context<Self>) {
        self.uses = Some(done.uses);
        match done.purpose {
            Purpose::RemoveAll => {
                for reply in self.served.drain(..) {
                    let _ = reply.send(done.result.clone());
                }
            }
            Purpose::Detect | Purpose::Collect => {
                self.report(done.purpose, done.result);
                ctx.run_later(IMAGE_GC_PERIOD, |this, _| {
                    this.is_due = true;
                    this.start();
                });
            }
        }
        self.start();
    }

    /// As upstream, the first failure in a row is only logged: the runtime may not be ready.
    fn report(&mut self, purpose: Purpose, result: Result<(), String>) {
        let Err(error) = result else {
            if self.failures > 0 {
                tracing::info!("image garbage collection succeeded again");
            }
            self.failures = 0;
            return;
        };
        self.failures += 1;
        tracing::warn!(
            error,
            failures = self.failures,
            "image garbage collection failed"
        );
        if self.failures > 1 && purpose == Purpose::Collect {
            let events = &self.deps.events;
            events.record_node(EventType::Warning, Reason::ImageGcFailed, &error);
        }
    }
}

impl Actor for ImageGcManager {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let (Some(stream), Some(requests)) = (self.stream.take(), self.requests.take()) else {
            return ctx.stop();
        };
        ctx.add_stream(stream);
        ctx.add_stream(requests);
        self.start();
    }
}

impl StreamHandler<Delivery<PassDone>> for ImageGcManager {
    fn handle(&mut self, delivery: Delivery<PassDone>, ctx: &mut Context<Self>) {
        delivery.open(|done| self.done(done, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<DeleteUnusedImages>> for ImageGcManager {
    fn handle(&mut self, delivery: Delivery<DeleteUnusedImages>, _: &mut Context<Self>) {
        delivery.open(|request| {
            self.waiting.push(request.reply);
            self.start();
        });
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
