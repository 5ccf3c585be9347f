//! The NodeLease actor.
//!
//! * owns: the lease as the API server last answered it
//! * hears: `NodeSeen`, its own timer and answers
//! * says: `HeartbeatStatus`, whether the API server answers; for the node the lease speaks
//! * invariant: one renewal is under way; the next begins a quarter of the duration after it
//!   began, at the latest when it has ended
//! * bound and overflow: one request at a time; of `NodeSeen` the newest counts
//! * restart: the lease is read again and renewed at once

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::{AnswerSender, Answers, Delivery, NodeSeen, answers, spawn_io};
use windlass_types::coordinationv1::Lease;
use windlass_types::view::HeartbeatStatus;

use super::NodeLeaseDeps;
use super::io::{self, LeaseError};
use crate::jitter;

/// Renewals during the life of one lease.
const RENEWALS: u32 = 4;

/// See the module page.
#[derive(Debug)]
pub struct NodeLease {
    deps: Arc<NodeLeaseDeps>,
    latest: Option<Lease>,
    began: Option<Instant>,
    next: Option<SpawnHandle>,
    renewals: u64,
    failures: u32,
    answers: AnswerSender<Renewed>,
    stream: Option<Answers<Renewed>>,
}

/// The answer of a renewal.
type Renewed = Result<Lease, LeaseError>;

impl NodeLease {
    /// A keeper that has not begun.
    pub fn new(deps: NodeLeaseDeps) -> Self {
        let (sender, stream) = answers();
        Self {
            deps: Arc::new(deps),
            latest: None,
            began: None,
            next: None,
            renewals: 0,
            failures: 0,
            answers: sender,
            stream: Some(stream),
        }
    }

    fn renew(&mut self, ctx: &mut Context<Self>) {
        if self.began.is_some() {
            return;
        }
        if let Some(waiting) = self.next.take() {
            ctx.cancel_future(waiting);
        }
        self.began = Some(Instant::now());
        let deps = Arc::clone(&self.deps);
        let latest = self.latest.clone();
        let owner = self.deps.node.borrow().0.clone();
        let answers = self.answers.clone();
        spawn_io("renew-lease", async move {
            answers.answer(io::renew(&deps, latest, owner).await);
        });
    }

    fn renewed(&mut self, renewed: Renewed, ctx: &mut Context<Self>) {
        let took = self.began.take().map_or(Duration::ZERO, |at| at.elapsed());
        self.tell(match &renewed {
            // it did answer: there is no lease yet
            Ok(_) | Err(LeaseError::NoOwner) => None,
            Err(error) => Some(error.to_string()),
        });
        let pause = match renewed {
            Ok(lease) => {
                if self.failures > 0 {
                    tracing::info!("the node's lease is renewed again");
                }
                self.latest = Some(lease);
                self.failures = 0;
                self.renewals += 1;
                let fraction = jitter::fraction(&self.deps.node_name, "lease", self.renewals);
                jitter::lengthened(self.deps.duration() / RENEWALS, 0.04, fraction)
                    .saturating_sub(took)
            }
            Err(error) => {
                // the object may have changed or gone: the next attempt reads it
                self.latest = None;
                self.failures += 1;
                if self.failures == 1 && error != LeaseError::NoOwner {
                    tracing::warn!(%error, further_at_debug = true, "the node's lease is not renewed");
                } else {
                    tracing::debug!(%error, "the node's lease is not renewed");
                }
                jitter::retry_pause(self.failures)
            }
        };
        self.next = Some(ctx.run_later(pause, |this, ctx| {
            this.next = None;
            this.renew(ctx);
        }));
    }

    fn tell(&self, error: Option<String>) {
        let now = self.deps.clock.now();
        self.deps.contact.send_modify(|known| {
            let same = |c: &&HeartbeatStatus| c.error.is_some() == error.is_some();
            let since = known.as_ref().filter(same).map_or(now, |c| c.since);
            let before = known.as_ref().and_then(|c| c.last);
            let last = if error.is_none() { Some(now) } else { before };
            *known = Some(HeartbeatStatus { error, since, last });
        });
    }
}

impl Actor for NodeLease {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        let Some(stream) = self.stream.take() else {
            return ctx.stop();
        };
        ctx.add_stream(stream);
        ctx.add_stream(WatchStream::from_changes(self.deps.node.clone()));
        self.renew(ctx);
    }
}

impl StreamHandler<Delivery<Renewed>> for NodeLease {
    fn handle(&mut self, delivery: Delivery<Renewed>, ctx: &mut Context<Self>) {
        delivery.open(|renewed| self.renewed(renewed, ctx));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<NodeSeen> for NodeLease {
    fn handle(&mut self, seen: NodeSeen, ctx: &mut Context<Self>) {
        // only a lease that waits for its owner is in a hurry
        if seen.0.is_some() && self.latest.is_none() {
            self.failures = 0;
            self.renew(ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
