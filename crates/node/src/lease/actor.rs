//! The NodeLease actor.
//!
//! * owns: the lease as last returned by the API server
//! * receives: `NodeUpdate`, its own timer and completions
//! * sends: `HeartbeatStatus`, whether the API server is reachable
//! * invariant: one renewal is in progress; the next starts a quarter of the lease duration after
//!   the start of the last one
//! * bound and overflow: one concurrent request; only the newest `NodeUpdate` counts
//! * restart: the lease is read and renewed immediately

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, SpawnHandle, StreamHandler};
use tokio::time::Instant;
use tokio_stream::wrappers::WatchStream;
use windlass_actors::NodeUpdate;
use windlass_mailboxes::{CompletionSender, Completions, Delivery, completions, spawn_io};
use windlass_types::coordinationv1::Lease;
use windlass_types::view::HeartbeatStatus;

use super::NodeLeaseDeps;
use super::io::{self, LeaseError};
use crate::jitter;

/// Renewals per lease duration.
const RENEWALS_PER_DURATION: u32 = 4;

/// See the module documentation.
#[derive(Debug)]
pub struct NodeLease {
    deps: Arc<NodeLeaseDeps>,
    latest: Option<Lease>,
    started_at: Option<Instant>,
    next: Option<SpawnHandle>,
    renewals: u64,
    failures: u32,
    completions: CompletionSender<Renewed>,
    stream: Option<Completions<Renewed>>,
}

/// Result of a renewal.
type Renewed = Result<Lease, LeaseError>;

impl NodeLease {
    /// Creates an actor that has not started.
    pub fn new(deps: NodeLeaseDeps) -> Self {
        let (sender, stream) = completions();
        Self {
            deps: Arc::new(deps),
            latest: None,
            started_at: None,
            next: None,
            renewals: 0,
            failures: 0,
            completions: sender,
            stream: Some(stream),
        }
    }

    fn renew(&mut self, ctx: &mut Context<Self>) {
        if self.started_at.is_some() {
            return;
        }
        if let Some(waiting) = self.next.take() {
            ctx.cancel_future(waiting);
        }
        self.started_at = Some(Instant::now());
        let deps = Arc::clone(&self.deps);
        let latest = self.latest.clone();
        let owner = self.deps.node.borrow().0.clone();
        let completions = self.completions.clone();
        spawn_io("renew-lease", async move {
            completions.send(io::renew(&deps, latest, owner).await);
        });
    }

    fn renewed(&mut self, renewed: Renewed, ctx: &mut Context<Self>) {
        let elapsed = self
            .started_at
            .take()
            .map_or(Duration::ZERO, |at| at.elapsed());
        self.publish_contact(match &renewed {
            // the API server is reachable, but the lease does not exist yet
            Ok(_) | Err(LeaseError::NoOwner) => None,
            Err(error) => Some(error.to_string()),
        });
        let delay = match renewed {
            Ok(lease) => {
                if self.failures > 0 {
                    tracing::info!("node lease renewed again");
                }
                self.latest = Some(lease);
                self.failures = 0;
                self.renewals += 1;
                let fraction = jitter::fraction(&self.deps.node_name, "lease", self.renewals);
                jitter::lengthened(self.deps.duration() / RENEWALS_PER_DURATION, 0.04, fraction)
                    .saturating_sub(elapsed)
            }
            Err(error) => {
                // the object may have changed or been deleted: the next attempt reads it
                self.latest = None;
                self.failures += 1;
                if self.failures == 1 && error != LeaseError::NoOwner {
                    tracing::warn!(%error, further_at_debug = true, "node lease not renewed");
                } else {
                    tracing::debug!(%error, "node lease not renewed");
                }
                jitter::retry_backoff(self.failures)
            }
        };
        self.next = Some(ctx.run_later(delay, |this, ctx| {
            this.next = None;
            this.renew(ctx);
        }));
    }

    fn publish_contact(&self, error: Option<String>) {
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

impl StreamHandler<NodeUpdate> for NodeLease {
    fn handle(&mut self, update: NodeUpdate, ctx: &mut Context<Self>) {
        // only a lease without a known owner is renewed early
        if update.0.is_some() && self.latest.is_none() {
            self.failures = 0;
            self.renew(ctx);
        }
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}
