//! An actor with both kinds of lanes: news that coalesce, and questions that wait for room.
//!
//! `cargo run -p windlass-actors --example run_actor` tells a clerk ten thousand times of three
//! pods, asks it how often it had to look, and then sends hints into a mailbox nobody empties.
//!
//! Runs without a container runtime.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, StreamHandler};
use tokio::sync::oneshot;
use windlass_actors::{
    ActorKind, Delivery, Mailbox, Merge, SlotReceiver, mailbox, run_actors, slots, start_actor,
};
use windlass_metrics::Metrics;

/// News of a pod: it changed so often.
#[derive(Debug)]
struct Changed(u32);

impl Merge for Changed {
    fn merge(&mut self, newer: Self) {
        self.0 += newer.0;
    }
}

/// A question: how often the clerk looked, and what it counted.
#[derive(Debug)]
struct GetCounts(oneshot::Sender<(u32, BTreeMap<&'static str, u32>)>);

/// What the clerk hears, in the order in which it looks.
type Lanes = (SlotReceiver<&'static str, Changed>, Mailbox<GetCounts>);

struct Clerk {
    looks: u32,
    counts: BTreeMap<&'static str, u32>,
    lanes: Option<Lanes>,
}

impl Actor for Clerk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        if let Some((news, questions)) = self.lanes.take() {
            ctx.add_stream(news);
            ctx.add_stream(questions);
        }
    }
}

impl StreamHandler<(&'static str, Changed)> for Clerk {
    fn handle(&mut self, (pod, changed): (&'static str, Changed), _: &mut Context<Self>) {
        self.looks += 1;
        *self.counts.entry(pod).or_default() += changed.0;
    }

    // the default stops the actor with its first lane
    fn finished(&mut self, _: &mut Context<Self>) {}
}

impl StreamHandler<Delivery<GetCounts>> for Clerk {
    fn handle(&mut self, delivery: Delivery<GetCounts>, _: &mut Context<Self>) {
        let answer = (self.looks, self.counts.clone());
        // whoever asked may have gone
        delivery.open(|GetCounts(reply)| drop(reply.send(answer)));
    }

    fn finished(&mut self, _: &mut Context<Self>) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = Arc::new(tokio::runtime::Runtime::new()?);
    run_actors(&runtime, async {
        let metrics = Metrics::new()?;
        let (news, receiver) = slots(ActorKind::SyncLoop, &metrics);
        let (questions, mailbox_of_clerk) = mailbox(ActorKind::SyncLoop, &metrics);
        for pod in ["a", "b", "c"].into_iter().cycle().take(10_000) {
            news.put(pod, Changed(1));
        }
        start_actor(Clerk {
            looks: 0,
            counts: BTreeMap::new(),
            lanes: Some((receiver, mailbox_of_clerk)),
        });
        let (reply, answer) = oneshot::channel();
        questions.send(GetCounts(reply)).await?;
        let (looks, counts) = answer.await?;
        println!("{looks} looks at {counts:?}");

        let (hints, _nobody) = mailbox(ActorKind::FileSource, &metrics);
        let taken = (0..100)
            .filter(|hint| hints.try_send(*hint).is_ok())
            .count();
        let bound = ActorKind::FileSource.mailbox_bound();
        println!("of 100 hints {taken} were taken, the bound is {bound}");
        Ok(())
    })
}
