//! The lane on which an actor hears the answers of its own jobs.
//!
//! Unbounded by type and bounded by use: every answer belongs to a job the actor itself
//! started and counts, so no more can wait than jobs were in flight. Senders never wait, which
//! is what lets a job end although its actor is busy.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::mpsc;

use crate::mailbox::Delivery;

/// Where a job leaves its answer.
pub struct AnswerSender<M>(mpsc::UnboundedSender<Delivery<M>>);

/// Where the actor takes answers from.
pub struct Answers<M>(mpsc::UnboundedReceiver<Delivery<M>>);

impl<M> Clone for AnswerSender<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> fmt::Debug for AnswerSender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AnswerSender")
    }
}

impl<M> fmt::Debug for Answers<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answers")
    }
}

/// Makes the answer lane of one actor.
pub fn answers<M>() -> (AnswerSender<M>, Answers<M>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (AnswerSender(sender), Answers(receiver))
}

impl<M> AnswerSender<M> {
    /// Leaves an answer. A stopped actor no longer wants it.
    pub fn answer(&self, message: M) {
        let _ = self.0.send(Delivery::new(message));
    }
}

impl<M> Stream for Answers<M> {
    type Item = Delivery<M>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery<M>>> {
        self.0.poll_recv(cx)
    }
}
