//! The channel on which an actor receives the completions of its own tasks.
//!
//! The type is unbounded, its use is bounded: each completion belongs to a task that the actor
//! started and counts. Senders never wait, so a task can end while its actor is busy.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use crate::mailbox::Delivery;

/// Sender of completions, for the tasks of an actor.
pub struct CompletionSender<M>(mpsc::UnboundedSender<Delivery<M>>);

/// Stream of completions, for the actor.
pub struct Completions<M>(mpsc::UnboundedReceiver<Delivery<M>>);

impl<M> Clone for CompletionSender<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> fmt::Debug for CompletionSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CompletionSender")
    }
}

impl<M> fmt::Debug for Completions<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completions")
    }
}

/// Creates the completion channel of one actor.
pub fn completions<M>() -> (CompletionSender<M>, Completions<M>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (CompletionSender(sender), Completions(receiver))
}

impl<M> CompletionSender<M> {
    /// Sends a completion; it is dropped if the actor has stopped.
    pub fn send(&self, message: M) {
        let _ = self.0.send(Delivery::new(message));
    }
}

impl<M> Stream for Completions<M> {
    type Item = Delivery<M>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery<M>>> {
        self.0.poll_recv(cx)
    }
}
