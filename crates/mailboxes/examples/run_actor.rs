//! An actor with a coalescing channel for changes and a bounded mailbox for queries.
//!
//! `cargo run -p windlass-mailboxes --example run_actor` sends a counter ten thousand changes of
//! three pods, queries it, and then overfills a mailbox without a reader.
//!
//! Runs without a container runtime.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use tokio::sync::oneshot;
use windlass_mailboxes::{
    ActorKind, Delivery, Mailbox, Merge, SlotReceiver, mailbox, run_actors, slots, start_actor,
};
use windlass_metrics::{MailboxMetrics, Registrar, Registry};

/// Number of changes of a pod.
#[derive(Debug)]
struct Changed(u32);

impl Merge for Changed {
    fn merge(&mut self, newer: Self) {
        self.0 += newer.0;
    }
}

/// Query for the number of messages handled and the changes by pod.
#[derive(Debug)]
struct GetCounts(oneshot::Sender<(u32, BTreeMap<&'static str, u32>)>);

/// Inputs of the counter.
type Streams = (SlotReceiver<&'static str, Changed>, Mailbox<GetCounts>);

struct Counter {
    handled: u32,
    counts: BTreeMap<&'static str, u32>,
    streams: Option<Streams>,
}

impl Actor for Counter {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((changes, queries)) = self.streams.take() {
            ctx.add_stream(changes);
            ctx.add_stream(queries);
        }
    }
}

impl StreamHandler<(&'static str, Changed)> for Counter {
    fn handle(&mut self, (pod, changed): (&'static str, Changed), _: &mut Context<Self>) {
        self.handled += 1;
        *self.counts.entry(pod).or_default() += changed.0;
    }

    // the default stops the actor when its first stream ends
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<GetCounts>> for Counter {
    fn handle(&mut self, delivery: Delivery<GetCounts>, _: &mut Context<Self>) {
        let answer = (self.handled, self.counts.clone());
        // the caller may have stopped waiting
        delivery.open(|GetCounts(reply)| drop(reply.send(answer)));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Arc::new(tokio::runtime::Runtime::new()?);
    run_actors(&runtime, async {
        let metrics = MailboxMetrics::new(&Registrar::new(&Registry::new()))?;
        let (changes, receiver) = slots(ActorKind::new("SyncLoop", 50), &metrics);
        let (query_sender, queries) = mailbox(ActorKind::new("SyncLoop", 50), &metrics);
        for pod in ["a", "b", "c"].into_iter().cycle().take(10_000) {
            changes.put(pod, Changed(1));
        }
        start_actor(Counter {
            handled: 0,
            counts: BTreeMap::new(),
            streams: Some((receiver, queries)),
        });
        let (reply, answer) = oneshot::channel();
        query_sender.send(GetCounts(reply)).await?;
        let (handled, counts) = answer.await?;
        println!("{handled} messages handled: {counts:?}");

        let (sender, _mailbox) = mailbox(ActorKind::new("FileSource", 4), &metrics);
        let taken = (0..100)
            .filter(|number| sender.try_send(*number).is_ok())
            .count();
        let bound = ActorKind::new("FileSource", 4).mailbox_bound();
        println!("{taken} of 100 messages accepted, the bound is {bound}");
        Ok(())
    })
}
